use cubenorm_core::{Epsilon, Statistics, TensorDesc};

use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use crate::{Normalize, OperatorError, Program};

pub(super) const OPERATOR: &str = "MeanVarianceNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[("X", Presence::Required)],
    outputs: &["Y"],
};

const DEFAULT_AXES: [i64; 3] = [0, 2, 3];

/// Value that the function body adds to the deviation.
const EPSILON: Epsilon = Epsilon::AddedToDeviation(1e-9);

/// MeanVarianceNormalization, since opset 9: over `axes`.
///
/// ```text
/// Y = (X - mean) / (sqrt(variance) + 1e-9)
/// ```
///
/// Input `X`, output `Y`.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanVarianceNormalization {
    /// Dimensions that are reduced, from `-rank` to `rank - 1`, without duplicates. An empty list
    /// means all, as in the reductions of the function body.
    pub axes: Vec<i64>,
}

impl Default for MeanVarianceNormalization {
    /// Axes 0, 2, 3: the statistics of each channel.
    fn default() -> Self {
        Self {
            axes: DEFAULT_AXES.to_vec(),
        }
    }
}

impl MeanVarianceNormalization {
    pub(super) fn from_attributes(
        _: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            axes: attributes.ints("axes", &DEFAULT_AXES)?,
        })
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if an axis is out of range or listed twice, and by the rules of [the
    /// module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let mut node = Node::new(&SIGNATURE, inputs, wanted)?;
        let x = node.required(0)?;
        let mut axes = Vec::with_capacity(self.axes.len());
        for &axis in &self.axes {
            let counted = node.axis("axes", axis)?;
            if axes.contains(&counted) {
                let expected = "no axis more than once".into();
                return Err(node.attribute("axes", expected, format!("{:?}", self.axes)));
            }
            axes.push(counted);
        }
        if axes.is_empty() {
            axes.extend(0..x.layout.rank());
        }
        let input = node.read(0)?;
        let output = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        let step = Normalize::new(&input, axes, Statistics::MeanVariance, EPSILON, &output);
        node.builder.normalize(step)?;
        Ok(node.builder.finish())
    }
}
