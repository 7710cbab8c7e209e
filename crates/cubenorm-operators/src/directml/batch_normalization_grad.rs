use cubenorm_core::{BackwardDesc, NormDesc, Statistics};
use serde::{Deserialize, Serialize};

use super::lowering::Lowering;
use super::{DEFAULT_EPSILON, TensorDesc};
use crate::{Gradient, OperatorError, Program};

/// Tensors of both gradient operators, whose descriptions differ in name only.
macro_rules! gradient_operator {
    ($(#[$doc:meta])* $name:ident, $operator:literal, $flows:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "PascalCase")]
        pub struct $name {
            /// Input of the normalization.
            pub input_tensor: TensorDesc,
            /// Gradient of the normalization's output, of the input's sizes.
            pub input_gradient_tensor: TensorDesc,
            /// Means, each size 1 or the input's.
            pub mean_tensor: TensorDesc,
            /// Variances, each size 1 or the input's.
            pub variance_tensor: TensorDesc,
            /// Scale, each size 1 or the input's.
            pub scale_tensor: TensorDesc,
            /// Gradient of the input, of its sizes.
            pub output_gradient_tensor: TensorDesc,
            /// Gradient of the scale, of its sizes.
            pub output_scale_gradient_tensor: TensorDesc,
            /// Gradient of the bias, of the scale's sizes.
            pub output_bias_gradient_tensor: TensorDesc,
            /// Value added to the variance.
            pub epsilon: f32,
        }

        impl $name {
            /// Describes packed tensors: the input of these sizes, parameters of those sizes, with
            /// epsilon 1e-5.
            pub fn new(input_tensor: TensorDesc, scale_tensor: TensorDesc) -> Self {
                let input = TensorDesc::packed(input_tensor.data_type, input_tensor.sizes.clone());
                let scale = TensorDesc::packed(scale_tensor.data_type, scale_tensor.sizes.clone());
                Self {
                    input_tensor,
                    input_gradient_tensor: input.clone(),
                    mean_tensor: scale.clone(),
                    variance_tensor: scale.clone(),
                    scale_tensor,
                    output_gradient_tensor: input,
                    output_scale_gradient_tensor: scale.clone(),
                    output_bias_gradient_tensor: scale,
                    epsilon: DEFAULT_EPSILON,
                }
            }

            /// Sets [`epsilon`](Self::epsilon).
            pub fn with_epsilon(mut self, epsilon: f32) -> Self {
                self.epsilon = epsilon;
                self
            }

            /// Lowers to a gradient, after a step that pairs means and reciprocal deviations.
            ///
            /// # Errors
            ///
            /// An [`OperatorError`] if a gradient has other sizes than its tensor, and by the rules
            /// of [the module](super).
            pub fn lower(&self) -> Result<Program, OperatorError> {
                BatchNormalizationGradient {
                    operator: $operator,
                    input_tensor: &self.input_tensor,
                    input_gradient_tensor: &self.input_gradient_tensor,
                    mean_tensor: &self.mean_tensor,
                    variance_tensor: &self.variance_tensor,
                    scale_tensor: &self.scale_tensor,
                    output_gradient_tensor: &self.output_gradient_tensor,
                    output_scale_gradient_tensor: &self.output_scale_gradient_tensor,
                    output_bias_gradient_tensor: &self.output_bias_gradient_tensor,
                    epsilon: self.epsilon,
                    flows_through_statistics: $flows,
                }
                .lower()
            }
        }
    };
}

gradient_operator! {
    /// `DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC`: backward pass of
    /// [`BatchNormalization`](super::BatchNormalization), whose statistics are constants.
    ///
    /// ```text
    /// rstd = 1 / sqrt(Variance + Epsilon)
    /// OutputGradient = InputGradient * Scale * rstd
    /// OutputScaleGradient = sum(InputGradient * (Input - Mean) * rstd)
    /// OutputBiasGradient = sum(InputGradient)
    /// ```
    ///
    /// Sums are over the dimensions along which `ScaleTensor` has size 1.
    ///
    /// Source: [the operator's page](https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_batch_normalization_grad_operator_desc).
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_operators::directml::{BatchNormalizationGrad, DataType, TensorDesc};
    ///
    /// let tensor = TensorDesc::packed(DataType::Float32, [2, 3, 4, 5]);
    /// let channels = TensorDesc::packed(DataType::Float32, [1, 3, 1, 1]);
    /// let program = BatchNormalizationGrad::new(tensor, channels).lower()?;
    /// assert_eq!(program.outputs().count(), 3);
    /// # Ok::<(), cubenorm_operators::OperatorError>(())
    /// ```
    BatchNormalizationGrad, "BATCH_NORMALIZATION_GRAD", false
}

gradient_operator! {
    /// `DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC`: backward pass of
    /// [`BatchNormalizationTraining`](super::BatchNormalizationTraining), whose statistics are
    /// computed from the input.
    ///
    /// ```text
    /// rstd = 1 / sqrt(Variance + Epsilon)
    /// normalized = (Input - Mean) * rstd
    /// OutputScaleGradient = sum(InputGradient * normalized)
    /// OutputBiasGradient = sum(InputGradient)
    /// g = InputGradient * Scale
    /// OutputGradient = rstd * (g - mean(g) - normalized * mean(g * normalized))
    /// ```
    ///
    /// Sums are over the dimensions along which `ScaleTensor` has size 1. Means are over the
    /// dimensions along which `MeanTensor` has size 1.
    ///
    /// Source: [the operator's page](https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_batch_normalization_training_grad_operator_desc).
    BatchNormalizationTrainingGrad, "BATCH_NORMALIZATION_TRAINING_GRAD", true
}

/// Lowers either operator.
struct BatchNormalizationGradient<'a> {
    operator: &'static str,
    input_tensor: &'a TensorDesc,
    input_gradient_tensor: &'a TensorDesc,
    mean_tensor: &'a TensorDesc,
    variance_tensor: &'a TensorDesc,
    scale_tensor: &'a TensorDesc,
    output_gradient_tensor: &'a TensorDesc,
    output_scale_gradient_tensor: &'a TensorDesc,
    output_bias_gradient_tensor: &'a TensorDesc,
    epsilon: f32,
    flows_through_statistics: bool,
}

impl BatchNormalizationGradient<'_> {
    fn lower(self) -> Result<Program, OperatorError> {
        let (mut lowering, input) = Lowering::new(self.operator, self.input_tensor)?;
        let as_input = ("InputTensor", self.input_tensor);
        let as_scale = ("ScaleTensor", self.scale_tensor);
        let above = self.input_gradient_tensor;
        let above = lowering.input_like("InputGradientTensor", 1, above, as_input)?;
        let mean = lowering.parameter("MeanTensor", 2, self.mean_tensor)?;
        let variance = match self.flows_through_statistics {
            // Both are statistics over the same dimensions.
            true => {
                let as_mean = ("MeanTensor", self.mean_tensor);
                lowering.input_like("VarianceTensor", 3, self.variance_tensor, as_mean)?
            }
            false => lowering.parameter("VarianceTensor", 3, self.variance_tensor)?,
        };
        let scale = lowering.parameter("ScaleTensor", 4, self.scale_tensor)?;
        let gradient = self.output_gradient_tensor;
        let gradient = lowering.output_like("OutputGradientTensor", 0, gradient, as_input)?;
        let of_scale = self.output_scale_gradient_tensor;
        let of_scale = lowering.output_like("OutputScaleGradientTensor", 1, of_scale, as_scale)?;
        let of_bias = self.output_bias_gradient_tensor;
        let of_bias = lowering.output_like("OutputBiasGradientTensor", 2, of_bias, as_scale)?;
        let epsilon = lowering.epsilon(self.epsilon)?;

        let mut builder = lowering.builder;
        let pairs = builder.pair(&mean, &variance, epsilon)?;
        let (statistics, axes) = match self.flows_through_statistics {
            true => {
                let sizes = self.mean_tensor.sizes.iter().enumerate();
                let reduced = sizes.filter(|&(_, &size)| size == 1);
                let axes: Vec<usize> = reduced.map(|(axis, _)| axis).collect();
                (Statistics::MeanVariance, axes)
            }
            false => (
                Statistics::Provided {
                    mean: mean.desc.clone(),
                    variance: variance.desc.clone(),
                },
                Vec::new(),
            ),
        };
        let norm = NormDesc::new(input.desc.clone(), axes, statistics)
            .with_epsilon(epsilon)
            .with_scale(scale.desc.clone())
            .with_bias(of_bias.desc.clone());
        builder.gradient(
            Gradient {
                desc: BackwardDesc {
                    output_gradient: above.desc.clone(),
                    saved: Some(pairs.desc.clone()),
                    sum_gradient: None,
                    gate_gradient: None,
                    input_gradient: Some(gradient.desc.clone()),
                    wants_scale: true,
                    wants_bias: true,
                    norm,
                },
                input: input.slot,
                output_gradient: above.slot,
                saved: Some(pairs.slot),
                scale: Some(scale.slot),
                bias: None,
                input_gradient: Some(gradient.slot),
                scale_gradient: Some(of_scale.slot),
                bias_gradient: Some(of_bias.slot),
            },
            [Some(&of_scale), Some(&of_bias)],
        )?;
        Ok(builder.finish())
    }
}
