//! How far a result may be from the reference, and why.

use cubenorm_core::DType;

/// Half the distance between neighbours around 1: what rounding to a dtype may cost, relatively.
pub fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        DType::F64 => 2f64.powi(-53),
    }
}

/// What a normalized value may be off by, absolutely.
///
/// `magnitude` bounds the parts that it is added up from, `|normalized * scale| + |bias|`;
/// `cancelled` those that have been subtracted from each other before, in the same unit: a sum with
/// a residual, a given mean.
///
/// Two parts. Rounding the result to its dtype costs half a step of it: one unit roundoff of the
/// magnitude. Before that, everything is computed in the accumulation dtype: a sum of `n` elements is
/// off by about `sqrt(n)` of its roundoffs, as they cancel, and one of blocks of 64 by about
/// `8 + sqrt(n / 64)`, which `log2(n) + 64` is above for the 2^18 that a lane may get here. The
/// deviation inherits half of that and the handful of operations of the epilogue add one each. 16 for
/// those, with activations counted in, covers what drivers allow themselves in division and square
/// root (2.5 steps in Vulkan and WebGPU).
pub fn bound(dtype: DType, cols: usize, magnitude: f64, cancelled: f64) -> f64 {
    let stored = 1.01 * unit_roundoff(dtype);
    let n = cols.max(2) as f64;
    let computed = unit_roundoff(dtype.accumulation()) * (16.0 + n.sqrt().min(n.log2() + 64.0));
    stored * magnitude + computed * (magnitude + cancelled)
}
