use cubenorm_core::{DType, Statistics, TensorDesc};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use super::stash::stash_dtype;
use super::trailing::Trailing;
use crate::builder::Half;
use crate::{OperatorError, Program};

pub(super) const OPERATOR: &str = "LayerNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("X", Presence::Required),
        ("Scale", Presence::Required),
        ("B", Presence::Optional),
    ],
    outputs: &["Y", "Mean", "InvStdDev"],
};

/// LayerNormalization, since opset 17: over the dimensions from `axis` to the last.
///
/// ```text
/// InvStdDev = 1 / sqrt(Var + epsilon)
/// Y = (X - Mean) * InvStdDev * Scale + B
/// ```
///
/// Inputs: `X`, `Scale` and optionally `B`, of one dtype. Scale and bias broadcast to `X`, and may
/// be scalars. Outputs: `Y` and optionally `Mean` and `InvStdDev`, of `X`'s shape with 1 from
/// `axis` on. `stash_type` is their dtype: 1 for `f32`, 16 for `bf16`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNormalization {
    /// First dimension that is normalized over, from `-rank` to `rank - 1`.
    pub axis: i64,
    /// Value added to the variance.
    pub epsilon: f32,
    /// Dtype of `Mean` and `InvStdDev`.
    pub stash_type: i64,
}

impl Default for LayerNormalization {
    /// Normalizes the last dimension, with epsilon 1e-5 and `f32` statistics.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: DEFAULT_EPSILON,
            stash_type: 1,
        }
    }
}

impl LayerNormalization {
    pub(super) fn from_attributes(
        _: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            axis: attributes.int("axis", -1)?,
            epsilon: attributes.float("epsilon", DEFAULT_EPSILON)?,
            stash_type: attributes.int("stash_type", 1)?,
        })
    }

    /// Lowers to one normalization, and a copy for each wanted statistic.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the axis is out of range, if a parameter does not broadcast or has
    /// another dtype, if the stash type is unknown, and by the rules of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let node = Node::new(&SIGNATURE, inputs, wanted)?;
        node.expect_dtype_of(1, 0)?;
        Trailing {
            axis: self.axis,
            epsilon: self.epsilon,
            stash: stash_dtype(OPERATOR, self.stash_type, &[DType::F32, DType::BF16])?,
            statistics: Statistics::MeanVariance,
            outputs: &[(1, Half::Mean), (2, Half::Spread)],
        }
        .lower(node)
    }
}
