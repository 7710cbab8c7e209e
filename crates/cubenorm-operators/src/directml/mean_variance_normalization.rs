use cubenorm_core::Statistics;
use serde::{Deserialize, Serialize};

use super::lowering::MeanVariance;
use super::{DEFAULT_EPSILON, FusedActivation, TensorDesc};
use crate::{OperatorError, Program};

/// `DML_MEAN_VARIANCE_NORMALIZATION_OPERATOR_DESC`: each batch entry, or each of its channels, by
/// its own mean and population variance.
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
/// Tensors have the 4 dimensions batch, channel, height, width.
///
/// # Two readings of the specification
///
/// The page of this operator defines `CrossChannel = FALSE` as statistics over height and width,
/// for each channel of each batch entry. This struct computes that. The page of
/// [`MeanVarianceNormalization1`](super::MeanVarianceNormalization1) calls its axes `{0, 2, 3}`,
/// which include the batch, the equivalent. Use that operator with these axes for the second
/// reading, and with `{2, 3}` for the first.
///
/// # Example
///
/// ```
/// use cubenorm_operators::directml::{DataType, MeanVarianceNormalization, TensorDesc};
///
/// let tensor = TensorDesc::packed(DataType::Float32, [2, 3, 4, 5]);
/// let channels = TensorDesc::packed(DataType::Float32, [1, 3, 1, 1]);
/// let program = MeanVarianceNormalization::new(tensor.clone(), tensor)
///     .with_scale_tensor(channels)
///     .lower()?;
/// assert_eq!(program.steps.len(), 1);
/// # Ok::<(), cubenorm_operators::OperatorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MeanVarianceNormalization {
    /// Tensor to normalize, of 4 dimensions.
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
    /// True for statistics over channel, height and width; false for height and width alone.
    pub cross_channel: bool,
    /// True if the deviation is divided by.
    pub normalize_variance: bool,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Activation applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<FusedActivation>,
}

impl MeanVarianceNormalization {
    /// Normalizes each channel by mean and variance, with epsilon 1e-5 and nothing else.
    pub fn new(input_tensor: TensorDesc, output_tensor: TensorDesc) -> Self {
        Self {
            input_tensor,
            scale_tensor: None,
            bias_tensor: None,
            output_tensor,
            cross_channel: false,
            normalize_variance: true,
            epsilon: DEFAULT_EPSILON,
            fused_activation: None,
        }
    }

    setters! {
        with_scale_tensor(scale_tensor: impl Into<Option<TensorDesc>>),
        with_bias_tensor(bias_tensor: impl Into<Option<TensorDesc>>),
        with_cross_channel(cross_channel: bool),
        with_normalize_variance(normalize_variance: bool),
        with_epsilon(epsilon: f32),
        with_fused_activation(fused_activation: impl Into<Option<FusedActivation>>),
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if a tensor does not have 4 dimensions, and by the rules of [the
    /// module](super).
    pub fn lower(&self) -> Result<Program, OperatorError> {
        let operator = "MEAN_VARIANCE_NORMALIZATION";
        if self.input_tensor.sizes.len() != 4 {
            return Err(OperatorError::Rank {
                operator,
                tensor: "InputTensor",
                expected: "4: batch, channel, height, width".into(),
                rank: self.input_tensor.sizes.len(),
            });
        }
        MeanVariance {
            operator,
            input_tensor: &self.input_tensor,
            scale_tensor: self.scale_tensor.as_ref(),
            bias_tensor: self.bias_tensor.as_ref(),
            output_tensor: &self.output_tensor,
            axes: match self.cross_channel {
                true => &[1, 2, 3],
                false => &[2, 3],
            },
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
