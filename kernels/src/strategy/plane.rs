//! A row for each plane. Planes lie along x and are stacked along y; none waits for another.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::moments::{Moments, share};
use crate::types::One;

#[cube]
pub(crate) fn team() -> usize {
    CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize
}

#[cube]
pub(crate) fn teams() -> usize {
    CUBE_COUNT * CUBE_DIM_Y as usize
}

/// Merges the units of a plane at once: the mean of means by weight, then the deviations of the
/// parts from it. Sums only, so that any plane size and any order of summation will do.
#[cube]
pub(crate) fn merge_units<A: Float>(
    mine: &Moments<A, One>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, One> {
    let count = plane_sum(mine.count);
    let m2 = mine.m2.extract(0usize);
    if comptime!(blueprint.statistics.reduces_mean()) {
        let my_mean = mine.mean.extract(0usize);
        let mean = share::<A>(plane_sum(my_mean * mine.count), count);
        let m2 = if comptime!(blueprint.statistics.reduces_deviation()) {
            let delta = my_mean - mean;
            plane_sum(m2 + delta * delta * mine.count)
        } else {
            m2
        };
        Moments::<A, One> {
            count,
            mean: Vector::new(mean),
            m2: Vector::new(m2),
        }
    } else {
        Moments::<A, One> {
            count,
            mean: mine.mean,
            m2: Vector::new(plane_sum(m2)),
        }
    }
}
