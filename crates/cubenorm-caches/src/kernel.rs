//! What a kernel calls.
#![allow(
    missing_docs,
    reason = "`#[cube]` makes modules and structs of its own"
)]

use cubecl::prelude::*;

use super::{FetchOp, StorePastCachesOp, WaitForStoresOp};

/// Stores a vector, as a whole and aligned, past the caches, from the place of its first `P` elements on: `place = value` where
/// a place has all.
///
/// Others see it after the unit has [waited](wait_for_stores()). Where [`is_known`](crate::is_known) says no, and on other
/// runtimes than `cpu`, the kernel does not compile. The crate's page has an example.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub fn store_past_caches<T: Float, P: Size, S: Size>(
    place: &mut Vector<T, P>,
    value: Vector<T, S>,
) {
    intrinsic!(|scope| {
        let (place, value) = (place.value(scope), value.read_value(scope));
        scope.register(&StorePastCachesOp::new(scope.ctx_mut(), place, value));
    })
}

/// Waits until what a unit has [stored past the caches](store_past_caches()) is where others see it, where it has.
#[cube]
pub fn wait_for_stores(#[comptime] past_caches: bool) {
    intrinsic!(|scope| {
        if past_caches {
            scope.register(&WaitForStoresOp::new(scope.ctx_mut()));
        }
    })
}

/// Brings the line of a place into the caches, for a load that comes, and waits for nothing.
///
/// It reads nothing that a kernel can see, but a place beyond its tensor is none all the same. Where it is not
/// [known](crate::is_known) the kernel does not compile, as with [`store_past_caches`](store_past_caches()). The crate's page
/// has an example.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub fn fetch<T: Float, S: Size>(place: &Vector<T, S>) {
    intrinsic!(|scope| {
        let place = place.value(scope);
        scope.register(&FetchOp::new(scope.ctx_mut(), place));
    })
}
