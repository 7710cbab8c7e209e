//! A store past the caches of a CPU, for results that are too large to be found there again.
//!
//! A store to a line that no cache has reads it from memory first, which is a third of what a kernel moves that reads one
//! tensor and writes another. Processors have stores that do not, and CubeCL 0.11.3 no operation for them: this is one. With
//! the feature `llvm` CubeCL's compiler for the `cpu` runtime makes LLVM's store with the metadata
//! [`nontemporal`](https://llvm.org/docs/LangRef.html#store-instruction) of it; no other compiler knows it. [`is_known`] says
//! whether that is so, and a kernel must not ask for such stores elsewhere.
//!
//! # Example
//!
//! ```
//! use cubecl::prelude::*;
//! use cubenorm_stores::{store_past_caches, wait_for_stores};
//!
//! #[cube(launch_unchecked)]
//! fn double<N: Size>(input: &[Vector<f32, N>], output: &mut [Vector<f32, N>]) {
//!     if ABSOLUTE_POS < output.len() {
//!         let value = input[ABSOLUTE_POS] + input[ABSOLUTE_POS];
//!         store_past_caches::<f32, N>(&mut output[ABSOLUTE_POS], value);
//!     }
//!     wait_for_stores(true);
//! }
//!
//! fn main() {}
//! ```

#[cfg(feature = "llvm")]
mod lowering;
mod store;

use cubecl::ir::interfaces::side_effects::{MemoryEffect, MemoryEffectsOp};
use cubecl::ir::prelude::*;
use cubecl::ir::{CanMaterialize, HasSideEffects};
pub use store::{store_past_caches, wait_for_stores};

/// Stores a value past the caches.
#[cube_op(name = "cubenorm.store_past_caches")]
#[result_ty(none)]
#[op_traits(CanMaterialize, HasSideEffects)]
struct StorePastCachesOp {
    place: Value,
    value: Value,
}

/// Waits for such stores.
#[cube_op(name = "cubenorm.wait_for_stores")]
#[result_ty(none)]
#[op_traits(CanMaterialize, HasSideEffects)]
struct WaitForStoresOp {}

#[op_interface_impl]
impl MemoryEffectsOp for StorePastCachesOp {
    fn memory_effects(&self, ctx: &Context) -> Vec<MemoryEffect> {
        vec![MemoryEffect::Write(self.place(ctx))]
    }
}

/// Whether the compiler of the `cpu` runtime has been taught these operations.
pub const fn is_known() -> bool {
    cfg!(feature = "llvm")
}
