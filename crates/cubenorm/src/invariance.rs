//! Batch invariance: results of a row that do not depend on the other rows of a call.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// Environment variable with the setting before any [`set_batch_invariant`]: `on` or `off`.
const VARIABLE: &str = "CUBENORM_BATCH_INVARIANT";

/// The setting of the process: [`UNREAD`], else 0 or 1.
static PROCESS: AtomicU8 = AtomicU8::new(UNREAD);

/// The environment has not been read yet.
const UNREAD: u8 = 2;

thread_local! {
    /// The setting of this thread's scope.
    static SCOPE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Makes all later norms of this process batch-invariant, or not.
///
/// The bits of a row's result then depend on neither the number of rows in the call, nor their order, nor the
/// autotuner. A served model gives a request the same result alone and in a batch, if its other operations are
/// invariant too. Burn's matrix products are not: their autotuner chooses per shape.
///
/// A *row* is everything that is normalized together: a token of a layer norm, a group of a sample. The forward pass and
/// the gradient of the input are invariant. Gradients of parameters are sums over all rows. A batch
/// norm in training has the statistics of its batch.
///
/// # How
///
/// Plans are made for a fixed number of rows, and autotuning is off. Few long rows are not split over multiprocessors
/// or cores, which is what they cost.
///
/// Source of the problem: [Defeating Nondeterminism in LLM
/// Inference](https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/).
///
/// The default is off, or the environment's `CUBENORM_BATCH_INVARIANT`: `on` or `off`. [`with_batch_invariant`] is for
/// some calls.
///
/// # Example
///
/// ```
/// cubenorm::set_batch_invariant(true);
/// assert!(cubenorm::is_batch_invariant());
/// # cubenorm::set_batch_invariant(false);
/// ```
pub fn set_batch_invariant(is_on: bool) {
    PROCESS.store(is_on.into(), Ordering::Relaxed);
}

/// Runs `calls` with [batch invariance](set_batch_invariant) on or off, whatever the process has. It holds for norms that
/// this thread calls in it, and for their backward passes later.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let x = Tensor::<2>::from_floats([[3.0, -3.0], [1.0, 2.0]], &Device::flex());
/// let norm = |x| cubenorm::with_batch_invariant(true, || cubenorm::rms_norm(x, None, 0.0));
/// let alone = norm(x.clone().slice([0..1])).into_data();
/// assert_eq!(alone, norm(x).slice([0..1]).into_data());
/// # }
/// ```
pub fn with_batch_invariant<R>(is_on: bool, calls: impl FnOnce() -> R) -> R {
    /// Restores the setting, also if the calls panic.
    struct Restore(Option<bool>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let _restore = Restore(SCOPE.replace(Some(is_on)));
    calls()
}

/// True if norms that this thread calls now are [batch-invariant](set_batch_invariant).
pub fn is_batch_invariant() -> bool {
    SCOPE
        .get()
        .unwrap_or_else(|| match PROCESS.load(Ordering::Relaxed) {
            UNREAD => {
                let value = std::env::var(VARIABLE).unwrap_or_default();
                let is_on = value.trim().eq_ignore_ascii_case("on");
                // A setting that was made meanwhile stays.
                let _ = PROCESS.compare_exchange(
                    UNREAD,
                    is_on.into(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                PROCESS.load(Ordering::Relaxed) == 1
            }
            setting => setting == 1,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_end_with_a_panic() {
        with_batch_invariant(true, || {
            assert!(is_batch_invariant());
            with_batch_invariant(false, || assert!(!is_batch_invariant()));
            let caught = std::panic::catch_unwind(|| {
                with_batch_invariant(false, || panic!("a call that is refused"))
            });
            assert!(caught.is_err());
            assert!(is_batch_invariant());
        });
        assert_eq!(SCOPE.get(), None);
    }
}
