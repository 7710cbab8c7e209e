//! Sums of a vector norm that would overflow or underflow although the norm itself is in range.
//!
//! Each part of a row has its sum relative to a scale, a power of two near its largest magnitude. A
//! block is first summed without a scale. Only if that sum is very large or very small, the block
//! is read again and summed with a scale ([Blue, "A Portable Fortran Program to Find the Euclidean
//! Norm of a Vector"](https://doi.org/10.1145/355769.355771), 1978). The `mean` of
//! [`Moments`](crate::reduce::moments::Moments) holds the scale, since L1 and L2 norms have no mean.

use cubecl::prelude::*;

/// 2^90: scale of large magnitudes. The sum of 2^48 scaled squares cannot overflow.
const LARGE: f32 = (1u128 << 90) as f32;
/// 2^-90: scale of small magnitudes, down to the smallest subnormal number.
const SMALL: f32 = 1.0 / LARGE;

/// 2^45 and 2^-40: bounds of the magnitudes whose scale is 1.
const LARGE_FROM: f32 = (1u64 << 45) as f32;
const SMALL_BELOW: f32 = 1.0 / (1u64 << 40) as f32;

/// 2^100 and 2^-80: bounds within which an unscaled block sum is exact enough. A lane of a
/// block has at most 64 terms.
const MOST: f32 = (1u128 << 100) as f32;
const LEAST: f32 = 1.0 / (1u128 << 80) as f32;

/// `1 / scale`. A part without elements has the scale 0: the result is then that of the smallest scale.
#[cube]
pub(crate) fn inverse<A: Float, N: Size>(scale: Vector<A, N>) -> Vector<A, N> {
    let one = Vector::<A, N>::new(A::new(1.0));
    let up = select_many(scale.less_than(&one), Vector::new(A::new(LARGE)), one);
    select_many(scale.greater_than(&one), Vector::new(A::new(SMALL)), up)
}

/// Converts a sum to another scale. `ratio` is the old scale divided by the new one.
#[cube]
pub(crate) fn rescaled<A: Float, N: Size>(
    sum: Vector<A, N>,
    ratio: Vector<A, N>,
    #[comptime] squares: bool,
) -> Vector<A, N> {
    if squares {
        sum * ratio * ratio
    } else {
        sum * ratio
    }
}

/// Scale for magnitudes up to `largest`.
#[cube]
pub(crate) fn scale_of<A: Float, N: Size>(largest: Vector<A, N>) -> Vector<A, N> {
    let one = Vector::<A, N>::new(A::new(1.0));
    let is_small = largest.less_than(&Vector::new(A::new(SMALL_BELOW)));
    let is_large = largest.greater_than(&Vector::new(A::new(LARGE_FROM)));
    let small = select_many(is_small, Vector::new(A::new(SMALL)), one);
    select_many(is_large, Vector::new(A::new(LARGE)), small)
}

/// True if no lane of a sum has lost anything. Selects instead of branches: compilers of CPU Vulkan
/// drivers need gigabytes for a branch per lane.
#[cube]
pub(crate) fn is_exact<A: Float, N: Size>(sum: Vector<A, N>) -> bool {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let one = Vector::<A, N>::new(A::new(1.0));
    let lost = select_many(sum.greater_equal(&Vector::new(A::new(LEAST))), zero, one);
    // NaN is not at most anything.
    let lost = select_many(sum.less_equal(&Vector::new(A::new(MOST))), lost, one);
    let mut lanes = A::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        lanes += lost.extract(lane);
    }
    lanes == A::new(0.0)
}

/// Larger of a magnitude and the magnitude of a value.
#[cube]
pub(crate) fn larger<A: Float, N: Size>(
    largest: Vector<A, N>,
    value: Vector<A, N>,
) -> Vector<A, N> {
    let magnitude = value.abs();
    select_many(largest.less_than(&magnitude), magnitude, largest)
}
