use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, EnumIter, IntoStaticStr};

/// A function applied to the normalized value last, after scale and bias.
///
/// `x` is the value after scale and bias. The first sixteen variants are the ones that DirectML
/// fuses, with its parameter names; the others are common in models.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(
    name(ActivationKind),
    derive(Hash, PartialOrd, Ord, EnumIter, IntoStaticStr),
    strum(serialize_all = "snake_case"),
    doc = "The function of an [`Activation`], without its parameters: a kernel is compiled per kind."
)]
#[strum_discriminants(allow(missing_docs))]
pub enum Activation {
    /// `x`
    #[default]
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `x` if `x > 0`, else `alpha * x`
    LeakyRelu {
        /// Slope of the negative side.
        alpha: f64,
    },
    /// `x` if `x > alpha`, else `0`
    ThresholdedRelu {
        /// The threshold.
        alpha: f64,
    },
    /// `x` if `x > 0`, else `alpha * (exp(x) - 1)`
    Elu {
        /// Magnitude at which the negative side saturates.
        alpha: f64,
    },
    /// `max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`
    Celu {
        /// Scale of the negative side.
        alpha: f64,
    },
    /// `gamma * x` if `x > 0`, else `gamma * alpha * (exp(x) - 1)`
    ScaledElu {
        /// Scale of the exponential.
        alpha: f64,
        /// Scale of both sides.
        gamma: f64,
    },
    /// `alpha * x + beta`
    Linear {
        /// The slope.
        alpha: f64,
        /// The offset.
        beta: f64,
    },
    /// `max(0, min(alpha * x + beta, 1))`
    HardSigmoid {
        /// The slope.
        alpha: f64,
        /// The offset.
        beta: f64,
    },
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `tanh(x)`
    Tanh,
    /// `alpha * tanh(beta * x)`
    ScaledTanh {
        /// Scale of the output.
        alpha: f64,
        /// Scale of the input.
        beta: f64,
    },
    /// `ln(1 + exp(steepness * x)) / steepness`
    Softplus {
        /// Sharpness of the bend at 0.
        steepness: f64,
    },
    /// `alpha * ln(1 + exp(beta * x))`
    ParametricSoftplus {
        /// Scale of the output.
        alpha: f64,
        /// Scale of the input.
        beta: f64,
    },
    /// `x / (1 + |x|)`
    Softsign,
    /// `x - bias` if `x > threshold`, `x + bias` if `x < -threshold`, else `0`
    Shrink {
        /// Reduction of the magnitude.
        bias: f64,
        /// Magnitudes up to this become 0.
        threshold: f64,
    },
    /// `x / 2 * (1 + erf(x / sqrt(2)))`
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`
    GeluTanh,
    /// `x * sigmoid(x)`
    Silu,
    /// `x * max(0, min(x / 6 + 1 / 2, 1))`
    HardSwish,
    /// `x * tanh(ln(1 + exp(x)))`
    Mish,
}

impl Activation {
    /// The parameters in field order, padded with `0`. Kernels take them at run time, so a new
    /// value needs no new kernel.
    pub const fn parameters(self) -> [f64; 2] {
        match self {
            Self::LeakyRelu { alpha }
            | Self::ThresholdedRelu { alpha }
            | Self::Elu { alpha }
            | Self::Celu { alpha } => [alpha, 0.0],
            Self::ScaledElu { alpha, gamma } => [alpha, gamma],
            Self::Linear { alpha, beta }
            | Self::HardSigmoid { alpha, beta }
            | Self::ScaledTanh { alpha, beta }
            | Self::ParametricSoftplus { alpha, beta } => [alpha, beta],
            Self::Softplus { steepness } => [steepness, 0.0],
            Self::Shrink { bias, threshold } => [bias, threshold],
            Self::Identity
            | Self::Relu
            | Self::Sigmoid
            | Self::Tanh
            | Self::Softsign
            | Self::Gelu
            | Self::GeluTanh
            | Self::Silu
            | Self::HardSwish
            | Self::Mish => [0.0, 0.0],
        }
    }

    /// The function, without its parameters.
    pub fn kind(self) -> ActivationKind {
        self.into()
    }
}

impl std::hash::Hash for Activation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        for parameter in self.parameters() {
            hash_number(parameter, state);
        }
    }
}

/// Hashes equal numbers alike: adding 0 turns -0 into 0.
pub(crate) fn hash_number<H: std::hash::Hasher>(number: f64, state: &mut H) {
    use std::hash::Hash;
    (number + 0.0).to_bits().hash(state);
}

impl ActivationKind {
    /// True if it needs more than additions, multiplications, divisions and comparisons.
    pub const fn is_transcendental(self) -> bool {
        !matches!(
            self,
            Self::Identity
                | Self::Relu
                | Self::LeakyRelu
                | Self::ThresholdedRelu
                | Self::Linear
                | Self::HardSigmoid
                | Self::Softsign
                | Self::Shrink
                | Self::HardSwish
        )
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().into())
    }
}
