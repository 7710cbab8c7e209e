//! What a kernel calls.
#![allow(
    missing_docs,
    reason = "`#[cube]` makes modules and structs of its own"
)]

use cubecl::prelude::*;

use super::{StorePastCachesOp, WaitForStoresOp};

/// Stores a vector, as a whole and aligned, past the caches: `place = value`.
///
/// Others see it after the unit has [waited](wait_for_stores()). Where [`is_known`](crate::is_known) says no, and on other
/// runtimes than `cpu`, the kernel does not compile. The crate's page has an example.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads them as it is expanded")]
pub fn store_past_caches<T: Float, S: Size>(place: &mut Vector<T, S>, value: Vector<T, S>) {
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
