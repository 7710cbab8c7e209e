use cubenorm_core::Statistics;
use serde::{Deserialize, Serialize};

use super::lowering::MeanVariance;
use super::{DEFAULT_EPSILON, FusedActivation, TensorDesc};
use crate::{OperatorError, Program};

/// `DML_MEAN_VARIANCE_NORMALIZATION2_OPERATOR_DESC`: over any axes, with optional mean and
/// variance.
///
/// | `UseMean` | `UseVariance` | `Output = FusedActivation(...)` |
/// | --- | --- | --- |
/// | true | true | `Scale * (Input - Mean) / sqrt(Variance + Epsilon) + Bias` |
/// | true | false | `Scale * (Input - Mean) + Bias` |
/// | false | true | `Scale * Input / sqrt(mean(Input^2) + Epsilon) + Bias` |
/// | false | false | `Scale * Input + Bias` |
///
/// The specification's page has no formula for the last two. With `UseMean = FALSE` the operator is
/// ONNX Runtime's RMS normalization.
///
/// # Example
///
/// ```
/// use cubenorm_operators::directml::{DataType, MeanVarianceNormalization2, TensorDesc};
///
/// let tensor = TensorDesc::packed(DataType::Float16, [8, 64]);
/// let rms_norm = MeanVarianceNormalization2::new(tensor.clone(), tensor, [1])
///     .with_use_mean(false)
///     .lower()?;
/// assert_eq!(rms_norm.steps.len(), 1);
/// # Ok::<(), cubenorm_operators::OperatorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MeanVarianceNormalization2 {
    /// Tensor to normalize.
    pub input_tensor: TensorDesc,
    /// Scale, each size 1 or the input's; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_tensor: Option<TensorDesc>,
    /// Bias, each size 1 or the input's; 0 if absent. Scale and bias are optional independently, as
    /// from feature level 5.2 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias_tensor: Option<TensorDesc>,
    /// Result, of the input's sizes.
    pub output_tensor: TensorDesc,
    /// Dimensions that are reduced, in any order, without duplicates.
    pub axes: Vec<u32>,
    /// True if the mean is subtracted.
    pub use_mean: bool,
    /// True if the deviation is divided by.
    pub use_variance: bool,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Activation applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<FusedActivation>,
}

impl MeanVarianceNormalization2 {
    /// Uses mean and variance, with epsilon 1e-5 and nothing else.
    pub fn new(
        input_tensor: TensorDesc,
        output_tensor: TensorDesc,
        axes: impl Into<Vec<u32>>,
    ) -> Self {
        Self {
            input_tensor,
            scale_tensor: None,
            bias_tensor: None,
            output_tensor,
            axes: axes.into(),
            use_mean: true,
            use_variance: true,
            epsilon: DEFAULT_EPSILON,
            fused_activation: None,
        }
    }

    setters! {
        with_scale_tensor(scale_tensor: impl Into<Option<TensorDesc>>),
        with_bias_tensor(bias_tensor: impl Into<Option<TensorDesc>>),
        with_use_mean(use_mean: bool),
        with_use_variance(use_variance: bool),
        with_epsilon(epsilon: f32),
        with_fused_activation(fused_activation: impl Into<Option<FusedActivation>>),
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if an axis is out of range or listed twice, and by the rules of [the
    /// module](super).
    pub fn lower(&self) -> Result<Program, OperatorError> {
        MeanVariance {
            operator: "MEAN_VARIANCE_NORMALIZATION2",
            input_tensor: &self.input_tensor,
            scale_tensor: self.scale_tensor.as_ref(),
            bias_tensor: self.bias_tensor.as_ref(),
            output_tensor: &self.output_tensor,
            axes: &self.axes,
            statistics: match (self.use_mean, self.use_variance) {
                (true, true) => Statistics::MeanVariance,
                (true, false) => Statistics::Mean,
                (false, true) => Statistics::MeanSquare,
                (false, false) => Statistics::None,
            },
            epsilon: self.epsilon,
            fused_activation: self.fused_activation,
        }
        .lower()
    }
}
