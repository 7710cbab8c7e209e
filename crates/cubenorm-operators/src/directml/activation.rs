use cubenorm_core::Activation;
use serde::{Deserialize, Serialize};

/// Activation that DirectML fuses into a normalization: `FusedActivation`.
///
/// Serialized as `{ "Type": "DML_OPERATOR_ACTIVATION_LEAKY_RELU", "Alpha": 0.1 }`. The prefix
/// `DML_OPERATOR_` is optional when reading. In the formulas, `x` is the normalized, scaled and
/// shifted value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "Type", rename_all_fields = "PascalCase")]
pub enum FusedActivation {
    /// `x` if `x > 0`, else `Alpha * (exp(x) - 1)`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_ELU", alias = "ACTIVATION_ELU")]
    Elu {
        /// Negated limit of the negative side.
        alpha: f32,
    },
    /// `max(0, min(Alpha * x + Beta, 1))`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_HARD_SIGMOID",
        alias = "ACTIVATION_HARD_SIGMOID"
    )]
    HardSigmoid {
        /// The slope.
        alpha: f32,
        /// The offset.
        beta: f32,
    },
    /// `x`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_IDENTITY",
        alias = "ACTIVATION_IDENTITY"
    )]
    Identity,
    /// `x` if `x > 0`, else `Alpha * x`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_LEAKY_RELU",
        alias = "ACTIVATION_LEAKY_RELU"
    )]
    LeakyRelu {
        /// Slope of the negative side.
        alpha: f32,
    },
    /// `Alpha * x + Beta`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_LINEAR", alias = "ACTIVATION_LINEAR")]
    Linear {
        /// The slope.
        alpha: f32,
        /// The offset.
        beta: f32,
    },
    /// `Alpha * ln(1 + exp(Beta * x))`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_PARAMETRIC_SOFTPLUS",
        alias = "ACTIVATION_PARAMETRIC_SOFTPLUS"
    )]
    ParametricSoftplus {
        /// Scale of the output.
        alpha: f32,
        /// Scale of the input.
        beta: f32,
    },
    /// `max(0, x)`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_RELU", alias = "ACTIVATION_RELU")]
    Relu,
    /// `Gamma * x` if `x > 0`, else `Gamma * Alpha * (exp(x) - 1)`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_SCALED_ELU",
        alias = "ACTIVATION_SCALED_ELU"
    )]
    ScaledElu {
        /// Scale of the exponential.
        alpha: f32,
        /// Scale of both sides.
        gamma: f32,
    },
    /// `Alpha * tanh(Beta * x)`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_SCALED_TANH",
        alias = "ACTIVATION_SCALED_TANH"
    )]
    ScaledTanh {
        /// Scale of the output.
        alpha: f32,
        /// Scale of the input.
        beta: f32,
    },
    /// `1 / (1 + exp(-x))`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_SIGMOID",
        alias = "ACTIVATION_SIGMOID"
    )]
    Sigmoid,
    /// `ln(1 + exp(Steepness * x)) / Steepness`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_SOFTPLUS",
        alias = "ACTIVATION_SOFTPLUS"
    )]
    Softplus {
        /// Sharpness of the bend at 0.
        steepness: f32,
    },
    /// `x / (1 + |x|)`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_SOFTSIGN",
        alias = "ACTIVATION_SOFTSIGN"
    )]
    Softsign,
    /// `tanh(x)`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_TANH", alias = "ACTIVATION_TANH")]
    Tanh,
    /// `x` if `x > Alpha`, else `0`
    #[serde(
        rename = "DML_OPERATOR_ACTIVATION_THRESHOLDED_RELU",
        alias = "ACTIVATION_THRESHOLDED_RELU"
    )]
    ThresholdedRelu {
        /// The threshold.
        alpha: f32,
    },
    /// `x - Bias` if `x > Threshold`, `x + Bias` if `x < -Threshold`, else `0`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_SHRINK", alias = "ACTIVATION_SHRINK")]
    Shrink {
        /// Value subtracted from the magnitude.
        bias: f32,
        /// Magnitudes up to this become 0.
        threshold: f32,
    },
    /// `max(0, x) + min(0, Alpha * (exp(x / Alpha) - 1))`
    #[serde(rename = "DML_OPERATOR_ACTIVATION_CELU", alias = "ACTIVATION_CELU")]
    Celu {
        /// Scale of the negative side.
        alpha: f32,
    },
}

impl From<FusedActivation> for Activation {
    fn from(fused: FusedActivation) -> Self {
        let [alpha, beta] = fused.parameters().map(f64::from);
        match fused {
            FusedActivation::Elu { .. } => Self::Elu { alpha },
            FusedActivation::HardSigmoid { .. } => Self::HardSigmoid { alpha, beta },
            FusedActivation::Identity => Self::Identity,
            FusedActivation::LeakyRelu { .. } => Self::LeakyRelu { alpha },
            FusedActivation::Linear { .. } => Self::Linear { alpha, beta },
            FusedActivation::ParametricSoftplus { .. } => Self::ParametricSoftplus { alpha, beta },
            FusedActivation::Relu => Self::Relu,
            FusedActivation::ScaledElu { .. } => Self::ScaledElu { alpha, gamma: beta },
            FusedActivation::ScaledTanh { .. } => Self::ScaledTanh { alpha, beta },
            FusedActivation::Sigmoid => Self::Sigmoid,
            FusedActivation::Softplus { .. } => Self::Softplus { steepness: alpha },
            FusedActivation::Softsign => Self::Softsign,
            FusedActivation::Tanh => Self::Tanh,
            FusedActivation::ThresholdedRelu { .. } => Self::ThresholdedRelu { alpha },
            FusedActivation::Shrink { .. } => Self::Shrink {
                bias: alpha,
                threshold: beta,
            },
            FusedActivation::Celu { .. } => Self::Celu { alpha },
        }
    }
}

impl FusedActivation {
    /// Parameters in the order of their fields, `0` if there is none.
    fn parameters(self) -> [f32; 2] {
        match self {
            Self::Elu { alpha }
            | Self::LeakyRelu { alpha }
            | Self::ThresholdedRelu { alpha }
            | Self::Celu { alpha } => [alpha, 0.0],
            Self::HardSigmoid { alpha, beta }
            | Self::Linear { alpha, beta }
            | Self::ParametricSoftplus { alpha, beta }
            | Self::ScaledTanh { alpha, beta } => [alpha, beta],
            Self::ScaledElu { alpha, gamma } => [alpha, gamma],
            Self::Softplus { steepness } => [steepness, 0.0],
            Self::Shrink { bias, threshold } => [bias, threshold],
            Self::Identity | Self::Relu | Self::Sigmoid | Self::Softsign | Self::Tanh => [0.0, 0.0],
        }
    }
}
