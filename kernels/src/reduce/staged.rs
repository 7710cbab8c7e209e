//! Statistics of a row that is staged in registers or shared memory.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Level, Vectorization};

use crate::memory::input::{SourceRow, first_lane, number_or_zero, sample_steps, shifted};
use crate::memory::stage::TypedStaged;
use crate::reduce::accumulate::whole_moments;
use crate::reduce::moments::{Moments, Sums, second_moment_term};
use crate::reduce::scaled::staged_norm;
use crate::reduce::team::{merge_team, team_sum};
use crate::schedule::share::Share;
use crate::types::Types;

/// Accumulators of a unit that stages a whole row. With four, LLVM reorders the loads and defeats
/// the hardware prefetcher.
///
/// `256 f32 AVX-512, 2 vs. 4: 1.1x to 1.25x faster`
const STAGED_CHAINS: usize = 2;

/// Independent accumulators of a unit. A unit that shares its row hides latency by occupancy
/// instead, and needs the registers.
fn chains(blueprint: &Blueprint) -> usize {
    match blueprint.team.level() {
        Level::Unit => STAGED_CHAINS,
        Level::Plane | Level::Cube | Level::Perpendicular => 1,
    }
}

/// Leading vectors whose mean is the shift of the shifted-data variance: all of them if a team
/// shares the row, the first if a unit owns it.
///
/// A mean of `m` of `n` elements magnifies the rounding of the sum of squares by at most `1 + n /
/// m`. A unit stages at most 16 vectors. A second pass over all elements would be an exposed
/// dependency chain.
///
/// `256 f32 AVX-512, first vector vs. all: 1.11x to 1.59x faster`
fn shift_vectors(blueprint: &Blueprint) -> usize {
    let vectors = blueprint.staging.vectors().unwrap_or(0);
    match blueprint.team.level() {
        Level::Unit => sample_steps(blueprint.team).min(vectors),
        Level::Plane | Level::Cube | Level::Perpendicular => vectors,
    }
}

/// Number of sampled elements if a unit samples its own row. A shorter row repeats its last vector.
fn sampled_elements(blueprint: &Blueprint) -> Option<usize> {
    let lanes = match blueprint.team.lanes() {
        Vectorization::Parallel => blueprint.team.vector,
        Vectorization::Perpendicular => 1,
    };
    (blueprint.team.level() == Level::Unit).then(|| shift_vectors(blueprint) * lanes)
}

/// Shift of a staged row of `count` elements: the mean of [`shift_vectors`], or 0 if it is not
/// finite. [`staged_moments`] corrects for its distance from the mean.
///
/// For f16/bf16 it is the [first element](cubenorm_core::Shift::FirstElement), which needs no
/// reduction. It magnifies the rounding of the sum of `n` squares by at most `1 + n`. A unit stages
/// at most 512 elements, so f32 sums keep more digits than f16 has.
///
/// `32 to 192 f16 AVX-512, first element vs. first vector's mean: 1.05x to 1.2x faster`
#[cube]
pub(crate) fn staged_shift<T: Types>(
    staged: &TypedStaged<T>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    if comptime!(blueprint.shifts() && blueprint.shifts_by_first()) {
        let first = first_lane::<T::A, T::N>(staged.get(0usize, blueprint), blueprint.team);
        number_or_zero::<T::A, T::N>(first)
    } else if comptime!(blueprint.shifts()) {
        let vectors = comptime!(shift_vectors(&blueprint));
        let chains = comptime!(chains(&blueprint).min(vectors));
        let sampled = comptime!(sampled_elements(&blueprint));
        let elements = if comptime!(sampled.is_some()) {
            T::A::new(comptime!(sampled.unwrap_or(1) as f32))
        } else {
            count
        };
        let weight = Vector::<T::A, T::N>::new(T::A::new(1.0) / elements);
        let mut means = Sums::<T::A, T::N>::zeros(chains);
        #[unroll]
        for i in 0..vectors {
            if comptime!(sampled.is_some()) || i < share.count {
                // Weighted one by one, because their sum may overflow.
                means.plain[comptime!(i % chains)] += staged.get(i, blueprint) * weight;
            }
        }
        let mine = means.total(elements, chains).mean;
        number_or_zero::<T::A, T::N>(team_sum::<T::A, T::N>(mine, blueprint.team))
    } else {
        Vector::new(T::A::new(0.0))
    }
}

/// Moments of a staged row of `count` elements, relative to its shift.
#[cube]
pub(crate) fn staged_moments<T: Types>(
    staged: &TypedStaged<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    if comptime!(blueprint.statistics.is_norm()) {
        let mine = staged_norm::<T>(staged, share, count, blueprint);
        merge_team::<T::A, T::N>(&mine, blueprint.team)
    } else {
        let vectors = comptime!(blueprint.staging.vectors().unwrap_or(0));
        let chains = comptime!(chains(&blueprint).min(vectors));
        let mut sums = Sums::<T::A, T::N>::zeros(chains);
        #[unroll]
        for i in 0..vectors {
            if i < share.count {
                let deviation = shifted::<T::A, T::N>(staged.get(i, blueprint), row, blueprint);
                let chain = comptime!(i % chains);
                sums.plain[chain] += deviation;
                sums.products[chain] += second_moment_term::<T::A, T::N>(deviation, blueprint);
            }
        }
        let mine = sums.total(count, chains);
        whole_moments::<T>(&mine, count, blueprint)
    }
}
