//! Shared lowering of LayerNormalization, RMSNormalization and SimplifiedLayerNormalization:
//! statistics over the dimensions from `axis` on.

use cubenorm_core::{DType, Layout, Statistics, TensorDesc, WrittenStatistics};

use super::node::Node;
use super::stash::compute_dtype;
use crate::builder::{Half, epsilon, parameter_dtype};
use crate::{Normalize, OperatorError, Program};

pub(super) struct Trailing {
    pub axis: i64,
    pub epsilon: f32,
    pub stash: DType,
    pub statistics: Statistics,
    /// Positions of the outputs of statistics.
    pub outputs: &'static [(usize, Half)],
}

impl Trailing {
    /// Inputs: tensor, scale and, if the operator has one, bias. The output has the scale's dtype.
    pub(super) fn lower(self, mut node: Node<'_>) -> Result<Program, OperatorError> {
        let x = node.required(0)?;
        let y_dtype = node.required(1)?.dtype;
        let first = node.axis("axis", self.axis)?;
        let epsilon = epsilon(node.operator(), "epsilon", self.epsilon)?;
        node.expect_dtype_of(2, 1)?;
        node.expect_broadcast(1)?;
        node.expect_broadcast(2)?;
        let rank = x.layout.rank();
        let mut rows = x.shape().to_vec();
        rows[first..].fill(1);
        for &(position, _) in self.outputs {
            node.expect_statistics(position, &rows)?;
        }

        let compute = compute_dtype(x.dtype, y_dtype, self.stash);
        let input = node.read(0)?;
        let input = node.builder.converted(input, compute)?;
        let scale = node.read(1)?;
        let bias = node.read_given(2)?;
        let common = parameter_dtype(compute, &[Some(&scale), bias.as_ref()]);
        let scale = node.builder.converted(scale, common)?;
        let bias = bias
            .map(|bias| node.builder.converted(bias, common))
            .transpose()?;
        let y = node.write(0, TensorDesc::contiguous(x.shape(), y_dtype))?;
        let output = match y_dtype == compute {
            true => y.clone(),
            false => {
                let wide = TensorDesc::contiguous(x.shape(), compute);
                node.builder.temporary("unrounded", wide)?
            }
        };
        let axes: Vec<usize> = (first..rank).collect();
        let step = Normalize::new(&input, axes, self.statistics, epsilon, &output)
            .with_scale(Some(&scale))
            .with_bias(bias.as_ref());

        let rows = TensorDesc::new(Layout::contiguous(rows), self.stash);
        if self
            .outputs
            .iter()
            .any(|&(position, _)| node.wants(position))
        {
            let written = WrittenStatistics::MeanRstd;
            let pairs = node.builder.normalize_with_statistics(step, written)?;
            for &(position, half) in self.outputs {
                if let Some(output) = node.write_wanted(position, rows.clone())? {
                    node.builder.unpair(&pairs, half, None, &output)?;
                }
            }
        } else {
            node.builder.normalize(step)?;
        }
        if output.slot != y.slot {
            node.builder.copy(&output, &y)?;
        }
        Ok(node.builder.finish())
    }
}
