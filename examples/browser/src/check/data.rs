//! Data of the cases, and their reference.

use cubenorm_core::{BackwardDesc, Layout, NormDesc, TensorDesc};
use cubenorm_reference::{BackwardTensors, Forward, Gradients, Tensors, forward, gradient};

/// Tensors of a normalization, in f64 with values of f32.
pub(super) struct Data {
    pub desc: NormDesc,
    pub input: Vec<f64>,
    pub residual: Option<Vec<f64>>,
    pub scale: Option<Vec<f64>>,
    pub bias: Option<Vec<f64>>,
    pub mean: Option<Vec<f64>>,
    pub variance: Option<Vec<f64>>,
    pub output_gradient: Vec<f64>,
}

/// Reproducible noise in [-1, 1) with 24 bits: a multiplicative hash of the position.
fn noise(seed: u64, position: usize) -> f64 {
    let mut x = (position as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    ((x >> 40) as f64 / (1u64 << 23) as f64) - 1.0
}

impl Data {
    /// Random data: an input around 0, a scale around 1, positive variances.
    pub(super) fn new(desc: NormDesc) -> Self {
        let fill = |tensor: &TensorDesc, seed: u64, middle: f64, reach: f64| -> Vec<f64> {
            let elements = tensor.layout.checked_elements().unwrap_or(0);
            let value = |position| middle + reach * noise(seed, position);
            // The values are read as f32 by the device.
            (0..elements)
                .map(|position| f64::from(value(position) as f32))
                .collect()
        };
        let param =
            |tensor: Option<&TensorDesc>, seed, middle| Some(fill(tensor?, seed, middle, 0.5));
        let [mean, variance] = desc.given();
        Self {
            input: fill(&desc.input, 1, 0.0, 2.0),
            residual: param(desc.residual.as_ref(), 2, 0.0),
            scale: param(desc.scale.as_ref(), 3, 1.0),
            bias: param(desc.bias.as_ref(), 4, 0.0),
            mean: param(mean, 5, 0.0),
            variance: param(variance, 6, 1.0),
            output_gradient: fill(&desc.input, 7, 0.0, 1.0),
            desc,
        }
    }

    /// The result in float64.
    pub(super) fn expected(&self) -> Forward {
        let tensors = Tensors {
            input: &self.input,
            residual: self.residual.as_deref(),
            scale: self.scale.as_deref(),
            bias: self.bias.as_deref(),
            mean: self.mean.as_deref(),
            variance: self.variance.as_deref(),
            ..Tensors::default()
        };
        forward(&self.desc, &tensors)
    }

    /// The backward pass that reads these data. A residual has been added to its input.
    pub(super) fn backward_desc(&self) -> BackwardDesc {
        let norm = self.desc.clone().with_residual(None);
        BackwardDesc::new(norm)
    }

    /// The gradients in float64, and the saved statistics that they read.
    pub(super) fn gradients(&self, expected: &Forward) -> (Gradients, Vec<f64>) {
        let desc = self.backward_desc();
        let saved = self.saved(expected);
        let tensors = BackwardTensors {
            input: &expected.sum,
            output_gradient: &self.output_gradient,
            saved: Some(&saved),
            scale: self.scale.as_deref(),
            bias: self.bias.as_deref(),
            ..BackwardTensors::default()
        };
        (gradient(&desc, &tensors), saved)
    }

    /// Pairs of mean and reciprocal deviation of each row.
    fn saved(&self, expected: &Forward) -> Vec<f64> {
        let shape = self.desc.input.shape();
        let strides = Layout::contiguous(shape).strides;
        let is_first = |position: &usize| {
            let mut axes = self.desc.axes.iter();
            axes.all(|&axis| (position / strides[axis]).is_multiple_of(shape[axis]))
        };
        let rows = (0..expected.sum.len()).filter(is_first);
        rows.flat_map(|at| [expected.mean[at], expected.rstd[at]])
            .collect()
    }
}
