//! The size from which a fused norm is faster than Burn's fused operations.

use cubecl::client::Client;

use super::reason::DeclineReason;

/// Least elements of a norm's input.
const LEAST_ELEMENTS: usize = 2;

/// Declines a norm of a small tensor.
pub(super) fn check(_client: &Client, elements: usize) -> Result<(), DeclineReason> {
    match elements < LEAST_ELEMENTS {
        true => Err(DeclineReason::Small {
            elements,
            least: LEAST_ELEMENTS,
        }),
        false => Ok(()),
    }
}
