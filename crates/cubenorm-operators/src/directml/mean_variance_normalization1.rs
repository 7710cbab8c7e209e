use cubenorm_core::Statistics;
use serde::{Deserialize, Serialize};

use super::lowering::MeanVariance;
use super::{DEFAULT_EPSILON, FusedActivation, TensorDesc};
use crate::{OperatorError, Program};

/// `DML_MEAN_VARIANCE_NORMALIZATION1_OPERATOR_DESC`: by mean and population variance over any axes.
///
/// ```text
/// Output = FusedActivation(Scale * (Input - Mean) / sqrt(Variance + Epsilon) + Bias)
/// ```
///
/// and without `NormalizeVariance`
///
/// ```text
/// Output = FusedActivation(Scale * (Input - Mean) + Bias)
/// ```
///
/// # Two readings of the specification
///
/// The operator's page calls the axes `{0, 2, 3}` the equivalent of `CrossChannel = FALSE` in
/// [`MeanVarianceNormalization`](super::MeanVarianceNormalization). That operator's page has
/// statistics over height and width. Here, axes are taken literally: `{0, 2, 3}` shares the
/// statistics of a channel between batch entries. `{2, 3}` does not, and equals the other operator
/// as this crate reads it. Both pages agree that `{1, 2, 3}` is `CrossChannel = TRUE`.
///
/// # Example
///
/// ```
/// use cubenorm_operators::directml::{DataType, MeanVarianceNormalization1, TensorDesc};
///
/// // Layer normalization over the last of three dimensions.
/// let tensor = TensorDesc::packed(DataType::Float16, [2, 3, 64]);
/// let scale = TensorDesc::packed(DataType::Float16, [1, 1, 64]);
/// let program = MeanVarianceNormalization1::new(tensor.clone(), tensor, [2])
///     .with_scale_tensor(scale)
///     .lower()?;
/// assert_eq!(program.steps.len(), 1);
/// # Ok::<(), cubenorm_operators::OperatorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MeanVarianceNormalization1 {
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
    /// True if the deviation is divided by.
    pub normalize_variance: bool,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Activation applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<FusedActivation>,
}

impl MeanVarianceNormalization1 {
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
            normalize_variance: true,
            epsilon: DEFAULT_EPSILON,
            fused_activation: None,
        }
    }

    setters! {
        with_scale_tensor(scale_tensor: impl Into<Option<TensorDesc>>),
        with_bias_tensor(bias_tensor: impl Into<Option<TensorDesc>>),
        with_normalize_variance(normalize_variance: bool),
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
            operator: "MEAN_VARIANCE_NORMALIZATION1",
            input_tensor: &self.input_tensor,
            scale_tensor: self.scale_tensor.as_ref(),
            bias_tensor: self.bias_tensor.as_ref(),
            output_tensor: &self.output_tensor,
            axes: &self.axes,
            statistics: match self.normalize_variance {
                true => Statistics::MeanVariance,
                false => Statistics::Mean,
            },
            epsilon: self.epsilon,
            fused_activation: self.fused_activation,
        }
        .lower()
    }
}
