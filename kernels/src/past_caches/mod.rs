//! Stores that go past the caches of a CPU, of results that are too large to be found there again.
//!
//! A store to a line that no cache has reads it from memory first, which is a third of what a normalization moves. Processors
//! have stores that do not, and CubeCL no operation for them: this is one, which lowers to LLVM's store with the metadata
//! [`nontemporal`](https://llvm.org/docs/LangRef.html#store-instruction). Without the feature `cpu` nothing plans it, and it is
//! an ordinary store.

#[cfg(feature = "cpu")]
mod lowering;

use cubecl::prelude::*;

/// Stores a vector, as a whole and aligned, past the caches.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub(crate) fn store_past_caches<T: Float, S: Size>(place: &mut Vector<T, S>, value: Vector<T, S>) {
    intrinsic!(|scope| {
        let (place, value) = (place.value(scope), value.read_value(scope));
        #[cfg(feature = "cpu")]
        scope.register(&lowering::StorePastCachesOp::new(
            scope.ctx_mut(),
            place,
            value,
        ));
        #[cfg(not(feature = "cpu"))]
        scope.register(&cubecl::ir::dialect::memory::StoreOp::new(
            scope.ctx_mut(),
            place,
            value,
        ));
    })
}

/// Waits until what a unit has [stored past the caches](store_past_caches) is where others see it, where it has.
#[cube]
pub(crate) fn wait_for_stores(#[comptime] past_caches: bool) {
    intrinsic!(|scope| {
        #[cfg(feature = "cpu")]
        if past_caches {
            scope.register(&lowering::WaitForStoresOp::new(scope.ctx_mut()));
        }
        #[cfg(not(feature = "cpu"))]
        let _ = (scope, past_caches);
    })
}
