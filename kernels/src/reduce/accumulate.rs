//! One-pass statistics of a row that is read from memory.

use cubecl::prelude::*;
use cubenorm_core::{BLOCK, Blueprint, Merge, Team};

use crate::memory::input::{SourceRow, SourceRows, TypedSource, read, shifted};
use crate::memory::segment::{further_row, segment_blueprint, segment_start};
use crate::reduce::moments::{
    Moments, Sums, divided, merge, reduce_lanes, reduce_lanes_from, second_moment_term,
};
use crate::reduce::scaled::{block_norm, vector_norm};
use crate::reduce::sum::{AddStep, AddStepExpand, Steps, SumShape, UNROLL, add_steps};
use crate::reduce::team::{merge_reduced, merge_team};
use crate::schedule::partition::{Partition, row_elements};
use crate::schedule::share::Share;
use crate::types::{One, Types};

/// Partial statistics of a unit's slice of several rows, lane by lane.
#[derive(CubeType)]
pub(crate) struct Accumulated<A: Float, N: Size> {
    count: A,
    means: Array<Vector<A, N>>,
    m2s: Array<Vector<A, N>>,
}

#[cube]
impl<A: Float, N: Size> Accumulated<A, N> {
    pub(crate) fn nothing(#[comptime] rows: usize) -> Self {
        let mut means = Array::<Vector<A, N>>::new(rows);
        let mut m2s = Array::<Vector<A, N>>::new(rows);
        #[unroll]
        for r in 0..rows {
            means[r] = Vector::new(A::new(0.0));
            m2s[r] = Vector::new(A::new(0.0));
        }
        Accumulated::<A, N> {
            count: A::new(0.0),
            means,
            m2s,
        }
    }

    pub(crate) fn of_row(&self, r: usize) -> Moments<A, N> {
        Moments::<A, N> {
            count: self.count,
            mean: self.means[r],
            m2: self.m2s[r],
        }
    }

    fn set(&mut self, r: usize, moments: &Moments<A, N>) {
        self.means[r] = moments.mean;
        self.m2s[r] = moments.m2;
    }
}

/// Moments of a row or of one part, merged over the team.
#[cube]
pub(crate) fn row_moments<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let mut rows = SourceRows::<T::A, T::N>::with_capacity(1usize);
    rows.set(0usize, row);
    if comptime!(blueprint.is_one_block()) {
        let count = row_elements::<T::A, T::N>(partition, blueprint.team);
        let mut sums = Sums::<T::A, T::N>::zeros(1usize);
        let terms = Deviations::<T>::new(source, row, row.shift, blueprint);
        let steps = Steps {
            first: share.begin,
            count: share.count,
            stride: comptime!(blueprint.team.size() as usize),
        };
        add_steps::<T::A, T::N, Deviations<'_, T>>(
            &terms,
            &steps,
            &mut sums,
            comptime!(SumShape::of_one_row()),
        );
        whole_moments::<T>(&sums.total(count, 1usize), count, blueprint)
    } else if comptime!(blueprint.team.has_tail()) {
        tail_moments::<T>(source, row, share, partition, blueprint)
    } else {
        let mine = accumulate::<T>(source, &rows, share, 1usize, blueprint);
        merge_team::<T::A, T::N>(&mine.of_row(0usize), blueprint.team)
    }
}

/// Moments of a row of `count` elements relative to its shift, merged over the team as plain sums.
/// Little cancels, because the shift is near the mean. Unlike [`merge`], sums need no division per
/// part.
#[cube]
pub(crate) fn whole_moments<T: Types>(
    mine: &Moments<T::A, T::N>,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(Team {
        merge: match blueprint.statistics.reduces_mean() {
            true => Merge::Sums,
            false => Merge::Sum,
        },
        ..blueprint.team
    });
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let sums = merge_team::<T::A, T::N>(mine, team);
    // Divides, so that a row of equal elements has exactly no deviation.
    let offset = divided::<T::A, T::N>(sums.mean, count, blueprint.team);
    block_moments::<T::A, T::N>(count, zero, offset, sums.mean, sums.m2, blueprint)
}

/// Accumulates a unit's slice of `count` rows block by block. Each element is read once. Several
/// rows advance together, one step of each at a time.
///
/// Each block uses the shifted-data algorithm, with the mean so far as its shift: `sum(d^2) -
/// sum(d)^2 / n`. The cancellation is bounded by the distance between that mean and the block's
/// mean. [`merge`] adds this distance to the total, so its relative error is negligible. The first
/// block uses its first element and is short: it loses at most the digits of `n`.
#[cube]
pub(crate) fn accumulate<T: Types>(
    source: &TypedSource<T>,
    rows: &SourceRows<T::A, T::N>,
    share: &Share,
    #[comptime] count: usize,
    #[comptime] blueprint: Blueprint,
) -> Accumulated<T::A, T::N> {
    let mut all = Accumulated::<T::A, T::N>::nothing(count);
    let mut done = 0usize;
    while done < share.count {
        let steps = min(share.count - done, steps_of_block(done));
        let first = share.begin + done * comptime!(blueprint.team.size() as usize);
        add_block::<T>(
            &mut all,
            source,
            rows,
            first,
            steps,
            done == 0,
            count,
            blueprint,
        );
        done += steps;
    }
    all
}

/// Maximum steps of a block that begins after `done` steps.
#[cube]
fn steps_of_block(done: usize) -> usize {
    select(done == 0, UNROLL.runtime(), BLOCK.runtime())
}

/// [`row_moments`] of a row whose segments have [tails](cubenorm_core::Team::has_tail). The first
/// lanes of a tail overlap and do not count.
#[cube]
fn tail_moments<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(blueprint.team);
    let of_segment = comptime!(segment_blueprint(blueprint));
    let width = T::N::value();
    let mut segment_steps = partition.segment_steps;
    let mut overlap = partition.overlap;
    let mut begin = share.begin;
    let mut count = share.count;
    if comptime!(blueprint.team.has_one_tail()) {
        segment_steps = partition.cols.div_ceil(width);
        overlap = segment_steps * width - partition.cols;
        begin = 0;
        count = segment_steps;
    }
    let mut whole = Accumulated::<T::A, T::N>::nothing(1usize);
    let mut ends = Accumulated::<T::A, T::N>::nothing(1usize);
    let mut done = 0usize;
    while done < count {
        let step = begin + done;
        let within = step % segment_steps;
        let start = if comptime!(blueprint.team.has_one_tail()) {
            row.offset_by(0usize, 0usize)
        } else {
            segment_start::<T>(source, row, step - within, blueprint)
        };
        let at_most = min(count - done, steps_of_block(done));
        let steps = min(at_most, segment_steps - 1 - within);
        // A part of a row may begin with a segment's tail.
        if steps > 0 {
            let mut rows = SourceRows::<T::A, T::N>::with_capacity(1usize);
            rows.set(0usize, &start);
            add_block::<T>(
                &mut whole,
                source,
                &rows,
                within,
                steps,
                done == 0,
                1usize,
                of_segment,
            );
            done += steps;
        }
        if done < count && within + steps == segment_steps - 1 {
            let to_end = (segment_steps - 1) * width - overlap;
            let end = further_row::<T>(&start, to_end, blueprint);
            let value = read::<T>(source, &end, 0usize, of_segment);
            let value = shifted::<T::A, T::N>(value, row, blueprint);
            let one = moments_of_one::<T::A, T::N>(value, blueprint);
            let both = merge::<T::A, T::N>(&ends.of_row(0usize), &one, team);
            ends.set(0usize, &both);
            ends.count = both.count;
            done += 1;
        }
    }
    let whole = reduce_lanes::<T::A, T::N>(&whole.of_row(0usize), team);
    let ends = reduce_lanes_from::<T::A, T::N>(&ends.of_row(0usize), overlap, team);
    merge_reduced::<T::A, T::N>(&merge::<T::A, One>(&whole, &ends, team), team)
}

/// Moments of one vector.
#[cube]
fn moments_of_one<A: Float, N: Size>(
    value: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let statistics = comptime!(blueprint.statistics);
    if comptime!(statistics.is_norm()) {
        vector_norm::<A, N>(value, blueprint)
    } else {
        Moments::<A, N> {
            count: A::new(1.0),
            mean: if comptime!(statistics.reduces_mean()) {
                value
            } else {
                zero
            },
            m2: if comptime!(statistics.reduces_deviation() && !statistics.reduces_mean()) {
                second_moment_term::<A, N>(value, blueprint)
            } else {
                zero
            },
        }
    }
}

/// Adds a block of `steps` steps from `first` on to the statistics so far.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_block<T: Types>(
    all: &mut Accumulated<T::A, T::N>,
    source: &TypedSource<T>,
    rows: &SourceRows<T::A, T::N>,
    first: usize,
    steps: usize,
    is_first: bool,
    #[comptime] rows_per_unit: usize,
    #[comptime] blueprint: Blueprint,
) {
    let statistics = comptime!(blueprint.statistics);
    let has_origin = comptime!(statistics.reduces_mean() && statistics.reduces_deviation());
    // A single row is known at compile time, so its statistics stay in registers.
    let alone = comptime!(rows_per_unit == 1);
    // Value that is subtracted from the elements: the shift plus the mean so far.
    let mut from = Array::<Vector<T::A, T::N>>::new(rows_per_unit);
    #[unroll(alone)]
    for r in 0..rows_per_unit {
        let row = rows.get(r);
        from[r] = row.shift;
        if has_origin {
            from[r] = row.shift + all.of_row(r).mean;
            if is_first {
                from[r] = read::<T>(source, &row, first, blueprint);
            }
        }
    }
    let mut sums = Sums::<T::A, T::N>::zeros(rows_per_unit);
    let to_add = Steps {
        first,
        count: steps,
        stride: comptime!(blueprint.team.size() as usize),
    };
    if alone {
        let row = rows.get(0usize);
        let terms = Deviations::<T>::new(source, &row, from[0], blueprint);
        add_steps::<T::A, T::N, Deviations<'_, T>>(
            &terms,
            &to_add,
            &mut sums,
            comptime!(SumShape::of_one_row()),
        );
    } else {
        let terms = TileDeviations::<T>::new(source, rows, &from, rows_per_unit, blueprint);
        add_steps::<T::A, T::N, TileDeviations<'_, T>>(
            &terms,
            &to_add,
            &mut sums,
            comptime!(SumShape::of_tile(rows_per_unit)),
        );
    }
    let count = T::A::cast_from(steps);
    // One reciprocal instead of dividing all lanes, which is several times slower on a CPU.
    let weight = Vector::new(T::A::new(1.0) / count);
    #[unroll(alone)]
    for r in 0..rows_per_unit {
        let (sum, squares) = (sums.plain[r], sums.products[r]);
        // From the rounded value that was subtracted, so its rounding error is included.
        let origin = from[r] - rows.get(r).shift;
        let block = if comptime!(statistics.is_norm()) {
            block_norm::<T>(squares, source, &rows.get(r), first, steps, blueprint)
        } else {
            block_moments::<T::A, T::N>(count, origin, sum * weight, sum, squares, blueprint)
        };
        let both = merge::<T::A, T::N>(&all.of_row(r), &block, blueprint.team);
        all.set(r, &both);
    }
    all.count += count;
}

/// Deviations of a row's elements from a number, and their second-moment terms.
#[derive(CubeType)]
struct Deviations<'a, T: Types> {
    source: &'a TypedSource<T>,
    row: &'a SourceRow<T::A, T::N>,
    from: Vector<T::A, T::N>,
    #[cube(comptime)]
    blueprint: Blueprint,
}

#[cube]
impl<'a, T: Types> Deviations<'a, T> {
    fn new(
        source: &'a TypedSource<T>,
        row: &'a SourceRow<T::A, T::N>,
        from: Vector<T::A, T::N>,
        #[comptime] blueprint: Blueprint,
    ) -> Deviations<'a, T> {
        Deviations::<'a, T> {
            source,
            row,
            from,
            blueprint,
        }
    }
}

#[cube]
impl<'a, T: Types> AddStep<T::A, T::N> for Deviations<'a, T> {
    fn add_step(&self, step: usize, sums: &mut Sums<T::A, T::N>) {
        let value = read::<T>(self.source, self.row, step, self.blueprint);
        add_value::<T::A, T::N>(value, self.from, 0usize, sums, self.blueprint);
    }
}

/// [`Deviations`] of each row of a tile.
#[derive(CubeType)]
struct TileDeviations<'a, T: Types> {
    source: &'a TypedSource<T>,
    rows: &'a SourceRows<T::A, T::N>,
    from: &'a Array<Vector<T::A, T::N>>,
    #[cube(comptime)]
    count: usize,
    #[cube(comptime)]
    blueprint: Blueprint,
}

#[cube]
impl<'a, T: Types> TileDeviations<'a, T> {
    fn new(
        source: &'a TypedSource<T>,
        rows: &'a SourceRows<T::A, T::N>,
        from: &'a Array<Vector<T::A, T::N>>,
        #[comptime] count: usize,
        #[comptime] blueprint: Blueprint,
    ) -> TileDeviations<'a, T> {
        TileDeviations::<'a, T> {
            source,
            rows,
            from,
            count,
            blueprint,
        }
    }
}

#[cube]
impl<'a, T: Types> AddStep<T::A, T::N> for TileDeviations<'a, T> {
    fn add_step(&self, step: usize, sums: &mut Sums<T::A, T::N>) {
        for r in 0..self.count {
            let row = self.rows.get(r);
            let value = read::<T>(self.source, &row, step, self.blueprint);
            add_value::<T::A, T::N>(value, self.from[r], r, sums, self.blueprint);
        }
    }
}

/// Adds the deviation of a value and its second-moment term to the sums of row `r`.
#[cube]
fn add_value<A: Float, N: Size>(
    value: Vector<A, N>,
    from: Vector<A, N>,
    r: usize,
    sums: &mut Sums<A, N>,
    #[comptime] blueprint: Blueprint,
) {
    let deviation = deviation::<A, N>(value, from, blueprint);
    sums.plain[r] += deviation;
    sums.products[r] += second_moment_term::<A, N>(deviation, blueprint);
}

/// Element relative to `from`, if statistics use a shift.
#[cube]
fn deviation<A: Float, N: Size>(
    value: Vector<A, N>,
    from: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.shifts()) {
        value - from
    } else {
        value
    }
}

/// Moments of a block from the sums of its deviations from `origin`. `offset` is the mean of these
/// deviations.
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
        // Rounding may leave a negative rest for a constant block. Overflowing squares may leave
        // NaN.
        let rest = squares - sum * offset;
        let rest = select_many(rest.less_than(&zero), zero, rest);
        select_many(rest.equal(&rest), rest, squares)
    } else {
        squares
    };
    Moments::<A, N> { count, mean, m2 }
}
