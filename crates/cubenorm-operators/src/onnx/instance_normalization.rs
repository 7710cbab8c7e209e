use cubenorm_core::{Statistics, TensorDesc};

use super::DEFAULT_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature, along};
use crate::builder::epsilon;
use crate::{Normalize, OperatorError, Program};

pub(super) const OPERATOR: &str = "InstanceNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("input", Presence::Required),
        ("scale", Presence::Required),
        ("B", Presence::Required),
    ],
    outputs: &["output"],
};

/// InstanceNormalization, since opset 6: each channel of each instance by its own mean and variance.
///
/// ```text
/// output = scale * (input - mean) / sqrt(variance + epsilon) + B
/// ```
///
/// Inputs `input` of shape `[N, C, D1, ..., Dn]`, `scale` and `B` of shape `[C]`, all of one dtype;
/// output `output`.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceNormalization {
    /// Value added to the variance.
    pub epsilon: f32,
}

impl Default for InstanceNormalization {
    /// Sets epsilon to 1e-5.
    fn default() -> Self {
        Self {
            epsilon: DEFAULT_EPSILON,
        }
    }
}

impl InstanceNormalization {
    pub(super) fn from_attributes(
        _: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            epsilon: attributes.float("epsilon", DEFAULT_EPSILON)?,
        })
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the input has no channels, if a parameter does not have one element
    /// for each or has another dtype, and by the rules of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let mut node = Node::new(&SIGNATURE, inputs, wanted)?;
        let x = node.required(0)?;
        let &[_, channels, ..] = x.shape() else {
            let expected = "2 to 8: instance, channel and any others".into();
            return Err(node.rank("input", expected, x.layout.rank()));
        };
        for position in [1, 2] {
            node.expect_dtype_of(position, 0)?;
            node.expect_shape(position, &[channels])?;
        }
        let epsilon = epsilon(OPERATOR, "epsilon", self.epsilon)?;
        let rank = x.layout.rank();
        let input = node.read(0)?;
        let scale = along(&node.read(1)?, 1, rank);
        let bias = along(&node.read(2)?, 1, rank);
        let output = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        let axes: Vec<usize> = (2..rank).collect();
        let step = Normalize::new(&input, axes, Statistics::MeanVariance, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(Some(&bias));
        node.builder.normalize(step)?;
        Ok(node.builder.finish())
    }
}
