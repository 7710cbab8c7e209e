use cubenorm_core::{DType, Statistics, TensorDesc};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use super::stash::stash_dtype;
use super::trailing::Trailing;
use crate::builder::Half;
use crate::{OperatorError, Program};

pub(super) const OPERATOR: &str = "SimplifiedLayerNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[("X", Presence::Required), ("scale", Presence::Required)],
    outputs: &["Y", "inv_std_var"],
};

/// SimplifiedLayerNormalization, ONNX Runtime's RMS normalization in ONNX's own domain: over the
/// dimensions from `axis` to the last.
///
/// ```text
/// inv_std_var = 1 / sqrt(mean(X^2) + epsilon)
/// Y = X * inv_std_var * scale
/// ```
///
/// Inputs: `X`, and `scale`, which broadcasts to `X`, may be a scalar and may have another dtype.
/// Outputs: `Y`, of `X`'s shape and the scale's dtype, and optionally `inv_std_var`, of `X`'s shape
/// with 1 from `axis` on. `stash_type` is its dtype: 1 for `f32`, 11 for `f64`.
#[derive(Debug, Clone, PartialEq)]
pub struct SimplifiedLayerNormalization {
    /// First dimension that is normalized over, from `-rank` to `rank - 1`.
    pub axis: i64,
    /// Value added to the mean of squares.
    pub epsilon: f32,
    /// Dtype of `inv_std_var`, and minimum precision of the computation.
    pub stash_type: i64,
}

impl Default for SimplifiedLayerNormalization {
    /// Normalizes the last dimension, with epsilon 1e-5 and `f32` statistics.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: DEFAULT_EPSILON,
            stash_type: 1,
        }
    }
}

impl SimplifiedLayerNormalization {
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

    /// Lowers to one normalization, conversions if input and scale differ in dtype, and a copy if
    /// the statistics are wanted.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the axis is out of range, if the scale does not broadcast, if the
    /// stash type is unknown, and by the rules of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let node = Node::new(&SIGNATURE, inputs, wanted)?;
        Trailing {
            axis: self.axis,
            epsilon: self.epsilon,
            stash: stash_dtype(OPERATOR, self.stash_type, &[DType::F32, DType::F64])?,
            statistics: Statistics::MeanSquare,
            outputs: &[(1, Half::Spread)],
        }
        .lower(node)
    }
}
