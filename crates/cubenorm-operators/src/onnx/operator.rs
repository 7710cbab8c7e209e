use std::collections::BTreeMap;

use cubenorm_core::TensorDesc;

use super::attribute::Attributes;
use super::{
    AttributeValue, BatchNormalization, GroupNormalization, InstanceNormalization,
    LayerNormalization, LpNormalization, MeanVarianceNormalization, RmsNormalization,
    SimplifiedLayerNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization,
};
use super::{
    batch_normalization, group_normalization, instance_normalization, layer_normalization,
    lp_normalization, mean_variance_normalization, rms_normalization,
    simplified_layer_normalization, skip_layer_normalization, skip_simplified_layer_normalization,
};
use crate::{OperatorError, Program};

/// Any of the operators.
#[derive(Debug, Clone, PartialEq)]
pub enum Operator {
    /// See [`BatchNormalization`].
    BatchNormalization(BatchNormalization),
    /// See [`GroupNormalization`].
    GroupNormalization(GroupNormalization),
    /// See [`InstanceNormalization`].
    InstanceNormalization(InstanceNormalization),
    /// See [`LayerNormalization`].
    LayerNormalization(LayerNormalization),
    /// See [`LpNormalization`].
    LpNormalization(LpNormalization),
    /// See [`MeanVarianceNormalization`].
    MeanVarianceNormalization(MeanVarianceNormalization),
    /// See [`RmsNormalization`].
    RmsNormalization(RmsNormalization),
    /// See [`SimplifiedLayerNormalization`].
    SimplifiedLayerNormalization(SimplifiedLayerNormalization),
    /// See [`SkipLayerNormalization`].
    SkipLayerNormalization(SkipLayerNormalization),
    /// See [`SkipSimplifiedLayerNormalization`].
    SkipSimplifiedLayerNormalization(SkipSimplifiedLayerNormalization),
}

impl Operator {
    /// True if the set of outputs selects training, wanted or not: a BatchNormalization before
    /// version 14.
    pub fn trains_by_outputs(&self) -> bool {
        matches!(self, Self::BatchNormalization(norm) if norm.trains_by_outputs())
    }

    /// Converts a node to an operator: domain, name, imported opset of the domain, and attributes.
    /// The domain is `""` or `"ai.onnx"`, or `"com.microsoft"` for ONNX Runtime's operators.
    /// SimplifiedLayerNormalization is in both.
    ///
    /// The opset selects the latest version up to it. `consumed_inputs` and `is_test` of
    /// unsupported versions are ignored.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the domain does not have the operator in this opset, or if an
    /// attribute is unknown, missing or of another type. [`lower`](Self::lower) checks the values
    /// of attributes.
    pub fn from_node(
        domain: &str,
        op_type: &str,
        opset: i64,
        attributes: &BTreeMap<String, AttributeValue>,
    ) -> Result<Self, OperatorError> {
        let checked = |operator, since, known: &[&'static str]| {
            if opset < since {
                return Err(OperatorError::Opset {
                    operator,
                    opset,
                    since,
                });
            }
            Attributes::new(operator, known, attributes)
        };
        let onnx = matches!(domain, "" | "ai.onnx");
        let microsoft = domain == "com.microsoft";
        match op_type {
            batch_normalization::OPERATOR if onnx => {
                let known = BatchNormalization::attributes(opset);
                let attributes = checked(batch_normalization::OPERATOR, 7, known)?;
                BatchNormalization::from_attributes(opset, &attributes)
                    .map(Self::BatchNormalization)
            }
            group_normalization::OPERATOR if onnx => {
                let known = GroupNormalization::attributes(opset);
                let attributes = checked(group_normalization::OPERATOR, 18, known)?;
                GroupNormalization::from_attributes(opset, &attributes)
                    .map(Self::GroupNormalization)
            }
            instance_normalization::OPERATOR if onnx => {
                let known = InstanceNormalization::ATTRIBUTES;
                let attributes = checked(instance_normalization::OPERATOR, 6, known)?;
                InstanceNormalization::from_attributes(&attributes).map(Self::InstanceNormalization)
            }
            layer_normalization::OPERATOR if onnx => {
                let known = LayerNormalization::ATTRIBUTES;
                let attributes = checked(layer_normalization::OPERATOR, 17, known)?;
                LayerNormalization::from_attributes(&attributes).map(Self::LayerNormalization)
            }
            lp_normalization::OPERATOR if onnx => {
                let known = LpNormalization::ATTRIBUTES;
                let attributes = checked(lp_normalization::OPERATOR, 1, known)?;
                LpNormalization::from_attributes(&attributes).map(Self::LpNormalization)
            }
            mean_variance_normalization::OPERATOR if onnx => {
                let known = MeanVarianceNormalization::ATTRIBUTES;
                let attributes = checked(mean_variance_normalization::OPERATOR, 9, known)?;
                MeanVarianceNormalization::from_attributes(&attributes)
                    .map(Self::MeanVarianceNormalization)
            }
            rms_normalization::OPERATOR if onnx => {
                let known = RmsNormalization::ATTRIBUTES;
                let attributes = checked(rms_normalization::OPERATOR, 23, known)?;
                RmsNormalization::from_attributes(&attributes).map(Self::RmsNormalization)
            }
            simplified_layer_normalization::OPERATOR if onnx || microsoft => {
                let known = SimplifiedLayerNormalization::ATTRIBUTES;
                let attributes = checked(simplified_layer_normalization::OPERATOR, 1, known)?;
                SimplifiedLayerNormalization::from_attributes(&attributes)
                    .map(Self::SimplifiedLayerNormalization)
            }
            skip_layer_normalization::OPERATOR if microsoft => {
                let known = SkipLayerNormalization::ATTRIBUTES;
                let attributes = checked(skip_layer_normalization::OPERATOR, 1, known)?;
                SkipLayerNormalization::from_attributes(&attributes)
                    .map(Self::SkipLayerNormalization)
            }
            skip_simplified_layer_normalization::OPERATOR if microsoft => {
                let known = SkipSimplifiedLayerNormalization::ATTRIBUTES;
                let attributes = checked(skip_simplified_layer_normalization::OPERATOR, 1, known)?;
                SkipSimplifiedLayerNormalization::from_attributes(&attributes)
                    .map(Self::SkipSimplifiedLayerNormalization)
            }
            _ => Err(OperatorError::UnknownOperator {
                domain: domain.into(),
                op_type: op_type.into(),
            }),
        }
    }

    /// Name of the operator in the specification.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BatchNormalization(_) => batch_normalization::OPERATOR,
            Self::GroupNormalization(_) => group_normalization::OPERATOR,
            Self::InstanceNormalization(_) => instance_normalization::OPERATOR,
            Self::LayerNormalization(_) => layer_normalization::OPERATOR,
            Self::LpNormalization(_) => lp_normalization::OPERATOR,
            Self::MeanVarianceNormalization(_) => mean_variance_normalization::OPERATOR,
            Self::RmsNormalization(_) => rms_normalization::OPERATOR,
            Self::SimplifiedLayerNormalization(_) => simplified_layer_normalization::OPERATOR,
            Self::SkipLayerNormalization(_) => skip_layer_normalization::OPERATOR,
            Self::SkipSimplifiedLayerNormalization(_) => {
                skip_simplified_layer_normalization::OPERATOR
            }
        }
    }

    /// Lowers the operator to a program.
    ///
    /// `inputs` are the formal parameters by position, `None` if an optional one is absent.
    /// `wanted` is true for each wanted formal output, by position. The first output must be
    /// wanted. Both lists may omit trailing entries.
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
            Self::BatchNormalization(operator) => operator.lower(inputs, wanted),
            Self::GroupNormalization(operator) => operator.lower(inputs, wanted),
            Self::InstanceNormalization(operator) => operator.lower(inputs, wanted),
            Self::LayerNormalization(operator) => operator.lower(inputs, wanted),
            Self::LpNormalization(operator) => operator.lower(inputs, wanted),
            Self::MeanVarianceNormalization(operator) => operator.lower(inputs, wanted),
            Self::RmsNormalization(operator) => operator.lower(inputs, wanted),
            Self::SimplifiedLayerNormalization(operator) => operator.lower(inputs, wanted),
            Self::SkipLayerNormalization(operator) => operator.lower(inputs, wanted),
            Self::SkipSimplifiedLayerNormalization(operator) => operator.lower(inputs, wanted),
        }
    }
}
