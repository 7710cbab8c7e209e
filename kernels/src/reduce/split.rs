//! Rows split across teams. The first launch writes partial statistics of each part to a workspace.
//! The second launch merges the parts of a row and normalizes.
//!
//! Two launches instead of a last-block reduction: WebGPU and the CPU runtime give no ordering
//! between cubes of one launch.

use cubecl::prelude::*;
use cubenorm_core::{Team, Vectorization};

use crate::reduce::moments::{Moments, merge};
use crate::reduce::team::{merge_reduced, merge_team};
use crate::schedule::partition::{Partition, part_count};
use crate::schedule::team::member;
use crate::types::One;

/// Partial statistics in part-major order: means of all row groups for each part, then `m2` in the
/// same order. Counts follow from the bounds of a part.
pub(crate) type Workspace<A, W> = Tensor<Vector<A, W>>;

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
        if comptime!(team.lanes() == Vectorization::Parallel) {
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
        part += comptime!(team.size() as usize);
    }
    if comptime!(team.lanes() == Vectorization::Parallel) {
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
