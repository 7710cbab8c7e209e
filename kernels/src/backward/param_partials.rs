//! Destination of the parameter-gradient partials, kept by units or accumulated in the workspace.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, Staging, Vectorization};

use crate::backward::io::TypedResults;
use crate::backward::stage::{ColumnStep, StagedColumns};
use crate::schedule::item::Item;
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, has_step, my_share};
use crate::schedule::team::{member, own_part, team_index};
use crate::types::Types;

/// Writes the sums that a unit kept; zeros if its team had no row.
#[cube]
pub(crate) fn write_staged<T: Types>(
    results: &mut TypedResults<T>,
    staged: &StagedColumns<T::A, T::N>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    if comptime!(blueprint.team.lanes() == Vectorization::Perpendicular) {
        write_staged_by_cube::<T>(results, staged, partition, blueprint);
    } else {
        write_staged_by_team::<T>(results, staged, partition, blueprint);
    }
}

/// Sums what the teams of a cube kept for a column, and writes vectors of adjacent columns.
#[cube]
fn write_staged_by_cube<T: Types>(
    results: &mut TypedResults<T>,
    staged: &StagedColumns<T::A, T::N>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let teams = comptime!(team.columns() as usize);
    let size = comptime!(team.size() as usize);
    let vectors = comptime!(blueprint.staged_vectors());
    let kinds = comptime!(blueprint.column_sums.count());
    let width = comptime!(team.vector);
    let written = (partition.steps + comptime!(width - 1)) / width;
    let mut table = Shared::<[T::A]>::new_slice(comptime!(vectors * size * teams));
    let columns = results.columns.as_mut().unwrap();
    #[unroll]
    for kind in 0..kinds {
        #[unroll]
        for i in 0..vectors {
            let step = member(team) + comptime!(i * size);
            table[step * teams + UNIT_POS_X as usize] = staged.of_column(i, kind, blueprint);
        }
        sync_cube();
        let first = (CUBE_POS * kinds + kind) * written;
        let mut place = UNIT_POS as usize;
        while place < written {
            let mut sums = Vector::<T::A, T::N>::new(T::A::new(0.0));
            #[unroll]
            for lane in 0..width {
                // Lanes beyond the last column repeat it and are never read.
                let step = min(place * width + lane, partition.steps - 1);
                let mut sum = T::A::new(0.0);
                for team in 0..teams {
                    sum += table[step * teams + team];
                }
                sums.insert(lane, sum);
            }
            columns[first + place] = sums;
            place += comptime!(teams * size);
        }
        // Barrier before the second kind of sums overwrites the table.
        sync_cube();
    }
}

#[cube]
fn write_staged_by_team<T: Types>(
    results: &mut TypedResults<T>,
    staged: &StagedColumns<T::A, T::N>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let share = my_share(own_part(blueprint.team), partition, blueprint.team);
    let vectors = comptime!(blueprint.staged_vectors());
    let part = ColumnPart {
        slot: team_index(blueprint.team),
        is_new: true.runtime(),
    };
    #[unroll]
    for i in 0..vectors {
        if has_step(i, &share, blueprint.team) {
            let step = share.begin + i * comptime!(blueprint.team.size() as usize);
            let sums = staged.get(i, blueprint);
            add_columns::<T>(results, &part, step, &sums, partition, blueprint);
        }
    }
}

/// Destination of an item's column sums.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct ColumnPart {
    pub(crate) slot: usize,
    /// True if the slot has not been written yet.
    pub(crate) is_new: bool,
}

/// Slot of an item's column sums: one per team. If several teams share a row, one per row. With
/// vectors of rows, one team has all rows of a part, so they share one slot.
#[cube]
pub(crate) fn part_of_columns(
    item: &Item,
    round: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> ColumnPart {
    if comptime!(
        blueprint.team.has_parts() && blueprint.team.lanes() == Vectorization::Perpendicular
    ) {
        ColumnPart {
            slot: 0usize.runtime(),
            is_new: item.group == 0,
        }
    } else if comptime!(blueprint.team.has_parts()) {
        ColumnPart {
            slot: item.group,
            is_new: true.runtime(),
        }
    } else {
        ColumnPart {
            slot: team_index(blueprint.team),
            is_new: round == 0,
        }
    }
}

/// Writes zeros for a team without rows.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
pub(crate) fn add_nothing<T: Types>(
    results: &mut TypedResults<T>,
    share: &Share,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let adds_up =
        comptime!(blueprint.column_sums.any() && blueprint.staged_columns == Staging::Reload);
    if comptime!(adds_up && !team.has_parts()) {
        if round == 0 {
            let part = ColumnPart {
                slot: team_index(team),
                is_new: true.runtime(),
            };
            let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
            let nothing = ColumnStep::<T::A, T::N> {
                products: zero,
                gradients: zero,
            };
            for i in 0..share.count {
                let step = share.begin + i * comptime!(team.size() as usize);
                add_columns::<T>(results, &part, step, &nothing, partition, blueprint);
            }
        }
    }
}

/// Adds a step to the requested sums of its columns. The first row stores instead.
#[cube]
pub(crate) fn add_columns<T: Types>(
    results: &mut TypedResults<T>,
    part: &ColumnPart,
    step: usize,
    added: &ColumnStep<T::A, T::N>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let sums = comptime!(blueprint.column_sums);
    if comptime!(sums.any()) {
        let columns = results.columns.as_mut().unwrap();
        let slot = comptime!(sums.count()) * part.slot * partition.steps + step;
        if comptime!(sums.products) {
            add_column::<T::A, T::N>(columns, slot, added.products, part.is_new);
        }
        if comptime!(sums.gradients) {
            let slot = slot + comptime!(sums.count() - 1) * partition.steps;
            add_column::<T::A, T::N>(columns, slot, added.gradients, part.is_new);
        }
    }
}

#[cube]
fn add_column<A: Float, N: Size>(
    columns: &mut Tensor<Vector<A, N>>,
    slot: usize,
    value: Vector<A, N>,
    is_first: bool,
) {
    if is_first {
        columns[slot] = value;
    } else {
        columns[slot] += value;
    }
}
