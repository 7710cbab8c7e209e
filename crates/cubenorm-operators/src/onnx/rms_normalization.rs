use cubenorm_core::{DType, Statistics, TensorDesc};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use super::stash::stash_dtype;
use super::trailing::Trailing;
use crate::{OperatorError, Program};

pub(super) const OPERATOR: &str = "RMSNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[("X", Presence::Required), ("scale", Presence::Required)],
    outputs: &["Y"],
};

/// RMSNormalization, since opset 23: over the dimensions from `axis` to the last.
///
/// ```text
/// Y = X / sqrt(mean(X^2) + epsilon) * scale
/// ```
///
/// Inputs: `X`, and `scale`, which broadcasts to `X`, may be a scalar and may have another dtype.
/// Output: `Y`, of `X`'s shape and, as specified, the scale's dtype.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNormalization {
    /// First dimension that is normalized over, from `-rank` to `rank - 1`.
    pub axis: i64,
    /// Value added to the mean of squares.
    pub epsilon: f32,
    /// Minimum precision of the computation: 1 for `f32`, 10 for `f16`, 11 for `f64`, 16 for
    /// `bf16`.
    pub stash_type: i64,
}

impl Default for RmsNormalization {
    /// Normalizes the last dimension, with epsilon 1e-5, computed in `f32`.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: DEFAULT_EPSILON,
            stash_type: 1,
        }
    }
}

impl RmsNormalization {
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

    /// Lowers to one normalization, and conversions if input and scale differ in dtype.
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
            stash: stash_dtype(OPERATOR, self.stash_type, &DType::ALL)?,
            statistics: Statistics::MeanSquare,
            outputs: &[],
        }
        .lower(node)
    }
}
