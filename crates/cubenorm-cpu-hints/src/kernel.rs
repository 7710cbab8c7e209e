//! Functions for kernels.
#![allow(
    missing_docs,
    reason = "`#[cube]` makes modules and structs of its own"
)]

use cubecl::prelude::*;

use super::{FetchOp, StorePastCachesOp, WaitForStoresOp};

/// Stores an aligned vector non-temporally: `place = value`. `place` may be a narrower vector at
/// the same address, of the first `P` elements.
///
/// Other units see the value after this unit has called [`wait_for_stores`](wait_for_stores()). The
/// kernel compiles only for the `cpu` runtime, and only if [`is_known`](crate::is_known) is true.
/// The crate's documentation has an example.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub fn store_nontemporal<T: Float, P: Size, S: Size>(
    place: &mut Vector<T, P>,
    value: Vector<T, S>,
) {
    intrinsic!(|scope| {
        let (place, value) = (place.value(scope), value.read_value(scope));
        scope.register(&StorePastCachesOp::new(scope.ctx_mut(), place, value));
    });
}

/// Completes the unit's [non-temporal stores](store_nontemporal()), so others see them. Does
/// nothing if `nontemporal` is false.
#[cube]
pub fn wait_for_stores(#[comptime] nontemporal: bool) {
    intrinsic!(|scope| {
        if nontemporal {
            scope.register(&WaitForStoresOp::new(scope.ctx_mut()));
        }
    });
}

/// Prefetches the cache line of `place` for a later load, without waiting.
///
/// It returns no data, but `place` must be within its tensor. The kernel compiles under the same
/// conditions as with [`store_nontemporal`](store_nontemporal()). The crate's documentation has an
/// example.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub fn prefetch<T: Float, S: Size>(place: &Vector<T, S>) {
    intrinsic!(|scope| {
        let place = place.value(scope);
        scope.register(&FetchOp::new(scope.ctx_mut(), place));
    });
}
