//! Backward pass of a tile of adjacent rows on a CPU: see [`crate::cpu::forward_tile`].

use cubecl::prelude::*;
use cubenorm_core::{BLOCK, BackwardBlueprint};

use crate::backward::correction::{Correction, correction, passed_back};
use crate::backward::element::{
    BackwardRows, TypedBackwardSource, backward_row, element, params, read_step,
};
use crate::backward::io::{Bound, write_rows, write_segments};
use crate::backward::param_partials::{add_columns, add_nothing, part_of_columns};
use crate::backward::stage::ColumnStep;
use crate::backward::step::column_step;
use crate::backward::sums::summed;
use crate::forward::apply::Scalars;
use crate::memory::access::{Optional, optional_start, store};
use crate::reduce::accumulate::APART;
use crate::reduce::moments::{Moments, Sums, same};
use crate::reduce::segments::{Segments, combined};
use crate::reduce::split::{Partition, Workspace, merge_parts, write_part};
use crate::schedule::{Share, first_own_lane, item, my_share};
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
    fn room(#[comptime] rows: usize) -> Self {
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
    let mut rows = BackwardRows::<T::A, T::N>::room(blueprint.rows_per_unit);
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, blueprint.team);
        let row = backward_row::<T>(source, item.row, partition, blueprint);
        rows.set(r, &row);
    }
    rows
}

/// Reduces a unit's slice of each row: the tiled form of [`sum_up`](super::sums::sum_up).
#[cube]
fn sum_up<T: Types>(
    source: &TypedBackwardSource<T>,
    rows: &BackwardRows<T::A, T::N>,
    share: &Share,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sums<T::A, T::N> {
    let rows_per_unit = comptime!(blueprint.rows_per_unit);
    let mut total = Sums::<T::A, T::N>::zeros(rows_per_unit);
    let mut done = 0usize;
    while done < share.count {
        let end = min(done + BLOCK, share.count);
        let mut block = Sums::<T::A, T::N>::zeros(rows_per_unit);
        let mut i = done;
        while i < end {
            let stop = min(i + APART, end);
            let mut several = Sums::<T::A, T::N>::zeros(rows_per_unit);
            for j in i..stop {
                let step = share.begin + j;
                for r in 0..rows_per_unit {
                    let row = rows.get(r);
                    let params = params::<T>(source, &row, step, blueprint);
                    let read = read_step::<T, T::A>(source, &row, step, blueprint);
                    let element =
                        element::<T>(&read, source, &row, &params, step, scalars, blueprint);
                    let gradient = summed::<T::A, T::N>(&element, blueprint);
                    several.plain[r] += gradient;
                    several.products[r] += gradient * element.normalized;
                }
            }
            block.add_all(&several, rows_per_unit, false);
            i = stop;
        }
        total.add_all(&block, rows_per_unit, false);
        done = end;
    }
    total
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
    if first.in_bounds {
        let share = my_share(first.part, partition, team);
        let rows = find_rows::<T>(bound.source, round, partition, blueprint);
        let found = if comptime!(blueprint.reduces && !blueprint.split) {
            sum_up::<T>(bound.source, &rows, &share, bound.scalars, blueprint)
        } else {
            Sums::<T::A, T::N>::zeros(1usize)
        };
        let places = comptime!(if blueprint.combines_within() {
            blueprint.rows_per_unit * team.vector
        } else {
            1
        });
        let mut segments = Segments::<T::A>::room(places);
        if comptime!(blueprint.combines_within()) {
            for r in 0..blueprint.rows_per_unit {
                let sums = of_row::<T::A, T::N>(&found, r, &share);
                let item = item(round + r, partition, team);
                write_segments::<T>(bound.results, &sums, item.row, partition);
                let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
                if comptime!(blueprint.scale.is_some()) {
                    let scale = rows.get(r).scale.constant;
                    segments.set::<T::N>(r, sums.mean * scale, sums.m2 * scale, zero);
                } else {
                    segments.set::<T::N>(r, sums.mean, sums.m2, zero);
                }
            }
            let count = T::A::cast_from(share.count);
            segments.combine(partition.segments, count, places, team);
        }
        let lanes = comptime!(team.lanes);
        let access = comptime!(blueprint.input_gradient);
        let mut written = WrittenRows::<T::A, T::N>::room(blueprint.rows_per_unit);
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            let sums = if comptime!(!blueprint.reduces) {
                of_row::<T::A, T::N>(&found, 0usize, &share)
            } else if comptime!(team.segmented) {
                let of_row = if comptime!(blueprint.split) {
                    let left = parts.as_ref().unwrap();
                    combined::<T::A, T::N, W>(left, item.row, partition, false)
                } else {
                    segments.combined::<T::N>(r)
                };
                same::<T::A, T::N>(&of_row.moments)
            } else if comptime!(blueprint.split) {
                let parts = parts.as_ref().unwrap();
                merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
            } else {
                of_row::<T::A, T::N>(&found, r, &share)
            };
            write_rows::<T>(bound.results, &sums, &item, blueprint);
            let row = rows.get(r);
            let correction =
                correction::<T::A, T::N>(&sums, &row, partition, bound.scalars, blueprint);
            let cols = partition.cols_written;
            let output = optional_start::<T::F, T::Output>(
                &bound.results.input,
                item.row,
                cols,
                access,
                lanes,
            );
            let first_lane = first_own_lane(item.group, partition, team);
            written.set(r, &correction, output, first_lane);
        }
        if comptime!(access.is_some() || blueprint.column_sums.any()) {
            let part = part_of_columns(&first, round, blueprint);
            let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
            for i in 0..share.count {
                let step = share.begin + i;
                let mut products = zero;
                let mut gradients = zero;
                for r in 0..blueprint.rows_per_unit {
                    let row = rows.get(r);
                    let params = params::<T>(bound.source, &row, step, blueprint);
                    let read = read_step::<T, T::A>(bound.source, &row, step, blueprint);
                    let element = element::<T>(
                        &read,
                        bound.source,
                        &row,
                        &params,
                        step,
                        bound.scalars,
                        blueprint,
                    );
                    if comptime!(access.is_some()) {
                        let value =
                            passed_back::<T::A, T::N>(&element, &written.correction(r), blueprint);
                        let tensor = bound.results.input.as_mut().unwrap();
                        store::<T::F, T::Output, T::A, T::N>(
                            tensor,
                            written.output[r],
                            step,
                            value,
                            comptime!(access.unwrap()),
                            lanes,
                        );
                    }
                    if comptime!(blueprint.column_sums.any()) {
                        let of_row =
                            column_step::<T::A, T::N>(&element, written.first_lane[r], blueprint);
                        products += of_row.products;
                        gradients += of_row.gradients;
                    }
                }
                let sums = ColumnStep::<T::A, T::N> {
                    products,
                    gradients,
                };
                add_columns::<T>(bound.results, &part, step, &sums, partition, blueprint);
            }
        }
    } else {
        let share = my_share(first.part, partition, team);
        add_nothing::<T>(bound.results, &share, round, partition, blueprint);
    }
}

/// Tiled form of [`partial_sums`](super::kernel::gradient_parts).
#[cube]
pub(crate) fn sum_up_tile<T: Types, W: Size>(
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
