//! The size from which a norm is fused.

use crate::install::DeclineReason;

/// Least elements of a norm's input. One element has nothing to reduce. From 64 elements on, a fused norm was not slower
/// than Burn's on `cpu` and on an H200: the test `measure` repeats this.
const LEAST_ELEMENTS: usize = 2;

/// Declines a norm of a small tensor.
pub(super) fn check(elements: usize) -> Result<(), DeclineReason> {
    match elements < LEAST_ELEMENTS {
        true => Err(DeclineReason::Small {
            elements,
            least: LEAST_ELEMENTS,
        }),
        false => Ok(()),
    }
}
