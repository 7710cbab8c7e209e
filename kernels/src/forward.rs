//! The way through a normalization, row by row or rows abreast: what the [kernels](crate::kernel) run.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint, Hold, Lanes, Level, WrittenStatistics};

use crate::accumulate::{row_moments, spread, whole_moments};
use crate::apply::{
    Abreast, Bound, ResultRow, Row, TypedResults, apply_abreast, apply_kept, apply_steps,
    result_row,
};
use crate::ends::{apply_run, takes_runs};
use crate::epilogue::{FoldedRow, affine_step};
use crate::held::{TypedHeld, hold};
use crate::moments::{Moments, RowStatistics, Sums, finish, nothing_reduced, same};
use crate::operand::{Optional, row_offset, row_start, store};
use crate::source::{
    SourceRow, TypedSource, first_lane, number_or_zero, read, sample_steps, shifted, source_row,
    source_start,
};
use crate::strategy::split::{Partition, merge_parts, row_elements, write_part};
use crate::strategy::strands::{Joined, joined, write_shift};
use crate::strategy::{member, team_sum};
use crate::types::{One, Types};
use crate::work::{Item, Share, item, my_share};

/// Sums side by side of a unit that holds a row for itself. With four LLVM loads the row in the order of the sums, two
/// vectors here and two there, which the prefetcher of a core does not follow: measured with AVX-512, rows of 256 floats
/// take 1.1 to 1.25 times the time.
const HELD_CHAINS: usize = 2;

/// Sums of a unit side by side, so that no addition waits for the one before it. A unit of a team has others to
/// work on meanwhile, and needs the registers.
fn chains(blueprint: &Blueprint) -> usize {
    match blueprint.team.level {
        Level::Unit => HELD_CHAINS,
        Level::Plane | Level::Cube | Level::Column => 1,
    }
}

/// Vectors of a row that a unit holds of which the shift is the mean: all where others hold the rest, and the first where
/// it has the row for itself.
///
/// What the shift is off the mean by cancels in the sum of squares, `1 + n / m` times it at most for `m` of `n`
/// elements, and a unit holds 16 vectors at most. Two sums of all elements one after the other are waited for where no
/// other unit has work meanwhile. Measured with AVX-512, without them rows of 256 floats take 0.63 of the time where
/// memory is fast and 0.9 where it is slow, of 96 floats 0.76 in a cache and 1.0 to 1.2 in slow memory, of 96 halves 0.78
/// and 0.9.
fn shift_vectors(blueprint: &Blueprint) -> usize {
    let vectors = blueprint.hold.vectors().unwrap_or(0);
    match blueprint.team.level {
        Level::Unit => sample_steps(blueprint.team).min(vectors),
        Level::Plane | Level::Cube | Level::Column => vectors,
    }
}

/// Elements that those are where a unit samples its row; of a shorter row its last vector is there several times.
fn sampled_elements(blueprint: &Blueprint) -> Option<usize> {
    let lanes = match blueprint.team.lanes {
        Lanes::Columns => blueprint.team.vector,
        Lanes::Rows => 1,
    };
    (blueprint.team.level == Level::Unit).then(|| shift_vectors(blueprint) * lanes)
}

/// The shift of a row of `count` elements that its team holds: the mean of [`shift_vectors`], as far as it is a
/// number, which [`held_moments`] takes off and finds what the row's mean is off by.
///
/// Of halves it is the [first element](Blueprint::first_is_shift), as nobody waits for that: the sum of `n` squares is
/// `1 + n` times what it should be then at most, which leaves more digits of single precision than a half has, as a unit
/// holds 512 at most. Measured with AVX-512, rows of 32 to 192 take 0.83 to 0.95 of the time of the first vector's mean.
#[cube]
fn held_shift<T: Types>(
    held: &TypedHeld<T>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    if comptime!(blueprint.shifts && blueprint.first_is_shift) {
        let first = first_lane::<T::A, T::N>(held.get(0usize, blueprint), blueprint.team);
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
                // Weighted one by one, because their sum may be more than a number holds.
                means.plain[comptime!(i % chains)] += held.get(i, blueprint) * weight;
            }
        }
        let mine = means.total(elements, chains).mean;
        number_or_zero::<T::A, T::N>(team_sum::<T::A, T::N>(mine, blueprint.team))
    } else {
        Vector::new(T::A::new(0.0))
    }
}

/// The moments of a row of `count` elements that its team holds, relative to its shift.
#[cube]
fn held_moments<T: Types>(
    held: &TypedHeld<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let vectors = comptime!(blueprint.hold.vectors().unwrap_or(0));
    let chains = comptime!(chains(&blueprint).min(vectors));
    let mut sums = Sums::<T::A, T::N>::zeros(chains);
    #[unroll]
    for i in 0..vectors {
        if i < share.count {
            let deviation = shifted::<T::A, T::N>(held.get(i, blueprint), row, blueprint);
            let chain = comptime!(i % chains);
            sums.plain[chain] += deviation;
            sums.products[chain] += spread::<T::A, T::N>(deviation, blueprint);
        }
    }
    let mine = sums.total(count, chains);
    whole_moments::<T>(&mine, count, blueprint)
}

/// Writes two numbers for each row of a group where they are asked for.
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
        if item.exists && item.part == 0 && member(blueprint.team) == 0 {
            let tensor = results.statistics.as_mut().unwrap();
            let dims = comptime!(blueprint.written_statistics.unwrap().1);
            let access = comptime!(AccessBlueprint::of_numbers(dims, 0));
            let rows = comptime!(match blueprint.team.lanes {
                Lanes::Columns => 1,
                Lanes::Rows => blueprint.team.vector,
            });
            #[unroll]
            for lane in 0..rows {
                let row = item.row + lane;
                let pair = 2 * row_offset::<T::A, One>(&*tensor, row, access, Lanes::Columns);
                let mean = source_row.shift.extract(lane) + statistics.mean.extract(lane);
                let second = if comptime!(
                    blueprint.written_statistics.unwrap().0 == WrittenStatistics::MeanVariance
                ) {
                    statistics.variance.extract(lane)
                } else {
                    statistics.rstd.extract(lane)
                };
                // Of strands with one pair for all of them the first writes it.
                if comptime!(!blueprint.team.joined) || row % partition.strands == 0 {
                    tensor[pair] = Vector::new(mean);
                    tensor[pair + 1] = Vector::new(second);
                }
            }
        }
    }
}

/// Normalizes as many items as the plan takes abreast, the first of them in `round`.
///
/// Rows abreast share the loads of scale and bias: on a driver that gathers each load lane by lane
/// those weigh as much as the row itself.
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
    // Units of different teams may wait for each other in a column, so all of them come along: see
    // `Item::exists`. Elsewhere a team without work is done.
    let comes = first.exists || comptime!(blueprint.team.level == Level::Column);
    if comes {
        let share = my_share(first.part, partition, blueprint.team);
        let stride = comptime!(blueprint.team.members as usize);
        let is_held = comptime!(blueprint.hold != Hold::Reread);
        let mut items = Sequence::<Item>::new();
        let mut sources = Sequence::<SourceRow<T::A, T::N>>::new();
        let mut written = Sequence::<ResultRow<T::A, T::N>>::new();
        let mut held = Sequence::<TypedHeld<T>>::new();
        // All that is held is on its way before anything waits for the first of it, and so is where results belong.
        #[unroll]
        for r in 0..blueprint.abreast {
            let item = item(round + r, partition, blueprint.team);
            // Strands that are joined have one shift, which is not what would be found here.
            let samples = comptime!(Blueprint {
                shifts: blueprint.shifts && !blueprint.team.joined,
                ..blueprint
            });
            let source_row = source_row::<T>(bound.source, item.row, partition, samples);
            if is_held {
                held.push(hold::<T>(
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
        for r in 0..blueprint.abreast {
            let (item, found) = (items.index(r), sources.index(r));
            let count = row_elements::<T::A, T::N>(partition, blueprint.team);
            let of_strands = if comptime!(blueprint.team.joined) {
                let left = parts.as_ref().unwrap();
                let shifts = comptime!(blueprint.shifts);
                ComptimeOption::<Joined<T::A, T::N>>::new_Some(joined::<T::A, T::N, W>(
                    left, item.row, partition, shifts,
                ))
            } else {
                ComptimeOption::<Joined<T::A, T::N>>::new_None()
            };
            let shift = if is_held {
                held_shift::<T>(held.index(r), &share, count, blueprint)
            } else if comptime!(blueprint.team.joined) {
                of_strands.as_ref().unwrap().shift
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
                let moments = if comptime!(blueprint.team.joined) {
                    same::<T::A, T::N>(&of_strands.as_ref().unwrap().moments)
                } else if comptime!(blueprint.split) {
                    let parts = parts.as_ref().unwrap();
                    merge_parts::<T::A, T::N, W>(parts, item.group, partition, blueprint.team)
                } else if is_held {
                    held_moments::<T>(held.index(r), &source_row, &share, count, blueprint)
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
        let next = if comptime!(blueprint.fetches_next) {
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
        let abreast = Abreast::<T::A, T::N> {
            rows,
            written,
            next,
        };
        // Rows abreast are planned where scale, bias and given statistics are the same for all of them.
        let any = &abreast.written.index(0usize).affine;
        if is_held {
            let vectors = comptime!(blueprint.hold.vectors().unwrap_or(0));
            #[unroll]
            for i in 0..vectors {
                if i < share.count {
                    let step = share.begin + i * stride;
                    let own = affine_step::<T>(bound.affine, any, step, bound.epsilon(), blueprint);
                    let mut values = Sequence::<Vector<T::A, T::N>>::new();
                    #[unroll]
                    for r in 0..blueprint.abreast {
                        values.push(held.index(r).get(i, blueprint));
                    }
                    apply_abreast::<T>(&values, 0usize, step, &own, &abreast, bound, blueprint);
                }
            }
        } else if comptime!(blueprint.params_kept.is_some()) {
            apply_kept::<T>(kept, &abreast, bound, blueprint);
        } else if comptime!(blueprint.params_by_run) {
            let mut done = 0usize;
            while done < share.count {
                let first = share.begin + done;
                let of_run = affine_step::<T>(bound.affine, any, first, bound.epsilon(), blueprint);
                let steps = min(share.count - done, partition.run - first % partition.run);
                let of_run = ComptimeOption::new_Some(of_run);
                if comptime!(takes_runs(blueprint)) {
                    apply_run::<T>(first, steps, &of_run, &abreast, bound, partition, blueprint);
                } else {
                    apply_steps::<T>(first, steps, &of_run, &abreast, bound, blueprint);
                }
                done += steps;
            }
        } else {
            let nothing = ComptimeOption::new_None();
            apply_steps::<T>(
                share.begin,
                share.count,
                &nothing,
                &abreast,
                bound,
                blueprint,
            );
        }
    }
}

/// What a row is normalized by, from its moments; written where that is asked for.
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

/// Reduces the part of a row that is the item of `round`.
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
    let comes = item.exists || comptime!(blueprint.team.level == Level::Column);
    if comes {
        let row = source_row::<T>(source, item.row, partition, blueprint);
        let share = my_share(item.part, partition, blueprint.team);
        let merged = row_moments::<T>(source, &row, &share, partition, blueprint);
        if item.exists {
            leave_part::<T, W>(
                source, sum, workspace, &row, &merged, &item, &share, partition, blueprint,
            );
        }
    }
}

/// Leaves what was found of a part, and what is to be known of it, in the workspace; and writes its sum of input and
/// residual where that is asked for.
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
    if comptime!(team.joined && blueprint.shifts) {
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
            let step = share.begin + i * comptime!(team.members as usize);
            let value = read::<T>(source, row, step, blueprint);
            store::<T::F, T::Output, T::A, T::N>(sum, base, step, value, access, lanes);
        }
    }
}
