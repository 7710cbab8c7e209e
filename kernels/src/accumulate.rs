//! The statistics of a row that is read from memory, in one pass over it.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, StatisticsKind};

use crate::moments::{Moments, fold_lanes, fold_lanes_from, merge};
use crate::source::{Source, SourceRow, read, shifted};
use crate::strategy::split::Partition;
use crate::strategy::{merge_folded, merge_team};
use crate::types::{One, Types};
use crate::work::{Share, ends_run, steps_within};

/// Steps whose deviations are summed up from one origin, see [`accumulate`]. More of them would save
/// merges; sums of so few keep their digits.
const BLOCK: usize = 64;

/// Steps that are loaded before the first is used, so that several loads are under way, and summed
/// up apart, so that no addition waits for the one before it.
pub(crate) const UNROLL: usize = 4;

/// [`Source`] of a kernel's types.
pub(crate) type TypedSource<T> =
    Source<<T as Types>::F, <T as Types>::Input, <T as Types>::Residual>;

/// What a unit has found in its share, lane by lane.
#[derive(CubeType, Clone, Copy)]
struct Accumulated<A: Float, N: Size> {
    /// In vectors that have all lanes for themselves.
    whole: Moments<A, N>,
    /// In those that end a run, of which the first lanes do not count: see [`Team::ragged`](cubenorm_core::Team::ragged).
    ends: Moments<A, N>,
}

/// The moments of a row or a part of one: those of a unit's share, merged over its team.
#[cube]
pub(crate) fn row_moments<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(blueprint.team);
    let mine = accumulate::<T>(source, row, share, partition, blueprint);
    if comptime!(team.ragged) {
        let whole = fold_lanes::<T::A, T::N>(&mine.whole, team);
        let ends = fold_lanes_from::<T::A, T::N>(&mine.ends, partition.overlap, team);
        merge_folded::<T::A, T::N>(&merge::<T::A, One>(&whole, &ends, team), team)
    } else {
        merge_team::<T::A, T::N>(&mine.whole, team)
    }
}

/// Accumulates a unit's share block by block, reading each element once.
///
/// Within a block deviations are taken from the mean so far and moved to the block's own mean in
/// the end, `sum(d^2) - sum(d)^2 / n`. What cancels there is the distance between the two means,
/// which [`merge`] adds to the whole: relative to the whole it is nothing. The first block has no
/// mean to start from but its first element, so it is kept short: that difference costs at most the
/// digits of `n`.
#[cube]
fn accumulate<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Accumulated<T::A, T::N> {
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut all_count = T::A::new(0.0);
    let mut all_mean = zero;
    let mut all_m2 = zero;
    let mut ends_count = T::A::new(0.0);
    let mut ends_mean = zero;
    let mut ends_m2 = zero;
    let mut done = 0usize;
    while done < share.count {
        let is_first = done == 0;
        let at_most = min(
            share.count - done,
            select(is_first, UNROLL.runtime(), BLOCK.runtime()),
        );
        let steps = if comptime!(blueprint.team.ragged) {
            steps_within(share.begin + done, at_most, partition)
        } else {
            at_most
        };
        let all = Moments::<T::A, T::N> {
            count: all_count,
            mean: all_mean,
            m2: all_m2,
        };
        if comptime!(!blueprint.team.ragged) {
            let both = with_block::<T>(&all, source, row, share, done, steps, is_first, blueprint);
            all_count = both.count;
            all_mean = both.mean;
            all_m2 = both.m2;
            done += steps;
        } else {
            // A part of a row may begin where a run ends.
            if steps > 0 {
                let both =
                    with_block::<T>(&all, source, row, share, done, steps, is_first, blueprint);
                all_count = both.count;
                all_mean = both.mean;
                all_m2 = both.m2;
                done += steps;
            }
            let step = share.begin + done;
            if done < share.count && ends_run(step, partition) {
                let ends = Moments::<T::A, T::N> {
                    count: ends_count,
                    mean: ends_mean,
                    m2: ends_m2,
                };
                let value = read::<T>(source, row, step, blueprint);
                let value = shifted::<T::A, T::N>(value, row, blueprint);
                let one = moments_of_one::<T::A, T::N>(value, blueprint);
                let both = merge::<T::A, T::N>(&ends, &one, blueprint.team);
                ends_count = both.count;
                ends_mean = both.mean;
                ends_m2 = both.m2;
                done += 1;
            }
        }
    }
    Accumulated::<T::A, T::N> {
        whole: Moments::<T::A, T::N> {
            count: all_count,
            mean: all_mean,
            m2: all_m2,
        },
        ends: Moments::<T::A, T::N> {
            count: ends_count,
            mean: ends_mean,
            m2: ends_m2,
        },
    }
}

/// The moments of one vector.
#[cube]
fn moments_of_one<A: Float, N: Size>(
    value: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let statistics = comptime!(blueprint.statistics);
    Moments::<A, N> {
        count: A::new(1.0),
        mean: if comptime!(statistics.reduces_mean()) {
            value
        } else {
            zero
        },
        m2: if comptime!(statistics.reduces_deviation() && !statistics.reduces_mean()) {
            spread::<A, N>(value, blueprint)
        } else {
            zero
        },
    }
}

/// What has been found so far, merged with a block of so many steps.
#[cube]
#[allow(clippy::too_many_arguments)]
fn with_block<T: Types>(
    all: &Moments<T::A, T::N>,
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    done: usize,
    steps: usize,
    is_first: bool,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let stride = comptime!(blueprint.team.members as usize);
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let statistics = comptime!(blueprint.statistics);
    let end = done + steps;
    let mut origin = all.mean;
    if comptime!(statistics.reduces_mean() && statistics.reduces_deviation()) {
        if is_first {
            let first = read::<T>(source, row, share.begin + done * stride, blueprint);
            origin = shifted::<T::A, T::N>(first, row, blueprint);
        }
    } else {
        origin = zero;
    }
    let mut sum = zero;
    let mut squares = zero;
    let mut i = done;
    while i + comptime!(UNROLL - 1) < end {
        let mut sums = zero;
        let mut products = zero;
        #[unroll]
        for j in 0..UNROLL {
            let step = share.begin + (i + j) * stride;
            let value = read::<T>(source, row, step, blueprint);
            let deviation = shifted::<T::A, T::N>(value, row, blueprint) - origin;
            sums += deviation;
            products += spread::<T::A, T::N>(deviation, blueprint);
        }
        sum += sums;
        squares += products;
        i += UNROLL;
    }
    while i < end {
        let value = read::<T>(source, row, share.begin + i * stride, blueprint);
        let deviation = shifted::<T::A, T::N>(value, row, blueprint) - origin;
        sum += deviation;
        squares += spread::<T::A, T::N>(deviation, blueprint);
        i += 1;
    }
    let count = T::A::cast_from(steps);
    // By the reciprocal, which is one number: to divide all lanes takes a processor several times as long.
    let offset = sum * Vector::new(T::A::new(1.0) / count);
    let block = block_moments::<T::A, T::N>(count, origin, offset, sum, squares, blueprint);
    merge::<T::A, T::N>(all, &block, blueprint.team)
}

/// What an element adds to the deviation.
#[cube]
pub(crate) fn spread<A: Float, N: Size>(
    deviation: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.statistics == StatisticsKind::L1Norm) {
        deviation.abs()
    } else {
        deviation * deviation
    }
}

/// The moments of a block from the sums of its deviations from `origin`, and the mean of those, `offset`.
#[cube]
pub(crate) fn block_moments<A: Float, N: Size>(
    count: A,
    origin: Vector<A, N>,
    offset: Vector<A, N>,
    sum: Vector<A, N>,
    squares: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let mean = if comptime!(blueprint.statistics.reduces_mean()) {
        origin + offset
    } else {
        zero
    };
    let m2 = if comptime!(!blueprint.statistics.reduces_deviation()) {
        zero
    } else if comptime!(blueprint.statistics.reduces_mean()) {
        // Rounding may leave less than nothing of a constant block, and of squares beyond all numbers
        // something that is none.
        let rest = squares - sum * offset;
        let rest = select_many(rest.less_than(&zero), zero, rest);
        select_many(rest.equal(&rest), rest, squares)
    } else {
        squares
    };
    Moments::<A, N> { count, mean, m2 }
}
