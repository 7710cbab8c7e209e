//! Group statistics from per-channel statistics (channels-last layout). Each channel of a group is
//! a segment with statistics of its own.
//!
//! Between the two launches of [`split`](super::split), a third launch combines the segments of
//! each group. If a unit owns all segments of its groups, it combines them itself in one launch.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Team, Vectorization};

use crate::memory::access::{Optional, row_offset};
use crate::reduce::moments::{Moments, merge};
use crate::reduce::split::{Partition, Workspace, part_count};
use crate::reduce::{member, merge_reduced, team_count, team_index};
use crate::types::One;

/// Comptime arguments of the combine kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CombineShape {
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
pub(crate) fn combine<A: Float, P: Float>(
    parts: &Tensor<Vector<A, One>>,
    scale: &Optional<P, One>,
    combined: &mut Tensor<Vector<A, One>>,
    rows: usize,
    partition: Partition,
    #[comptime] shape: CombineShape,
    #[define(A)] _accumulation: ElemType,
    #[define(P)] _param_dtype: ElemType,
) {
    let team = comptime!(shape.team);
    let segments = partition.segments;
    let of_kind = partition.splits * rows * segments;
    let mut row = team_index(team);
    while row < rows {
        let first = row * segments;
        let mut shift = A::new(0.0);
        if comptime!(shape.shifts) {
            shift = parts[2 * of_kind + first].extract(0usize);
        }
        let zero = Vector::<A, One>::new(A::new(0.0));
        let mut count = A::new(0.0);
        let mut mean = zero;
        let mut m2 = zero;
        let mut place = member(team);
        while place < partition.splits * segments {
            let part = place / segments;
            let segment = first + place % segments;
            let slot = part * rows * segments + segment;
            let mut next = Moments::<A, One> {
                count: part_count::<A, One>(&partition, part, team),
                mean: parts[slot],
                m2: parts[of_kind + slot],
            };
            if comptime!(shape.shifts) {
                next.mean += parts[2 * of_kind + segment] - Vector::new(shift);
            }
            if comptime!(shape.scale.is_some()) {
                let scale = scale.as_ref().unwrap();
                let access = comptime!(shape.scale.unwrap());
                let place = row_offset::<P, One>(scale, segment, access, Vectorization::Parallel);
                let weight = Vector::<A, One>::cast_from(scale[place]);
                next.mean *= weight;
                next.m2 *= weight;
            }
            let merged = Moments::<A, One> { count, mean, m2 };
            let both = merge::<A, One>(&merged, &next, team);
            count = both.count;
            mean = both.mean;
            m2 = both.m2;
            place += comptime!(team.size as usize);
        }
        let mine = Moments::<A, One> { count, mean, m2 };
        let all = merge_reduced::<A, One>(&mine, team);
        if member(team) == 0 {
            combined[row] = all.mean;
            combined[rows + row] = all.m2;
            if comptime!(shape.shifts) {
                combined[2 * rows + row] = Vector::new(shift);
            }
        }
        row += team_count(team);
    }
}

/// Combined statistics of the rows in the lanes of a row group.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Combined<A: Float, N: Size> {
    pub(crate) moments: Moments<A, N>,
    pub(crate) shift: Vector<A, N>,
}

/// Reads the output of [`combine`] for a row group whose first lane is the segment `first`.
#[cube]
pub(crate) fn combined<A: Float, N: Size, W: Size>(
    combined: &Workspace<A, W>,
    first: usize,
    partition: &Partition,
    #[comptime] shifts: bool,
) -> Combined<A, N> {
    let segments = partition.segments;
    let rows = partition.groups * N::value() / segments;
    let mut mean = Vector::<A, N>::empty();
    let mut m2 = Vector::<A, N>::empty();
    let mut shift = Vector::<A, N>::new(A::new(0.0));
    #[unroll]
    for lane in 0..N::value() {
        let row = (first + lane) / segments;
        mean.insert(lane, combined[row].extract(0usize));
        m2.insert(lane, combined[rows + row].extract(0usize));
        if shifts {
            shift.insert(lane, combined[2 * rows + row].extract(0usize));
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
) -> Combined<A, N> {
    Combined::<A, N> {
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
pub(crate) struct Segments<A: Float> {
    means: Array<A>,
    m2s: Array<A>,
    shifts: Array<A>,
}

#[cube]
impl<A: Float> Segments<A> {
    pub(crate) fn room(#[comptime] segments: usize) -> Self {
        Segments::<A> {
            means: Array::<A>::new(segments),
            m2s: Array::<A>::new(segments),
            shifts: Array::<A>::new(segments),
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
            let segment = r * N::value() + lane;
            self.means[segment] = mean.extract(lane);
            self.m2s[segment] = m2.extract(lane);
            self.shifts[segment] = shift.extract(lane);
        }
    }

    /// Combines each `segments` consecutive segments, which have `count` elements each. Writes the
    /// result to all of them.
    pub(crate) fn combine(
        &mut self,
        segments: usize,
        count: A,
        #[comptime] lanes: usize,
        #[comptime] team: Team,
    ) {
        for row in 0..lanes / segments {
            let first = row * segments;
            let shift = self.shifts[first];
            let mut of_row = Moments::<A, One> {
                count,
                mean: Vector::new(self.means[first]),
                m2: Vector::new(self.m2s[first]),
            };
            for segment in first + 1..first + segments {
                let next = Moments::<A, One> {
                    count,
                    mean: Vector::new(self.means[segment] + (self.shifts[segment] - shift)),
                    m2: Vector::new(self.m2s[segment]),
                };
                let both = merge::<A, One>(&of_row, &next, team);
                of_row.count = both.count;
                of_row.mean = both.mean;
                of_row.m2 = both.m2;
            }
            for segment in first..first + segments {
                self.means[segment] = of_row.mean.extract(0usize);
                self.m2s[segment] = of_row.m2.extract(0usize);
                self.shifts[segment] = shift;
            }
        }
    }

    /// Reads the combined statistics of the lanes of vector `r`.
    pub(crate) fn combined<N: Size>(&self, r: usize) -> Combined<A, N> {
        let mut mean = Vector::<A, N>::empty();
        let mut m2 = Vector::<A, N>::empty();
        let mut shift = Vector::<A, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            let segment = r * N::value() + lane;
            mean.insert(lane, self.means[segment]);
            m2.insert(lane, self.m2s[segment]);
            shift.insert(lane, self.shifts[segment]);
        }
        found::<A, N>(mean, m2, shift)
    }
}
