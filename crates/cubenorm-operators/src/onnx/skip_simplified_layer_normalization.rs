use cubenorm_core::{Statistics, TensorDesc};

use super::DEFAULT_SKIP_EPSILON;
use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use super::skip::Skip;
use crate::{OperatorError, Program};

pub(super) const OPERATOR: &str = "SkipSimplifiedLayerNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[
        ("input", Presence::Required),
        ("skip", Presence::Required),
        ("gamma", Presence::Required),
        ("bias", Presence::Optional),
    ],
    outputs: &["output", "mean", "inv_std_var", "input_skip_bias_sum"],
};

/// SkipSimplifiedLayerNormalization of ONNX Runtime: a skip connection, then an RMS normalization
/// over the last dimension.
///
/// ```text
/// input_skip_bias_sum = input + skip + bias
/// inv_std_var = 1 / sqrt(mean(input_skip_bias_sum^2) + epsilon)
/// output = input_skip_bias_sum * inv_std_var * gamma
/// ```
///
/// Inputs: `input` of shape `[batch, sequence, hidden]` or `[tokens, hidden]`; `skip` of the same
/// shape, or repeated over the batch, with a batch of 1 or none; `gamma`, and optionally `bias`, of
/// shape `[hidden]`. All have one dtype. Outputs: `output`; optionally `inv_std_var`, of the
/// input's shape with 1 for the last dimension, in `f32` (`f64` for inputs of `f64`); optionally
/// `input_skip_bias_sum`. The schema has an output `mean` as well. It is refused, because the
/// operator does not compute it.
///
/// With a bias, the sum is rounded to the inputs' dtype before it is normalized.
#[derive(Debug, Clone, PartialEq)]
pub struct SkipSimplifiedLayerNormalization {
    /// Value added to the mean of squares.
    pub epsilon: f32,
}

impl Default for SkipSimplifiedLayerNormalization {
    /// Sets epsilon to 1e-12.
    fn default() -> Self {
        Self {
            epsilon: DEFAULT_SKIP_EPSILON,
        }
    }
}

impl SkipSimplifiedLayerNormalization {
    pub(super) fn from_attributes(
        _: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            epsilon: attributes.float("epsilon", DEFAULT_SKIP_EPSILON)?,
        })
    }

    /// Lowers to one normalization, an addition before it if there is a bias, and a copy if the
    /// statistic is wanted.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if a tensor has another shape or dtype, if the mean is wanted, and by
    /// the rules of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let node = Node::new(&SIGNATURE, inputs, wanted)?;
        if node.wants(1) {
            return Err(node.nothing_to_write(1, "the operator takes none"));
        }
        Skip {
            epsilon: self.epsilon,
            statistics: Statistics::MeanSquare,
            beta: None,
            bias: 3,
        }
        .lower(node)
    }
}
