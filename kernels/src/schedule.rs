//! Tile scheduler: maps teams to work items, and units to their slices of an item.
//!
//! A work item is one part of a row group. A step is one vector position along a row. A round is
//! one iteration of a team over its items.

use cubecl::prelude::*;
use cubenorm_core::{Team, Vectorization};

use crate::reduce::split::Partition;
use crate::reduce::{cluster, member, team_count, team_index};

/// Slice of a work item that one unit processes.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Share {
    /// First step.
    pub(crate) begin: usize,
    /// Number of steps.
    pub(crate) count: usize,
}

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
    if comptime!(team.dynamic) {
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
    team.parts && team.cluster_size == 1
}

/// Work item of this team in a round.
#[cube]
pub(crate) fn item(round: usize, partition: &Partition, #[comptime] team: Team) -> Item {
    let several_teams = comptime!(has_parts_of_its_own(team));
    let items = items(partition, team);
    let index = if comptime!(team.dynamic) {
        round
    } else if comptime!(team.blocked) {
        team_index(team) * partition.items_per_team + round
    } else {
        round * team_count(team) + team_index(team)
    };
    // The last rows of a unit may exceed the items of its team.
    let in_bounds = index < items && (comptime!(team.dynamic) || round < partition.items_per_team);
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
    if comptime!(team.lanes == Vectorization::Parallel) {
        group
    } else if comptime!(team.has_row_tail) {
        // Subtracts the overlap of each tail so far, including this group's if it ends a segment.
        group * comptime!(team.vector) - (group + 1) / partition.run * partition.overlap
    } else {
        group * comptime!(team.vector)
    }
}

/// First lane of a row group that does not repeat a row of the group before it.
#[cube]
pub(crate) fn first_own_lane(group: usize, partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.has_row_tail) {
        select(ends_segment(group, partition), partition.overlap, 0usize)
    } else {
        0usize.runtime()
    }
}

/// Part of each row that this unit's cube owns in a cluster; 0 without a cluster.
#[cube]
pub(crate) fn own_part(#[comptime] team: Team) -> usize {
    if comptime!(team.cluster_size > 1) {
        cluster::part(team)
    } else {
        0usize.runtime()
    }
}

/// Slice of a part for this unit.
#[cube]
pub(crate) fn my_share(part: usize, partition: &Partition, #[comptime] team: Team) -> Share {
    let mut first = 0usize;
    let mut end = partition.steps;
    if comptime!(team.parts) {
        first = part * partition.steps_per_split;
        end = min(first + partition.steps_per_split, partition.steps);
    }
    let size = comptime!(team.size as usize);
    if comptime!(team.exact_vectors.is_some()) {
        let count = comptime!(team.exact_vectors.unwrap_or(0));
        Share {
            begin: first + member(team),
            count: count.runtime(),
        }
    } else if comptime!(size == 1) {
        Share {
            begin: first,
            count: end - min(first, end),
        }
    } else {
        let begin = first + member(team);
        let count = select(
            begin < end,
            (end - min(begin, end) + comptime!(size - 1)) / size,
            0usize.runtime(),
        );
        Share { begin, count }
    }
}

/// Steps of the next `count` from `step` on that come before the last step of a segment.
#[cube]
pub(crate) fn steps_within(step: usize, count: usize, partition: &Partition) -> usize {
    min(count, partition.run - 1 - step % partition.run)
}

/// True if a step is the last of its segment.
#[cube]
pub(crate) fn ends_segment(step: usize, partition: &Partition) -> bool {
    step % partition.run == partition.run - 1
}

/// Step for the `i`th load of a unit that stages a row of `steps` steps. Out-of-range loads are
/// clamped to the last step. Unconditional loads are all in flight before the first use.
#[cube]
pub(crate) fn step_to_load(
    #[comptime] i: usize,
    share: &Share,
    steps: usize,
    #[comptime] team: Team,
) -> usize {
    let step = share.begin + comptime!(i * team.size as usize);
    if comptime!(team.exact_vectors.is_some() || i < team.unguarded_vectors) {
        step
    } else {
        min(step, steps - 1)
    }
}

/// True if a unit has an `i`th step of a staged row.
#[cube]
pub(crate) fn has_step(#[comptime] i: usize, share: &Share, #[comptime] team: Team) -> bool {
    if comptime!(team.exact_vectors.is_none() && i < team.unguarded_vectors) {
        true.runtime()
    } else {
        i < share.count
    }
}
