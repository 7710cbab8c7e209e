//! Shared lowering of the two operators with a skip connection.

use cubenorm_core::{Epsilon, Layout, ResidualPlace, Statistics, TensorDesc, WrittenStatistics};

use super::node::Node;
use crate::builder::{Half, epsilon};
use crate::{Normalize, OperatorError, Program};

pub(super) struct Skip {
    pub epsilon: f32,
    pub statistics: Statistics,
    /// Position of the bias after the scale.
    pub beta: Option<usize>,
    /// Position of the bias of the input.
    pub bias: usize,
}

impl Skip {
    /// Inputs: tensor, skip and gamma, then by position. Outputs: result, mean, reciprocal deviation
    /// and sum.
    pub(super) fn lower(self, mut node: Node<'_>) -> Result<Program, OperatorError> {
        let input = node.required(0)?;
        let shape = input.shape();
        let (&[_, hidden] | &[_, _, hidden]) = shape else {
            return Err(node.rank("input", "2 or 3".into(), shape.len()));
        };
        let rank = shape.len();
        for position in [Some(1), Some(2), self.beta, Some(self.bias)] {
            let Some(position) = position else { continue };
            node.expect_dtype_of(position, 0)?;
            if position != 1 {
                node.expect_shape(position, &[hidden])?;
            }
        }
        expect_skip(&node, shape)?;
        let epsilon = epsilon(node.operator(), "epsilon", self.epsilon)?;
        let mut rows = shape.to_vec();
        rows[rank - 1] = 1;
        let rows = TensorDesc::new(Layout::contiguous(rows), input.dtype.accumulation());
        for position in [1, 2] {
            node.expect_statistics(position, rows.shape())?;
        }

        let result = TensorDesc::contiguous(shape, input.dtype);
        let input = node.read(0)?;
        let skip = node.read(1)?;
        let gamma = node.read(2)?;
        let beta = match self.beta {
            Some(position) => node.read_given(position)?,
            None => None,
        };
        let bias = node.read_given(self.bias)?;
        let output = node.write(0, result.clone())?;
        let sum = node.write_wanted(3, result.clone())?;
        let axes = [rank - 1];
        let step = match bias {
            None => Normalize::new(&input, axes, self.statistics, epsilon, &output)
                .with_residual(Some(&skip), ResidualPlace::Input)
                .with_sum(sum.as_ref()),
            Some(bias) => {
                let sum = match sum {
                    Some(sum) => sum,
                    None => node.builder.temporary("input_skip_bias_sum", result)?,
                };
                // There is no division, so epsilon does not matter.
                let no_epsilon = Epsilon::InsideSqrt(0.0);
                let add = Normalize::new(&input, axes, Statistics::None, no_epsilon, &sum)
                    .with_residual(Some(&skip), ResidualPlace::Input)
                    .with_bias(Some(&bias));
                node.builder.normalize(add)?;
                Normalize::new(&sum, axes, self.statistics, epsilon, &output)
            }
        };
        let step = step.with_scale(Some(&gamma)).with_bias(beta.as_ref());
        if !node.wants(1) && !node.wants(2) {
            node.builder.normalize(step)?;
            return Ok(node.builder.finish());
        }
        let written = WrittenStatistics::MeanRstd;
        let pairs = node.builder.normalize_with_statistics(step, written)?;
        for (position, half) in [(1, Half::Mean), (2, Half::Spread)] {
            if let Some(output) = node.write_wanted(position, rows.clone())? {
                node.builder.unpair(&pairs, half, None, &output)?;
            }
        }
        Ok(node.builder.finish())
    }
}

/// Shape of the skip: the input's, with an optional batch of 1 or none.
fn expect_skip(node: &Node<'_>, shape: &[usize]) -> Result<(), OperatorError> {
    let skip = node.required(1)?;
    let without_batch = &shape[shape.len() - 2..];
    let fits = skip.shape() == shape
        || shape.len() == 3
            && (skip.shape() == without_batch || skip.shape() == [&[1], without_batch].concat());
    if fits {
        return Ok(());
    }
    let expected = match shape.len() {
        3 => format!("those of input, {shape:?}, with a batch of 1 or none where it is repeated"),
        _ => format!("those of input, {shape:?}"),
    };
    Err(node.sizes(1, skip, expected))
}
