//! The norms of a block.

use burn::module::{Module, Param};
use burn::nn::{Initializer, RmsNorm, RmsNormConfig};
use burn::tensor::activation::silu;
use burn::tensor::{Device, Tensor};
use cubenorm::nn::{GatedRmsNorm, GatedRmsNormConfig, from_burn};

/// Added to the mean square.
const EPSILON: f64 = 1e-5;

/// RMS norm in front of a block.
#[derive(Module, Debug)]
pub enum InputNorm {
    /// Burn's layer.
    Burn(RmsNorm),
    /// cubenorm's layer.
    Cubenorm(cubenorm::nn::RmsNorm),
}

impl InputNorm {
    /// Burn's norm of the last `d_model` elements.
    pub fn new(d_model: usize, device: &Device) -> Self {
        Self::Burn(
            RmsNormConfig::new(d_model)
                .with_epsilon(EPSILON)
                .init(device),
        )
    }

    /// Converts the norm to cubenorm.
    pub fn into_fused(self) -> Self {
        match self {
            Self::Burn(norm) => Self::Cubenorm(from_burn(norm)),
            fused => fused,
        }
    }

    /// Normalizes `[..., d_model]`.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Burn(norm) => norm.forward(input),
            Self::Cubenorm(norm) => norm.forward(input),
        }
    }
}

/// RMS norm of `input * silu(gate)` in groups, behind the scan of a block.
#[derive(Module, Debug)]
pub enum GatedNorm {
    /// Burn's operations.
    Burn(Composed),
    /// cubenorm's layer.
    Cubenorm(GatedRmsNorm),
}

/// The gated norm, composed of Burn's operations.
#[derive(Module, Debug)]
pub struct Composed {
    gamma: Param<Tensor<1>>,
    groups: usize,
}

impl GatedNorm {
    /// A norm of Burn's operations over groups of the last `features` elements.
    pub fn new(features: usize, groups: usize, device: &Device) -> Self {
        let gamma = Initializer::Ones.init([features], device);
        Self::Burn(Composed { gamma, groups })
    }

    /// Converts the norm to cubenorm.
    pub fn into_fused(self) -> Self {
        let Self::Burn(Composed { gamma, groups }) = self else {
            return self;
        };
        let [features] = gamma.dims();
        let config = GatedRmsNormConfig::new(features)
            .with_epsilon(EPSILON)
            .with_norm_before_gate(false)
            .with_group_size(Some(features / groups));
        let fused = config.init(&gamma.device());
        Self::Cubenorm(GatedRmsNorm { gamma, ..fused })
    }

    /// Normalizes with the gate.
    ///
    /// # Shapes
    ///
    /// - input, gate and output: `[batch, length, features]`
    pub fn forward(&self, input: Tensor<3>, gate: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Burn(norm) => norm.forward(input, gate),
            Self::Cubenorm(norm) => norm.forward(input, gate),
        }
    }
}

impl Composed {
    fn forward(&self, input: Tensor<3>, gate: Tensor<3>) -> Tensor<3> {
        let shape = input.dims();
        let [batch, length, features] = shape;
        let gated = input * silu(gate);
        let groups = gated.reshape([batch, length, self.groups, features / self.groups]);
        let square = groups.clone().square().mean_dim(3);
        let normalized = (groups / (square + EPSILON).sqrt()).reshape(shape);
        normalized * self.gamma.val().unsqueeze()
    }
}
