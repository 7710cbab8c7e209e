//! Vectors run along the kept axis, side by side along x; the units of a column, along y, share the
//! reduced axis. Each lane is a row of its own, so lanes are never merged.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::moments::{Moments, merge, same};

#[cube]
pub(crate) fn team() -> usize {
    CUBE_POS * CUBE_DIM_X as usize + UNIT_POS_X as usize
}

#[cube]
pub(crate) fn teams() -> usize {
    CUBE_COUNT * CUBE_DIM_X as usize
}

#[cube]
pub(crate) fn merge_units<A: Float, N: Size>(
    mine: &Moments<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let rows = comptime!(blueprint.members as usize);
    if comptime!(rows == 1) {
        same::<A, N>(mine)
    } else {
        let width = comptime!(blueprint.columns as usize);
        let slots = comptime!(rows * width);
        let mut counts = Shared::<[A]>::new_slice(slots);
        let mut means = Shared::<[Vector<A, N>]>::new_slice(slots);
        let mut m2s = Shared::<[Vector<A, N>]>::new_slice(slots);
        let pos = UNIT_POS_Y as usize * width + UNIT_POS_X as usize;
        counts[pos] = mine.count;
        means[pos] = mine.mean;
        m2s[pos] = mine.m2;
        sync_cube();
        #[unroll]
        for round in 0..comptime!(rows.ilog2()) {
            let half = comptime!(rows >> (round + 1));
            if (UNIT_POS_Y as usize) < half {
                let low = at::<A, N>(&counts, &means, &m2s, pos);
                let high = at::<A, N>(&counts, &means, &m2s, pos + half * width);
                let both = merge::<A, N>(&low, &high, blueprint);
                counts[pos] = both.count;
                means[pos] = both.mean;
                m2s[pos] = both.m2;
            }
            sync_cube();
        }
        let merged = at::<A, N>(&counts, &means, &m2s, UNIT_POS_X as usize);
        // The next group of this cube must not write what a unit has yet to read.
        sync_cube();
        merged
    }
}

#[cube]
fn at<A: Float, N: Size>(
    counts: &Shared<[A]>,
    means: &Shared<[Vector<A, N>]>,
    m2s: &Shared<[Vector<A, N>]>,
    slot: usize,
) -> Moments<A, N> {
    Moments::<A, N> {
        count: counts[slot],
        mean: means[slot],
        m2: m2s[slot],
    }
}
