//! Backward pass of one row or several rows per unit: load, reduce, correct, apply.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, RowBuffering, Staging};

use crate::backward::correction::correction;
use crate::backward::element::{BackwardRow, TypedBackwardSource, WideStep, backward_row};
use crate::backward::io::{Bound, write_rows};
use crate::backward::param_partials::{add_nothing, part_of_columns};
use crate::backward::row::{found_row, publish_round, read_row, share_of_item};
use crate::backward::segments::{pass_segments, sum_up_segments};
use crate::backward::stage::{StagedColumns, TypedStagedRow, TypedStagedScale, staged_params};
use crate::backward::step::{Row, UnitRows, pass_steps, read_steps, write_step};
use crate::backward::sums::{nothing, sum_up, sum_up_parts, sum_up_staged};
use crate::epilogue::Scalars;
use crate::memory::access::optional_start;
use crate::reduce::channels::combined;
use crate::reduce::cluster::{Words, max_polls, poll, publish, wait};
use crate::reduce::moments::{Moments, same};
use crate::reduce::partials::Partials;
use crate::reduce::split::{Workspace, merge_parts, write_part};
use crate::reduce::team::merge_team;
use crate::schedule::item::{first_own_lane, item};
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, has_step, my_share, step_to_load};
use crate::types::Types;

/// What a unit keeps from row to row.
///
/// Row buffers at the beginning of a round, by plan:
///
/// - Prefetch: this round's row is in `next` and is copied to `row`. `next` receives the next row.
/// - Double buffering: this round's row is in `row`. `next` receives the next row.
/// - Cubes that publish ahead: `next` already holds the next round's row. It is reduced and
///   published in this round. `row` then receives the row of the round after.
#[derive(CubeType)]
pub(crate) struct Buffers<'a, T: Types> {
    row: &'a mut TypedStagedRow<T>,
    next: &'a mut TypedStagedRow<T>,
    scale: &'a TypedStagedScale<T>,
    columns: &'a mut StagedColumns<T::A, T::N>,
}

#[cube]
impl<'a, T: Types> Buffers<'a, T> {
    pub(crate) fn new(
        row: &'a mut TypedStagedRow<T>,
        next: &'a mut TypedStagedRow<T>,
        scale: &'a TypedStagedScale<T>,
        columns: &'a mut StagedColumns<T::A, T::N>,
    ) -> Buffers<'a, T> {
        Buffers::<'a, T> {
            row,
            next,
            scale,
            columns,
        }
    }
}

/// Rows of a unit before they are reduced.
#[derive(CubeType)]
struct LocatedRows<A: Float, N: Size> {
    sources: Sequence<BackwardRow<A, N>>,
    /// Start of each row in the input gradient.
    outputs: Sequence<usize>,
}

/// Backward pass of the unit's next rows, from the work item `round` on. Their parameter gradients
/// are summed before they are stored.
#[cube]
pub(crate) fn backward_items<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    partials: &Partials<'_, T::A, W>,
    buffers: &mut Buffers<'_, T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    let share = share_of_item(&first, partition, blueprint);
    if first.takes_part(team) {
        let located = load_rows::<T>(&*bound, buffers, round, partition, blueprint);
        // Polls one round after publishing, before the loads of the next row.
        let polled = if comptime!(blueprint.publishes_ahead()) {
            ComptimeOption::<u64>::new_Some(poll(partials.words, round, team))
        } else {
            ComptimeOption::<u64>::new_None()
        };
        let mine = sum_up_rows::<T, W>(
            &located.sources,
            bound,
            partials,
            &*buffers,
            round,
            &share,
            partition,
            blueprint,
        );
        if comptime!(blueprint.row.is_ahead() && !blueprint.publishes_ahead()) {
            // In flight while the team waits for its sums, and issued after all other loads.
            read_row::<T>(bound.source, buffers.next, round + 1, partition, blueprint);
        }
        let rows = correct_rows::<T, W>(
            &mine, &polled, &located, bound, partials, round, partition, blueprint,
        );
        let unit_rows = UnitRows::<T::A, T::N> {
            sources: located.sources,
            rows,
        };
        if comptime!(blueprint.staged_columns != Staging::Reload) {
            apply_staged::<T>(&unit_rows, bound, buffers, &share, partition, blueprint);
            if comptime!(blueprint.publishes_ahead()) {
                read_row::<T>(bound.source, buffers.row, round + 2, partition, blueprint);
            }
        } else if comptime!(blueprint.input_gradient.is_some() || blueprint.column_sums.any()) {
            let part = part_of_columns(&first, round, blueprint);
            if comptime!(blueprint.team.params_by_segment()) {
                pass_segments::<T>(&unit_rows, &part, bound, partition, blueprint);
            } else {
                pass_steps::<T>(&unit_rows, &share, &part, bound, partition, blueprint);
            }
        }
    } else {
        add_nothing::<T>(bound.results, &share, round, partition, blueprint);
    }
}

/// Locates the rows of a round. Loads the row into its buffer if that is due now.
#[cube]
fn load_rows<T: Types>(
    bound: &Bound<'_, T>,
    buffers: &mut Buffers<'_, T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> LocatedRows<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.input_gradient);
    if comptime!(blueprint.row == RowBuffering::Prefetch) {
        buffers.row.take(&*buffers.next, blueprint);
    }
    let mut sources = Sequence::<BackwardRow<T::A, T::N>>::new();
    let mut outputs = Sequence::<usize>::new();
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, blueprint.team);
        let staged = &*buffers.row;
        sources.push(found_row::<T>(
            bound.source,
            staged,
            &item,
            partition,
            blueprint,
        ));
        let output = &bound.results.input;
        let cols = partition.cols_written;
        outputs.push(optional_start::<T::F, T::Output>(
            output,
            item.row,
            cols,
            access,
            vectorization,
        ));
    }
    if comptime!(blueprint.row == RowBuffering::Single) {
        read_row::<T>(bound.source, buffers.row, round, partition, blueprint);
    }
    LocatedRows::<T::A, T::N> { sources, outputs }
}

/// Reduces the unit's slice of its rows. A cube that publishes ahead reduces the next row instead,
/// and publishes its sums.
#[cube]
fn sum_up_rows<T: Types, W: Size>(
    sources: &Sequence<BackwardRow<T::A, T::N>>,
    bound: &mut Bound<'_, T>,
    partials: &Partials<'_, T::A, W>,
    buffers: &Buffers<'_, T>,
    round: usize,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<Moments<T::A, T::N>> {
    let (scale, scalars) = (buffers.scale, bound.scalars);
    if comptime!(blueprint.publishes_ahead()) {
        publish_round::<T>(
            bound.source,
            &*buffers.next,
            partials.words,
            scale,
            round + 1,
            partition,
            scalars,
            blueprint,
        );
        nothing::<T::A, T::N>(1usize)
    } else if comptime!(!blueprint.row.reloads()) {
        let (row, staged) = (sources.index(0usize), &*buffers.row);
        sum_up_staged::<T>(bound.source, staged, scale, row, share, scalars, blueprint)
    } else if comptime!(blueprint.sums_segments()) {
        let group = item(round, partition, blueprint.team).group;
        sum_up_segments::<T>(sources, group, bound, partition, blueprint)
    } else if comptime!(blueprint.reduces() && !blueprint.split()) {
        sum_up::<T>(bound.source, sources, share, partition, scalars, blueprint)
    } else {
        nothing::<T::A, T::N>(blueprint.rows_per_unit)
    }
}

/// Merges the sums of each row and computes its correction. Writes the sums if requested.
#[cube]
fn correct_rows<T: Types, W: Size>(
    mine: &Sequence<Moments<T::A, T::N>>,
    polled: &ComptimeOption<u64>,
    located: &LocatedRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    partials: &Partials<'_, T::A, W>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<Row<T::A, T::N>> {
    let team = comptime!(blueprint.team);
    let sources = &located.sources;
    let mut rows = Sequence::<Row<T::A, T::N>>::new();
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, team);
        let mine = mine.index(r);
        let sums = if comptime!(blueprint.reduces() && team.is_segmented()) {
            let parts = partials.parts.as_ref().unwrap();
            let found = combined::<T::A, T::N, W>(parts, item.row, partition, false);
            same::<T::A, T::N>(&found.moments)
        } else if comptime!(blueprint.reduces() && blueprint.split()) {
            let parts = partials.parts.as_ref().unwrap();
            merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
        } else if comptime!(blueprint.reduces() && team.cluster_size() > 1) {
            let words = partials.words;
            merge_cluster::<T>(
                mine, polled, sources, &*bound, words, round, partition, blueprint,
            )
        } else if comptime!(blueprint.reduces()) {
            merge_team::<T::A, T::N>(mine, team)
        } else {
            same::<T::A, T::N>(mine)
        };
        write_rows::<T>(bound.results, &sums, &item, blueprint);
        let row = sources.index(r);
        rows.push(Row::<T::A, T::N> {
            correction: correction::<T>(
                bound.source,
                item.row,
                &sums,
                row,
                partition,
                bound.scalars,
                blueprint,
            ),
            output: *located.outputs.index(r),
            first_lane: first_own_lane(item.group, partition, team),
            in_bounds: item.in_bounds,
        });
    }
    rows
}

/// Merges the sums of a row over the cubes of a cluster. Recomputes them if a peer is late.
#[cube]
fn merge_cluster<T: Types>(
    mine: &Moments<T::A, T::N>,
    polled: &ComptimeOption<u64>,
    sources: &Sequence<BackwardRow<T::A, T::N>>,
    bound: &Bound<'_, T>,
    words: &Words,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(blueprint.team);
    if comptime!(!blueprint.publishes_ahead()) {
        let of_cube = merge_team::<T::A, T::N>(mine, team);
        publish::<T::A, T::N>(&of_cube, words, round, team);
    }
    let polls = comptime!(max_polls(blueprint.staged_vectors()));
    let polled = if comptime!(blueprint.publishes_ahead()) {
        polled.unwrap()
    } else {
        poll(words, round, team)
    };
    let received = wait(polled, words, round, polls, team);
    let mut sums = received.added::<T::A, T::N>(team);
    if !received.is_all {
        let scalars = bound.scalars;
        let all = sum_up_parts::<T>(bound.source, sources, partition, scalars, blueprint);
        sums.mean = all.mean;
        sums.m2 = all.m2;
    }
    sums
}

/// Writes the input gradient of a unit's steps. Adds to the parameter gradients that it keeps.
#[cube]
fn apply_staged<T: Types>(
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    buffers: &mut Buffers<'_, T>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let size = comptime!(team.size() as usize);
    let vectors = comptime!(blueprint.staged_vectors());
    let together = comptime!(blueprint.loads_in_flight().min(vectors));
    #[unroll]
    for first in 0..comptime!(vectors.div_ceil(together)) {
        let begin = comptime!(first * together);
        let end = comptime!(vectors.min(begin + together));
        // Issues the loads before any store, since loads must not be reordered across stores.
        let mut reads = Sequence::<Sequence<WideStep<T>>>::new();
        #[unroll]
        for i in begin..end {
            if comptime!(blueprint.row.reloads()) {
                let step = step_to_load(i, share, partition.steps, team);
                let sources = &unit_rows.sources;
                reads.push(read_steps::<T>(bound.source, sources, step, blueprint));
            } else {
                let mut staged = Sequence::<WideStep<T>>::new();
                staged.push(buffers.row.get(i));
                reads.push(staged);
            }
        }
        #[unroll]
        for i in begin..end {
            if has_step(i, share, team) {
                let step = share.begin + i * size;
                let reads = reads.index(comptime!(i - begin));
                let row = unit_rows.sources.index(0usize);
                let params =
                    staged_params::<T>(buffers.scale, bound.source, row, i, step, blueprint);
                let sums = write_step::<T>(reads, unit_rows, &params, step, bound, blueprint);
                buffers.columns.add(i, &sums, blueprint);
            }
        }
    }
}

/// Reduces the part of a row that is the work item `round`, and writes its sums to the workspace.
#[cube]
pub(crate) fn reduce_item<T: Types, W: Size>(
    source: &TypedBackwardSource<T>,
    workspace: &mut Workspace<T::A, W>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    if item.takes_part(team) {
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
