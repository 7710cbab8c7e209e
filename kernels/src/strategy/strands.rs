//! Group statistics from per-channel statistics (channels-last layout). Each channel of a group is
//! a segment with statistics of its own.
//!
//! Between the two launches of [`split`](super::split), a third launch combines the segments of
//! each group. If a unit owns all segments of its groups, it combines them itself in one launch.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Lanes, Team};

use crate::moments::{Moments, merge};
use crate::operand::{Optional, row_offset};
use crate::strategy::split::{Partition, Workspace, part_count};
use crate::strategy::{member, merge_reduced, team_count, team_index};
use crate::types::One;

/// Comptime arguments of the combine kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JoinShape {
    /// Team that combines the segments of a row.
    pub(crate) team: Team,
    /// True if the mean of each segment is relative to its own shift.
    pub(crate) shifts: bool,
    /// Access of the scale that weights the sums (backward pass). None: sums are not weighted.
    pub(crate) scale: Option<AccessBlueprint>,
}

/// Writes the shift of a segment to the workspace, behind the output of
/// [`write_part`](super::split::write_part).
#[cube]
pub(crate) fn write_shift<A: Float, N: Size, W: Size>(
    workspace: &mut Workspace<A, W>,
    shift: Vector<A, N>,
    group: usize,
    partition: &Partition,
    #[comptime] team: Team,
) {
    if member(team) == 0 {
        let shifts = 2 * partition.splits * partition.groups;
        workspace[shifts + group] = Vector::<A, W>::cast_from(shift);
    }
}

/// Combines the segments of each of `rows`. The resulting means are relative to the shift of the
/// row's first segment, which is written behind the statistics.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn join<A: Float, P: Float>(
    parts: &Tensor<Vector<A, One>>,
    scale: &Optional<P, One>,
    joined: &mut Tensor<Vector<A, One>>,
    rows: usize,
    partition: Partition,
    #[comptime] shape: JoinShape,
    #[define(A)] _accumulation: ElemType,
    #[define(P)] _param_dtype: ElemType,
) {
    let team = comptime!(shape.team);
    let strands = partition.strands;
    let of_kind = partition.splits * rows * strands;
    let mut row = team_index(team);
    while row < rows {
        let first = row * strands;
        let mut shift = A::new(0.0);
        if comptime!(shape.shifts) {
            shift = parts[2 * of_kind + first].extract(0usize);
        }
        let zero = Vector::<A, One>::new(A::new(0.0));
        let mut count = A::new(0.0);
        let mut mean = zero;
        let mut m2 = zero;
        let mut place = member(team);
        while place < partition.splits * strands {
            let part = place / strands;
            let strand = first + place % strands;
            let slot = part * rows * strands + strand;
            let mut next = Moments::<A, One> {
                count: part_count::<A, One>(&partition, part, team),
                mean: parts[slot],
                m2: parts[of_kind + slot],
            };
            if comptime!(shape.shifts) {
                next.mean += parts[2 * of_kind + strand] - Vector::new(shift);
            }
            if comptime!(shape.scale.is_some()) {
                let scale = scale.as_ref().unwrap();
                let access = comptime!(shape.scale.unwrap());
                let place = row_offset::<P, One>(scale, strand, access, Lanes::Columns);
                let weight = Vector::<A, One>::cast_from(scale[place]);
                next.mean *= weight;
                next.m2 *= weight;
            }
            let merged = Moments::<A, One> { count, mean, m2 };
            let both = merge::<A, One>(&merged, &next, team);
            count = both.count;
            mean = both.mean;
            m2 = both.m2;
            place += comptime!(team.members as usize);
        }
        let mine = Moments::<A, One> { count, mean, m2 };
        let all = merge_reduced::<A, One>(&mine, team);
        if member(team) == 0 {
            joined[row] = all.mean;
            joined[rows + row] = all.m2;
            if comptime!(shape.shifts) {
                joined[2 * rows + row] = Vector::new(shift);
            }
        }
        row += team_count(team);
    }
}

/// Combined statistics of the rows in the lanes of a row group.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Joined<A: Float, N: Size> {
    pub(crate) moments: Moments<A, N>,
    pub(crate) shift: Vector<A, N>,
}

/// Reads the output of [`join`] for a row group whose first lane is the segment `first`.
#[cube]
pub(crate) fn joined<A: Float, N: Size, W: Size>(
    joined: &Workspace<A, W>,
    first: usize,
    partition: &Partition,
    #[comptime] shifts: bool,
) -> Joined<A, N> {
    let strands = partition.strands;
    let rows = partition.groups * N::value() / strands;
    let mut mean = Vector::<A, N>::empty();
    let mut m2 = Vector::<A, N>::empty();
    let mut shift = Vector::<A, N>::new(A::new(0.0));
    #[unroll]
    for lane in 0..N::value() {
        let row = (first + lane) / strands;
        mean.insert(lane, joined[row].extract(0usize));
        m2.insert(lane, joined[rows + row].extract(0usize));
        if shifts {
            shift.insert(lane, joined[2 * rows + row].extract(0usize));
        }
    }
    found::<A, N>(mean, m2, shift)
}

/// Combined statistics of a vector's lanes. Callers take the count from the partition.
#[cube]
fn found<A: Float, N: Size>(
    mean: Vector<A, N>,
    m2: Vector<A, N>,
    shift: Vector<A, N>,
) -> Joined<A, N> {
    Joined::<A, N> {
        moments: Moments::<A, N> {
            count: A::new(0.0),
            mean,
            m2,
        },
        shift,
    }
}

/// Statistics of adjacent segments that one unit combines, stored as scalars.
#[derive(CubeType)]
pub(crate) struct Strands<A: Float> {
    means: Array<A>,
    m2s: Array<A>,
    shifts: Array<A>,
}

#[cube]
impl<A: Float> Strands<A> {
    pub(crate) fn room(#[comptime] strands: usize) -> Self {
        Strands::<A> {
            means: Array::<A>::new(strands),
            m2s: Array::<A>::new(strands),
            shifts: Array::<A>::new(strands),
        }
    }

    /// Writes the statistics of the lanes of vector `r`.
    pub(crate) fn set<N: Size>(
        &mut self,
        r: usize,
        mean: Vector<A, N>,
        m2: Vector<A, N>,
        shift: Vector<A, N>,
    ) {
        #[unroll]
        for lane in 0..N::value() {
            let strand = r * N::value() + lane;
            self.means[strand] = mean.extract(lane);
            self.m2s[strand] = m2.extract(lane);
            self.shifts[strand] = shift.extract(lane);
        }
    }

    /// Combines each `strands` consecutive segments, which have `count` elements each. Writes the
    /// result to all of them.
    pub(crate) fn join(
        &mut self,
        strands: usize,
        count: A,
        #[comptime] lanes: usize,
        #[comptime] team: Team,
    ) {
        for row in 0..lanes / strands {
            let first = row * strands;
            let shift = self.shifts[first];
            let mut of_row = Moments::<A, One> {
                count,
                mean: Vector::new(self.means[first]),
                m2: Vector::new(self.m2s[first]),
            };
            for strand in first + 1..first + strands {
                let next = Moments::<A, One> {
                    count,
                    mean: Vector::new(self.means[strand] + (self.shifts[strand] - shift)),
                    m2: Vector::new(self.m2s[strand]),
                };
                let both = merge::<A, One>(&of_row, &next, team);
                of_row.count = both.count;
                of_row.mean = both.mean;
                of_row.m2 = both.m2;
            }
            for strand in first..first + strands {
                self.means[strand] = of_row.mean.extract(0usize);
                self.m2s[strand] = of_row.m2.extract(0usize);
                self.shifts[strand] = shift;
            }
        }
    }

    /// Reads the combined statistics of the lanes of vector `r`.
    pub(crate) fn joined<N: Size>(&self, r: usize) -> Joined<A, N> {
        let mut mean = Vector::<A, N>::empty();
        let mut m2 = Vector::<A, N>::empty();
        let mut shift = Vector::<A, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            let strand = r * N::value() + lane;
            mean.insert(lane, self.means[strand]);
            m2.insert(lane, self.m2s[strand]);
            shift.insert(lane, self.shifts[strand]);
        }
        found::<A, N>(mean, m2, shift)
    }
}
