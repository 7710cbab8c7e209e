//! Normalizes one row or several rows per unit: load, reduce, finish the statistics, apply.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Staging};

use crate::epilogue::{FoldedRow, affine_step};
use crate::forward::apply::{Loaded, apply_kept, apply_rows, apply_steps};
use crate::forward::cluster::cluster_moments;
use crate::forward::io::{Bound, ResultRow, Row, UnitRows, result_row};
use crate::forward::quantized::quantize_row;
use crate::forward::statistics::item_statistics;
use crate::forward::tail::{apply_segment, takes_segments};
use crate::memory::input::{SourceRow, read_last, source_row, source_start};
use crate::memory::stage::{Staged, stage};
use crate::reduce::accumulate::row_moments;
use crate::reduce::channels::{Combined, combined};
use crate::reduce::moments::{nothing_reduced, same};
use crate::reduce::partials::Partials;
use crate::reduce::split::merge_parts;
use crate::reduce::staged::{staged_moments, staged_shift};
use crate::schedule::item::{Item, item};
use crate::schedule::partition::{Partition, row_elements};
use crate::schedule::share::{Share, my_share, step_to_load};
use crate::types::Types;

/// Row of a unit before its statistics are known.
#[derive(CubeType)]
struct LoadedRow<F: Float, A: Float, N: Size> {
    item: Item,
    source: SourceRow<A, N>,
    result: ResultRow<A, N>,
    /// The unit's slice of the row, if the plan stages it.
    staged: ComptimeOption<Staged<F, A, N>>,
    /// The same slice of a residual or gate that follows the normalization, if registers hold the row. Its loads are in
    /// flight while the row is reduced.
    lasts: Sequence<Vector<A, N>>,
}

/// [`LoadedRow`]s of a unit, for the types of a kernel.
type LoadedRows<T> = Sequence<LoadedRow<<T as Types>::F, <T as Types>::A, <T as Types>::N>>;

/// Normalizes the unit's next rows, from the work item `round` on.
///
/// They share the loads of scale and bias. A driver that loads lane by lane takes the same time for
/// these as for the row.
#[cube]
pub(crate) fn normalize_items<T: Types, W: Size>(
    bound: &mut Bound<'_, T>,
    partials: &Partials<'_, T::A, W>,
    kept: &Sequence<FoldedRow<T::A, T::N>>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let first = item(round, partition, blueprint.team);
    if first.takes_part(blueprint.team) {
        let share = my_share(first.part, partition, blueprint.team);
        let loaded = load_rows::<T>(&*bound, round, &share, partition, blueprint);
        let mut rows = Sequence::<Row<T::A, T::N>>::new();
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let row = loaded.index(r);
            rows.push(reduce_row::<T, W>(
                row, bound, partials, &share, round, partition, blueprint,
            ));
        }
        let next = row_to_prefetch::<T>(&*bound, round + 1, partition, blueprint);
        let unit_rows = UnitRows::<T::A, T::N> { rows, next };
        if comptime!(!blueprint.writes_output) {
            // The statistics are written.
        } else if comptime!(blueprint.quantization.is_some()) {
            #[unroll]
            for r in 0..blueprint.rows_per_unit {
                let (own, row) = (loaded.index(r), unit_rows.rows.index(r));
                quantize_row::<T>(&own.staged, row, &own.item, &share, bound, blueprint);
            }
        } else if comptime!(blueprint.staging != Staging::Reload) {
            apply_staged::<T>(&loaded, &share, &unit_rows, bound, blueprint);
        } else if comptime!(blueprint.team.params_kept().is_some()) {
            apply_kept::<T>(kept, &unit_rows, bound, blueprint);
        } else if comptime!(blueprint.team.params_by_segment()) {
            apply_segments::<T>(&share, &unit_rows, bound, partition, blueprint);
        } else {
            let nothing = ComptimeOption::new_None();
            let (begin, count) = (share.begin, share.count);
            apply_steps::<T>(begin, count, &nothing, &unit_rows, bound, blueprint);
        }
    }
}

/// Vectors of a late residual that are loaded before the row is reduced.
fn early_lasts(blueprint: &Blueprint) -> usize {
    match blueprint.staging {
        Staging::Registers(vectors)
            if blueprint.combines_last() && blueprint.quantization.is_none() =>
        {
            vectors
        }
        _ => 0,
    }
}

/// Issues all loads of staged rows, and locates their outputs, before the first use.
#[cube]
fn load_rows<T: Types>(
    bound: &Bound<'_, T>,
    round: usize,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> LoadedRows<T> {
    let steps = partition.steps;
    // Channels that another launch combines share one shift, so none is sampled here.
    let samples = comptime!(Blueprint {
        shift: blueprint.shift.filter(|_| !blueprint.team.is_segmented()),
        ..blueprint
    });
    let mut loaded = LoadedRows::<T>::new();
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        let item = item(round + r, partition, blueprint.team);
        let source = source_row::<T>(bound.source, item.row, partition, samples);
        let staged = if comptime!(blueprint.staging != Staging::Reload) {
            let staged = stage::<T>(bound.source, &source, share, steps, blueprint);
            ComptimeOption::<Staged<T::F, T::A, T::N>>::new_Some(staged)
        } else {
            ComptimeOption::<Staged<T::F, T::A, T::N>>::new_None()
        };
        let mut lasts = Sequence::<Vector<T::A, T::N>>::new();
        #[unroll]
        for i in 0..comptime!(early_lasts(&blueprint)) {
            let step = step_to_load(i, share, steps, blueprint.team);
            lasts.push(read_last::<T>(bound.source, &source, step, blueprint));
        }
        let result = result_row::<T>(bound, &item, partition.cols_written, blueprint);
        loaded.push(LoadedRow::<T::F, T::A, T::N> {
            item,
            source,
            result,
            staged,
            lasts,
        });
    }
    loaded
}

/// Reduces a row over its team. Writes its statistics if requested.
#[cube]
fn reduce_row<T: Types, W: Size>(
    row: &LoadedRow<T::F, T::A, T::N>,
    bound: &mut Bound<'_, T>,
    partials: &Partials<'_, T::A, W>,
    share: &Share,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Row<T::A, T::N> {
    let team = comptime!(blueprint.team);
    let count = row_elements::<T::A, T::N>(partition, team);
    let of_channels = if comptime!(team.is_segmented()) {
        let parts = partials.parts.as_ref().unwrap();
        let shifts = comptime!(blueprint.shifts());
        ComptimeOption::<Combined<T::A, T::N>>::new_Some(combined::<T::A, T::N, W>(
            parts,
            row.item.row,
            partition,
            shifts,
        ))
    } else {
        ComptimeOption::<Combined<T::A, T::N>>::new_None()
    };
    let is_shared = comptime!(team.cluster_size() > 1);
    let shift = if comptime!(is_shared) {
        row.source.shift
    } else if comptime!(blueprint.staging != Staging::Reload) {
        staged_shift::<T>(row.staged.as_ref().unwrap(), share, count, blueprint)
    } else if comptime!(team.is_segmented()) {
        of_channels.as_ref().unwrap().shift
    } else {
        row.source.shift
    };
    let source = SourceRow::<T::A, T::N> {
        input: row.source.input,
        residual: row.source.residual,
        shift,
    };
    let statistics = if comptime!(!blueprint.statistics.reduces()) {
        nothing_reduced::<T::A, T::N>()
    } else {
        let moments = if comptime!(team.is_segmented()) {
            same::<T::A, T::N>(&of_channels.as_ref().unwrap().moments)
        } else if comptime!(blueprint.split()) {
            let parts = partials.parts.as_ref().unwrap();
            merge_parts::<T::A, T::N, W>(parts, row.item.group, partition, team)
        } else if comptime!(is_shared) {
            let (staged, part) = (&row.staged, row.item.part);
            cluster_moments::<T>(
                bound.source,
                &source,
                staged,
                share,
                part,
                partials.words,
                round,
                partition,
                blueprint,
            )
        } else if comptime!(blueprint.staging != Staging::Reload) {
            let staged = row.staged.as_ref().unwrap();
            staged_moments::<T>(staged, &source, share, count, blueprint)
        } else {
            row_moments::<T>(bound.source, &source, share, partition, blueprint)
        };
        item_statistics::<T>(&moments, &source, bound, &row.item, partition, blueprint)
    };
    Row::<T::A, T::N> {
        source,
        statistics,
        result: row.result.same(),
    }
}

/// Row of the work item `round`, if the plan prefetches it.
#[cube]
fn row_to_prefetch<T: Types>(
    bound: &Bound<'_, T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> ComptimeOption<SourceRow<T::A, T::N>> {
    if comptime!(blueprint.team.prefetches_next_row()) {
        let next = item(round, partition, blueprint.team);
        ComptimeOption::new_Some(source_start::<T>(
            bound.source,
            next.row,
            partition.cols,
            blueprint,
        ))
    } else {
        ComptimeOption::new_None()
    }
}

/// Normalizes all steps of staged rows.
#[cube]
fn apply_staged<T: Types>(
    loaded: &LoadedRows<T>,
    share: &Share,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    // Plans with several rows per unit require that these share all parameters.
    let any = &unit_rows.rows.index(0usize).result.affine;
    #[unroll]
    for i in 0..comptime!(blueprint.staging.vectors().unwrap_or(0)) {
        if i < share.count {
            let step = share.begin + i * comptime!(blueprint.team.size() as usize);
            let own = affine_step::<T>(bound.affine, any, step, bound.epsilon(), blueprint);
            let mut values = Sequence::<Loaded<T::A, T::N>>::new();
            #[unroll]
            for r in 0..blueprint.rows_per_unit {
                let row = loaded.index(r);
                let staged = row.staged.as_ref().unwrap();
                let last = if comptime!(early_lasts(&blueprint) > 0) {
                    *row.lasts.index(i)
                } else {
                    read_last::<T>(bound.source, &row.source, step, blueprint)
                };
                values.push(Loaded::<T::A, T::N> {
                    value: staged.get(i, blueprint),
                    last,
                });
            }
            apply_rows::<T>(&values, 0usize, step, &own, unit_rows, bound, blueprint);
        }
    }
}

/// Normalizes all steps, segment by segment. The parameters are loaded once per segment.
#[cube]
fn apply_segments<T: Types>(
    share: &Share,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let any = &unit_rows.rows.index(0usize).result.affine;
    let mut done = 0usize;
    while done < share.count {
        let first = share.begin + done;
        let params = affine_step::<T>(bound.affine, any, first, bound.epsilon(), blueprint);
        let steps = min(
            share.count - done,
            partition.segment_steps - first % partition.segment_steps,
        );
        let params = ComptimeOption::new_Some(params);
        if comptime!(takes_segments(blueprint)) {
            apply_segment::<T>(
                first, steps, &params, unit_rows, bound, partition, blueprint,
            );
        } else {
            apply_steps::<T>(first, steps, &params, unit_rows, bound, blueprint);
        }
        done += steps;
    }
}
