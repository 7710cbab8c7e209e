//! Entry points of the backward kernels: one launch, or two if rows are split.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, Level, RowBuffering, Staging};
use cubenorm_cpu_hints::wait_for_stores;

use super::correction::correction;
use super::element::{BackwardRow, BackwardSource, Step, TypedBackwardSource, backward_row};
use super::io::{BackwardResults, Bound, write_rows};
use super::param_partials::{add_nothing, part_of_columns, write_staged};
use super::row::{found_row, publish_round, read_row, share_of_item};
use super::segments::{pass_runs, sum_up_runs};
use super::stage::{
    StagedColumns, StagedRow, TypedStagedRow, TypedStagedScale, stage_scale, staged_params,
};
use super::step::{Row, UnitRows, pass_steps, read_steps, write_step};
use super::sums::{nothing, sum_up, sum_up_parts, sum_up_staged};
use crate::cpu::backward_tile::{backward_tile, sum_up_tile};
use crate::forward::apply::Scalars;
use crate::memory::access::{Optional, optional_start};
use crate::reduce::cluster::{Words, poll, publish, wait};
use crate::reduce::merge_team;
use crate::reduce::moments::same;
use crate::reduce::segments::combined;
use crate::reduce::split::{Partition, merge_parts, write_part};
use crate::schedule::{first_own_lane, has_step, item, my_share, step_to_load};
use crate::types::{One, Typed, Types};

/// Backward kernel. A team reduces a row, or merges the parts that [`partial_sums`] has written,
/// and writes the requested gradients.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn gradient<
    F: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Dy: Size,
    Scale: Size,
    Bias: Size,
    Output: Size,
    W: Size,
>(
    source: &BackwardSource<F, P, A, Input, Dy, Scale, Bias>,
    results: &mut BackwardResults<F, Output, A, N>,
    parts: &Optional<A, W>,
    words: &Words,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: BackwardBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let scale = stage_scale::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
        source, &partition, blueprint,
    );
    let mut staged = StagedColumns::<A, N>::zeros(blueprint);
    let mut row = StagedRow::<F, A, N>::new(blueprint.row != RowBuffering::Reload, blueprint);
    let mut next = StagedRow::<F, A, N>::new(blueprint.row.is_ahead(), blueprint);
    if comptime!(blueprint.row == RowBuffering::Prefetch) {
        read_row::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
            source,
            &mut next,
            0usize.runtime(),
            &partition,
            blueprint,
        );
    } else if comptime!(blueprint.row == RowBuffering::DoubleBuffer) {
        read_row::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
            source,
            &mut row,
            0usize.runtime(),
            &partition,
            blueprint,
        );
    }
    if comptime!(blueprint.publishes_ahead()) {
        read_row::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
            source,
            &mut next,
            1usize.runtime(),
            &partition,
            blueprint,
        );
        publish_round::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
            source,
            &row,
            words,
            &scale,
            0usize.runtime(),
            &partition,
            &scalars,
            blueprint,
        );
    }
    let mut bound =
        Bound::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>::new(
            source, results, &scalars,
        );
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.tile) {
            backward_tile::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>, W>(
                &mut bound, parts, round, &partition, blueprint,
            );
        } else {
            backward_items::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>, W>(
                &mut bound,
                parts,
                words,
                &scale,
                &mut staged,
                &mut row,
                &mut next,
                round,
                &partition,
                blueprint,
            );
        }
        round += comptime!(blueprint.rows_per_unit);
        if comptime!(blueprint.row == RowBuffering::DoubleBuffer) {
            backward_items::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>, W>(
                &mut bound,
                parts,
                words,
                &scale,
                &mut staged,
                &mut next,
                &mut row,
                round,
                &partition,
                blueprint,
            );
            round += comptime!(blueprint.rows_per_unit);
        }
    }
    if comptime!(blueprint.staged_columns != Staging::Reload) {
        write_staged::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, Output)>>(
            bound.results,
            &staged,
            &partition,
            blueprint,
        );
    }
    let nontemporal = comptime!(blueprint.input_gradient.is_some_and(|it| it.nontemporal));
    wait_for_stores(nontemporal);
}

/// Backward pass of the unit's next rows, the first of which is the work item `round`. Their
/// parameter gradients are summed before they are stored.
///
/// Row buffers on entry, by plan:
///
/// - Prefetch: this round's row is in `next` and is copied to `row`. `next` receives the next row.
/// - Double buffering: this round's row is in `row`. `next` receives the next row.
/// - Cubes that publish ahead: `next` already holds the next round's row. It is reduced and
///   published here. `row` then receives the row of the round after.
#[cube]
#[allow(clippy::too_many_arguments)]
fn backward_items<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    parts: &Optional<T::A, W>,
    words: &Words,
    scale: &TypedStagedScale<T>,
    staged: &mut StagedColumns<T::A, T::N>,
    row: &mut TypedStagedRow<T>,
    next: &mut TypedStagedRow<T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    // As in the forward kernel, units that share barriers stay together.
    let comes = first.in_bounds || comptime!(team.level == Level::Perpendicular);
    let share = share_of_item(&first, partition, blueprint);
    if comes {
        let lanes = comptime!(team.lanes);
        let access = comptime!(blueprint.input_gradient);
        if comptime!(blueprint.row == RowBuffering::Prefetch) {
            row.take(&*next, blueprint);
        }
        let mut sources = Sequence::<BackwardRow<T::A, T::N>>::new();
        let mut outputs = Sequence::<usize>::new();
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            sources.push(found_row::<T>(
                bound.source,
                &*row,
                &item,
                partition,
                blueprint,
            ));
            outputs.push(optional_start::<T::F, T::Output>(
                &bound.results.input,
                item.row,
                partition.cols_written,
                access,
                lanes,
            ));
        }
        if comptime!(blueprint.row == RowBuffering::Single) {
            read_row::<T>(bound.source, row, round, partition, blueprint);
        }
        // Polls one round after publishing, before the loads of the next row.
        let found = if comptime!(blueprint.publishes_ahead()) {
            ComptimeOption::<u64>::new_Some(poll(words, round, team))
        } else {
            ComptimeOption::<u64>::new_None()
        };
        let mine = if comptime!(blueprint.publishes_ahead()) {
            publish_round::<T>(
                bound.source,
                &*next,
                words,
                scale,
                round + 1,
                partition,
                bound.scalars,
                blueprint,
            );
            nothing::<T::A, T::N>(1usize)
        } else if comptime!(blueprint.row != RowBuffering::Reload) {
            sum_up_staged::<T>(
                bound.source,
                &*row,
                scale,
                sources.index(0usize),
                &share,
                bound.scalars,
                blueprint,
            )
        } else if comptime!(blueprint.sums_runs()) {
            let group = first.group;
            sum_up_runs::<T>(&sources, group, bound, partition, blueprint)
        } else if comptime!(blueprint.reduces && !blueprint.split) {
            sum_up::<T>(
                bound.source,
                &sources,
                &share,
                partition,
                bound.scalars,
                blueprint,
            )
        } else {
            nothing::<T::A, T::N>(blueprint.rows_per_unit)
        };
        if comptime!(blueprint.row.is_ahead() && !blueprint.publishes_ahead()) {
            // In flight while the team waits for its sums, and issued after all other loads.
            read_row::<T>(bound.source, next, round + 1, partition, blueprint);
        }
        let mut rows = Sequence::<Row<T::A, T::N>>::new();
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let item = item(round + r, partition, team);
            let sums = if comptime!(blueprint.reduces && team.segmented) {
                let left = parts.as_ref().unwrap();
                let found = combined::<T::A, T::N, W>(left, item.row, partition, false);
                same::<T::A, T::N>(&found.moments)
            } else if comptime!(blueprint.reduces && blueprint.split) {
                let parts = parts.as_ref().unwrap();
                merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
            } else if comptime!(blueprint.reduces && team.cluster_size > 1) {
                if comptime!(!blueprint.publishes_ahead()) {
                    let of_cube = merge_team::<T::A, T::N>(mine.index(r), team);
                    publish::<T::A, T::N>(&of_cube, words, round, team);
                }
                let vectors = comptime!(blueprint.staged_vectors());
                let found = if comptime!(blueprint.publishes_ahead()) {
                    found.unwrap()
                } else {
                    poll(words, round, team)
                };
                let received = wait::<T::A, T::N>(found, words, round, vectors, team);
                let mut sums = same::<T::A, T::N>(&received.sums);
                if !received.is_all {
                    let all = sum_up_parts::<T>(
                        bound.source,
                        &sources,
                        partition,
                        bound.scalars,
                        blueprint,
                    );
                    sums.mean = all.mean;
                    sums.m2 = all.m2;
                }
                sums
            } else if comptime!(blueprint.reduces) {
                merge_team::<T::A, T::N>(mine.index(r), team)
            } else {
                same::<T::A, T::N>(mine.index(r))
            };
            write_rows::<T>(bound.results, &sums, &item, blueprint);
            rows.push(Row::<T::A, T::N> {
                correction: correction::<T::A, T::N>(
                    &sums,
                    sources.index(r),
                    partition,
                    bound.scalars,
                    blueprint,
                ),
                output: *outputs.index(r),
                first_lane: first_own_lane(item.group, partition, team),
                in_bounds: item.in_bounds,
            });
        }
        let rows_per_unit = UnitRows::<T::A, T::N> { sources, rows };
        let size = comptime!(team.size as usize);
        if comptime!(blueprint.staged_columns != Staging::Reload) {
            let vectors = comptime!(blueprint.staged_vectors());
            let together = comptime!(blueprint.loads_in_flight.min(vectors));
            #[unroll]
            for first in 0..comptime!(vectors.div_ceil(together)) {
                let begin = comptime!(first * together);
                let end = comptime!(vectors.min(begin + together));
                // Issues the loads before any store, since loads must not be reordered across
                // stores.
                let mut reads = Sequence::<Sequence<Step<T::A, T::N>>>::new();
                #[unroll]
                for i in begin..end {
                    if comptime!(blueprint.row == RowBuffering::Reload) {
                        let step = step_to_load(i, &share, partition.steps, team);
                        reads.push(read_steps::<T>(
                            bound.source,
                            &rows_per_unit.sources,
                            step,
                            blueprint,
                        ));
                    } else {
                        let mut staged = Sequence::<Step<T::A, T::N>>::new();
                        staged.push(row.get(i));
                        reads.push(staged);
                    }
                }
                #[unroll]
                for i in begin..end {
                    if has_step(i, &share, team) {
                        let step = share.begin + i * size;
                        let reads = reads.index(comptime!(i - begin));
                        let first = rows_per_unit.sources.index(0usize);
                        let shared =
                            staged_params::<T>(scale, bound.source, first, i, step, blueprint);
                        let sums =
                            write_step::<T>(reads, &rows_per_unit, &shared, step, bound, blueprint);
                        staged.add(i, &sums, blueprint);
                    }
                }
            }
            if comptime!(blueprint.publishes_ahead()) {
                read_row::<T>(bound.source, row, round + 2, partition, blueprint);
            }
        } else if comptime!(access.is_some() || blueprint.column_sums.any()) {
            let part = part_of_columns(&first, round, blueprint);
            if comptime!(blueprint.by_runs) {
                pass_runs::<T>(&rows_per_unit, &part, bound, partition, blueprint);
            } else {
                pass_steps::<T>(&rows_per_unit, &share, &part, bound, partition, blueprint);
            }
        }
    } else {
        add_nothing::<T>(bound.results, &share, round, partition, blueprint);
    }
}

/// First launch of a split row. Writes the sums of each part to the workspace.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn partial_sums<
    F: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Dy: Size,
    Scale: Size,
    Bias: Size,
    W: Size,
>(
    source: &BackwardSource<F, P, A, Input, Dy, Scale, Bias>,
    workspace: &mut Tensor<Vector<A, W>>,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: BackwardBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.tile) {
            sum_up_tile::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, One)>, W>(
                source, workspace, round, &partition, &scalars, blueprint,
            );
        } else {
            part_item::<Typed<(F, P, A, A, N), (Input, Dy, Scale, Bias, One, One, One)>, W>(
                source, workspace, round, &partition, &scalars, blueprint,
            );
        }
        round += comptime!(blueprint.rows_per_unit);
    }
}

#[cube]
fn part_item<T: Types, W: Size>(
    source: &TypedBackwardSource<T>,
    workspace: &mut Tensor<Vector<T::A, W>>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let comes = item.in_bounds || comptime!(team.level == Level::Perpendicular);
    if comes {
        let mut rows = Sequence::<BackwardRow<T::A, T::N>>::new();
        rows.push(backward_row::<T>(source, item.row, partition, blueprint));
        let share = my_share(item.part, partition, team);
        let mine = sum_up::<T>(source, &rows, &share, partition, scalars, blueprint);
        let merged = merge_team::<T::A, T::N>(mine.index(0usize), team);
        if item.in_bounds {
            write_part::<T::A, T::N, W>(workspace, &merged, item.group, item.part, partition, team);
        }
    }
}
