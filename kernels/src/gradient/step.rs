//! A step of rows on its way back.

use cubecl::prelude::*;
use cubenorm_core::{GradientBlueprint, Level};

use super::columns::{ColumnPart, add_columns};
use super::correction::{Correction, passed_back};
use super::element::{
    Element, GradientRow, Params, Step, TypedGradientSource, element, params, read_step,
};
use super::held::ColumnStep;
use super::results::TypedResults;
use super::sums::params_of;
use crate::apply::Scalars;
use crate::moments::lanes_from;
use crate::operand::store;
use crate::strategy::split::Partition;
use crate::types::Types;
use crate::work::Share;

/// A row on its way back.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Row<A: Float, N: Size> {
    pub(super) correction: Correction<A, N>,
    pub(super) output: usize,
    /// The first lane whose row no vector before this one has.
    pub(super) first_lane: usize,
    pub(super) exists: bool,
}

#[cube]
impl<A: Float, N: Size> Row<A, N> {
    /// The same, whose result lies so many elements further on.
    pub(super) fn further(&self, elements: usize) -> Row<A, N> {
        Row::<A, N> {
            correction: Correction::<A, N> {
                constant: self.correction.constant,
                multiple: self.correction.multiple,
            },
            output: self.output + elements,
            first_lane: self.first_lane,
            exists: self.exists,
        }
    }
}

/// Passes a unit's steps of rows abreast back, which are read again.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn pass_steps<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    share: &Share,
    part: &ColumnPart,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let members = comptime!(blueprint.team.members as usize);
    let ahead = comptime!(blueprint.under_way);
    let mut done = 0usize;
    if comptime!(ahead > 1) {
        while done + comptime!(ahead - 1) < share.count {
            let begin = share.begin + done * members;
            // Loads are under way before anything is written, which they must not overtake.
            let mut several = Sequence::<Sequence<Step<T::A, T::N>>>::new();
            #[unroll]
            for j in 0..ahead {
                let step = begin + j * members;
                several.push(read_steps::<T>(source, sources, step, blueprint));
            }
            #[unroll]
            for j in 0..ahead {
                let step = begin + j * members;
                let reads = several.index(j);
                pass_step::<T>(
                    source, results, sources, reads, rows, step, part, partition, scalars,
                    blueprint,
                );
            }
            done += ahead;
        }
    }
    for i in done..share.count {
        let step = share.begin + i * members;
        let reads = read_steps::<T>(source, sources, step, blueprint);
        pass_step::<T>(
            source, results, sources, &reads, rows, step, part, partition, scalars, blueprint,
        );
    }
}

/// Passes a step of rows abreast back, and adds to the sums of its columns.
#[cube]
#[allow(clippy::too_many_arguments)]
fn pass_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    step: usize,
    part: &ColumnPart,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let shared = params::<T>(source, sources.index(0usize), step, blueprint);
    let sums = write_step::<T>(
        source, results, sources, reads, rows, &shared, step, scalars, blueprint,
    );
    add_columns::<T>(
        results,
        part.slot,
        step,
        sums.products,
        sums.gradients,
        part.is_new,
        partition,
        blueprint,
    );
}

/// Reads a step of rows abreast. One that does not exist is another, which is there.
#[cube]
pub(super) fn read_steps<T: Types>(
    source: &TypedGradientSource<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    step: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> Sequence<Step<T::A, T::N>> {
    let mut reads = Sequence::<Step<T::A, T::N>>::new();
    #[unroll]
    for r in 0..blueprint.abreast {
        reads.push(read_step::<T, T::A>(
            source,
            sources.index(r),
            step,
            blueprint,
        ));
    }
    reads
}

/// Passes a step of rows abreast back, and returns what it adds to the sums of its columns.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn write_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    shared: &Params<T::A, T::N>,
    step: usize,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnStep<T::A, T::N> {
    if comptime!(blueprint.abreast == 1 && blueprint.team.level != Level::Column) {
        // It exists, or its team would not be here; and what is added to nothing takes a unit longer.
        write_row_step::<T>(
            source, results, sources, reads, rows, shared, step, scalars, 0usize, blueprint,
        )
    } else {
        let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
        let mut products = zero;
        let mut gradients = zero;
        #[unroll]
        for r in 0..blueprint.abreast {
            if rows.index(r).exists {
                let sums = write_row_step::<T>(
                    source, results, sources, reads, rows, shared, step, scalars, r, blueprint,
                );
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

/// Passes a step of one of the rows abreast back.
#[cube]
#[allow(clippy::too_many_arguments)]
fn write_row_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    shared: &Params<T::A, T::N>,
    step: usize,
    scalars: &Scalars,
    #[comptime] r: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnStep<T::A, T::N> {
    let row = rows.index(r);
    let params = params_of::<T>(source, sources.index(r), shared, step, blueprint);
    let element = element::<T>(
        reads.index(r),
        source,
        sources.index(r),
        &params,
        step,
        scalars,
        blueprint,
    );
    let access = comptime!(blueprint.input_gradient);
    if comptime!(access.is_some()) {
        let value = passed_back::<T::A, T::N>(&element, &row.correction, blueprint);
        let tensor = results.input.as_mut().unwrap();
        let access = comptime!(access.unwrap());
        let lanes = comptime!(blueprint.team.lanes);
        store::<T::F, T::Output, T::A, T::N>(tensor, row.output, step, value, access, lanes);
    }
    column_step::<T::A, T::N>(&element, row.first_lane, blueprint)
}

/// What an element of a row adds to the sums of its column.
#[cube]
pub(super) fn column_step<A: Float, N: Size>(
    element: &Element<A, N>,
    first_lane: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnStep<A, N> {
    let gradients = if comptime!(blueprint.team.ragged_rows && blueprint.column_sums.any()) {
        lanes_from::<A, N>(element.shallow, first_lane)
    } else {
        element.shallow
    };
    ColumnStep::<A, N> {
        products: gradients * element.normalized,
        gradients,
    }
}
