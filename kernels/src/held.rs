//! Where a row stays between the passes of a normalization: in registers or in shared memory, with the
//! digits that it has in memory, or with those it is computed in where a residual was added to it.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Hold, Team};

use crate::source::{Source, SourceRow, read, read_input};
use crate::strategy::member;
use crate::types::Types;
use crate::work::{Share, step_to_load};

/// Vectors of a unit's own, in registers or in shared memory: what is there nobody else reads, so nobody
/// waits.
#[derive(CubeType)]
pub(crate) struct Cells<E: Float, N: Size> {
    registers: ComptimeOption<Array<Vector<E, N>>>,
    shared: ComptimeOption<Shared<[Vector<E, N>]>>,
}

#[cube]
impl<E: Float, N: Size> Cells<E, N> {
    /// Room for what is to be held; nothing is in it yet.
    pub(crate) fn new(#[comptime] hold: Hold, #[comptime] team: Team) -> Self {
        let (in_registers, in_shared) = comptime!(hold.places());
        let registers = if comptime!(in_registers > 0) {
            ComptimeOption::new_Some(Array::<Vector<E, N>>::new(in_registers))
        } else {
            ComptimeOption::new_None()
        };
        let shared = if comptime!(in_shared > 0) {
            ComptimeOption::new_Some(Shared::<[Vector<E, N>]>::new_slice(comptime!(
                in_shared * team.members as usize
            )))
        } else {
            ComptimeOption::new_None()
        };
        Cells::<E, N> { registers, shared }
    }

    /// The `i`th vector.
    pub(crate) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] hold: Hold,
        #[comptime] team: Team,
    ) -> Vector<E, N> {
        let (in_registers, _) = comptime!(hold.places());
        if comptime!(i < in_registers) {
            self.registers.as_ref().unwrap()[i]
        } else {
            self.shared.as_ref().unwrap()[cell(comptime!(i - in_registers), team)]
        }
    }

    /// Sets it.
    pub(crate) fn set(
        &mut self,
        #[comptime] i: usize,
        value: Vector<E, N>,
        #[comptime] hold: Hold,
        #[comptime] team: Team,
    ) {
        let (in_registers, _) = comptime!(hold.places());
        if comptime!(i < in_registers) {
            self.registers.as_mut().unwrap()[i] = value;
        } else {
            self.shared.as_mut().unwrap()[cell(comptime!(i - in_registers), team)] = value;
        }
    }
}

/// Where the `i`th of a unit's vectors in shared memory lies: neighbours side by side.
#[cube]
fn cell(#[comptime] i: usize, #[comptime] team: Team) -> usize {
    comptime!(i * team.members as usize) + member(team)
}

/// A unit's share of a row.
#[derive(CubeType)]
pub(crate) struct Held<F: Float, A: Float, N: Size> {
    as_stored: Cells<F, N>,
    as_computed: Cells<A, N>,
}

/// [`Held`] of a kernel's types.
pub(crate) type TypedHeld<T> = Held<<T as Types>::F, <T as Types>::A, <T as Types>::N>;

/// Reads a unit's share of a row of so many steps.
#[cube]
pub(crate) fn hold<T: Types>(
    source: &Source<T::F, T::Input, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    steps: usize,
    #[comptime] blueprint: Blueprint,
) -> TypedHeld<T> {
    let team = comptime!(blueprint.team);
    let is_stored = comptime!(blueprint.holds_input());
    let (as_it_is, as_computed) = comptime!(match is_stored {
        true => (blueprint.hold, Hold::Reread),
        false => (Hold::Reread, blueprint.hold),
    });
    let mut stored = Cells::<T::F, T::N>::new(as_it_is, team);
    let mut computed = Cells::<T::A, T::N>::new(as_computed, team);
    let vectors = comptime!(blueprint.hold.vectors().unwrap_or(0));
    #[unroll]
    for i in 0..vectors {
        let step = step_to_load(i, share, steps, team);
        if is_stored {
            let value = read_input::<T, T::F>(source, row, step, blueprint);
            stored.set(i, value, blueprint.hold, team);
        } else {
            let value = read::<T>(source, row, step, blueprint);
            computed.set(i, value, blueprint.hold, team);
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
        let team = comptime!(blueprint.team);
        if comptime!(blueprint.holds_input()) {
            Vector::<A, N>::cast_from(self.as_stored.get(i, blueprint.hold, team))
        } else {
            self.as_computed.get(i, blueprint.hold, team)
        }
    }
}
