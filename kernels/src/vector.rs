//! Operations on the lanes of a vector.

use cubecl::prelude::*;
use cubenorm_core::{Offset, Team};

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

/// Adds the offset to a scale.
#[cube]
pub(crate) fn offset_scale<A: Float, N: Size>(
    scale: Vector<A, N>,
    #[comptime] offset: Offset,
) -> Vector<A, N> {
    if comptime!(offset.is_zero()) {
        scale
    } else {
        scale + Vector::new(constant::<A>(comptime!(offset.value())))
    }
}

/// A constant with all digits of f64: `Float::new` takes an f32.
#[cube]
#[allow(unused_variables, reason = "an intrinsic reads it as it is expanded")]
fn constant<A: Float>(#[comptime] value: f64) -> A {
    intrinsic!(|scope| A::elem_type(scope).constant(value.into()).into())
}
