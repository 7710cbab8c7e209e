//! Both implementations of the norms.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use cubenorm::{Activation, MeanVarianceOptions};
use cubenorm_example_common::Norms;

/// Statistics are reduced over all axes but the channels.
const AXES: [usize; 3] = [0, 2, 3];

/// The f32 nearest to 1e-5, as in the reference.
const EPSILON: f64 = 1e-5_f32 as f64;

/// Mean-variance normalization per channel, with a scale, a bias and an optional ReLU.
#[derive(Debug, Clone)]
pub struct ChannelNorm {
    /// `[1, channels, 1, 1]`.
    scale: Tensor<4>,
    /// `[1, channels, 1, 1]`.
    bias: Tensor<4>,
    relu: bool,
}

impl ChannelNorm {
    /// A norm, followed by a ReLU if `relu` is true.
    ///
    /// # Shapes
    ///
    /// - scale and bias: `[channels]`
    pub fn new(scale: Tensor<1>, bias: Tensor<1>, relu: bool) -> Self {
        Self {
            scale: scale.reshape([1, -1, 1, 1]),
            bias: bias.reshape([1, -1, 1, 1]),
            relu,
        }
    }

    /// Normalizes each channel of `input`.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch, channels, height, width]`
    pub fn forward(&self, input: Tensor<4>, norms: Norms) -> Tensor<4> {
        match norms {
            Norms::Burn => self.with_burn(input),
            Norms::Cubenorm => self.with_cubenorm(input),
        }
    }

    fn with_burn(&self, input: Tensor<4>) -> Tensor<4> {
        let mean = input.clone().mean_dims(&AXES);
        let centred = input - mean;
        let variance = centred.clone().square().mean_dims(&AXES);
        let normalized = centred / (variance + EPSILON).sqrt();
        let output = normalized * self.scale.clone() + self.bias.clone();
        if self.relu { relu(output) } else { output }
    }

    fn with_cubenorm(&self, input: Tensor<4>) -> Tensor<4> {
        let activation = if self.relu {
            Activation::Relu
        } else {
            Activation::Identity
        };
        let options = MeanVarianceOptions::new(AXES)
            .with_epsilon(EPSILON)
            .with_activation(activation);
        cubenorm::mean_variance_norm(input, self.scale.clone(), self.bias.clone(), &options)
    }
}
