use cubenorm_core::{ResidualPlace, Statistics, WrittenStatistics};
use serde::{Deserialize, Serialize};

use super::lowering::{Lowering, activation};
use super::{DEFAULT_EPSILON, FusedActivation, TensorDesc};
use crate::builder::Half;
use crate::{Normalize, OperatorError, Program};

/// `DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC`: by mean and variance over the dimensions in
/// which `ScaleTensor` has size 1. Both are outputs as well.
///
/// ```text
/// Output = FusedActivation(Scale * (Input - Mean) / sqrt(Variance + Epsilon) + Bias + FusedAdd)
/// OutputMean = Mean
/// OutputVariance = Variance
/// ```
///
/// The variance is the population variance, divided by the count. The specification's page does not
/// say.
///
/// # Example
///
/// ```
/// use cubenorm_operators::directml::{BatchNormalizationTraining, DataType, TensorDesc};
///
/// let tensor = TensorDesc::packed(DataType::Float32, [2, 3, 4, 5]);
/// let channels = || TensorDesc::packed(DataType::Float32, [1, 3, 1, 1]);
/// let batch_norm = BatchNormalizationTraining::new(
///     tensor.clone(),
///     channels(),
///     channels(),
///     tensor,
///     channels(),
///     channels(),
/// );
/// // The normalization, and a copy for each of mean and variance.
/// assert_eq!(batch_norm.lower()?.steps.len(), 3);
/// # Ok::<(), cubenorm_operators::OperatorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BatchNormalizationTraining {
    /// Tensor to normalize.
    pub input_tensor: TensorDesc,
    /// Scale, each size 1 or the input's. Dimensions of size 1 are reduced.
    pub scale_tensor: TensorDesc,
    /// Bias, of the scale's sizes.
    pub bias_tensor: TensorDesc,
    /// Tensor added before the activation, of the input's sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_add_tensor: Option<TensorDesc>,
    /// Result, of the input's sizes.
    pub output_tensor: TensorDesc,
    /// Means, of the scale's sizes.
    pub output_mean_tensor: TensorDesc,
    /// Variances, of the scale's sizes.
    pub output_variance_tensor: TensorDesc,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Activation applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<FusedActivation>,
}

impl BatchNormalizationTraining {
    /// Sets epsilon to 1e-5, without an added tensor or an activation.
    pub fn new(
        input_tensor: TensorDesc,
        scale_tensor: TensorDesc,
        bias_tensor: TensorDesc,
        output_tensor: TensorDesc,
        output_mean_tensor: TensorDesc,
        output_variance_tensor: TensorDesc,
    ) -> Self {
        Self {
            input_tensor,
            scale_tensor,
            bias_tensor,
            fused_add_tensor: None,
            output_tensor,
            output_mean_tensor,
            output_variance_tensor,
            epsilon: DEFAULT_EPSILON,
            fused_activation: None,
        }
    }

    setters! {
        with_fused_add_tensor(fused_add_tensor: impl Into<Option<TensorDesc>>),
        with_epsilon(epsilon: f32),
        with_fused_activation(fused_activation: impl Into<Option<FusedActivation>>),
    }

    /// Lowers to one normalization that writes pairs of statistics, and a copy for each of the two.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if bias, mean or variance differ from the scale's sizes, or the added
    /// tensor differs from the input's, and by the rules of [the module](super).
    pub fn lower(&self) -> Result<Program, OperatorError> {
        let operator = "BATCH_NORMALIZATION_TRAINING";
        let (mut lowering, input) = Lowering::new(operator, &self.input_tensor)?;
        let scale = lowering.parameter("ScaleTensor", 1, &self.scale_tensor)?;
        let as_scale = ("ScaleTensor", &self.scale_tensor);
        let as_input = ("InputTensor", &self.input_tensor);
        let bias = lowering.input_like("BiasTensor", 2, &self.bias_tensor, as_scale)?;
        let fused_add = self.fused_add_tensor.as_ref();
        let fused_add = fused_add
            .map(|desc| lowering.input_like("FusedAddTensor", 3, desc, as_input))
            .transpose()?;
        let output = lowering.output(&self.output_tensor)?;
        let mean = &self.output_mean_tensor;
        let mean = lowering.output_like("OutputMeanTensor", 1, mean, as_scale)?;
        let variance = &self.output_variance_tensor;
        let variance = lowering.output_like("OutputVarianceTensor", 2, variance, as_scale)?;
        let epsilon = lowering.epsilon(self.epsilon)?;

        let sizes = self.scale_tensor.sizes.iter().enumerate();
        let axes: Vec<usize> = sizes
            .filter(|&(_, &size)| size == 1)
            .map(|(axis, _)| axis)
            .collect();
        let step = Normalize::new(&input, axes, Statistics::MeanVariance, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias))
            .with_residual(fused_add.as_ref(), ResidualPlace::Output)
            .with_activation(activation(self.fused_activation));
        let mut builder = lowering.builder;
        let pairs = builder.normalize_with_statistics(step, WrittenStatistics::MeanVariance)?;
        builder.unpair(&pairs, Half::Mean, None, &mean)?;
        builder.unpair(&pairs, Half::Spread, None, &variance)?;
        Ok(builder.finish())
    }
}
