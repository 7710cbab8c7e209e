//! What a launch is cut in: items, each a part of a row group, and a unit's share of one.

use cubecl::prelude::*;
use cubenorm_core::{Lanes, Team};

use crate::strategy::split::Partition;
use crate::strategy::{member, peers, team_count, team_index};

/// Where this unit's part of an item begins, and how it goes on.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Share {
    /// The first step.
    pub(crate) begin: usize,
    /// Steps of this unit.
    pub(crate) count: usize,
}

/// A part of a row group, as its team sees it.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) group: usize,
    /// The first row of the group.
    pub(crate) row: usize,
    pub(crate) part: usize,
    /// Whether the item exists. Units that have to wait for each other stay together, so one
    /// without work repeats the first item and stores nothing.
    pub(crate) exists: bool,
}

/// How often items were claimed in this launch.
pub(crate) type Claimed = ComptimeOption<OwnedTensor<Atomic<u32>>>;

/// Rounds that follow one another, from one up to another; of items that are claimed their numbers.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) next: usize,
    pub(crate) end: usize,
}

/// All rounds of a team, or those that it claims now: none, where all items are taken.
#[cube]
pub(crate) fn rounds(claimed: &Claimed, partition: &Partition, #[comptime] team: Team) -> Rounds {
    if comptime!(team.claims) {
        let items = items(partition, team);
        let claims = items.div_ceil(partition.items_per_team);
        let counter = claimed.as_ref().unwrap();
        let claim = counter[0].fetch_add(1u32) as usize;
        let next = min(claim, claims) * partition.items_per_team;
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

/// Items of a launch.
#[cube]
fn items(partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(has_parts_of_its_own(team)) {
        partition.groups * partition.splits
    } else {
        partition.groups
    }
}

/// Whether each part of a row is an item.
fn has_parts_of_its_own(team: Team) -> bool {
    team.parts && team.peers == 1
}

/// The item of a team in a round.
#[cube]
pub(crate) fn item(round: usize, partition: &Partition, #[comptime] team: Team) -> Item {
    let several_teams = comptime!(has_parts_of_its_own(team));
    let items = items(partition, team);
    let index = if comptime!(team.claims) {
        round
    } else if comptime!(team.in_blocks) {
        team_index(team) * partition.items_per_team + round
    } else {
        round * team_count(team) + team_index(team)
    };
    // Rows abreast may reach beyond what is this team's.
    let exists = index < items && (comptime!(team.claims) || round < partition.items_per_team);
    let index = select(exists, index, 0usize.runtime());
    if several_teams {
        let group = index % partition.groups;
        Item {
            group,
            row: first_row(group, partition, team),
            part: index / partition.groups,
            exists,
        }
    } else {
        Item {
            group: index,
            row: first_row(index, partition, team),
            part: own_part(team),
            exists,
        }
    }
}

/// The first row of a row group.
#[cube]
fn first_row(group: usize, partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.lanes == Lanes::Columns) {
        group
    } else if comptime!(team.ragged_rows) {
        // Each run that has ended before, and this one if the group ends it, has had some rows twice.
        group * comptime!(team.vector) - (group + 1) / partition.run * partition.overlap
    } else {
        group * comptime!(team.vector)
    }
}

/// The first lane of a row group that is not a row of the group before it.
#[cube]
pub(crate) fn first_own_lane(group: usize, partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.ragged_rows) {
        select(ends_run(group, partition), partition.overlap, 0usize)
    } else {
        0usize.runtime()
    }
}

/// The part of each row that this unit's cube has, where it is the same of all of them.
#[cube]
pub(crate) fn own_part(#[comptime] team: Team) -> usize {
    if comptime!(team.peers > 1) {
        peers::part(team)
    } else {
        0usize.runtime()
    }
}

/// This unit's steps of a part.
#[cube]
pub(crate) fn my_share(part: usize, partition: &Partition, #[comptime] team: Team) -> Share {
    let mut first = 0usize;
    let mut end = partition.steps;
    if comptime!(team.parts) {
        first = part * partition.steps_per_split;
        end = min(first + partition.steps_per_split, partition.steps);
    }
    let members = comptime!(team.members as usize);
    if comptime!(team.filled.is_some()) {
        let count = comptime!(team.filled.unwrap_or(0));
        Share {
            begin: first + member(team),
            count: count.runtime(),
        }
    } else if comptime!(members == 1) {
        Share {
            begin: first,
            count: end - min(first, end),
        }
    } else {
        let begin = first + member(team);
        let count = select(
            begin < end,
            (end - min(begin, end) + comptime!(members - 1)) / members,
            0usize.runtime(),
        );
        Share { begin, count }
    }
}

/// Of `count` steps from `step` on, those before the one that ends a run.
#[cube]
pub(crate) fn steps_within(step: usize, count: usize, partition: &Partition) -> usize {
    min(count, partition.run - 1 - step % partition.run)
}

/// Whether a run ends with a step.
#[cube]
pub(crate) fn ends_run(step: usize, partition: &Partition) -> bool {
    step % partition.run == partition.run - 1
}

/// The `i`th step of a unit of a row that is held, of so many steps; beyond the unit's share the last of
/// them again. Loads without a condition are all under way before the first of them is waited for.
#[cube]
pub(crate) fn step_to_load(
    #[comptime] i: usize,
    share: &Share,
    steps: usize,
    #[comptime] team: Team,
) -> usize {
    let step = share.begin + comptime!(i * team.members as usize);
    if comptime!(team.filled.is_some() || i < team.full) {
        step
    } else {
        min(step, steps - 1)
    }
}

/// Whether a unit has an `i`th step of a row that is held.
#[cube]
pub(crate) fn has_step(#[comptime] i: usize, share: &Share, #[comptime] team: Team) -> bool {
    if comptime!(team.filled.is_none() && i < team.full) {
        true.runtime()
    } else {
        i < share.count
    }
}
