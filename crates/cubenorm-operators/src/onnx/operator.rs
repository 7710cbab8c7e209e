use std::collections::BTreeMap;

use cubenorm_core::TensorDesc;

use super::attribute::Attributes;
use super::*;
use crate::{OperatorError, Program};

const ONNX: &[&str] = &["", "ai.onnx"];
const MICROSOFT: &[&str] = &["com.microsoft"];
const BOTH: &[&str] = &["", "ai.onnx", "com.microsoft"];

/// Each operator with its module, its domains, its first version, and its attributes in a version.
macro_rules! operators {
    ($($variant:ident in $module:ident: $domains:expr, $since:literal, $attributes:expr;)+) => {
        /// Any of the operators.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Operator {
            $(
                #[doc = concat!("See [`", stringify!($variant), "`].")]
                $variant($variant),
            )+
        }

        impl Operator {
            /// Converts a node to an operator: domain, name, imported opset of the domain, and
            /// attributes. The domain is `""` or `"ai.onnx"`, or `"com.microsoft"` for ONNX
            /// Runtime's operators. SimplifiedLayerNormalization is in both.
            ///
            /// The opset selects the latest version up to it. `consumed_inputs` and `is_test` of
            /// unsupported versions are ignored.
            ///
            /// # Errors
            ///
            /// An [`OperatorError`] if the domain does not have the operator in this opset, or if
            /// an attribute is unknown, missing or of another type. [`lower`](Self::lower) checks
            /// the values of attributes.
            pub fn from_node(
                domain: &str,
                op_type: &str,
                opset: i64,
                attributes: &BTreeMap<String, AttributeValue>,
            ) -> Result<Self, OperatorError> {
                match op_type {
                    $($module::OPERATOR if $domains.contains(&domain) => {
                        let operator = $module::OPERATOR;
                        if opset < $since {
                            let since = $since;
                            return Err(OperatorError::Opset { operator, opset, since });
                        }
                        let known: fn(i64) -> &'static [&'static str] = $attributes;
                        let attributes = Attributes::new(operator, known(opset), attributes)?;
                        $variant::from_attributes(opset, &attributes).map(Self::$variant)
                    })+
                    _ => Err(OperatorError::UnknownOperator {
                        domain: domain.into(),
                        op_type: op_type.into(),
                    }),
                }
            }

            /// Name of the operator in the specification.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $module::OPERATOR,)+
                }
            }

            /// Lowers the operator to a program.
            ///
            /// `inputs` are the formal parameters by position, `None` if an optional one is absent.
            /// `wanted` is true for each wanted formal output, by position. The first output must
            /// be wanted. Both lists may omit trailing entries.
            ///
            /// # Errors
            ///
            /// See each operator's `lower`.
            pub fn lower(
                &self,
                inputs: &[Option<TensorDesc>],
                wanted: &[bool],
            ) -> Result<Program, OperatorError> {
                match self {
                    $(Self::$variant(operator) => operator.lower(inputs, wanted),)+
                }
            }
        }
    };
}

operators! {
    BatchNormalization in batch_normalization: ONNX, 7, BatchNormalization::attributes;
    GroupNormalization in group_normalization: ONNX, 18, GroupNormalization::attributes;
    InstanceNormalization in instance_normalization: ONNX, 6, |_| &["epsilon"];
    LayerNormalization in layer_normalization: ONNX, 17, |_| &["axis", "epsilon", "stash_type"];
    LpNormalization in lp_normalization: ONNX, 1, |_| &["axis", "p"];
    MeanVarianceNormalization in mean_variance_normalization: ONNX, 9, |_| &["axes"];
    RmsNormalization in rms_normalization: ONNX, 23, |_| &["axis", "epsilon", "stash_type"];
    SimplifiedLayerNormalization in simplified_layer_normalization: BOTH, 1,
        |_| &["axis", "epsilon", "stash_type"];
    SkipLayerNormalization in skip_layer_normalization: MICROSOFT, 1, |_| &["epsilon"];
    SkipSimplifiedLayerNormalization in skip_simplified_layer_normalization: MICROSOFT, 1,
        |_| &["epsilon"];
}

impl Operator {
    /// True if the set of outputs selects training, wanted or not: a BatchNormalization before
    /// version 14.
    pub fn trains_by_outputs(&self) -> bool {
        matches!(self, Self::BatchNormalization(norm) if norm.trains_by_outputs())
    }
}
