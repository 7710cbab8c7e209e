//! Block reduction of partial statistics in shared memory. The table has a row for each part and a
//! column for each group of units that merge with each other.

use cubecl::prelude::*;
use cubenorm_core::{Merge, Team};

use crate::reduce::moments::{Moments, merge, same};

/// Rows of the table that every unit merges serially. A round of the tree costs a barrier, which
/// takes longer than a few broadcast reads.
const SERIAL: usize = 8;

/// Merges the parts of each column. Every unit gets the result of its own column.
///
/// All units of a cube call this: it contains barriers. Units with `is_leader` write their part to
/// `row`; each slot of the table has one writer.
#[cube]
pub(crate) fn merge_rows<A: Float, N: Size>(
    mine: &Moments<A, N>,
    row: usize,
    column: usize,
    is_leader: bool,
    #[comptime] rows: usize,
    #[comptime] columns: usize,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let mut table = Table::<A, N>::new(comptime!(rows * columns), team.merge);
    let slot = row * columns + column;
    if is_leader {
        table.write(slot, mine, team.merge);
    }
    sync_cube();

    // Tree reduction: each round halves the parts that are left.
    let rounds = comptime!(rounds(rows));
    #[unroll]
    for round in 0..rounds {
        let half = comptime!(rows >> (round + 1));
        if is_leader && row < half {
            let own = table.read(slot, team.merge);
            let other = table.read(slot + comptime!(half * columns), team.merge);
            let both = merge::<A, N>(&own, &other, team);
            table.write(slot, &both, team.merge);
        }
        sync_cube();
    }

    let mut merged = table.read(column, team.merge);
    #[unroll]
    for i in 1..comptime!(rows >> rounds) {
        let other = table.read(column + comptime!(i * columns), team.merge);
        let both = merge::<A, N>(&merged, &other, team);
        merged.count = both.count;
        merged.mean = both.mean;
        merged.m2 = both.m2;
    }
    // Barrier before the next row of this cube overwrites the table.
    sync_cube();
    same::<A, N>(&merged)
}

/// Partial statistics in shared memory, as structure of arrays. A merge rule allocates the fields
/// it reads.
#[derive(CubeType)]
struct Table<A: Float, N: Size> {
    counts: Shared<[A]>,
    means: Shared<[Vector<A, N>]>,
    m2s: Shared<[Vector<A, N>]>,
}

#[cube]
impl<A: Float, N: Size> Table<A, N> {
    fn new(#[comptime] slots: usize, #[comptime] merge: Merge) -> Self {
        Table::<A, N> {
            counts: Shared::<[A]>::new_slice(comptime!(if merge.weighs() { slots } else { 1 })),
            means: Shared::<[Vector<A, N>]>::new_slice(comptime!(if merge.has_two() {
                slots
            } else {
                1
            })),
            m2s: Shared::<[Vector<A, N>]>::new_slice(slots),
        }
    }

    fn write(&mut self, slot: usize, moments: &Moments<A, N>, #[comptime] merge: Merge) {
        if comptime!(merge.weighs()) {
            self.counts[slot] = moments.count;
        }
        if comptime!(merge.has_two()) {
            self.means[slot] = moments.mean;
        }
        self.m2s[slot] = moments.m2;
    }

    fn read(&self, slot: usize, #[comptime] merge: Merge) -> Moments<A, N> {
        let count = if comptime!(merge.weighs()) {
            self.counts[slot]
        } else {
            A::new(0.0)
        };
        let mean = if comptime!(merge.has_two()) {
            self.means[slot]
        } else {
            Vector::new(A::new(0.0))
        };
        Moments::<A, N> {
            count,
            mean,
            m2: self.m2s[slot],
        }
    }
}

/// Rounds of the tree until at most [`SERIAL`] parts are left. `rows` is a power of two.
fn rounds(rows: usize) -> usize {
    let mut rounds = 0;
    while rows >> rounds > SERIAL {
        rounds += 1;
    }
    rounds
}
