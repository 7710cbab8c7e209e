//! Sizes of a launch that are known at run time, and the element counts that follow from them.

use cubecl::prelude::*;
use cubenorm_core::{Team, Vectorization};

/// Run-time sizes of a launch's partition.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Partition {
    /// Row groups. A group is one row, or one row per lane if vectors are perpendicular to the
    /// reduction.
    pub(crate) groups: usize,
    /// Steps (vectors) of a row.
    pub(crate) steps: usize,
    /// Parts of a row.
    pub(crate) splits: usize,
    /// Steps of a part.
    pub(crate) steps_per_split: usize,
    /// Work items of each team. An item is one part of a row group.
    pub(crate) items_per_team: usize,
    /// Steps of a segment of columns: see [`Team::has_tail`]. Also the steps that share their
    /// parameters. With [`Team::has_row_tail`], row groups of a segment of rows.
    pub(crate) segment_steps: usize,
    /// Lanes of a segment's tail vector that overlap the vector before it.
    pub(crate) overlap: usize,
    /// Channels whose statistics are combined into one group.
    pub(crate) channels: usize,
    /// Elements of a row.
    pub(crate) cols: usize,
    /// Equal to `cols`, but a separate argument on purpose. If the compiler sees equal strides, it
    /// keeps every address live from load to store and spills.
    pub(crate) cols_written: usize,
}

/// Elements of a whole row, including all channels that are combined into it.
#[cube]
pub(crate) fn row_elements<A: Float, N: Size>(partition: &Partition, #[comptime] team: Team) -> A {
    let of_one = elements::<A, N>(0usize.runtime(), partition.steps, partition, team);
    if comptime!(team.is_segmented()) {
        of_one * A::cast_from(partition.channels)
    } else {
        of_one
    }
}

/// Elements of one row in the steps from `begin` to `end`.
#[cube]
fn elements<A: Float, N: Size>(
    begin: usize,
    end: usize,
    partition: &Partition,
    #[comptime] team: Team,
) -> A {
    let steps = end - begin;
    if comptime!(team.lanes() == Vectorization::Perpendicular) {
        A::cast_from(steps)
    } else if comptime!(team.has_tail()) {
        let ends = end / partition.segment_steps - begin / partition.segment_steps;
        A::cast_from(steps * N::value() - ends * partition.overlap)
    } else {
        A::cast_from(steps * N::value())
    }
}

/// Elements of one row in a part.
#[cube]
pub(crate) fn part_count<A: Float, N: Size>(
    partition: &Partition,
    part: usize,
    #[comptime] team: Team,
) -> A {
    let begin = part * partition.steps_per_split;
    let end = min(begin + partition.steps_per_split, partition.steps);
    elements::<A, N>(begin, end, partition, team)
}
