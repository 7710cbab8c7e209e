//! ONNX operators built from genes.

use cubenorm_core::{DType, Layout, MAX_RANK, TensorDesc};
use cubenorm_operators::onnx::{
    BatchNormalization, BatchNormalizationVersion, GroupNormalization, GroupNormalizationVersion,
    InstanceNormalization, LayerNormalization, LpNormalization, MeanVarianceNormalization,
    Operator, RmsNormalization, SimplifiedLayerNormalization, SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
};

use super::description::Description;
use super::genes::Genes;

/// Number of operators.
pub(crate) const COUNT: usize = 10;

/// An operator, its inputs by position, and flags of its requested outputs.
type Node = (Operator, Vec<Option<TensorDesc>>, Vec<bool>);

/// `TensorProto.DataType`
fn code(dtype: DType) -> i64 {
    match dtype {
        DType::F32 => 1,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::BF16 => 16,
    }
}

impl Genes {
    fn given_input(&self, position: usize, shape: &[usize], dtype: DType) -> Option<TensorDesc> {
        let layout = self.layouts[position].layout(shape);
        Some(TensorDesc::new(layout, dtype))
    }

    /// An axis for a rank, counted from the front or from the back.
    fn axis(&self, rank: usize) -> (usize, i64) {
        let axis = self.numbers[0] % rank;
        (axis, self.signed(axis, rank))
    }

    fn signed(&self, axis: usize, rank: usize) -> i64 {
        let from_last = if self.flags[0] { rank as i64 } else { 0 };
        axis as i64 - from_last
    }

    /// Builds the ONNX operator with this number, counted from 0.
    pub(crate) fn onnx(&self, number: usize) -> Description {
        let (operator, inputs, mut wanted) = match number {
            0 => self.layer_normalization(),
            1 => self.rms_normalization(),
            2 => self.simplified_layer_normalization(),
            3 => self.mean_variance_normalization(),
            4 => self.lp_normalization(),
            5 => self.instance_normalization(),
            6 => self.group_normalization(),
            7 => self.batch_normalization(),
            8 => self.skip_layer_normalization(),
            _ => self.skip_simplified_layer_normalization(),
        };
        // Statistics over no elements are refused, unlike statistics of no rows.
        let lowers = |wanted: &[bool]| operator.lower(&inputs, wanted).is_ok();
        let is_empty = inputs[0].as_ref().is_some_and(|x| x.shape().contains(&0));
        if is_empty && !lowers(&wanted) {
            wanted.truncate(1);
        }
        Description::Onnx {
            operator,
            inputs,
            wanted,
        }
    }

    fn layer_normalization(&self) -> Node {
        let shape = &self.sizes.shape_or_empty(1..=MAX_RANK);
        let (_, axis) = self.axis(shape.len());
        let dtype = self.dtypes[0];
        let parameter =
            |position| self.given_input(position, &self.broadcast_any_rank(position, shape), dtype);
        let operator = LayerNormalization {
            axis,
            epsilon: self.epsilon,
            stash_type: match self.dtypes[3] {
                DType::BF16 => code(DType::BF16),
                _ => code(DType::F32),
            },
        };
        let bias = self.given[0].then(|| parameter(2)).flatten();
        let inputs = vec![self.given_input(0, shape, dtype), parameter(1), bias];
        let wanted = vec![true, self.wanted[0], self.wanted[1]];
        (Operator::LayerNormalization(operator), inputs, wanted)
    }

    /// Inputs and axis of the RMS normalizations, whose scales have their own dtype.
    fn rms(&self) -> (Vec<Option<TensorDesc>>, i64) {
        let shape = &self.sizes.shape_or_empty(1..=MAX_RANK);
        let scale = self.given_input(1, &self.broadcast_any_rank(1, shape), self.dtypes[1]);
        let inputs = vec![self.given_input(0, shape, self.dtypes[0]), scale];
        (inputs, self.axis(shape.len()).1)
    }

    fn rms_normalization(&self) -> Node {
        let (inputs, axis) = self.rms();
        let operator = RmsNormalization {
            axis,
            epsilon: self.epsilon,
            stash_type: code(self.dtypes[3]),
        };
        (Operator::RmsNormalization(operator), inputs, vec![true])
    }

    fn simplified_layer_normalization(&self) -> Node {
        let (inputs, axis) = self.rms();
        let operator = SimplifiedLayerNormalization {
            axis,
            epsilon: self.epsilon,
            stash_type: match self.dtypes[3] {
                DType::F64 => code(DType::F64),
                _ => code(DType::F32),
            },
        };
        let operator = Operator::SimplifiedLayerNormalization(operator);
        (operator, inputs, vec![true, self.wanted[0]])
    }

    fn mean_variance_normalization(&self) -> Node {
        let shape = &self.sizes.shape_or_empty(1..=MAX_RANK);
        let axes = self.axes(shape.len()).into_iter();
        let operator = MeanVarianceNormalization {
            axes: axes.map(|axis| self.signed(axis, shape.len())).collect(),
        };
        let inputs = vec![self.given_input(0, shape, self.dtypes[0])];
        let operator = Operator::MeanVarianceNormalization(operator);
        (operator, inputs, vec![true])
    }

    fn lp_normalization(&self) -> Node {
        let shape = &self.sizes.shape_or_empty(1..=MAX_RANK);
        let operator = LpNormalization {
            axis: self.axis(shape.len()).1,
            p: if self.flags[1] { 1 } else { 2 },
        };
        let inputs = vec![self.given_input(0, shape, self.dtypes[0])];
        (Operator::LpNormalization(operator), inputs, vec![true])
    }

    fn instance_normalization(&self) -> Node {
        let shape = &self.sizes.shape_or_empty(2..=MAX_RANK);
        let dtype = self.dtypes[0];
        let inputs = vec![
            self.given_input(0, shape, dtype),
            self.given_input(1, &shape[1..2], dtype),
            self.given_input(2, &shape[1..2], dtype),
        ];
        let epsilon = self.epsilon;
        let operator = Operator::InstanceNormalization(InstanceNormalization { epsilon });
        (operator, inputs, vec![true])
    }

    fn group_normalization(&self) -> Node {
        let mut shape = self.sizes.shape_or_empty(2..=MAX_RANK);
        // Groups from the genes, at most one per channel. Remaining channels are dropped.
        let groups = (1 + self.numbers[0]).min(shape[1].max(1));
        shape[1] -= shape[1] % groups;
        let version = match self.flags[0] {
            true => GroupNormalizationVersion::V18,
            false => GroupNormalizationVersion::V21,
        };
        let parameters = match version {
            GroupNormalizationVersion::V18 => groups,
            GroupNormalizationVersion::V21 => shape[1],
        };
        let dtype = self.dtypes[0];
        let x = match shape.len() {
            // Groups add a dimension. At rank 8, the last two dimensions must merge into one.
            MAX_RANK => Some(TensorDesc::new(Layout::contiguous(shape), dtype)),
            _ => self.given_input(0, &shape, dtype),
        };
        let inputs = vec![
            x,
            self.given_input(1, &[parameters], dtype),
            self.given_input(2, &[parameters], dtype),
        ];
        let operator = Operator::GroupNormalization(GroupNormalization {
            num_groups: groups as i64,
            epsilon: self.epsilon,
            stash_type: code(self.dtypes[3]),
            version,
        });
        (operator, inputs, vec![true])
    }

    fn batch_normalization(&self) -> Node {
        use BatchNormalizationVersion::*;
        let version = [V15, V14, V9, V7][self.numbers[0] % 4];
        let shape = &self.sizes.shape_or_empty(1..=MAX_RANK);
        let spatial = version != V7 || self.flags[0];
        let channels = match shape.as_slice() {
            [_] => &[1],
            [_, each @ ..] if !spatial => each,
            _ => &shape[1..2],
        };
        let [x, parameters, statistics, _] = self.dtypes;
        let (parameters, statistics) = match version {
            V15 => (parameters, statistics),
            V14 => (x, statistics),
            V7 | V9 => (x, x),
        };
        let inputs = vec![
            self.given_input(0, shape, x),
            self.given_input(1, channels, parameters),
            self.given_input(2, channels, parameters),
            self.given_input(3, channels, statistics),
            self.given_input(4, channels, statistics),
        ];
        let trains = self.flags[1];
        let further = if version >= V14 { 2 } else { 4 };
        let mut wanted = vec![true];
        wanted.extend(
            self.wanted[..further]
                .iter()
                .map(|&wanted| wanted && trains),
        );
        let operator = Operator::BatchNormalization(BatchNormalization {
            epsilon: self.epsilon,
            momentum: self.momentum,
            training_mode: trains && version >= V14,
            spatial,
            version,
        });
        (operator, inputs, wanted)
    }

    /// Input, skip and gamma, and `further` optional inputs of gamma's shape.
    fn skip(&self, further: usize) -> Vec<Option<TensorDesc>> {
        let shape = &self.sizes.shape_or_empty(2..=3);
        let dtype = self.dtypes[0];
        let skip = match (shape.as_slice(), self.numbers[0] % 3) {
            (&[_, sequence, hidden], 1) => vec![1, sequence, hidden],
            (&[_, sequence, hidden], 2) => vec![sequence, hidden],
            _ => shape.clone(),
        };
        let hidden = &shape[shape.len() - 1..];
        let mut inputs = vec![
            self.given_input(0, shape, dtype),
            self.given_input(1, &skip, dtype),
            self.given_input(2, hidden, dtype),
        ];
        inputs.extend((0..further).map(|number| {
            let given = self.given[number];
            given
                .then(|| self.given_input(3 + number, hidden, dtype))
                .flatten()
        }));
        inputs
    }

    fn skip_layer_normalization(&self) -> Node {
        let epsilon = self.epsilon;
        let operator = Operator::SkipLayerNormalization(SkipLayerNormalization { epsilon });
        let [mean, reciprocal, sum, ..] = self.wanted;
        (operator, self.skip(2), vec![true, mean, reciprocal, sum])
    }

    fn skip_simplified_layer_normalization(&self) -> Node {
        let epsilon = self.epsilon;
        let operator = SkipSimplifiedLayerNormalization { epsilon };
        let operator = Operator::SkipSimplifiedLayerNormalization(operator);
        let [reciprocal, sum, ..] = self.wanted;
        (operator, self.skip(1), vec![true, false, reciprocal, sum])
    }
}
