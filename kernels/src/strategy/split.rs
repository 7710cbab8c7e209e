//! Rows cut between teams. The first launch leaves each part's statistics in a workspace; the
//! second merges those of a row and normalizes its part.
//!
//! Two launches rather than one in which the last team finishes: WebGPU and the CPU runtime order
//! nothing between the cubes of a launch.

use cubecl::prelude::*;
use cubenorm_core::{Lanes, Team};

use crate::moments::{Moments, merge};
use crate::strategy::{member, merge_folded, merge_team};
use crate::types::One;

/// Statistics of parts: the means of all rows for each part, part after part, then their `m2` in
/// the same order. Counts follow from where a part begins and ends.
pub(crate) type Workspace<A, W> = Tensor<Vector<A, W>>;

/// How rows are cut, at run time.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Partition {
    /// Row groups.
    pub(crate) groups: usize,
    /// Steps through a row.
    pub(crate) steps: usize,
    /// Parts of a row.
    pub(crate) splits: usize,
    /// Steps of a part.
    pub(crate) steps_per_split: usize,
    /// Items, each a part of a row group, that a team works through.
    pub(crate) items_per_team: usize,
    /// Steps of a run of columns: see [`Team::ragged`], or of those that share their parameters. Row groups of a run of
    /// rows: see [`Team::ragged_rows`].
    pub(crate) run: usize,
    /// Lanes of the last vector of a run that the vector before it has too.
    pub(crate) overlap: usize,
    /// Rows that have their statistics in common.
    pub(crate) strands: usize,
    /// Elements of a row.
    pub(crate) cols: usize,
    /// The same again, for what is written: a compiler that knows that rows lie there as they do in what is read
    /// keeps the place of each vector from its load to its store, in registers that are not there.
    pub(crate) cols_written: usize,
}

/// Elements of a whole row, of all its strands where it has several.
#[cube]
pub(crate) fn row_elements<A: Float, N: Size>(partition: &Partition, #[comptime] team: Team) -> A {
    let of_one = elements::<A, N>(0usize.runtime(), partition.steps, partition, team);
    if comptime!(team.joined) {
        of_one * A::cast_from(partition.strands)
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
    if comptime!(team.lanes == Lanes::Rows) {
        A::cast_from(steps)
    } else if comptime!(team.ragged) {
        let ends = end / partition.run - begin / partition.run;
        A::cast_from(steps * N::value() - ends * partition.overlap)
    } else {
        A::cast_from(steps * N::value())
    }
}

/// Those that lie in a part.
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

/// Leaves a part's statistics, merged over the team, in the workspace.
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
        if comptime!(team.lanes == Lanes::Columns) {
            workspace[slot] = Vector::new(moments.mean.extract(0usize));
            workspace[m2 + slot] = Vector::new(moments.m2.extract(0usize));
        } else {
            workspace[slot] = Vector::<A, W>::cast_from(moments.mean);
            workspace[m2 + slot] = Vector::<A, W>::cast_from(moments.m2);
        }
    }
}

/// Merges the statistics of all parts of a row group; the members of a team share the parts.
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
        part += comptime!(team.members as usize);
    }
    if comptime!(team.lanes == Lanes::Columns) {
        let folded = Moments::<A, One> {
            count,
            mean: Vector::new(mean.extract(0usize)),
            m2: Vector::new(squares.extract(0usize)),
        };
        merge_folded::<A, N>(&folded, team)
    } else {
        let lanes = Moments::<A, N> {
            count,
            mean: Vector::<A, N>::cast_from(mean),
            m2: Vector::<A, N>::cast_from(squares),
        };
        merge_team::<A, N>(&lanes, team)
    }
}
