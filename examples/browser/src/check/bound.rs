//! Error bounds of results in f32.

use cubenorm_core::{NormDesc, ResidualPlace};
use cubenorm_reference::Forward;

/// Largest relative error of rounding to nearest.
const UNIT_ROUNDOFF: f64 = 1.0 / (1 << 24) as f64;

/// Bound of a value that was computed from a sum of `n` elements.
///
/// `magnitude` bounds the terms that are added up last. `cancelled` bounds terms that cancelled before. Sums of blocks of
/// 64 are off by less than `log2(n) + 64` roundoffs. Division, square root and activation get 16.
fn bound(n: usize, magnitude: f64, cancelled: f64) -> f64 {
    let n = n.max(2) as f64;
    let computed = UNIT_ROUNDOFF * (16.0 + n.sqrt().min(n.log2() + 64.0));
    1.01 * UNIT_ROUNDOFF * magnitude + computed * (magnitude + cancelled)
}

/// Bounds of the results of a normalization and of its gradients.
pub(super) struct Bounds {
    /// Of an output, by its magnitude.
    pub output: Box<dyn Fn(f64) -> f64>,
    /// Of each element of the input's gradient.
    pub input: f64,
    /// Of each element of the gradients of scale and bias.
    pub params: f64,
}

impl Bounds {
    pub(super) fn new(desc: &NormDesc, expected: &Forward) -> Self {
        let largest =
            |values: &mut dyn Iterator<Item = f64>| values.map(f64::abs).fold(0.0, f64::max);
        let shape = desc.input.shape();
        let cols: usize = desc.axes.iter().map(|&axis| shape[axis]).product();
        let elements = expected.sum.len();
        let [alpha, beta] = desc.activation.parameters();
        let steepest = (1.0 + alpha.abs()) * (1.0 + beta.abs());
        let rstd = largest(&mut expected.rstd.iter().copied());
        let typical = largest(&mut expected.output.iter().copied());
        let subtracted = match (&desc.residual, desc.residual_place) {
            (Some(_), ResidualPlace::Input) => largest(&mut expected.sum.iter().copied()),
            _ => largest(&mut expected.mean.iter().copied()),
        };
        let cancelled = 1.5 * subtracted * rstd;
        let parts = expected
            .sum
            .iter()
            .zip(expected.mean.iter().zip(&expected.rstd));
        let normalized = largest(&mut parts.map(|(x, (mean, rstd))| (x - mean) * rstd)).max(1.0);
        // A scale is at most 1.5, dy at most 1.
        let through = 1.5 * steepest * normalized * normalized * rstd.max(1.0);
        let summed = steepest * normalized * (elements as f64).sqrt().max(8.0);
        // Derivatives of activations in the reference are central differences.
        let differences = 1e-8;
        Self {
            output: Box::new(move |value| {
                let magnitude = steepest * (value.abs() + typical);
                bound(cols, magnitude, steepest * cancelled)
            }),
            input: 2.0 * bound(elements, through, 0.0) + differences,
            params: 2.0 * bound(elements, summed, 0.0) + differences,
        }
    }
}
