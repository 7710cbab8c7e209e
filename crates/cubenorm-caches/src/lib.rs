//! What a kernel cannot say about the caches of a CPU, said: stores past them, and fetches into them.
//!
//! A store to a line that no cache has reads it from memory first, which is a third of what a kernel moves that reads one
//! tensor and writes another. And what a core's own prefetcher asks memory for begins with the first load of it, so that
//! memory rests while a core works on what it has. Processors have a store that passes the caches and a load that waits for
//! nothing, and CubeCL 0.11.3 no operation for either: these are they. With the feature `llvm` CubeCL's compiler for the
//! `cpu` runtime makes LLVM's store with the metadata
//! [`nontemporal`](https://llvm.org/docs/LangRef.html#store-instruction) of one and LLVM's
//! [`prefetch`](https://llvm.org/docs/LangRef.html#llvm-prefetch-intrinsic) of the other; no other compiler knows them.
//! [`is_known`] says whether that is so, and a kernel must not ask for them elsewhere.
//!
//! # Example
//!
//! ```
//! use cubecl::prelude::*;
//! use cubenorm_caches::{fetch, store_past_caches, wait_for_stores};
//!
//! #[cube(launch_unchecked)]
//! fn double<N: Size>(input: &[Vector<f32, N>], output: &mut [Vector<f32, N>], per_unit: usize) {
//!     let begin = ABSOLUTE_POS * per_unit;
//!     let end = min(begin + per_unit, output.len());
//!     for i in begin..end {
//!         // Sixteen vectors further on, or where it ends.
//!         fetch::<f32, N>(&input[min(i + 16, end - 1)]);
//!         store_past_caches::<f32, N, N>(&mut output[i], input[i] + input[i]);
//!     }
//!     wait_for_stores(true);
//! }
//!
//! fn main() {}
//! ```

mod kernel;
#[cfg(feature = "llvm")]
mod lowering;

use cubecl::ir::interfaces::side_effects::{MemoryEffect, MemoryEffectsOp};
use cubecl::ir::prelude::*;
use cubecl::ir::{CanMaterialize, HasSideEffects};
pub use kernel::{fetch, store_past_caches, wait_for_stores};

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

/// Brings what is at a place into the caches.
#[cube_op(name = "cubenorm.fetch")]
#[result_ty(none)]
#[op_traits(CanMaterialize, HasSideEffects)]
struct FetchOp {
    place: Value,
}

#[op_interface_impl]
impl MemoryEffectsOp for FetchOp {
    fn memory_effects(&self, ctx: &Context) -> Vec<MemoryEffect> {
        vec![MemoryEffect::Read(self.place(ctx))]
    }
}

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
