//! Both implementations of the norms.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::Norms;

/// A residual addition followed by layer normalization, as BERT has after every sublayer.
///
/// Both implementations read the parameters of the same [`LayerNorm`].
#[derive(Module, Debug)]
pub struct ResidualNorm {
    /// Holds the scale and the bias.
    pub norm: LayerNorm,
    epsilon: f64,
}

impl ResidualNorm {
    /// A norm over the last `d_model` elements, scale one and bias zero.
    pub fn new(d_model: usize, epsilon: f64, device: &Device) -> Self {
        Self {
            norm: LayerNormConfig::new(d_model)
                .with_epsilon(epsilon)
                .init(device),
            epsilon,
        }
    }

    /// Normalizes `input + residual`.
    ///
    /// # Shapes
    ///
    /// - input, residual and output: `[..., d_model]`
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
        norms: Norms,
    ) -> Tensor<D> {
        match norms {
            Norms::Burn => self.norm.forward(input + residual),
            Norms::Cubenorm => {
                let gamma = self.norm.gamma.val();
                let beta = self.norm.beta.as_ref().map(burn::module::Param::val);
                // Pre-norm networks also use the sum. BERT is post-norm.
                let (output, _sum) =
                    cubenorm::add_layer_norm(input, residual, gamma, beta, self.epsilon);
                output
            }
        }
    }
}
