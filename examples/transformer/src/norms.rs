//! A residual addition and its norm.

use burn::module::Module;
use burn::nn::RmsNorm;
use burn::tensor::{Device, Tensor};
use cubenorm::nn::{AddRmsNorm, from_burn};

/// RMS normalization, alone or after a residual addition.
#[derive(Module, Debug)]
pub enum ResidualNorm {
    /// Burn's norm of a separately computed sum.
    Burn(RmsNorm),
    /// cubenorm's norm: sum and norm in one kernel if no gradients are tracked.
    Cubenorm(AddRmsNorm),
}

impl ResidualNorm {
    /// A norm of Burn over the last `d_model` elements.
    pub fn new(d_model: usize, device: &Device) -> Self {
        Self::Burn(burn::nn::RmsNormConfig::new(d_model).init(device))
    }

    /// Converts the norm to cubenorm.
    pub fn into_fused(self) -> Self {
        match self {
            Self::Burn(norm) => Self::Cubenorm(AddRmsNorm::from(from_burn(norm))),
            fused => fused,
        }
    }

    /// Normalizes `input`.
    ///
    /// # Shapes
    ///
    /// - input and output: `[..., d_model]`
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Burn(norm) => norm.forward(input),
            Self::Cubenorm(fused) => fused.norm.forward(input),
        }
    }

    /// Normalizes `input + residual`. Also returns the sum, which is the next residual.
    ///
    /// # Shapes
    ///
    /// - input, residual and outputs: `[..., d_model]`
    pub fn forward_add<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        match self {
            Self::Burn(norm) => {
                let sum = input + residual;
                (norm.forward(sum.clone()), sum)
            }
            Self::Cubenorm(fused) => fused.forward(input, residual),
        }
    }
}
