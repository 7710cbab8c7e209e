//! The size from which a norm is fused.

use crate::install::DeclineReason;

/// Least elements of a norm's input. One element has nothing to reduce. No larger threshold has been measured.
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
