//! Backward pass of a tile of adjacent rows on a CPU: see [`crate::forward::tile`].

use cubecl::prelude::*;
use cubenorm_core::{BLOCK, BackwardBlueprint};

use crate::backward::correction::{Correction, correction, passed_back};
use crate::backward::element::{
    BackwardRows, TypedBackwardSource, backward_row, element, params, read_step,
};
use crate::backward::gate::pass_gate;
use crate::backward::io::{Bound, store_gradient, write_channels, write_rows};
use crate::backward::param_partials::{add_columns, add_nothing, part_of_columns};
use crate::backward::stage::ColumnStep;
use crate::backward::step::column_step;
use crate::backward::sums::summed;
use crate::epilogue::Scalars;
use crate::memory::access::{Optional, optional_start};
use crate::reduce::channels::{Channels, combined};
use crate::reduce::moments::{Moments, Sums, same};
use crate::reduce::split::{Workspace, merge_parts, write_part};
use crate::reduce::sum::{AddStep, AddStepExpand, Steps, SumShape, add_steps};
use crate::schedule::item::{first_own_lane, item};
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, my_share};
use crate::types::Types;

/// Corrections, output positions and first own lanes of a tile's rows.
#[derive(CubeType)]
struct WrittenRows<A: Float, N: Size> {
    constant: Array<Vector<A, N>>,
    multiple: Array<Vector<A, N>>,
    output: Array<usize>,
    first_lane: Array<usize>,
}

#[cube]
impl<A: Float, N: Size> WrittenRows<A, N> {
    fn with_capacity(#[comptime] rows: usize) -> Self {
        WrittenRows::<A, N> {
            constant: Array::<Vector<A, N>>::new(rows),
            multiple: Array::<Vector<A, N>>::new(rows),
            output: Array::<usize>::new(rows),
            first_lane: Array::<usize>::new(rows),
        }
    }

    fn set(&mut self, r: usize, correction: &Correction<A, N>, output: usize, first_lane: usize) {
        self.constant[r] = correction.constant;
        self.multiple[r] = correction.multiple;
        self.output[r] = output;
        self.first_lane[r] = first_lane;
    }

    fn correction(&self, r: usize) -> Correction<A, N> {
        Correction::<A, N> {
            constant: self.constant[r],
            multiple: self.multiple[r],
        }
    }
}

/// Locates the rows of a tile. The first of them is the work item `round`.
#[cube]
fn find_rows<T: Types>(
    source: &TypedBackwardSource<T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> BackwardRows<T::A, T::N> {
    let mut rows = BackwardRows::<T::A, T::N>::with_capacity(blueprint.rows_per_unit);
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, blueprint.team);
        let row = backward_row::<T>(source, item.row, partition, blueprint);
        rows.set(r, &row);
    }
    rows
}

/// Reduces a unit's slice of each row: the tiled form of [`sum_up`](crate::backward::sums::sum_up()).
#[cube]
fn sum_up<T: Types>(
    source: &TypedBackwardSource<T>,
    rows: &BackwardRows<T::A, T::N>,
    share: &Share,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sums<T::A, T::N> {
    let rows_per_unit = comptime!(blueprint.rows_per_unit);
    let terms = TileGradients::<T>::new(source, rows, scalars, blueprint);
    let mut total = Sums::<T::A, T::N>::zeros(rows_per_unit);
    let mut done = 0usize;
    while done < share.count {
        let end = min(done + BLOCK, share.count);
        let mut block = Sums::<T::A, T::N>::zeros(rows_per_unit);
        let steps = Steps {
            first: share.begin + done,
            count: end - done,
            stride: 1usize,
        };
        add_steps::<T::A, T::N, TileGradients<'_, T>>(
            &terms,
            &steps,
            &mut block,
            comptime!(SumShape::of_tile(rows_per_unit)),
        );
        total.add_all(&block, rows_per_unit, false);
        done = end;
    }
    total
}

/// Summed gradients of a tile's rows, and their products with the normalized values.
#[derive(CubeType)]
struct TileGradients<'a, T: Types> {
    source: &'a TypedBackwardSource<T>,
    rows: &'a BackwardRows<T::A, T::N>,
    scalars: &'a Scalars,
    #[cube(comptime)]
    blueprint: BackwardBlueprint,
}

#[cube]
impl<'a, T: Types> TileGradients<'a, T> {
    fn new(
        source: &'a TypedBackwardSource<T>,
        rows: &'a BackwardRows<T::A, T::N>,
        scalars: &'a Scalars,
        #[comptime] blueprint: BackwardBlueprint,
    ) -> TileGradients<'a, T> {
        TileGradients::<'a, T> {
            source,
            rows,
            scalars,
            blueprint,
        }
    }
}

#[cube]
impl<'a, T: Types> AddStep<T::A, T::N> for TileGradients<'a, T> {
    fn add_step(&self, step: usize, sums: &mut Sums<T::A, T::N>) {
        let (source, scalars) = (self.source, self.scalars);
        let blueprint = self.blueprint;
        for r in 0..comptime!(blueprint.rows_per_unit) {
            let row = self.rows.get(r);
            let params = params::<T>(source, &row, step, blueprint);
            let read = read_step::<T, T::A, T::A, T::A>(source, &row, step, blueprint);
            let element = element::<T>(&read, source, &row, &params, step, scalars, blueprint);
            let gradient = summed::<T::A, T::N>(&element, blueprint);
            sums.plain[r] += gradient;
            sums.products[r] += gradient * element.normalized;
        }
    }
}

#[cube]
fn of_row<A: Float, N: Size>(sums: &Sums<A, N>, r: usize, share: &Share) -> Moments<A, N> {
    Moments::<A, N> {
        count: A::cast_from(share.count),
        mean: sums.plain[r],
        m2: sums.products[r],
    }
}

/// Backward pass of the tile whose first row is the work item `round`.
#[cube]
pub(crate) fn backward_tile<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    parts: &Optional<T::A, W>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    let share = my_share(first.part, partition, team);
    if first.in_bounds {
        let rows = find_rows::<T>(bound.source, round, partition, blueprint);
        let found = if comptime!(blueprint.reduces() && !blueprint.split()) {
            sum_up::<T>(bound.source, &rows, &share, bound.scalars, blueprint)
        } else {
            Sums::<T::A, T::N>::zeros(1usize)
        };
        let channels =
            combine_channels::<T>(&found, &rows, &share, bound, round, partition, blueprint);
        let mut written = WrittenRows::<T::A, T::N>::with_capacity(blueprint.rows_per_unit);
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            let sums = if comptime!(!blueprint.reduces()) {
                of_row::<T::A, T::N>(&found, 0usize, &share)
            } else if comptime!(team.is_segmented()) {
                let of_row = if comptime!(blueprint.split()) {
                    let parts = parts.as_ref().unwrap();
                    combined::<T::A, T::N, W>(parts, item.row, partition, false)
                } else {
                    channels.combined::<T::N>(r)
                };
                same::<T::A, T::N>(&of_row.moments)
            } else if comptime!(blueprint.split()) {
                let parts = parts.as_ref().unwrap();
                merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
            } else {
                of_row::<T::A, T::N>(&found, r, &share)
            };
            write_rows::<T>(bound.results, &sums, &item, blueprint);
            let row = rows.get(r);
            let correction = correction::<T>(
                bound.source,
                item.row,
                &sums,
                &row,
                partition,
                bound.scalars,
                blueprint,
            );
            let output = optional_start::<T::F, T::Output>(
                &bound.results.input,
                item.row,
                partition.cols_written,
                comptime!(blueprint.input_gradient),
                comptime!(team.lanes()),
            );
            let first_lane = first_own_lane(item.group, partition, team);
            written.set(r, &correction, output, first_lane);
        }
        if comptime!(blueprint.input_gradient.is_some() || blueprint.column_sums.any()) {
            let part = part_of_columns(&first, round, blueprint);
            for i in 0..share.count {
                let step = share.begin + i;
                let sums = write_step::<T>(step, &rows, &written, bound, blueprint);
                add_columns::<T>(bound.results, &part, step, &sums, partition, blueprint);
            }
        }
    } else {
        add_nothing::<T>(bound.results, &share, round, partition, blueprint);
    }
}

/// Combines the sums of the tile's channels, if the tile holds whole groups. Writes the sums of
/// each channel.
#[cube]
fn combine_channels<T: Types>(
    found: &Sums<T::A, T::N>,
    rows: &BackwardRows<T::A, T::N>,
    share: &Share,
    bound: &mut Bound<'_, T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Channels<T::A> {
    let team = comptime!(blueprint.team);
    let lanes = comptime!(if blueprint.combines_within() {
        blueprint.rows_per_unit * team.vector
    } else {
        1
    });
    let mut channels = Channels::<T::A>::with_capacity(lanes);
    if comptime!(blueprint.combines_within()) {
        for r in 0..blueprint.rows_per_unit {
            let sums = of_row::<T::A, T::N>(found, r, share);
            let item = item(round + r, partition, team);
            write_channels::<T>(bound.results, &sums, item.row, partition);
            let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
            if comptime!(blueprint.scale.is_some()) {
                let scale = rows.get(r).scale.constant;
                channels.set::<T::N>(r, sums.mean * scale, sums.m2 * scale, zero);
            } else {
                channels.set::<T::N>(r, sums.mean, sums.m2, zero);
            }
        }
        let count = T::A::cast_from(share.count);
        channels.combine(partition.channels, count, lanes, team);
    }
    channels
}

/// Writes the input gradient of a step of each row. Returns its parameter gradients, summed over
/// the rows.
#[cube]
fn write_step<T: Types>(
    step: usize,
    rows: &BackwardRows<T::A, T::N>,
    written: &WrittenRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: BackwardBlueprint,
) -> ColumnStep<T::A, T::N> {
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut products = zero;
    let mut gradients = zero;
    for r in 0..blueprint.rows_per_unit {
        let (row, source, scalars) = (rows.get(r), bound.source, bound.scalars);
        let params = params::<T>(source, &row, step, blueprint);
        let read = read_step::<T, T::A, T::A, T::A>(source, &row, step, blueprint);
        let element = element::<T>(&read, source, &row, &params, step, scalars, blueprint);
        if comptime!(blueprint.input_gradient.is_some()) {
            let passed = passed_back::<T::A, T::N>(&element, &written.correction(r), blueprint);
            let output = written.output[r];
            let value = pass_gate::<T>(
                passed, &read, &element, &params, output, step, bound, blueprint,
            );
            store_gradient::<T>(value, output, step, bound, blueprint);
        }
        if comptime!(blueprint.column_sums.any()) {
            let of_row = column_step::<T::A, T::N>(&element, written.first_lane[r], blueprint);
            products += of_row.products;
            gradients += of_row.gradients;
        }
    }
    ColumnStep::<T::A, T::N> {
        products,
        gradients,
    }
}

/// Tiled form of [`reduce_item`](crate::backward::rows::reduce_item).
#[cube]
pub(crate) fn reduce_tile<T: Types, W: Size>(
    source: &TypedBackwardSource<T>,
    workspace: &mut Workspace<T::A, W>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    if first.in_bounds {
        let share = my_share(first.part, partition, team);
        let rows = find_rows::<T>(source, round, partition, blueprint);
        let found = sum_up::<T>(source, &rows, &share, scalars, blueprint);
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            let sums = of_row::<T::A, T::N>(&found, r, &share);
            write_part::<T::A, T::N, W>(workspace, &sums, item.group, item.part, partition, team);
        }
    }
}
