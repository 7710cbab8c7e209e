//! Error bounds for results, and their derivation.

use cubenorm_core::DType;

/// Unit roundoff of a dtype: the largest relative error of rounding to nearest.
pub fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        DType::F64 => 2f64.powi(-53),
    }
}

/// Absolute error bound of a normalized value.
///
/// - `magnitude`: bound of its terms, `|normalized * scale| + |bias|`.
/// - `cancelled`: bound of terms that were subtracted from each other before, in the same unit,
///   such as `input + residual` or a provided mean.
///
/// The bound has two parts:
///
/// - Storage: rounding to the dtype costs one unit roundoff of the magnitude.
/// - Arithmetic in the accumulation dtype. A sum of `n` elements is off by about `sqrt(n)`
///   roundoffs, since they partly cancel. A sum of blocks of 64 is off by about `8 + sqrt(n / 64)`.
///   That is below `log2(n) + 64` for up to 2^18 elements per lane. The deviation inherits half of
///   it. The epilogue gets 16 roundoffs: a few operations, the activation, and the 2.5 ulp that
///   Vulkan and WebGPU allow for division and square root.
pub fn bound(dtype: DType, cols: usize, magnitude: f64, cancelled: f64) -> f64 {
    let stored = 1.01 * unit_roundoff(dtype);
    let n = cols.max(2) as f64;
    let computed = unit_roundoff(dtype.accumulation()) * (16.0 + n.sqrt().min(n.log2() + 64.0));
    stored * magnitude + computed * (magnitude + cancelled)
}
