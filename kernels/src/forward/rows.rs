//! Bodies of the forward [kernels](crate::forward::kernel), for one row or several rows per unit.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint, Level, Staging, Vectorization, WrittenStatistics};

use crate::epilogue::{FoldedRow, affine_step};
use crate::forward::apply::{
    Bound, ResultRow, Row, TypedResults, UnitRows, apply_kept, apply_rows, apply_steps, result_row,
};
use crate::forward::tail::{apply_run, takes_runs};
use crate::memory::access::{Optional, row_offset, row_start, store};
use crate::memory::input::{
    SourceRow, TypedSource, first_lane, number_or_zero, read, sample_steps, shifted, source_row,
    source_start,
};
use crate::memory::stage::{TypedStaged, staging};
use crate::reduce::accumulate::{row_moments, second_moment_term, whole_moments};
use crate::reduce::moments::{Moments, RowStatistics, Sums, finish, nothing_reduced, same};
use crate::reduce::scaled;
use crate::reduce::segments::{Combined, combined, write_shift};
use crate::reduce::split::{Partition, merge_parts, row_elements, write_part};
use crate::reduce::{member, merge_team, team_sum};
use crate::schedule::{Item, Share, item, my_share};
use crate::types::{One, Types};

/// Accumulators of a unit that stages a whole row. With four, LLVM reorders the loads and defeats
/// the hardware prefetcher.
///
/// `256 f32 AVX-512, 2 vs. 4: 1.1x to 1.25x faster`
const STAGED_CHAINS: usize = 2;

/// Independent accumulators of a unit. A unit that shares its row hides latency by occupancy
/// instead, and needs the registers.
fn chains(blueprint: &Blueprint) -> usize {
    match blueprint.team.level {
        Level::Unit => STAGED_CHAINS,
        Level::Plane | Level::Cube | Level::Perpendicular => 1,
    }
}

/// Leading vectors whose mean is the shift of the shifted-data variance: all of them if a team
/// shares the row, the first if a unit owns it.
///
/// A mean of `m` of `n` elements magnifies the rounding of the sum of squares by at most `1 + n /
/// m`. A unit stages at most 16 vectors. A second pass over all elements would be an exposed
/// dependency chain.
///
/// `256 f32 AVX-512, first vector vs. all: 1.11x to 1.59x faster`
fn shift_vectors(blueprint: &Blueprint) -> usize {
    let vectors = blueprint.staging.vectors().unwrap_or(0);
    match blueprint.team.level {
        Level::Unit => sample_steps(blueprint.team).min(vectors),
        Level::Plane | Level::Cube | Level::Perpendicular => vectors,
    }
}

/// Number of sampled elements if a unit samples its own row. A shorter row repeats its last vector.
fn sampled_elements(blueprint: &Blueprint) -> Option<usize> {
    let lanes = match blueprint.team.lanes {
        Vectorization::Parallel => blueprint.team.vector,
        Vectorization::Perpendicular => 1,
    };
    (blueprint.team.level == Level::Unit).then(|| shift_vectors(blueprint) * lanes)
}

/// Shift of a staged row of `count` elements: the mean of [`shift_vectors`], or 0 if it is not
/// finite. [`staged_moments`] corrects for its distance from the mean.
///
/// For f16/bf16 it is the [first element](Blueprint::first_is_shift), which needs no reduction. It
/// magnifies the rounding of the sum of `n` squares by at most `1 + n`. A unit stages at most 512
/// elements, so f32 sums keep more digits than f16 has.
///
/// `32 to 192 f16 AVX-512, first element vs. first vector's mean: 1.05x to 1.2x faster`
#[cube]
fn staged_shift<T: Types>(
    staged: &TypedStaged<T>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    if comptime!(blueprint.shifts && blueprint.first_is_shift) {
        let first = first_lane::<T::A, T::N>(staged.get(0usize, blueprint), blueprint.team);
        number_or_zero::<T::A, T::N>(first)
    } else if comptime!(blueprint.shifts) {
        let vectors = comptime!(shift_vectors(&blueprint));
        let chains = comptime!(chains(&blueprint).min(vectors));
        let sampled = comptime!(sampled_elements(&blueprint));
        let elements = if comptime!(sampled.is_some()) {
            T::A::new(comptime!(sampled.unwrap_or(1) as f32))
        } else {
            count
        };
        let weight = Vector::<T::A, T::N>::new(T::A::new(1.0) / elements);
        let mut means = Sums::<T::A, T::N>::zeros(chains);
        #[unroll]
        for i in 0..vectors {
            if comptime!(sampled.is_some()) || i < share.count {
                // Weighted one by one, because their sum may overflow.
                means.plain[comptime!(i % chains)] += staged.get(i, blueprint) * weight;
            }
        }
        let mine = means.total(elements, chains).mean;
        number_or_zero::<T::A, T::N>(team_sum::<T::A, T::N>(mine, blueprint.team))
    } else {
        Vector::new(T::A::new(0.0))
    }
}

/// Moments of a staged row of `count` elements, relative to its shift.
#[cube]
fn staged_moments<T: Types>(
    staged: &TypedStaged<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    if comptime!(blueprint.statistics.is_norm()) {
        let mine = scaled::staged::<T>(staged, share, count, blueprint);
        merge_team::<T::A, T::N>(&mine, blueprint.team)
    } else {
        let vectors = comptime!(blueprint.staging.vectors().unwrap_or(0));
        let chains = comptime!(chains(&blueprint).min(vectors));
        let mut sums = Sums::<T::A, T::N>::zeros(chains);
        #[unroll]
        for i in 0..vectors {
            if i < share.count {
                let deviation = shifted::<T::A, T::N>(staged.get(i, blueprint), row, blueprint);
                let chain = comptime!(i % chains);
                sums.plain[chain] += deviation;
                sums.products[chain] += second_moment_term::<T::A, T::N>(deviation, blueprint);
            }
        }
        let mine = sums.total(count, chains);
        whole_moments::<T>(&mine, count, blueprint)
    }
}

/// Writes the two statistics of each row of a group if requested.
#[cube]
#[allow(
    clippy::manual_is_multiple_of,
    reason = "kernels have no such function"
)]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn write_statistics<T: Types>(
    results: &mut TypedResults<T>,
    source_row: &SourceRow<T::A, T::N>,
    statistics: &RowStatistics<T::A, T::N>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    if comptime!(blueprint.written_statistics.is_some()) {
        if item.in_bounds && item.part == 0 && member(blueprint.team) == 0 {
            let tensor = results.statistics.as_mut().unwrap();
            let dims = comptime!(blueprint.written_statistics.unwrap().1);
            let access = comptime!(AccessBlueprint::of_numbers(dims, 0));
            let rows = comptime!(match blueprint.team.lanes {
                Vectorization::Parallel => 1,
                Vectorization::Perpendicular => blueprint.team.vector,
            });
            #[unroll]
            for lane in 0..rows {
                let row = item.row + lane;
                let pair =
                    2 * row_offset::<T::A, One>(&*tensor, row, access, Vectorization::Parallel);
                let is_norm = comptime!(blueprint.statistics.is_norm());
                let mean = if is_norm {
                    T::A::new(0.0)
                } else {
                    source_row.shift.extract(lane) + statistics.mean.extract(lane)
                };
                let second = if comptime!(
                    blueprint.written_statistics.unwrap().0 == WrittenStatistics::MeanVariance
                ) {
                    statistics.variance.extract(lane)
                } else if is_norm {
                    statistics.rstd.extract(lane) * statistics.mean.extract(lane)
                } else {
                    statistics.rstd.extract(lane)
                };
                // Combined segments share one pair, which the first segment writes.
                if comptime!(!blueprint.team.segmented) || row % partition.segments == 0 {
                    tensor[pair] = Vector::new(mean);
                    tensor[pair + 1] = Vector::new(second);
                }
            }
        }
    }
}

/// Normalizes the unit's next rows, the first of which is the work item `round`.
///
/// They share the loads of scale and bias. On a driver that loads lane by lane, those cost as much
/// as the row itself.
#[cube]
pub(crate) fn normalize_items<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    parts: &Optional<T::A, W>,
    kept: &Sequence<FoldedRow<T::A, T::N>>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let first = item(round, partition, blueprint.team);
    // Units of different teams share the barriers of a column, so all of them stay: see
    // `Item::in_bounds`. At other levels, a team without work skips the round.
    let comes = first.in_bounds || comptime!(blueprint.team.level == Level::Perpendicular);
    if comes {
        let share = my_share(first.part, partition, blueprint.team);
        let stride = comptime!(blueprint.team.size as usize);
        let is_staged_row = comptime!(blueprint.staging != Staging::Reload);
        let mut items = Sequence::<Item>::new();
        let mut sources = Sequence::<SourceRow<T::A, T::N>>::new();
        let mut written = Sequence::<ResultRow<T::A, T::N>>::new();
        let mut staged = Sequence::<TypedStaged<T>>::new();
        // Issues all loads of staged rows, and locates their outputs, before the first use.
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, blueprint.team);
            // Segments that another launch combines share one shift, so none is sampled here.
            let samples = comptime!(Blueprint {
                shifts: blueprint.shifts && !blueprint.team.segmented,
                ..blueprint
            });
            let source_row = source_row::<T>(bound.source, item.row, partition, samples);
            if is_staged_row {
                staged.push(staging::<T>(
                    bound.source,
                    &source_row,
                    &share,
                    partition.steps,
                    blueprint,
                ));
            }
            written.push(result_row::<T>(
                &*bound,
                &item,
                partition.cols_written,
                blueprint,
            ));
            items.push(item);
            sources.push(source_row);
        }
        let mut rows = Sequence::<Row<T::A, T::N>>::new();
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let (item, found) = (items.index(r), sources.index(r));
            let count = row_elements::<T::A, T::N>(partition, blueprint.team);
            let of_segments = if comptime!(blueprint.team.segmented) {
                let left = parts.as_ref().unwrap();
                let shifts = comptime!(blueprint.shifts);
                ComptimeOption::<Combined<T::A, T::N>>::new_Some(combined::<T::A, T::N, W>(
                    left, item.row, partition, shifts,
                ))
            } else {
                ComptimeOption::<Combined<T::A, T::N>>::new_None()
            };
            let shift = if is_staged_row {
                staged_shift::<T>(staged.index(r), &share, count, blueprint)
            } else if comptime!(blueprint.team.segmented) {
                of_segments.as_ref().unwrap().shift
            } else {
                found.shift
            };
            let source_row = SourceRow::<T::A, T::N> {
                input: found.input,
                residual: found.residual,
                shift,
            };
            let statistics = if comptime!(!blueprint.statistics.reduces()) {
                nothing_reduced::<T::A, T::N>()
            } else {
                let moments = if comptime!(blueprint.team.segmented) {
                    same::<T::A, T::N>(&of_segments.as_ref().unwrap().moments)
                } else if comptime!(blueprint.split) {
                    let parts = parts.as_ref().unwrap();
                    merge_parts::<T::A, T::N, W>(parts, item.group, partition, blueprint.team)
                } else if is_staged_row {
                    staged_moments::<T>(staged.index(r), &source_row, &share, count, blueprint)
                } else {
                    row_moments::<T>(bound.source, &source_row, &share, partition, blueprint)
                };
                item_statistics::<T>(&moments, &source_row, bound, item, partition, blueprint)
            };
            rows.push(Row::<T::A, T::N> {
                source: source_row,
                statistics,
            });
        }
        let next = if comptime!(blueprint.prefetch_next_row) {
            let next = item(round + 1, partition, blueprint.team);
            ComptimeOption::new_Some(source_start::<T>(
                bound.source,
                next.row,
                partition.cols,
                blueprint,
            ))
        } else {
            ComptimeOption::new_None()
        };
        let rows_per_unit = UnitRows::<T::A, T::N> {
            rows,
            written,
            next,
        };
        // Plans with several rows per unit require that these share all parameters.
        let any = &rows_per_unit.written.index(0usize).affine;
        if is_staged_row {
            let vectors = comptime!(blueprint.staging.vectors().unwrap_or(0));
            #[unroll]
            for i in 0..vectors {
                if i < share.count {
                    let step = share.begin + i * stride;
                    let own = affine_step::<T>(bound.affine, any, step, bound.epsilon(), blueprint);
                    let mut values = Sequence::<Vector<T::A, T::N>>::new();
                    #[unroll]
                    for r in 0..blueprint.rows_per_unit {
                        values.push(staged.index(r).get(i, blueprint));
                    }
                    apply_rows::<T>(
                        &values,
                        0usize,
                        step,
                        &own,
                        &rows_per_unit,
                        bound,
                        blueprint,
                    );
                }
            }
        } else if comptime!(blueprint.params_kept.is_some()) {
            apply_kept::<T>(kept, &rows_per_unit, bound, blueprint);
        } else if comptime!(blueprint.params_by_run) {
            let mut done = 0usize;
            while done < share.count {
                let first = share.begin + done;
                let of_run = affine_step::<T>(bound.affine, any, first, bound.epsilon(), blueprint);
                let steps = min(share.count - done, partition.run - first % partition.run);
                let of_run = ComptimeOption::new_Some(of_run);
                if comptime!(takes_runs(blueprint)) {
                    apply_run::<T>(
                        first,
                        steps,
                        &of_run,
                        &rows_per_unit,
                        bound,
                        partition,
                        blueprint,
                    );
                } else {
                    apply_steps::<T>(first, steps, &of_run, &rows_per_unit, bound, blueprint);
                }
                done += steps;
            }
        } else {
            let nothing = ComptimeOption::new_None();
            apply_steps::<T>(
                share.begin,
                share.count,
                &nothing,
                &rows_per_unit,
                bound,
                blueprint,
            );
        }
    }
}

/// Statistics of a row from its moments. Writes them if requested.
#[cube]
pub(crate) fn item_statistics<T: Types>(
    moments: &Moments<T::A, T::N>,
    source_row: &SourceRow<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> RowStatistics<T::A, T::N> {
    let count = row_elements::<T::A, T::N>(partition, blueprint.team);
    let statistics = finish::<T::A, T::N>(moments, count, bound.epsilon(), blueprint);
    write_statistics::<T>(
        bound.results,
        source_row,
        &statistics,
        item,
        partition,
        blueprint,
    );
    statistics
}

/// Reduces the part of a row that is the work item `round`.
#[cube]
pub(crate) fn reduce_item<T: Types, W: Size>(
    source: &TypedSource<T>,
    sum: &mut Optional<T::F, T::Output>,
    workspace: &mut Tensor<Vector<T::A, W>>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let item = item(round, partition, blueprint.team);
    let comes = item.in_bounds || comptime!(blueprint.team.level == Level::Perpendicular);
    if comes {
        let row = source_row::<T>(source, item.row, partition, blueprint);
        let share = my_share(item.part, partition, blueprint.team);
        let merged = row_moments::<T>(source, &row, &share, partition, blueprint);
        if item.in_bounds {
            leave_part::<T, W>(
                source, sum, workspace, &row, &merged, &item, &share, partition, blueprint,
            );
        }
    }
}

/// Writes the statistics of a part, and its shift if needed, to the workspace. Also writes the sum
/// of input and residual if requested.
#[cube]
#[allow(clippy::too_many_arguments)]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
pub(crate) fn leave_part<T: Types, W: Size>(
    source: &TypedSource<T>,
    sum: &mut Optional<T::F, T::Output>,
    workspace: &mut Tensor<Vector<T::A, W>>,
    row: &SourceRow<T::A, T::N>,
    found: &Moments<T::A, T::N>,
    item: &Item,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let (group, part) = (item.group, item.part);
    write_part::<T::A, T::N, W>(workspace, found, group, part, partition, team);
    if comptime!(team.segmented && blueprint.shifts) {
        if part == 0 {
            write_shift::<T::A, T::N, W>(workspace, row.shift, group, partition, team);
        }
    }
    if comptime!(blueprint.writes_sum) {
        let sum = sum.as_mut().unwrap();
        let lanes = comptime!(team.lanes);
        let access = comptime!(blueprint.output);
        let cols = partition.cols_written;
        let base = row_start::<T::F, T::Output>(&*sum, item.row, cols, access, lanes);
        for i in 0..share.count {
            let step = share.begin + i * comptime!(team.size as usize);
            let value = read::<T>(source, row, step, blueprint);
            store::<T::F, T::Output, T::A, T::N>(sum, base, step, value, access, lanes);
        }
    }
}
