//! An operator with its tensors, lowered to a program or evaluated by the formulas.

use cubenorm_core::{DType, TensorDesc};
use cubenorm_operators::{OperatorError, Program, directml, onnx};
use cubenorm_reference::operators::{self, Tensor};
use cubenorm_tests::estimate::Estimate;

/// An operator in the terms of its specification.
#[derive(Debug, Clone)]
pub(crate) enum Description {
    /// A DirectML operator, which contains its tensors.
    DirectMl(Box<directml::Operator>),
    /// An ONNX operator with its tensors.
    Onnx {
        operator: onnx::Operator,
        /// Inputs by formal position.
        inputs: Vec<Option<TensorDesc>>,
        /// Requested outputs by formal position.
        wanted: Vec<bool>,
    },
}

/// Role of an input, which limits its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Normalized tensor, or a tensor that is added to it.
    Tensor,
    Gradient,
    Scale,
    Bias,
    Mean,
    /// Non-negative.
    Variance,
}

impl Description {
    /// The operator's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::DirectMl(operator) => match operator.as_ref() {
                directml::Operator::MeanVarianceNormalization(_) => "MEAN_VARIANCE_NORMALIZATION",
                directml::Operator::MeanVarianceNormalization1(_) => "MEAN_VARIANCE_NORMALIZATION1",
                directml::Operator::MeanVarianceNormalization2(_) => "MEAN_VARIANCE_NORMALIZATION2",
                directml::Operator::BatchNormalization(_) => "BATCH_NORMALIZATION",
                directml::Operator::BatchNormalizationTraining(_) => "BATCH_NORMALIZATION_TRAINING",
                directml::Operator::BatchNormalizationGrad(_) => "BATCH_NORMALIZATION_GRAD",
                directml::Operator::BatchNormalizationTrainingGrad(_) => {
                    "BATCH_NORMALIZATION_TRAINING_GRAD"
                }
            },
            Self::Onnx { operator, .. } => operator.name(),
        }
    }

    pub(crate) fn lower(&self) -> Result<Program, OperatorError> {
        match self {
            Self::DirectMl(operator) => operator.lower(),
            Self::Onnx {
                operator,
                inputs,
                wanted,
            } => operator.lower(inputs, wanted),
        }
    }

    /// Evaluates the formulas: the outputs by formal position.
    pub(crate) fn formula(
        &self,
        inputs: &[Option<&Tensor<Estimate>>],
    ) -> Vec<Option<Vec<Estimate>>> {
        match self {
            Self::DirectMl(operator) => operators::directml(operator, inputs),
            Self::Onnx {
                operator, wanted, ..
            } => operators::onnx(operator, inputs, wanted),
        }
    }

    /// Role of the input at a position.
    pub(crate) fn kind(&self, position: usize) -> Kind {
        use Kind::*;
        let kinds: &[Kind] = match self {
            Self::DirectMl(operator) => match operator.as_ref() {
                directml::Operator::MeanVarianceNormalization(_)
                | directml::Operator::MeanVarianceNormalization1(_)
                | directml::Operator::MeanVarianceNormalization2(_) => &[Tensor, Scale, Bias],
                directml::Operator::BatchNormalization(_) => &[Tensor, Mean, Variance, Scale, Bias],
                directml::Operator::BatchNormalizationTraining(_) => &[Tensor, Scale, Bias, Tensor],
                directml::Operator::BatchNormalizationGrad(_)
                | directml::Operator::BatchNormalizationTrainingGrad(_) => {
                    &[Tensor, Gradient, Mean, Variance, Scale]
                }
            },
            Self::Onnx { operator, .. } => match operator {
                onnx::Operator::BatchNormalization(_) => &[Tensor, Scale, Bias, Mean, Variance],
                onnx::Operator::SkipLayerNormalization(_)
                | onnx::Operator::SkipSimplifiedLayerNormalization(_) => {
                    &[Tensor, Tensor, Scale, Bias, Bias]
                }
                _ => &[Tensor, Scale, Bias],
            },
        };
        kinds[position]
    }

    /// Inputs by formal position.
    pub(crate) fn inputs(&self) -> Vec<Option<TensorDesc>> {
        let operator = match self {
            Self::Onnx { inputs, .. } => return inputs.clone(),
            Self::DirectMl(operator) => operator.as_ref(),
        };
        let tensors: Vec<Option<&directml::TensorDesc>> = match operator {
            directml::Operator::MeanVarianceNormalization(operator) => vec![
                Some(&operator.input_tensor),
                operator.scale_tensor.as_ref(),
                operator.bias_tensor.as_ref(),
            ],
            directml::Operator::MeanVarianceNormalization1(operator) => vec![
                Some(&operator.input_tensor),
                operator.scale_tensor.as_ref(),
                operator.bias_tensor.as_ref(),
            ],
            directml::Operator::MeanVarianceNormalization2(operator) => vec![
                Some(&operator.input_tensor),
                operator.scale_tensor.as_ref(),
                operator.bias_tensor.as_ref(),
            ],
            directml::Operator::BatchNormalization(operator) => vec![
                Some(&operator.input_tensor),
                Some(&operator.mean_tensor),
                Some(&operator.variance_tensor),
                Some(&operator.scale_tensor),
                Some(&operator.bias_tensor),
            ],
            directml::Operator::BatchNormalizationTraining(operator) => vec![
                Some(&operator.input_tensor),
                Some(&operator.scale_tensor),
                Some(&operator.bias_tensor),
                operator.fused_add_tensor.as_ref(),
            ],
            directml::Operator::BatchNormalizationGrad(operator) => vec![
                Some(&operator.input_tensor),
                Some(&operator.input_gradient_tensor),
                Some(&operator.mean_tensor),
                Some(&operator.variance_tensor),
                Some(&operator.scale_tensor),
            ],
            directml::Operator::BatchNormalizationTrainingGrad(operator) => vec![
                Some(&operator.input_tensor),
                Some(&operator.input_gradient_tensor),
                Some(&operator.mean_tensor),
                Some(&operator.variance_tensor),
                Some(&operator.scale_tensor),
            ],
        };
        tensors
            .into_iter()
            .map(|tensor| tensor.map(super::directml::core_desc))
            .collect()
    }

    /// Accumulation dtype: f64 if the tensor or the requested type is f64, otherwise f32.
    ///
    /// The scale counts, too, if the output has its dtype.
    pub(crate) fn computed_in(&self) -> DType {
        let dtype = |position: usize| Some(self.inputs().get(position)?.as_ref()?.dtype);
        let (x, scale) = (dtype(0), dtype(1));
        let Self::Onnx { operator, .. } = self else {
            return DType::F32;
        };
        const DOUBLE: i64 = 11;
        let asked = match operator {
            onnx::Operator::GroupNormalization(operator) => operator.stash_type == DOUBLE,
            onnx::Operator::RmsNormalization(operator) => {
                operator.stash_type == DOUBLE || scale == Some(DType::F64)
            }
            onnx::Operator::SimplifiedLayerNormalization(operator) => {
                operator.stash_type == DOUBLE || scale == Some(DType::F64)
            }
            _ => false,
        };
        match asked || x == Some(DType::F64) {
            true => DType::F64,
            false => DType::F32,
        }
    }
}
