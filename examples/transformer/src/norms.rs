//! A residual addition and its norm, and the norms and the rotation of query and key.

use burn::module::Module;
use burn::nn::{RmsNorm, RmsNormConfig, RotaryEncoding, RotaryEncodingConfig};
use burn::tensor::{Device, Tensor};
use cubenorm::nn::{AddRmsNorm, from_burn};
use cubenorm::{HeadNormOptions, NormOptions, Rope};

/// RMS normalization, alone or after a residual addition.
#[derive(Module, Debug)]
pub enum ResidualNorm {
    /// Burn's norm of a separately computed sum.
    Burn(RmsNorm),
    /// cubenorm's norm: sum and norm in one kernel per pass.
    Cubenorm(AddRmsNorm),
}

impl ResidualNorm {
    /// A norm of Burn over the last `d_model` elements.
    pub fn new(d_model: usize, device: &Device) -> Self {
        Self::Burn(RmsNormConfig::new(d_model).init(device))
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

/// RMS norms of the heads of query and key, and their rotary position embedding.
#[derive(Module, Debug)]
pub struct HeadNorm {
    query: RmsNorm,
    key: RmsNorm,
    rotary: RotaryEncoding,
    /// Burn's table for cubenorm's kernel, which normalizes and rotates both in one launch. None: Burn's operations.
    #[module(skip)]
    rope: Option<Rope>,
}

impl HeadNorm {
    /// Burn's norms and rotation of heads of `features` elements, for `context` positions.
    pub fn new(features: usize, context: usize, device: &Device) -> Self {
        let norm = || RmsNormConfig::new(features).init(device);
        Self {
            query: norm(),
            key: norm(),
            rotary: RotaryEncodingConfig::new(context, features).init(device),
            rope: None,
        }
    }

    /// Converts to cubenorm.
    pub fn into_fused(self) -> Self {
        Self {
            rope: Some(Rope::from(&self.rotary)),
            ..self
        }
    }

    /// Normalizes and rotates query and key.
    ///
    /// # Shapes
    ///
    /// - inputs and outputs: `[windows, length, heads, features]`
    pub fn forward(&self, query: Tensor<4>, key: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        match &self.rope {
            None => {
                let rotated = |norm: &RmsNorm, x: Tensor<4>| {
                    let heads_first = norm.forward(x).swap_dims(1, 2);
                    self.rotary.forward(heads_first).swap_dims(1, 2)
                };
                (rotated(&self.query, query), rotated(&self.key, key))
            }
            Some(rope) => {
                let norm = NormOptions::new().with_epsilon(self.query.epsilon);
                let gammas = (self.query.gamma.val(), self.key.gamma.val());
                let options = HeadNormOptions::new(norm);
                cubenorm::qk_norm_rope(query, key, gammas.0, gammas.1, rope, 0, &options)
            }
        }
    }
}
