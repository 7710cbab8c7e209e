//! Rows split across teams. The first launch writes partial statistics of each part to a workspace.
//! The second launch merges the parts of a row and normalizes.
//!
//! Two launches instead of a last-block reduction: WebGPU and the CPU runtime give no ordering
//! between cubes of one launch.

use cubecl::prelude::*;
use cubenorm_core::{Team, Vectorization};

use crate::reduce::moments::{Moments, merge};
use crate::reduce::{member, merge_reduced, merge_team};
use crate::types::One;

/// Partial statistics in part-major order: means of all row groups for each part, then `m2` in the
/// same order. Counts follow from the bounds of a part.
pub(crate) type Workspace<A, W> = Tensor<Vector<A, W>>;

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
    pub(crate) run: usize,
    /// Lanes of a segment's tail vector that overlap the vector before it.
    pub(crate) overlap: usize,
    /// Segments (channels) whose statistics are combined into one group.
    pub(crate) segments: usize,
    /// Elements of a row.
    pub(crate) cols: usize,
    /// Equal to `cols`, but a separate argument on purpose. If the compiler sees equal strides, it
    /// keeps every address live from load to store and spills.
    pub(crate) cols_written: usize,
}

/// Elements of a whole row, including all segments that are combined into it.
#[cube]
pub(crate) fn row_elements<A: Float, N: Size>(partition: &Partition, #[comptime] team: Team) -> A {
    let of_one = elements::<A, N>(0usize.runtime(), partition.steps, partition, team);
    if comptime!(team.segmented) {
        of_one * A::cast_from(partition.segments)
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
    if comptime!(team.lanes == Vectorization::Perpendicular) {
        A::cast_from(steps)
    } else if comptime!(team.has_tail) {
        let ends = end / partition.run - begin / partition.run;
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

/// Writes the statistics of a part, merged over its team, to the workspace.
#[cube]
pub(crate) fn write_part<A: Float, N: Size, W: Size>(
    workspace: &mut Workspace<A, W>,
    moments: &Moments<A, N>,
    group: usize,
    part: usize,
    partition: &Partition,
    #[comptime] team: Team,
) {
    if member(team) == 0 {
        let slot = part * partition.groups + group;
        let m2 = partition.splits * partition.groups;
        if comptime!(team.lanes == Vectorization::Parallel) {
            workspace[slot] = Vector::new(moments.mean.extract(0usize));
            workspace[m2 + slot] = Vector::new(moments.m2.extract(0usize));
        } else {
            workspace[slot] = Vector::<A, W>::cast_from(moments.mean);
            workspace[m2 + slot] = Vector::<A, W>::cast_from(moments.m2);
        }
    }
}

/// Merges the statistics of all parts of a row group. Members of a team take the parts in turn.
#[cube]
pub(crate) fn merge_parts<A: Float, N: Size, W: Size>(
    workspace: &Workspace<A, W>,
    group: usize,
    partition: &Partition,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let m2 = partition.splits * partition.groups;
    let zero = Vector::<A, W>::new(A::new(0.0));
    let mut count = A::new(0.0);
    let mut mean = zero;
    let mut squares = zero;
    let mut part = member(team);
    while part < partition.splits {
        let slot = part * partition.groups + group;
        let next = Moments::<A, W> {
            count: part_count::<A, N>(partition, part, team),
            mean: workspace[slot],
            m2: workspace[m2 + slot],
        };
        let merged = Moments::<A, W> {
            count,
            mean,
            m2: squares,
        };
        let both = merge::<A, W>(&merged, &next, team);
        count = both.count;
        mean = both.mean;
        squares = both.m2;
        part += comptime!(team.size as usize);
    }
    if comptime!(team.lanes == Vectorization::Parallel) {
        let folded = Moments::<A, One> {
            count,
            mean: Vector::new(mean.extract(0usize)),
            m2: Vector::new(squares.extract(0usize)),
        };
        merge_reduced::<A, N>(&folded, team)
    } else {
        let lanes = Moments::<A, N> {
            count,
            mean: Vector::<A, N>::cast_from(mean),
            m2: Vector::<A, N>::cast_from(squares),
        };
        merge_team::<A, N>(&lanes, team)
    }
}
