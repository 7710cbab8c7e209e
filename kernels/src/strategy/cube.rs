//! A row for each cube. Partial statistics meet in shared memory, one for each plane where planes
//! can sum, else one for each unit.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::moments::{Moments, merge, same};
use crate::strategy::plane;
use crate::types::One;

/// Partial statistics up to which every unit merges all of them by itself. A round of the tree
/// costs a barrier, which is dearer than reading a few numbers that all units read alike.
const SERIAL: usize = 8;

#[cube]
pub(crate) fn team() -> usize {
    CUBE_POS
}

#[cube]
pub(crate) fn teams() -> usize {
    CUBE_COUNT
}

#[cube]
pub(crate) fn merge_units<A: Float>(
    mine: &Moments<A, One>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, One> {
    let has_planes = comptime!(blueprint.plane_size > 0);
    let slots = comptime!((blueprint.members / blueprint.plane_size.max(1)) as usize);
    let plane = comptime!(blueprint.plane_size.max(1));
    let part = if has_planes {
        plane::merge_units::<A>(mine, blueprint)
    } else {
        same::<A, One>(mine)
    };
    let slot = UNIT_POS as usize / comptime!(plane as usize);
    let mut counts = Shared::<[A]>::new_slice(slots);
    let mut means = Shared::<[A]>::new_slice(slots);
    let mut m2s = Shared::<[A]>::new_slice(slots);
    let lane = UNIT_POS % plane;
    if lane == 0 {
        counts[slot] = part.count;
        means[slot] = part.mean.extract(0usize);
        m2s[slot] = part.m2.extract(0usize);
    }
    sync_cube();

    // Halves what is left until a few remain.
    let rounds = comptime!(rounds(slots));
    #[unroll]
    for round in 0..rounds {
        let half = comptime!(slots >> (round + 1));
        if (UNIT_POS as usize) < half {
            let pos = UNIT_POS as usize;
            let low = at::<A>(&counts, &means, &m2s, pos);
            let high = at::<A>(&counts, &means, &m2s, pos + half);
            let both = merge::<A, One>(&low, &high, blueprint);
            counts[pos] = both.count;
            means[pos] = both.mean.extract(0usize);
            m2s[pos] = both.m2.extract(0usize);
        }
        sync_cube();
    }

    let mut count = counts[0];
    let mut mean = means[0];
    let mut m2 = m2s[0];
    #[unroll]
    for i in 1..comptime!(slots >> rounds) {
        let merged = Moments::<A, One> {
            count,
            mean: Vector::new(mean),
            m2: Vector::new(m2),
        };
        let next = at::<A>(&counts, &means, &m2s, i);
        let both = merge::<A, One>(&merged, &next, blueprint);
        count = both.count;
        mean = both.mean.extract(0usize);
        m2 = both.m2.extract(0usize);
    }
    // The next row of this cube must not write what a unit has yet to read.
    sync_cube();
    Moments::<A, One> {
        count,
        mean: Vector::new(mean),
        m2: Vector::new(m2),
    }
}

/// Rounds of halving until at most [`SERIAL`] parts are left.
fn rounds(slots: usize) -> usize {
    let mut rounds = 0;
    while slots >> rounds > SERIAL {
        rounds += 1;
    }
    rounds
}

#[cube]
fn at<A: Float>(
    counts: &Shared<[A]>,
    means: &Shared<[A]>,
    m2s: &Shared<[A]>,
    slot: usize,
) -> Moments<A, One> {
    Moments::<A, One> {
        count: counts[slot],
        mean: Vector::new(means[slot]),
        m2: Vector::new(m2s[slot]),
    }
}
