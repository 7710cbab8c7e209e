use serde::{Deserialize, Serialize};

use super::{
    BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining,
    BatchNormalizationTrainingGrad, MeanVarianceNormalization, MeanVarianceNormalization1,
    MeanVarianceNormalization2,
};
use crate::{OperatorError, Program};

/// `DML_OPERATOR_DESC`: any of the operators.
///
/// Serialized as `{ "Type": "DML_OPERATOR_BATCH_NORMALIZATION", "Desc": { ... } }`. The prefix
/// `DML_OPERATOR_` is optional when reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "Type", content = "Desc")]
pub enum Operator {
    /// See [`MeanVarianceNormalization`].
    #[serde(
        rename = "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION",
        alias = "MEAN_VARIANCE_NORMALIZATION"
    )]
    MeanVarianceNormalization(MeanVarianceNormalization),
    /// See [`MeanVarianceNormalization1`].
    #[serde(
        rename = "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION1",
        alias = "MEAN_VARIANCE_NORMALIZATION1"
    )]
    MeanVarianceNormalization1(MeanVarianceNormalization1),
    /// See [`MeanVarianceNormalization2`].
    #[serde(
        rename = "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION2",
        alias = "MEAN_VARIANCE_NORMALIZATION2"
    )]
    MeanVarianceNormalization2(MeanVarianceNormalization2),
    /// See [`BatchNormalization`].
    #[serde(
        rename = "DML_OPERATOR_BATCH_NORMALIZATION",
        alias = "BATCH_NORMALIZATION"
    )]
    BatchNormalization(BatchNormalization),
    /// See [`BatchNormalizationTraining`].
    #[serde(
        rename = "DML_OPERATOR_BATCH_NORMALIZATION_TRAINING",
        alias = "BATCH_NORMALIZATION_TRAINING"
    )]
    BatchNormalizationTraining(BatchNormalizationTraining),
    /// See [`BatchNormalizationGrad`].
    #[serde(
        rename = "DML_OPERATOR_BATCH_NORMALIZATION_GRAD",
        alias = "BATCH_NORMALIZATION_GRAD"
    )]
    BatchNormalizationGrad(BatchNormalizationGrad),
    /// See [`BatchNormalizationTrainingGrad`].
    #[serde(
        rename = "DML_OPERATOR_BATCH_NORMALIZATION_TRAINING_GRAD",
        alias = "BATCH_NORMALIZATION_TRAINING_GRAD"
    )]
    BatchNormalizationTrainingGrad(BatchNormalizationTrainingGrad),
}

impl Operator {
    /// Lowers the operator to a program.
    ///
    /// # Errors
    ///
    /// See each operator's `lower`.
    pub fn lower(&self) -> Result<Program, OperatorError> {
        match self {
            Self::MeanVarianceNormalization(operator) => operator.lower(),
            Self::MeanVarianceNormalization1(operator) => operator.lower(),
            Self::MeanVarianceNormalization2(operator) => operator.lower(),
            Self::BatchNormalization(operator) => operator.lower(),
            Self::BatchNormalizationTraining(operator) => operator.lower(),
            Self::BatchNormalizationGrad(operator) => operator.lower(),
            Self::BatchNormalizationTrainingGrad(operator) => operator.lower(),
        }
    }
}
