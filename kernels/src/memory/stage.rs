//! Staging of a row between the passes of a normalization, in registers or shared memory. Elements
//! keep their storage type, or have the accumulation type if a residual was added.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Staging, Team};

use crate::memory::input::{Source, SourceRow, read, read_input};
use crate::schedule::share::{Share, step_to_load};
use crate::schedule::team::member;
use crate::types::Types;

/// Vectors private to a unit, in registers or in shared memory. No barrier is needed, since no
/// other unit reads them.
#[derive(CubeType)]
pub(crate) struct Cells<E: Float, N: Size> {
    registers: ComptimeOption<Array<Vector<E, N>>>,
    shared: ComptimeOption<Shared<[Vector<E, N>]>>,
}

#[cube]
impl<E: Float, N: Size> Cells<E, N> {
    /// Allocates uninitialised space for the staged vectors.
    pub(crate) fn new(#[comptime] staging: Staging, #[comptime] team: Team) -> Self {
        let (in_registers, in_shared) = comptime!(staging.places());
        let registers = if comptime!(in_registers > 0) {
            ComptimeOption::new_Some(Array::<Vector<E, N>>::new(in_registers))
        } else {
            ComptimeOption::new_None()
        };
        let shared = if comptime!(in_shared > 0) {
            ComptimeOption::new_Some(Shared::<[Vector<E, N>]>::new_slice(comptime!(
                in_shared * team.size() as usize
            )))
        } else {
            ComptimeOption::new_None()
        };
        Cells::<E, N> { registers, shared }
    }

    /// Reads the `i`th vector.
    pub(crate) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] staging: Staging,
        #[comptime] team: Team,
    ) -> Vector<E, N> {
        let (in_registers, _) = comptime!(staging.places());
        if comptime!(i < in_registers) {
            self.registers.as_ref().unwrap()[i]
        } else {
            self.shared.as_ref().unwrap()[cell(comptime!(i - in_registers), team)]
        }
    }

    /// Writes the `i`th vector.
    pub(crate) fn set(
        &mut self,
        #[comptime] i: usize,
        value: Vector<E, N>,
        #[comptime] staging: Staging,
        #[comptime] team: Team,
    ) {
        let (in_registers, _) = comptime!(staging.places());
        if comptime!(i < in_registers) {
            self.registers.as_mut().unwrap()[i] = value;
        } else {
            self.shared.as_mut().unwrap()[cell(comptime!(i - in_registers), team)] = value;
        }
    }
}

/// Index of a unit's `i`th vector in shared memory. Adjacent units use adjacent slots.
#[cube]
fn cell(#[comptime] i: usize, #[comptime] team: Team) -> usize {
    comptime!(i * team.size() as usize) + member(team)
}

/// Staged slice of a row.
#[derive(CubeType)]
pub(crate) struct Staged<F: Float, A: Float, N: Size> {
    as_stored: Cells<F, N>,
    as_computed: Cells<A, N>,
}

/// [`Staged`] for the types of a kernel.
pub(crate) type TypedStaged<T> = Staged<<T as Types>::F, <T as Types>::A, <T as Types>::N>;

/// Loads a unit's slice of a row of `steps` steps.
#[cube]
pub(crate) fn stage<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    steps: usize,
    #[comptime] blueprint: Blueprint,
) -> TypedStaged<T> {
    let team = comptime!(blueprint.team);
    let is_stored = comptime!(blueprint.stages_input());
    let (as_it_is, as_computed) = comptime!(match is_stored {
        true => (blueprint.staging, Staging::Reload),
        false => (Staging::Reload, blueprint.staging),
    });
    let mut stored = Cells::<T::F, T::N>::new(as_it_is, team);
    let mut computed = Cells::<T::A, T::N>::new(as_computed, team);
    let vectors = comptime!(blueprint.staging.vectors().unwrap_or(0));
    #[unroll]
    for i in 0..vectors {
        let step = step_to_load(i, share, steps, team);
        if is_stored {
            let value = read_input::<T, T::F>(source, row, step, blueprint);
            stored.set(i, value, blueprint.staging, team);
        } else {
            let value = read::<T>(source, row, step, blueprint);
            computed.set(i, value, blueprint.staging, team);
        }
    }
    Staged::<T::F, T::A, T::N> {
        as_stored: stored,
        as_computed: computed,
    }
}

#[cube]
impl<F: Float, A: Float, N: Size> Staged<F, A, N> {
    /// Reads the `i`th vector, converted to the accumulation type.
    pub(crate) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] blueprint: Blueprint,
    ) -> Vector<A, N> {
        let team = comptime!(blueprint.team);
        if comptime!(blueprint.stages_input()) {
            Vector::<A, N>::cast_from(self.as_stored.get(i, blueprint.staging, team))
        } else {
            self.as_computed.get(i, blueprint.staging, team)
        }
    }
}
