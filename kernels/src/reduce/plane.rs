//! One row per plane. Planes are stacked along y; units of a plane run along x. No plane waits for
//! another.

use cubecl::prelude::*;
use cubenorm_core::{Merge, Team};

use crate::reduce::moments::{Moments, share};
use crate::reduce::scale;
use crate::types::One;

/// Merges the units of a plane at once: the count-weighted mean of means, then the deviations of
/// the parts from it. Uses plane sums only, so any plane size and any order of summation is
/// correct.
#[cube]
pub(crate) fn merge_units<A: Float>(
    mine: &Moments<A, One>,
    #[comptime] team: Team,
) -> Moments<A, One> {
    let count = if comptime!(team.merge.weighs()) {
        plane_sum(mine.count)
    } else {
        mine.count
    };
    let my_mean = mine.mean.extract(0usize);
    let my_m2 = mine.m2.extract(0usize);
    let mean = match comptime!(team.merge) {
        Merge::Moments => share::<A>(plane_sum(my_mean * mine.count), count),
        // Applies the weight first: a weighted mean stays in range, a sum of means may overflow.
        Merge::Means => plane_sum(my_mean * share::<A>(mine.count, count)),
        Merge::Sums => plane_sum(my_mean),
        Merge::Sum => my_mean,
        Merge::Scaled { .. } => plane_max(my_mean),
    };
    let m2 = match comptime!(team.merge) {
        Merge::Moments => {
            let delta = my_mean - mean;
            plane_sum(my_m2 + delta * (delta * mine.count))
        }
        Merge::Sum | Merge::Sums => plane_sum(my_m2),
        Merge::Means => my_m2,
        Merge::Scaled { squares } => {
            let inverse = scale::inverse::<A, One>(Vector::new(mean));
            let ratio = Vector::new(my_mean) * inverse;
            let rescaled = scale::rescaled::<A, One>(Vector::new(my_m2), ratio, squares);
            plane_sum(rescaled.extract(0usize))
        }
    };
    Moments::<A, One> {
        count,
        mean: Vector::new(mean),
        m2: Vector::new(m2),
    }
}
