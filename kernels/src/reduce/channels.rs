//! Group statistics from per-channel statistics (channels-last layout). Each channel of a group has
//! statistics of its own.
//!
//! Between the two launches of [`split`](crate::reduce::split), a third launch combines the channels of
//! each group. If a unit owns all channels of its groups, it combines them itself in one launch.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Offset, Team, Vectorization};

use crate::memory::access::{Optional, row_offset};
use crate::reduce::moments::{Moments, merge};
use crate::reduce::split::Workspace;
use crate::reduce::team::merge_reduced;
use crate::schedule::partition::{Partition, part_count};
use crate::schedule::team::{member, team_count, team_index};
use crate::types::One;
use crate::vector::offset_scale;

/// Comptime arguments of the combine kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CombineShape {
    /// Team that combines the channels of a row.
    pub(crate) team: Team,
    /// True if the mean of each channel is relative to its own shift.
    pub(crate) shifts: bool,
    /// Access of the scale that weights the sums (backward pass). None: sums are not weighted.
    pub(crate) scale: Option<AccessBlueprint>,
    /// Added to the scale.
    pub(crate) offset: Offset,
}

/// Writes the shift of a channel to the workspace, behind the output of
/// [`write_part`](crate::reduce::split::write_part()).
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

/// Combines the channels of each of `rows`. The resulting means are relative to the shift of the
/// row's first channel, which is written behind the statistics.
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
    let channels = partition.channels;
    let of_kind = partition.splits * rows * channels;
    let mut row = team_index(team);
    while row < rows {
        let first = row * channels;
        let mut shift = A::new(0.0);
        if comptime!(shape.shifts) {
            shift = parts[2 * of_kind + first].extract(0usize);
        }
        let zero = Vector::<A, One>::new(A::new(0.0));
        let mut count = A::new(0.0);
        let mut mean = zero;
        let mut m2 = zero;
        let mut place = member(team);
        while place < partition.splits * channels {
            let part = place / channels;
            let channel = first + place % channels;
            let slot = part * rows * channels + channel;
            let mut next = Moments::<A, One> {
                count: part_count::<A, One>(&partition, part, team),
                mean: parts[slot],
                m2: parts[of_kind + slot],
            };
            if comptime!(shape.shifts) {
                next.mean += parts[2 * of_kind + channel] - Vector::new(shift);
            }
            if comptime!(shape.scale.is_some()) {
                let scale = scale.as_ref().unwrap();
                let access = comptime!(shape.scale.unwrap());
                let place = row_offset::<P, One>(scale, channel, access, Vectorization::Parallel);
                let weight = Vector::<A, One>::cast_from(scale[place]);
                let weight = offset_scale::<A, One>(weight, shape.offset);
                next.mean *= weight;
                next.m2 *= weight;
            }
            let merged = Moments::<A, One> { count, mean, m2 };
            let both = merge::<A, One>(&merged, &next, team);
            count = both.count;
            mean = both.mean;
            m2 = both.m2;
            place += comptime!(team.size() as usize);
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

/// Reads the output of [`combine`] for a row group whose first lane is the channel `first`.
#[cube]
pub(crate) fn combined<A: Float, N: Size, W: Size>(
    combined: &Workspace<A, W>,
    first: usize,
    partition: &Partition,
    #[comptime] shifts: bool,
) -> Combined<A, N> {
    let channels = partition.channels;
    let rows = partition.groups * N::value() / channels;
    let mut mean = Vector::<A, N>::empty();
    let mut m2 = Vector::<A, N>::empty();
    let mut shift = Vector::<A, N>::new(A::new(0.0));
    #[unroll]
    for lane in 0..N::value() {
        let row = (first + lane) / channels;
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

/// Statistics of adjacent channels that one unit combines, stored as scalars.
#[derive(CubeType)]
pub(crate) struct Channels<A: Float> {
    means: Array<A>,
    m2s: Array<A>,
    shifts: Array<A>,
}

#[cube]
impl<A: Float> Channels<A> {
    pub(crate) fn with_capacity(#[comptime] channels: usize) -> Self {
        Channels::<A> {
            means: Array::<A>::new(channels),
            m2s: Array::<A>::new(channels),
            shifts: Array::<A>::new(channels),
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
            let channel = r * N::value() + lane;
            self.means[channel] = mean.extract(lane);
            self.m2s[channel] = m2.extract(lane);
            self.shifts[channel] = shift.extract(lane);
        }
    }

    /// Combines each `channels` consecutive channels, which have `count` elements each. Writes the
    /// result to all of them.
    pub(crate) fn combine(
        &mut self,
        channels: usize,
        count: A,
        #[comptime] lanes: usize,
        #[comptime] team: Team,
    ) {
        for row in 0..lanes / channels {
            let first = row * channels;
            let shift = self.shifts[first];
            let mut of_row = Moments::<A, One> {
                count,
                mean: Vector::new(self.means[first]),
                m2: Vector::new(self.m2s[first]),
            };
            for channel in first + 1..first + channels {
                let next = Moments::<A, One> {
                    count,
                    mean: Vector::new(self.means[channel] + (self.shifts[channel] - shift)),
                    m2: Vector::new(self.m2s[channel]),
                };
                let both = merge::<A, One>(&of_row, &next, team);
                of_row.count = both.count;
                of_row.mean = both.mean;
                of_row.m2 = both.m2;
            }
            for channel in first..first + channels {
                self.means[channel] = of_row.mean.extract(0usize);
                self.m2s[channel] = of_row.m2.extract(0usize);
                self.shifts[channel] = shift;
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
            let channel = r * N::value() + lane;
            mean.insert(lane, self.means[channel]);
            m2.insert(lane, self.m2s[channel]);
            shift.insert(lane, self.shifts[channel]);
        }
        found::<A, N>(mean, m2, shift)
    }
}
