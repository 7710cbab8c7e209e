//! An operator with the tensors that it is given, and its way over a program and over the formulas.

use cubenorm_core::{DType, TensorDesc};
use cubenorm_operators::{OperatorError, Program, directml, onnx};
use cubenorm_reference::operators::{self, Tensor};
use cubenorm_tests::estimate::Estimate;

/// An operator as somebody would describe it.
#[derive(Debug, Clone)]
pub enum Description {
    /// DirectML's operators have the tensors in them.
    DirectMl(Box<directml::Operator>),
    /// ONNX's are given them.
    Onnx {
        operator: onnx::Operator,
        /// By formal position.
        inputs: Vec<Option<TensorDesc>>,
        /// By formal position.
        wanted: Vec<bool>,
    },
}

/// What an input is, and so which numbers it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What is normalized, or added to it.
    Tensor,
    Gradient,
    Scale,
    Bias,
    Mean,
    /// Not negative.
    Variance,
}

impl Description {
    /// The operator's name.
    pub fn name(&self) -> &'static str {
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

    pub fn lower(&self) -> Result<Program, OperatorError> {
        match self {
            Self::DirectMl(operator) => operator.lower(),
            Self::Onnx {
                operator,
                inputs,
                wanted,
            } => operator.lower(inputs, wanted),
        }
    }

    /// What the formulas give for the inputs: the outputs by formal position.
    pub fn formula(&self, inputs: &[Option<&Tensor<Estimate>>]) -> Vec<Option<Vec<Estimate>>> {
        match self {
            Self::DirectMl(operator) => operators::directml(operator, inputs),
            Self::Onnx {
                operator, wanted, ..
            } => operators::onnx(operator, inputs, wanted),
        }
    }

    /// What the input at a position is.
    pub fn kind(&self, position: usize) -> Kind {
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

    /// The inputs by formal position.
    pub fn inputs(&self) -> Vec<Option<TensorDesc>> {
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

    /// The dtype that everything is computed in: `f64` where tensors or the type asked for are that,
    /// else `f32`. Parameters have a say where the output has their type.
    pub fn computed_in(&self) -> DType {
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
