//! Partial statistics that meet in shared memory: a table with a row for each part and a column for
//! each group of units that merge with each other.

use cubecl::prelude::*;
use cubenorm_core::Team;

use crate::moments::{Moments, merge};

/// Rows of the table up to which every unit merges all of them by itself. A round of the tree costs
/// a barrier, which is dearer than reading a few numbers that all units read alike.
const SERIAL: usize = 8;

/// Merges the parts of a column; every unit gets the result of its own.
///
/// Called by all units of a cube alike, since they wait for each other. Those with `brings` leave
/// their part in `row`; each row and column comes once.
#[cube]
pub(crate) fn merge_rows<A: Float, N: Size>(
    mine: &Moments<A, N>,
    row: usize,
    column: usize,
    brings: bool,
    #[comptime] rows: usize,
    #[comptime] columns: usize,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let slots = comptime!(rows * columns);
    let mut counts = Shared::<[A]>::new_slice(slots);
    let mut means = Shared::<[Vector<A, N>]>::new_slice(slots);
    let mut m2s = Shared::<[Vector<A, N>]>::new_slice(slots);
    let mut count = mine.count;
    let mut mean = mine.mean;
    let mut m2 = mine.m2;
    let slot = row * columns + column;
    if brings {
        counts[slot] = count;
        means[slot] = mean;
        m2s[slot] = m2;
    }
    sync_cube();

    // Halves what is left until a few remain.
    let rounds = comptime!(rounds(rows));
    #[unroll]
    for round in 0..rounds {
        let half = comptime!(rows >> (round + 1));
        if brings && row < half {
            let other = slot + comptime!(half * columns);
            let both = merge::<A, N>(
                &Moments::<A, N> { count, mean, m2 },
                &Moments::<A, N> {
                    count: counts[other],
                    mean: means[other],
                    m2: m2s[other],
                },
                team,
            );
            count = both.count;
            mean = both.mean;
            m2 = both.m2;
            counts[slot] = count;
            means[slot] = mean;
            m2s[slot] = m2;
        }
        sync_cube();
    }

    count = counts[column];
    mean = means[column];
    m2 = m2s[column];
    #[unroll]
    for i in 1..comptime!(rows >> rounds) {
        let other = column + comptime!(i * columns);
        let both = merge::<A, N>(
            &Moments::<A, N> { count, mean, m2 },
            &Moments::<A, N> {
                count: counts[other],
                mean: means[other],
                m2: m2s[other],
            },
            team,
        );
        count = both.count;
        mean = both.mean;
        m2 = both.m2;
    }
    // The next row of this cube must not write what a unit has yet to read.
    sync_cube();
    Moments::<A, N> { count, mean, m2 }
}

/// Rounds of halving until at most [`SERIAL`] parts are left. There is a power of two of them.
fn rounds(rows: usize) -> usize {
    let mut rounds = 0;
    while rows >> rounds > SERIAL {
        rounds += 1;
    }
    rounds
}
