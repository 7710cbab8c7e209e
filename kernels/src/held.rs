//! Where a row stays between the passes of a normalization: in registers or in shared memory, with the
//! digits that it has in memory, or with those it is computed in where a residual was added to it.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Hold};

use crate::source::{Source, SourceRow, read, read_input};
use crate::strategy::member;
use crate::types::Types;
use crate::work::Share;

/// Vectors in registers: of one kind or of the other.
#[derive(CubeType)]
pub(crate) struct Held<F: Float, A: Float, N: Size> {
    as_stored: Array<Vector<F, N>>,
    as_computed: Array<Vector<A, N>>,
}

/// [`Held`] of a kernel's types.
pub(crate) type TypedHeld<T> = Held<<T as Types>::F, <T as Types>::A, <T as Types>::N>;

/// Reads a unit's share into registers.
#[cube]
pub(crate) fn hold<T: Types>(
    source: &Source<T::F, T::Input, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    #[comptime] vectors: usize,
    #[comptime] blueprint: Blueprint,
) -> TypedHeld<T> {
    let is_stored = comptime!(blueprint.holds_input());
    let mut stored =
        Array::<Vector<T::F, T::N>>::new(comptime!(if is_stored { vectors } else { 1 }));
    let mut computed =
        Array::<Vector<T::A, T::N>>::new(comptime!(if is_stored { 1 } else { vectors }));
    #[unroll]
    for i in 0..vectors {
        if i < share.count {
            let step = share.begin + i * comptime!(blueprint.team.members as usize);
            if is_stored {
                stored[i] = read_input::<T, T::F>(source, row, step, blueprint);
            } else {
                computed[i] = read::<T>(source, row, step, blueprint);
            }
        }
    }
    Held::<T::F, T::A, T::N> {
        as_stored: stored,
        as_computed: computed,
    }
}

#[cube]
impl<F: Float, A: Float, N: Size> Held<F, A, N> {
    /// The `i`th vector.
    pub(crate) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] blueprint: Blueprint,
    ) -> Vector<A, N> {
        if comptime!(blueprint.holds_input()) {
            Vector::<A, N>::cast_from(self.as_stored[i])
        } else {
            self.as_computed[i]
        }
    }
}

/// Vectors in shared memory, one slot for each step. Each unit reads what it wrote itself, so nobody
/// waits.
#[derive(CubeType)]
pub(crate) struct Staged<F: Float, A: Float, N: Size> {
    as_stored: ComptimeOption<Shared<[Vector<F, N>]>>,
    as_computed: ComptimeOption<Shared<[Vector<A, N>]>>,
}

/// [`Staged`] of a kernel's types.
pub(crate) type TypedStaged<T> = Staged<<T as Types>::F, <T as Types>::A, <T as Types>::N>;

/// Reads a unit's share into shared memory, where the plan stages it there.
#[cube]
pub(crate) fn stage<T: Types>(
    source: &Source<T::F, T::Input, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    #[comptime] blueprint: Blueprint,
) -> TypedStaged<T> {
    match comptime!(blueprint.hold) {
        Hold::Shared(vectors) => {
            let slots = comptime!(vectors * blueprint.team.members as usize);
            if comptime!(blueprint.holds_input()) {
                let mut shared = Shared::<[Vector<T::F, T::N>]>::new_slice(slots);
                for i in 0..share.count {
                    let step = share.begin + i * comptime!(blueprint.team.members as usize);
                    shared[slot(i, blueprint)] =
                        read_input::<T, T::F>(source, row, step, blueprint);
                }
                Staged::<T::F, T::A, T::N> {
                    as_stored: ComptimeOption::new_Some(shared),
                    as_computed: ComptimeOption::new_None(),
                }
            } else {
                let mut shared = Shared::<[Vector<T::A, T::N>]>::new_slice(slots);
                for i in 0..share.count {
                    let step = share.begin + i * comptime!(blueprint.team.members as usize);
                    shared[slot(i, blueprint)] = read::<T>(source, row, step, blueprint);
                }
                Staged::<T::F, T::A, T::N> {
                    as_stored: ComptimeOption::new_None(),
                    as_computed: ComptimeOption::new_Some(shared),
                }
            }
        }
        Hold::Reread | Hold::Registers(_) => nothing_staged::<T::F, T::A, T::N>(),
    }
}

/// Where nothing is staged.
#[cube]
pub(crate) fn nothing_staged<F: Float, A: Float, N: Size>() -> Staged<F, A, N> {
    Staged::<F, A, N> {
        as_stored: ComptimeOption::new_None(),
        as_computed: ComptimeOption::new_None(),
    }
}

#[cube]
impl<F: Float, A: Float, N: Size> Staged<F, A, N> {
    /// A unit's `i`th step.
    pub(crate) fn get(&self, i: usize, #[comptime] blueprint: Blueprint) -> Vector<A, N> {
        if comptime!(blueprint.holds_input()) {
            Vector::<A, N>::cast_from(self.as_stored.as_ref().unwrap()[slot(i, blueprint)])
        } else {
            self.as_computed.as_ref().unwrap()[slot(i, blueprint)]
        }
    }
}

/// The slot of a unit's `i`th step.
#[cube]
fn slot(i: usize, #[comptime] blueprint: Blueprint) -> usize {
    i * comptime!(blueprint.team.members as usize) + member(blueprint.team)
}
