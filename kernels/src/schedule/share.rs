//! Slice of a work item for one unit, and its steps.

use cubecl::prelude::*;
use cubenorm_core::Team;

use crate::schedule::partition::Partition;
use crate::schedule::team::member;

/// Slice of a work item that one unit processes.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Share {
    /// First step.
    pub(crate) begin: usize,
    /// Number of steps.
    pub(crate) count: usize,
}

/// Slice of a part for this unit.
#[cube]
pub(crate) fn my_share(part: usize, partition: &Partition, #[comptime] team: Team) -> Share {
    let mut first = 0usize;
    let mut end = partition.steps;
    if comptime!(team.has_parts()) {
        first = part * partition.steps_per_split;
        end = min(first + partition.steps_per_split, partition.steps);
    }
    let size = comptime!(team.size() as usize);
    if comptime!(team.exact_vectors().is_some()) {
        let count = comptime!(team.exact_vectors().unwrap_or(0));
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
    min(
        count,
        partition.segment_steps - 1 - step % partition.segment_steps,
    )
}

/// True if a step is the last of its segment.
#[cube]
pub(crate) fn ends_segment(step: usize, partition: &Partition) -> bool {
    step % partition.segment_steps == partition.segment_steps - 1
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
    let step = share.begin + comptime!(i * team.size() as usize);
    if comptime!(team.exact_vectors().is_some() || i < team.unguarded_vectors()) {
        step
    } else {
        min(step, steps - 1)
    }
}

/// True if a unit has an `i`th step of a staged row.
#[cube]
pub(crate) fn has_step(#[comptime] i: usize, share: &Share, #[comptime] team: Team) -> bool {
    if comptime!(team.exact_vectors().is_none() && i < team.unguarded_vectors()) {
        true.runtime()
    } else {
        i < share.count
    }
}
