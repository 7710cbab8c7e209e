use serde::{Deserialize, Serialize};

use super::*;
use crate::{OperatorError, Program};

/// Each operator with its name in files, with and without prefix.
macro_rules! operators {
    ($($name:literal, $short:literal => $variant:ident;)+) => {
        /// `DML_OPERATOR_DESC`: any of the operators.
        ///
        /// Serialized as `{ "Type": "DML_OPERATOR_BATCH_NORMALIZATION", "Desc": { ... } }`. The
        /// prefix `DML_OPERATOR_` is optional when reading.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "Type", content = "Desc")]
        pub enum Operator {
            $(
                #[doc = concat!("See [`", stringify!($variant), "`].")]
                #[serde(rename = $name, alias = $short)]
                $variant($variant),
            )+
        }

        impl Operator {
            /// Lowers the operator to a program.
            ///
            /// # Errors
            ///
            /// See each operator's `lower`.
            pub fn lower(&self) -> Result<Program, OperatorError> {
                match self {
                    $(Self::$variant(operator) => operator.lower(),)+
                }
            }
        }
    };
}

operators! {
    "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION", "MEAN_VARIANCE_NORMALIZATION" => MeanVarianceNormalization;
    "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION1", "MEAN_VARIANCE_NORMALIZATION1" => MeanVarianceNormalization1;
    "DML_OPERATOR_MEAN_VARIANCE_NORMALIZATION2", "MEAN_VARIANCE_NORMALIZATION2" => MeanVarianceNormalization2;
    "DML_OPERATOR_BATCH_NORMALIZATION", "BATCH_NORMALIZATION" => BatchNormalization;
    "DML_OPERATOR_BATCH_NORMALIZATION_TRAINING", "BATCH_NORMALIZATION_TRAINING" => BatchNormalizationTraining;
    "DML_OPERATOR_BATCH_NORMALIZATION_GRAD", "BATCH_NORMALIZATION_GRAD" => BatchNormalizationGrad;
    "DML_OPERATOR_BATCH_NORMALIZATION_TRAINING_GRAD", "BATCH_NORMALIZATION_TRAINING_GRAD" => BatchNormalizationTrainingGrad;
}
