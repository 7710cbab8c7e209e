//! Operations on the lanes of a vector.

use cubecl::prelude::*;
use cubenorm_core::Team;

/// Lanes that are added one after another.
const SERIAL: usize = 4;

/// Sums the lanes of a vector. Many lanes use a tree, since `vector_sum` is a chain of dependent
/// additions.
#[cube]
pub(crate) fn lane_sum<A: Float, N: Size>(vector: Vector<A, N>, #[comptime] team: Team) -> A {
    if comptime!(team.vector <= SERIAL) {
        Vector::vector_sum(vector)
    } else {
        let mut sum = vector;
        #[unroll]
        for round in 1..comptime!(team.vector.ilog2() as usize + 1) {
            let half = comptime!(team.vector >> round);
            let mut upper = sum;
            #[unroll]
            for lane in 0..half {
                upper.insert(lane, sum.extract(lane + half));
            }
            sum += upper;
        }
        sum.extract(0usize)
    }
}

/// Lanes from `first` on, with zeros before them.
#[cube]
pub(crate) fn lanes_from<A: Float, N: Size>(vector: Vector<A, N>, first: usize) -> Vector<A, N> {
    let mut lanes = Vector::<A, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        lanes.insert(lane, A::cast_from(lane));
    }
    let first = Vector::<A, N>::new(A::cast_from(first));
    select_many(lanes.less_than(&first), Vector::new(A::new(0.0)), vector)
}
