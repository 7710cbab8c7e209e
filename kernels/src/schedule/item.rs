//! Work items of a team, and its rounds over them.

use cubecl::prelude::*;
use cubenorm_core::{Level, Team, Vectorization};

use crate::schedule::partition::Partition;
use crate::schedule::share::ends_segment;
use crate::schedule::team::{own_part, team_count, team_index};

/// Work item of a team: one part of a row group.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) group: usize,
    /// First row of the group.
    pub(crate) row: usize,
    pub(crate) part: usize,
    /// True if the item is in bounds. Units that share barriers stay together, so a unit without
    /// work repeats the first item and stores nothing.
    pub(crate) in_bounds: bool,
}

#[cube]
impl Item {
    /// True if this unit computes the item.
    ///
    /// Units of different teams share the barriers of a column, so all of them stay. That has to be known when the kernel
    /// is built: browsers refuse a barrier in a branch that may differ between units. At other levels a team without work
    /// skips the round.
    pub(crate) fn takes_part(&self, #[comptime] team: Team) -> bool {
        if comptime!(team.level() == Level::Perpendicular) {
            true.runtime()
        } else {
            self.in_bounds
        }
    }
}

/// Work counter of the dynamic schedule: blocks of items taken so far in this launch.
pub(crate) type WorkCounter = ComptimeOption<OwnedTensor<Atomic<u32>>>;

/// Half-open range of rounds. With the dynamic schedule, a range of item indices.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) next: usize,
    pub(crate) end: usize,
}

/// Next rounds of a team: all of them with the static schedule, the next block with the dynamic
/// one. The range is empty if no items are left.
#[cube]
pub(crate) fn rounds(
    work_counter: &WorkCounter,
    partition: &Partition,
    #[comptime] team: Team,
) -> Rounds {
    if comptime!(team.is_dynamic()) {
        let items = items(partition, team);
        let dynamic = items.div_ceil(partition.items_per_team);
        let work_counter = work_counter.as_ref().unwrap();
        let claim = work_counter[0].fetch_add(1u32) as usize;
        let next = min(claim, dynamic) * partition.items_per_team;
        Rounds {
            next,
            end: min(next + partition.items_per_team, items),
        }
    } else {
        Rounds {
            next: 0usize.runtime(),
            end: partition.items_per_team,
        }
    }
}

/// Work items of the launch.
#[cube]
fn items(partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(has_parts_of_its_own(team)) {
        partition.groups * partition.splits
    } else {
        partition.groups
    }
}

/// True if each part of a row is a work item of its own.
fn has_parts_of_its_own(team: Team) -> bool {
    team.has_parts() && team.cluster_size() == 1
}

/// Work item of this team in a round.
#[cube]
pub(crate) fn item(round: usize, partition: &Partition, #[comptime] team: Team) -> Item {
    let several_teams = comptime!(has_parts_of_its_own(team));
    let items = items(partition, team);
    let index = if comptime!(team.is_dynamic()) {
        round
    } else if comptime!(team.is_blocked()) {
        team_index(team) * partition.items_per_team + round
    } else {
        round * team_count(team) + team_index(team)
    };
    // The last rows of a unit may exceed the items of its team.
    let in_bounds =
        index < items && (comptime!(team.is_dynamic()) || round < partition.items_per_team);
    let index = select(in_bounds, index, 0usize.runtime());
    if several_teams {
        let group = index % partition.groups;
        Item {
            group,
            row: first_row(group, partition, team),
            part: index / partition.groups,
            in_bounds,
        }
    } else {
        Item {
            group: index,
            row: first_row(index, partition, team),
            part: own_part(team),
            in_bounds,
        }
    }
}

/// First row of a row group.
#[cube]
fn first_row(group: usize, partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.lanes() == Vectorization::Parallel) {
        group
    } else if comptime!(team.has_row_tail()) {
        // Subtracts the overlap of each tail so far, including this group's if it ends a segment.
        group * comptime!(team.vector) - (group + 1) / partition.segment_steps * partition.overlap
    } else {
        group * comptime!(team.vector)
    }
}

/// First lane of a row group that does not repeat a row of the group before it.
#[cube]
pub(crate) fn first_own_lane(group: usize, partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.has_row_tail()) {
        select(ends_segment(group, partition), partition.overlap, 0usize)
    } else {
        0usize.runtime()
    }
}
