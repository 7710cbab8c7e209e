use cubenorm_core::{Epsilon, Statistics, TensorDesc};

use super::attribute::Attributes;
use super::node::{Node, Presence, Signature};
use crate::{Normalize, OperatorError, Program};

pub(super) const OPERATOR: &str = "LpNormalization";

static SIGNATURE: Signature = Signature {
    operator: OPERATOR,
    inputs: &[("input", Presence::Required)],
    outputs: &["output"],
};

/// LpNormalization, since opset 1: each vector along `axis` by its norm.
///
/// ```text
/// output = input / sum(|input|^p)^(1/p)
/// ```
///
/// The output is 0 if the norm is 0. Input `input`, output `output`.
#[derive(Debug, Clone, PartialEq)]
pub struct LpNormalization {
    /// Dimension of the norm, from `-rank` to `rank - 1`.
    pub axis: i64,
    /// Order of the norm, 1 or 2.
    pub p: i64,
}

impl Default for LpNormalization {
    /// Euclidean norm over the last dimension.
    fn default() -> Self {
        Self { axis: -1, p: 2 }
    }
}

impl LpNormalization {
    pub(super) fn from_attributes(
        _: i64,
        attributes: &Attributes<'_>,
    ) -> Result<Self, OperatorError> {
        Ok(Self {
            axis: attributes.int("axis", -1)?,
            p: attributes.int("p", 2)?,
        })
    }

    /// Lowers to one normalization.
    ///
    /// # Errors
    ///
    /// An [`OperatorError`] if the axis is out of range or the order is unknown, and by the rules
    /// of [the module](super).
    pub fn lower(
        &self,
        inputs: &[Option<TensorDesc>],
        wanted: &[bool],
    ) -> Result<Program, OperatorError> {
        let mut node = Node::new(&SIGNATURE, inputs, wanted)?;
        let x = node.required(0)?;
        let axis = node.axis("axis", self.axis)?;
        let statistics = match self.p {
            1 => Statistics::L1Norm,
            2 => Statistics::L2Norm,
            other => return Err(node.attribute("p", "1 or 2".into(), other)),
        };
        let input = node.read(0)?;
        let output = node.write(0, TensorDesc::contiguous(x.shape(), x.dtype))?;
        // The norms have no epsilon.
        let epsilon = Epsilon::InsideSqrt(0.0);
        let step = Normalize::new(&input, [axis], statistics, epsilon, &output);
        node.builder.normalize(step)?;
        Ok(node.builder.finish())
    }
}
