//! State that a unit keeps in registers from row to row.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, Staging, Vectorization};

use crate::backward::element::{
    BackwardRow, Params, Saved, Step, TypedBackwardSource, bias, params, step,
};
use crate::memory::access::load;
use crate::memory::stage::Cells;
use crate::schedule::partition::Partition;
use crate::schedule::share::{my_share, step_to_load};
use crate::schedule::team::own_part;
use crate::types::{One, Types};
use crate::vector::{lane_sum, offset_scale};

/// Contribution of a step to the parameter gradients: `dgamma` (products) and `dbeta` (gradients).
#[derive(CubeType, Clone, Copy)]
pub(crate) struct ColumnStep<A: Float, N: Size> {
    pub(crate) products: Vector<A, N>,
    pub(crate) gradients: Vector<A, N>,
}

/// Parameter-gradient sums of a unit's columns, in registers or shared memory. Products come first
/// if both are computed. If lanes are rows, a vector has one column and so one sum.
#[derive(CubeType)]
pub(crate) struct StagedColumns<A: Float, N: Size> {
    of_lanes: Cells<A, N>,
    of_rows: Cells<A, One>,
}

#[cube]
impl<A: Float, N: Size> StagedColumns<A, N> {
    pub(crate) fn zeros(#[comptime] blueprint: BackwardBlueprint) -> Self {
        let team = comptime!(blueprint.team);
        let staging = comptime!(staged_sums(&blueprint));
        let are_rows = comptime!(team.lanes() == Vectorization::Perpendicular);
        let mut of_lanes = Cells::<A, N>::new(comptime!(staging_if(!are_rows, staging)), team);
        let mut of_rows = Cells::<A, One>::new(comptime!(staging_if(are_rows, staging)), team);
        #[unroll]
        for i in 0..comptime!(staging.vectors().unwrap_or(0)) {
            if are_rows {
                of_rows.set(i, Vector::new(A::new(0.0)), staging, team);
            } else {
                of_lanes.set(i, Vector::new(A::new(0.0)), staging, team);
            }
        }
        StagedColumns::<A, N> { of_lanes, of_rows }
    }

    /// Adds a step to the sums of the unit's `i`th vector.
    pub(crate) fn add(
        &mut self,
        #[comptime] i: usize,
        step: &ColumnStep<A, N>,
        #[comptime] blueprint: BackwardBlueprint,
    ) {
        if comptime!(blueprint.column_sums.products) {
            self.add_to(
                comptime!(place(i, false, &blueprint)),
                step.products,
                blueprint,
            );
        }
        if comptime!(blueprint.column_sums.gradients) {
            self.add_to(
                comptime!(place(i, true, &blueprint)),
                step.gradients,
                blueprint,
            );
        }
    }

    fn add_to(
        &mut self,
        #[comptime] place: usize,
        value: Vector<A, N>,
        #[comptime] blueprint: BackwardBlueprint,
    ) {
        let team = comptime!(blueprint.team);
        let staging = comptime!(staged_sums(&blueprint));
        if comptime!(team.lanes() == Vectorization::Perpendicular) {
            let sum =
                self.of_rows.get(place, staging, team) + Vector::new(lane_sum::<A, N>(value, team));
            self.of_rows.set(place, sum, staging, team);
        } else {
            let sum = self.of_lanes.get(place, staging, team) + value;
            self.of_lanes.set(place, sum, staging, team);
        }
    }

    /// Sums of the unit's `i`th vector if lanes are columns. Sums that were not requested are
    /// arbitrary.
    pub(crate) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] blueprint: BackwardBlueprint,
    ) -> ColumnStep<A, N> {
        let staging = comptime!(staged_sums(&blueprint));
        let (products, gradients) =
            comptime!((place(i, false, &blueprint), place(i, true, &blueprint)));
        ColumnStep::<A, N> {
            products: self.of_lanes.get(products, staging, blueprint.team),
            gradients: self.of_lanes.get(gradients, staging, blueprint.team),
        }
    }

    /// Sum of the unit's `i`th column if lanes are rows. `kind` counts the requested sums.
    pub(crate) fn of_column(
        &self,
        #[comptime] i: usize,
        #[comptime] kind: usize,
        #[comptime] blueprint: BackwardBlueprint,
    ) -> A {
        let staging = comptime!(staged_sums(&blueprint));
        let place = comptime!(kind * blueprint.staged_vectors() + i);
        self.of_rows
            .get(place, staging, blueprint.team)
            .extract(0usize)
    }
}

/// Staging for the cells in use, none for the others.
fn staging_if(is_here: bool, staging: Staging) -> Staging {
    match is_here {
        true => staging,
        false => Staging::Reload,
    }
}

/// Staging of all sums of a unit.
fn staged_sums(blueprint: &BackwardBlueprint) -> Staging {
    blueprint
        .staged_columns
        .times(blueprint.column_sums.count())
}

/// Index of a sum of a unit's `i`th vector among all of its sums.
fn place(i: usize, is_gradient: bool, blueprint: &BackwardBlueprint) -> usize {
    let kind = match is_gradient {
        true => blueprint.column_sums.count() - 1,
        false => 0,
    };
    kind * blueprint.staged_vectors() + i
}

/// A unit's slice of the scale in its storage type, if the plan keeps it.
#[derive(CubeType)]
pub(crate) struct StagedScale<P: Float, N: Size> {
    scale: Cells<P, N>,
}

/// [`StagedScale`] for the types of a kernel.
pub(crate) type TypedStagedScale<T> = StagedScale<<T as Types>::P, <T as Types>::N>;

/// Loads the scale of a unit's columns, shared by all its rows.
#[cube]
pub(crate) fn stage_scale<T: Types>(
    source: &TypedBackwardSource<T>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> TypedStagedScale<T> {
    let team = comptime!(blueprint.team);
    let staging = comptime!(blueprint.staged_scale());
    let mut scale = Cells::<T::P, T::N>::new(staging, team);
    if comptime!(staging != Staging::Reload) {
        let share = my_share(own_part(team), partition, team);
        let tensor = source.scale.as_ref().unwrap();
        #[unroll]
        for i in 0..comptime!(blueprint.staged_vectors()) {
            let step = step_to_load(i, &share, partition.steps, team);
            let value = load::<T::P, T::Scale, T::P, T::N>(
                tensor,
                0usize.runtime(),
                step,
                comptime!(blueprint.scale.unwrap()),
                comptime!(team.lanes()),
            );
            scale.set(i, value, staging, team);
        }
    }
    StagedScale::<T::P, T::N> { scale }
}

/// Parameters of a unit's `i`th step: the scale from registers if it is kept, the rest from memory.
#[cube]
pub(crate) fn staged_params<T: Types>(
    staged: &TypedStagedScale<T>,
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    #[comptime] i: usize,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Params<T::A, T::N> {
    let staging = comptime!(blueprint.staged_scale());
    if comptime!(staging == Staging::Reload) {
        params::<T>(source, row, step, blueprint)
    } else {
        Params::<T::A, T::N> {
            scale: offset_scale::<T::A, T::N>(
                Vector::<T::A, T::N>::cast_from(staged.scale.get(i, staging, blueprint.team)),
                blueprint.offset,
            ),
            bias: bias::<T>(source, row, step, blueprint),
        }
    }
}

/// A unit's slice of a row in its storage type, and the saved statistics of the row.
#[derive(CubeType)]
pub(crate) struct StagedRow<F: Float, R: Float, O: Float, A: Float, N: Size> {
    inputs: ComptimeOption<Array<Vector<F, N>>>,
    dy: ComptimeOption<Array<Vector<R, N>>>,
    gate: ComptimeOption<Array<Vector<O, N>>>,
    saved: ComptimeOption<Array<A>>,
}

/// [`StagedRow`] for the types of a kernel.
pub(crate) type TypedStagedRow<T> =
    StagedRow<<T as Types>::F, <T as Types>::R, <T as Types>::O, <T as Types>::A, <T as Types>::N>;

#[cube]
impl<F: Float, R: Float, O: Float, A: Float, N: Size> StagedRow<F, R, O, A, N> {
    /// Allocates uninitialised space for a row if `is_wanted`.
    pub(crate) fn new(
        #[comptime] is_wanted: bool,
        #[comptime] blueprint: BackwardBlueprint,
    ) -> Self {
        if comptime!(!is_wanted) {
            StagedRow::<F, R, O, A, N> {
                inputs: ComptimeOption::new_None(),
                dy: ComptimeOption::new_None(),
                gate: ComptimeOption::new_None(),
                saved: ComptimeOption::new_None(),
            }
        } else {
            let vectors = comptime!(blueprint.staged_vectors());
            StagedRow::<F, R, O, A, N> {
                inputs: ComptimeOption::new_Some(Array::<Vector<F, N>>::new(vectors)),
                dy: ComptimeOption::new_Some(Array::<Vector<R, N>>::new(vectors)),
                gate: if comptime!(blueprint.gate.is_some()) {
                    ComptimeOption::new_Some(Array::<Vector<O, N>>::new(vectors))
                } else {
                    ComptimeOption::new_None()
                },
                saved: if comptime!(blueprint.row.is_ahead()) {
                    ComptimeOption::new_Some(Array::<A>::new(2usize))
                } else {
                    ComptimeOption::new_None()
                },
            }
        }
    }

    /// Reads the `i`th step, converted to the accumulation type.
    pub(crate) fn get(&self, #[comptime] i: usize) -> Step<A, A, A, N> {
        let gate = if comptime!(self.gate.is_some()) {
            Vector::cast_from(self.gate.as_ref().unwrap()[i])
        } else {
            Vector::new(A::new(0.0))
        };
        step::<A, A, A, N>(
            Vector::cast_from(self.inputs.as_ref().unwrap()[i]),
            Vector::cast_from(self.dy.as_ref().unwrap()[i]),
            gate,
        )
    }

    pub(crate) fn set(&mut self, #[comptime] i: usize, step: &Step<F, R, O, N>) {
        self.inputs.as_mut().unwrap()[i] = step.input;
        self.dy.as_mut().unwrap()[i] = step.dy;
        if comptime!(self.gate.is_some()) {
            self.gate.as_mut().unwrap()[i] = step.gate;
        }
    }

    /// Saved statistics of the row.
    pub(crate) fn saved(&self) -> Saved<A> {
        let saved = self.saved.as_ref().unwrap();
        Saved::<A> {
            mean: saved[0],
            rstd: saved[1],
        }
    }

    pub(crate) fn set_saved(&mut self, row: &Saved<A>) {
        let saved = self.saved.as_mut().unwrap();
        saved[0] = row.mean;
        saved[1] = row.rstd;
    }

    /// Copies another row.
    pub(crate) fn take(&mut self, other: &Self, #[comptime] blueprint: BackwardBlueprint) {
        #[unroll]
        for i in 0..comptime!(blueprint.staged_vectors()) {
            self.inputs.as_mut().unwrap()[i] = other.inputs.as_ref().unwrap()[i];
            self.dy.as_mut().unwrap()[i] = other.dy.as_ref().unwrap()[i];
            if comptime!(self.gate.is_some()) {
                self.gate.as_mut().unwrap()[i] = other.gate.as_ref().unwrap()[i];
            }
        }
        self.set_saved(&other.saved());
    }
}
