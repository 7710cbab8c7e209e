use serde::{Deserialize, Serialize};

use super::lowering::{Lowering, activation};
use super::{DEFAULT_EPSILON, FusedActivation, TensorDesc};
use crate::{Normalize, OperatorError, Program};

/// `DML_BATCH_NORMALIZATION_OPERATOR_DESC`: by provided means and variances, as at inference.
///
/// ```text
/// Output = FusedActivation(Scale * (Input - Mean) / sqrt(Variance + Epsilon) + Bias)
/// ```
///
/// # Example
///
/// ```
/// use cubenorm_operators::directml::{BatchNormalization, DataType, TensorDesc};
///
/// let tensor = TensorDesc::packed(DataType::Float32, [2, 3, 4, 5]);
/// let channels = || TensorDesc::packed(DataType::Float32, [1, 3, 1, 1]);
/// let batch_norm = BatchNormalization::new(
///     tensor.clone(),
///     channels(),
///     channels(),
///     channels(),
///     channels(),
///     tensor,
/// );
/// assert_eq!(batch_norm.lower()?.inputs().count(), 5);
/// # Ok::<(), cubenorm_operators::OperatorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BatchNormalization {
    /// Tensor to normalize.
    pub input_tensor: TensorDesc,
    /// Mean, each size 1 or the input's.
    pub mean_tensor: TensorDesc,
    /// Variance, each size 1 or the input's.
    pub variance_tensor: TensorDesc,
    /// Scale, each size 1 or the input's.
    pub scale_tensor: TensorDesc,
    /// Bias, each size 1 or the input's.
    pub bias_tensor: TensorDesc,
    /// Result, of the input's sizes.
    pub output_tensor: TensorDesc,
    /// Deprecated, without effect from feature level 4.0 on.
    pub spatial: bool,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Activation applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_activation: Option<FusedActivation>,
}

impl BatchNormalization {
    /// Sets epsilon to 1e-5, without an activation.
    pub fn new(
        input_tensor: TensorDesc,
        mean_tensor: TensorDesc,
        variance_tensor: TensorDesc,
        scale_tensor: TensorDesc,
        bias_tensor: TensorDesc,
        output_tensor: TensorDesc,
    ) -> Self {
        Self {
            input_tensor,
            mean_tensor,
            variance_tensor,
            scale_tensor,
            bias_tensor,
            output_tensor,
            spatial: true,
            epsilon: DEFAULT_EPSILON,
            fused_activation: None,
        }
    }

    setters! {
        with_spatial(spatial: bool),
        with_epsilon(epsilon: f32),
        with_fused_activation(fused_activation: impl Into<Option<FusedActivation>>),
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] by the rules of [the module](super).
    pub fn lower(&self) -> Result<Program, OperatorError> {
        let (mut lowering, input) = Lowering::new("BATCH_NORMALIZATION", &self.input_tensor)?;
        let mean = lowering.parameter("MeanTensor", 1, &self.mean_tensor)?;
        let variance = lowering.parameter("VarianceTensor", 2, &self.variance_tensor)?;
        let scale = lowering.parameter("ScaleTensor", 3, &self.scale_tensor)?;
        let bias = lowering.parameter("BiasTensor", 4, &self.bias_tensor)?;
        let output = lowering.output(&self.output_tensor)?;
        let epsilon = lowering.epsilon(self.epsilon)?;
        let step = Normalize::given(&input, &mean, &variance, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias))
            .with_activation(activation(self.fused_activation));
        lowering.builder.normalize(step)?;
        Ok(lowering.builder.finish())
    }
}
