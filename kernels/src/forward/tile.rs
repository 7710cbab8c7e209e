//! Forward kernel for a tile of adjacent rows, vectorized perpendicular to the reduction (CPU).
//!
//! The state of each row is in arrays, and a rolled loop visits all rows at each step. Memory is
//! therefore read and written in address order. Unrolled rows would exceed the registers, and eight
//! of them take seconds to compile.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::epilogue::{AffineRows, FoldedRows, affine_step, folded_row};
use crate::forward::apply::{apply, load_step, write_step};
use crate::forward::io::{Bound, ResultRow, Row, result_row, writes_sum_here};
use crate::forward::parts::{BoundParts, write_row_part};
use crate::forward::statistics::item_statistics;
use crate::memory::access::{Optional, optional_offset, step_offset};
use crate::memory::input::{SourceRow, SourceRows, TypedSource, source_row};
use crate::reduce::accumulate::{Accumulated, accumulate};
use crate::reduce::channels::{Channels, combined};
use crate::reduce::moments::{RowStatistics, nothing_reduced, same};
use crate::reduce::split::merge_parts;
use crate::schedule::item::item;
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, my_share};
use crate::types::Types;

/// Statistics, parameters and output positions of a tile's rows.
#[derive(CubeType)]
struct WrittenRows<A: Float, N: Size> {
    mean: Array<Vector<A, N>>,
    rstd: Array<Vector<A, N>>,
    output: Array<usize>,
    sum: Array<usize>,
    affine: AffineRows<A, N>,
    folded: FoldedRows<A, N>,
}

#[cube]
impl<A: Float, N: Size> WrittenRows<A, N> {
    fn with_capacity(#[comptime] rows: usize) -> Self {
        WrittenRows::<A, N> {
            mean: Array::<Vector<A, N>>::new(rows),
            rstd: Array::<Vector<A, N>>::new(rows),
            output: Array::<usize>::new(rows),
            sum: Array::<usize>::new(rows),
            affine: AffineRows::<A, N>::with_capacity(rows),
            folded: FoldedRows::<A, N>::with_capacity(rows),
        }
    }

    fn set(
        &mut self,
        r: usize,
        source: &SourceRow<A, N>,
        statistics: &RowStatistics<A, N>,
        result: &ResultRow<A, N>,
        #[comptime] blueprint: Blueprint,
    ) {
        if comptime!(blueprint.team.folds()) {
            let shift = source.shift;
            let folded = folded_row::<A, N>(&result.affine, shift, statistics, blueprint);
            self.folded.set(r, &folded);
        }
        self.mean[r] = statistics.mean;
        self.rstd[r] = statistics.rstd;
        self.output[r] = result.output;
        self.sum[r] = result.sum;
        self.affine.set(r, &result.affine);
    }

    /// Statistics for normalizing. The variance is not kept, since it has been written already.
    fn statistics(&self, r: usize) -> RowStatistics<A, N> {
        RowStatistics::<A, N> {
            mean: self.mean[r],
            variance: Vector::new(A::new(0.0)),
            rstd: self.rstd[r],
        }
    }

    /// Position of row `r`, advanced by a number of elements of output and sum. Only full tiles are
    /// planned, so every row is in bounds.
    fn result(&self, r: usize, output: usize, sum: usize) -> ResultRow<A, N> {
        ResultRow::<A, N> {
            output: self.output[r] + output,
            sum: self.sum[r] + sum,
            affine: self.affine.get(r),
            // Tiles are not planned with a rotation.
            rotation: 0usize.runtime(),
            in_bounds: true.runtime(),
        }
    }
}

/// Locates the rows of a tile. The first of them is the work item `round`.
#[cube]
fn find_rows<T: Types>(
    source: &TypedSource<T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> SourceRows<T::A, T::N> {
    let mut rows = SourceRows::<T::A, T::N>::with_capacity(blueprint.rows_per_unit);
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, blueprint.team);
        rows.set(r, &source_row::<T>(source, item.row, partition, blueprint));
    }
    rows
}

/// Offset of a step from the start of its row, in each tensor.
#[derive(CubeType, Clone, Copy)]
struct Further {
    input: usize,
    residual: usize,
    output: usize,
    sum: usize,
}

/// Computes the offsets once for all rows. The compiler cannot hoist them, since stores may alias
/// the strides.
#[cube]
fn offset_by<T: Types>(
    bound: &Bound<'_, T>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Further {
    let vectorization = comptime!(blueprint.team.lanes());
    let (input, output) = comptime!((blueprint.input, blueprint.output));
    let residual = comptime!(blueprint.residual());
    let sum = comptime!(writes_sum_here(blueprint).then_some(output));
    Further {
        input: step_offset::<T::F, T::Input, T::N>(&bound.source.input, step, input, vectorization),
        residual: optional_offset::<T::R, T::Residual, T::N>(
            &bound.source.residual,
            step,
            residual,
            vectorization,
        ),
        output: step_offset::<T::O, T::Output, T::N>(
            &bound.results.output,
            step,
            output,
            vectorization,
        ),
        sum: optional_offset::<T::F, T::Output, T::N>(&bound.results.sum, step, sum, vectorization),
    }
}

/// Normalizes a tile whose first row is the work item `round`: the tiled form of
/// [`normalize_items`](crate::forward::rows::normalize_items).
#[cube]
pub(crate) fn normalize_tile<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    parts: &Optional<T::A, W>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    if first.in_bounds {
        let share = my_share(first.part, partition, team);
        // Channels that another launch combines share one shift, so none is sampled here.
        let samples = comptime!(Blueprint {
            shift: blueprint
                .shift
                .filter(|_| !team.is_segmented() || blueprint.combines_within()),
            ..blueprint
        });
        let mut rows = find_rows::<T>(bound.source, round, partition, samples);
        let found = if comptime!(blueprint.statistics.reduces() && !blueprint.split()) {
            let rows_per_unit = comptime!(blueprint.rows_per_unit);
            accumulate::<T>(bound.source, &rows, &share, rows_per_unit, blueprint)
        } else {
            Accumulated::<T::A, T::N>::nothing(1usize)
        };
        let channels = combine_channels::<T>(&found, &rows, &share, partition, blueprint);
        let mut written = WrittenRows::<T::A, T::N>::with_capacity(blueprint.rows_per_unit);
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            let result = result_row::<T>(&*bound, &item, partition.cols_written, blueprint);
            let mut row = rows.get(r);
            if comptime!(!blueprint.statistics.reduces()) {
                let nothing = nothing_reduced::<T::A, T::N>();
                written.set(r, &row, &nothing, &result, blueprint);
            } else {
                let moments = if comptime!(team.is_segmented()) {
                    let of_row = if comptime!(blueprint.split()) {
                        let parts = parts.as_ref().unwrap();
                        combined::<T::A, T::N, W>(parts, item.row, partition, blueprint.shifts())
                    } else {
                        channels.combined::<T::N>(r)
                    };
                    row.shift = of_row.shift;
                    same::<T::A, T::N>(&of_row.moments)
                } else if comptime!(blueprint.split()) {
                    let parts = parts.as_ref().unwrap();
                    merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
                } else {
                    found.of_row(r)
                };
                let statistics =
                    item_statistics::<T>(&moments, &row, bound, &item, partition, blueprint);
                rows.set(r, &row);
                written.set(r, &row, &statistics, &result, blueprint);
            }
        }
        if comptime!(blueprint.writes_output) {
            for i in 0..share.count {
                apply_step::<T>(share.begin + i, &rows, &written, bound, blueprint);
            }
        }
    }
}

/// Combines the statistics of the tile's channels, if the tile holds whole groups.
#[cube]
fn combine_channels<T: Types>(
    found: &Accumulated<T::A, T::N>,
    rows: &SourceRows<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
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
            let of_vector = found.of_row(r);
            let shift = rows.get(r).shift;
            channels.set::<T::N>(r, of_vector.mean, of_vector.m2, shift);
        }
        let count = T::A::cast_from(share.count);
        channels.combine(partition.channels, count, lanes, team);
    }
    channels
}

/// Normalizes one step of each row and stores it.
#[cube]
fn apply_step<T: Types>(
    step: usize,
    rows: &SourceRows<T::A, T::N>,
    written: &WrittenRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let offset_by = offset_by::<T>(&*bound, step, blueprint);
    let here = 0usize.runtime();
    for r in 0..blueprint.rows_per_unit {
        let source = rows.get(r).offset_by(offset_by.input, offset_by.residual);
        let result = written.result(r, offset_by.output, offset_by.sum);
        let loaded = load_step::<T>(bound.source, &source, here, blueprint);
        if comptime!(blueprint.team.folds()) {
            let transformed = written.folded.get(r).apply(loaded.value, blueprint);
            write_step::<T>(&loaded, transformed, here, &result, bound, blueprint);
        } else {
            let row = Row::<T::A, T::N> {
                source,
                statistics: written.statistics(r),
                result,
            };
            let affine = &row.result.affine;
            let own = affine_step::<T>(bound.affine, affine, step, bound.epsilon(), blueprint);
            apply::<T>(&loaded, here, &row, &own, bound, blueprint);
        }
    }
}

/// Tiled form of [`reduce_item`](crate::forward::parts::reduce_item).
#[cube]
pub(crate) fn reduce_tile<T: Types, W: Size>(
    bound: &mut BoundParts<'_, T, W>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let first = item(round, partition, blueprint.team);
    if first.in_bounds {
        let share = my_share(first.part, partition, blueprint.team);
        let rows = find_rows::<T>(bound.source, round, partition, blueprint);
        let rows_per_unit = comptime!(blueprint.rows_per_unit);
        let found = accumulate::<T>(bound.source, &rows, &share, rows_per_unit, blueprint);
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, blueprint.team);
            let (row, moments) = (rows.get(r), found.of_row(r));
            write_row_part::<T, W>(bound, &row, &moments, &item, &share, partition, blueprint);
        }
    }
}
