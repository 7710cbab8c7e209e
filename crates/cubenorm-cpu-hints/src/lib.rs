//! Non-temporal stores and software prefetch for CubeCL kernels on CPUs.
//!
//! A store to an uncached line first reads the line from memory. For a kernel that reads one tensor
//! and writes another, this is a third of its traffic. The hardware prefetcher starts with a
//! tensor's first load, so memory idles while a core computes. CPUs have non-temporal stores and
//! prefetch instructions, but CubeCL 0.11.3 has no operations for them. This crate adds the
//! operations. With the feature `llvm`, CubeCL's compiler for the `cpu` runtime lowers them to
//! LLVM's store with [`nontemporal`](https://llvm.org/docs/LangRef.html#store-instruction) metadata
//! and to LLVM's [`prefetch`](https://llvm.org/docs/LangRef.html#llvm-prefetch-intrinsic). No other
//! compiler supports them. A kernel may use them only if [`is_known`] is true.
//!
//! # Example
//!
//! ```
//! use cubecl::prelude::*;
//! use cubenorm_cpu_hints::{prefetch, store_nontemporal, wait_for_stores};
//!
//! #[cube(launch_unchecked)]
//! fn double<N: Size>(input: &[Vector<f32, N>], output: &mut [Vector<f32, N>], per_unit: usize) {
//!     let begin = ABSOLUTE_POS * per_unit;
//!     let end = min(begin + per_unit, output.len());
//!     for i in begin..end {
//!         // Sixteen vectors ahead, or the last one.
//!         prefetch::<f32, N>(&input[min(i + 16, end - 1)]);
//!         store_nontemporal::<f32, N, N>(&mut output[i], input[i] + input[i]);
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
pub use kernel::{prefetch, store_nontemporal, wait_for_stores};

/// A non-temporal store.
#[cube_op(name = "cubenorm.store_past_caches")]
#[result_ty(none)]
#[op_traits(CanMaterialize, HasSideEffects)]
struct StorePastCachesOp {
    place: Value,
    value: Value,
}

/// Completes non-temporal stores.
#[cube_op(name = "cubenorm.wait_for_stores")]
#[result_ty(none)]
#[op_traits(CanMaterialize, HasSideEffects)]
struct WaitForStoresOp {}

/// Prefetches a cache line.
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

/// True if the compiler of the `cpu` runtime supports these operations.
pub const fn is_known() -> bool {
    cfg!(feature = "llvm")
}
