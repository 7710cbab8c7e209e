//! Backward pass of one step.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, Level};

use crate::backward::correction::{Correction, passed_back};
use crate::backward::element::{
    BackwardRow, Element, Params, TypedBackwardSource, WideStep, element, params, read_step,
};
use crate::backward::gate::pass_gate;
use crate::backward::io::{Bound, store_gradient};
use crate::backward::param_partials::{ColumnPart, add_columns};
use crate::backward::stage::ColumnStep;
use crate::backward::sums::params_of;
use crate::schedule::partition::Partition;
use crate::schedule::share::Share;
use crate::types::Types;
use crate::vector::lanes_from;

/// Output position and correction of a row.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Row<A: Float, N: Size> {
    pub(crate) correction: Correction<A, N>,
    pub(crate) output: usize,
    /// First lane whose row is not in the vector before this one.
    pub(crate) first_lane: usize,
    pub(crate) in_bounds: bool,
}

#[cube]
impl<A: Float, N: Size> Row<A, N> {
    /// Row advanced by a number of output elements.
    pub(crate) fn offset_by(&self, elements: usize) -> Row<A, N> {
        Row::<A, N> {
            correction: Correction::<A, N> {
                constant: self.correction.constant,
                multiple: self.correction.multiple,
            },
            output: self.output + elements,
            first_lane: self.first_lane,
            in_bounds: self.in_bounds,
        }
    }
}

/// Rows of one unit.
#[derive(CubeType)]
pub(crate) struct UnitRows<A: Float, N: Size> {
    pub(crate) sources: Sequence<BackwardRow<A, N>>,
    pub(crate) rows: Sequence<Row<A, N>>,
}

#[cube]
impl<A: Float, N: Size> UnitRows<A, N> {
    /// A single row.
    pub(crate) fn one(source: BackwardRow<A, N>, row: Row<A, N>) -> UnitRows<A, N> {
        let mut sources = Sequence::<BackwardRow<A, N>>::new();
        sources.push(source);
        let mut rows = Sequence::<Row<A, N>>::new();
        rows.push(row);
        UnitRows::<A, N> { sources, rows }
    }
}

/// Backward pass of a unit's steps, read again from memory.
#[cube]
pub(crate) fn pass_steps<T: Types>(
    unit_rows: &UnitRows<T::A, T::N>,
    share: &Share,
    part: &ColumnPart,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let size = comptime!(blueprint.team.size() as usize);
    let ahead = comptime!(blueprint.loads_in_flight());
    let mut done = 0usize;
    if comptime!(ahead > 1) {
        while done + comptime!(ahead - 1) < share.count {
            let begin = share.begin + done * size;
            // Issues the loads before any store, since loads must not be reordered across stores.
            let mut several = Sequence::<Sequence<WideStep<T>>>::new();
            #[unroll]
            for j in 0..ahead {
                let step = begin + j * size;
                several.push(read_steps::<T>(
                    bound.source,
                    &unit_rows.sources,
                    step,
                    blueprint,
                ));
            }
            #[unroll]
            for j in 0..ahead {
                let step = begin + j * size;
                let reads = several.index(j);
                pass_step::<T>(reads, unit_rows, step, part, bound, partition, blueprint);
            }
            done += ahead;
        }
    }
    for i in done..share.count {
        let step = share.begin + i * size;
        let reads = read_steps::<T>(bound.source, &unit_rows.sources, step, blueprint);
        pass_step::<T>(&reads, unit_rows, step, part, bound, partition, blueprint);
    }
}

/// Backward pass of a step. Adds to the sums of its columns.
#[cube]
fn pass_step<T: Types>(
    reads: &Sequence<WideStep<T>>,
    unit_rows: &UnitRows<T::A, T::N>,
    step: usize,
    part: &ColumnPart,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let shared = params::<T>(
        bound.source,
        unit_rows.sources.index(0usize),
        step,
        blueprint,
    );
    let sums = write_step::<T>(reads, unit_rows, &shared, step, bound, blueprint);
    add_columns::<T>(bound.results, part, step, &sums, partition, blueprint);
}

/// Loads a step of each row. Rows out of bounds repeat one that is in bounds.
#[cube]
pub(crate) fn read_steps<T: Types>(
    source: &TypedBackwardSource<T>,
    sources: &Sequence<BackwardRow<T::A, T::N>>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<WideStep<T>> {
    let mut reads = Sequence::<WideStep<T>>::new();
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        reads.push(read_step::<T, T::A, T::A, T::A>(
            source,
            sources.index(r),
            step,
            blueprint,
        ));
    }
    reads
}

/// Writes the input gradient of a step. Returns its parameter gradients, summed over the unit's
/// rows.
#[cube]
pub(crate) fn write_step<T: Types>(
    reads: &Sequence<WideStep<T>>,
    unit_rows: &UnitRows<T::A, T::N>,
    shared: &Params<T::A, T::N>,
    step: usize,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: BackwardBlueprint,
) -> ColumnStep<T::A, T::N> {
    if comptime!(blueprint.rows_per_unit == 1 && blueprint.team.level() != Level::Perpendicular) {
        // A single row is in bounds here, and skipping the zero initialisation is faster.
        write_row_step::<T>(reads, unit_rows, 0usize, shared, step, bound, blueprint)
    } else {
        let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
        let mut products = zero;
        let mut gradients = zero;
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            if unit_rows.rows.index(r).in_bounds {
                let sums = write_row_step::<T>(reads, unit_rows, r, shared, step, bound, blueprint);
                products += sums.products;
                gradients += sums.gradients;
            }
        }
        ColumnStep::<T::A, T::N> {
            products,
            gradients,
        }
    }
}

/// Writes the input gradient of a step of one row.
#[cube]
fn write_row_step<T: Types>(
    reads: &Sequence<WideStep<T>>,
    unit_rows: &UnitRows<T::A, T::N>,
    #[comptime] r: usize,
    shared: &Params<T::A, T::N>,
    step: usize,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: BackwardBlueprint,
) -> ColumnStep<T::A, T::N> {
    let (source, row) = (unit_rows.sources.index(r), unit_rows.rows.index(r));
    let params = params_of::<T>(bound.source, source, shared, step, blueprint);
    let element = element::<T>(
        reads.index(r),
        bound.source,
        source,
        &params,
        step,
        bound.scalars,
        blueprint,
    );
    if comptime!(blueprint.input_gradient.is_some()) {
        let passed = passed_back::<T::A, T::N>(&element, &row.correction, blueprint);
        let value = pass_gate::<T>(
            passed,
            reads.index(r),
            &element,
            &params,
            row.output,
            step,
            bound,
            blueprint,
        );
        store_gradient::<T>(value, row.output, step, bound, blueprint);
    }
    column_step::<T::A, T::N>(&element, row.first_lane, blueprint)
}

/// Parameter gradients of one step of a row.
#[cube]
pub(crate) fn column_step<A: Float, N: Size>(
    element: &Element<A, N>,
    first_lane: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> ColumnStep<A, N> {
    let gradients = if comptime!(blueprint.team.has_row_tail() && blueprint.column_sums.any()) {
        lanes_from::<A, N>(element.dz, first_lane)
    } else {
        element.dz
    };
    ColumnStep::<A, N> {
        products: gradients * element.normalized,
        gradients,
    }
}
