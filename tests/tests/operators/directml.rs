//! DirectML operators built from genes.

use cubenorm_core::{DType, Layout, MAX_RANK};
use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining,
    BatchNormalizationTrainingGrad, DataType, MeanVarianceNormalization,
    MeanVarianceNormalization1, MeanVarianceNormalization2, Operator, TensorDesc,
};

use super::genes::{Genes, OUTPUTS};

/// Number of operators.
pub(crate) const COUNT: usize = 7;

fn u32s(numbers: &[usize]) -> Vec<u32> {
    numbers.iter().map(|&number| number as u32).collect()
}

/// Converts a tensor description to `cubenorm-core`.
pub(crate) fn core_desc(tensor: &TensorDesc) -> cubenorm_core::TensorDesc {
    let usizes =
        |numbers: &[u32]| -> Vec<usize> { numbers.iter().map(|&number| number as usize).collect() };
    let shape = usizes(&tensor.sizes);
    let layout = match &tensor.strides {
        Some(strides) => Layout::strided(shape, usizes(strides)),
        None => Layout::contiguous(shape),
    };
    cubenorm_core::TensorDesc::new(layout, tensor.data_type.into())
}

impl Genes {
    fn data_type(&self) -> DataType {
        match self.dtypes[0] {
            DType::F16 => DataType::Float16,
            _ => DataType::Float32,
        }
    }

    fn tensor(
        &self,
        shape: &[usize],
        strides: Option<Vec<usize>>,
        slack: Option<u64>,
    ) -> TensorDesc {
        let tensor = TensorDesc::packed(self.data_type(), u32s(shape))
            .with_strides(strides.map(|strides| u32s(&strides)));
        let core = core_desc(&tensor);
        let span = core.layout.checked_span().expect("it is small");
        let bytes = (span * core.dtype.size()) as u64;
        tensor.with_total_tensor_size_in_bytes(slack.map(|slack| bytes + slack))
    }

    fn input(&self, position: usize, shape: &[usize]) -> TensorDesc {
        let layout = &self.layouts[position];
        self.tensor(shape, layout.input(shape), layout.slack)
    }

    fn parameter(&self, position: usize, shape: &[usize]) -> TensorDesc {
        self.input(position, &self.broadcast(position, shape))
    }

    fn output(&self, position: usize, shape: &[usize]) -> TensorDesc {
        let layout = &self.layouts[OUTPUTS + position];
        self.tensor(shape, layout.output(shape), layout.slack)
    }

    /// Builds the DirectML operator.
    pub(crate) fn directml(&self) -> Operator {
        let rank_4 = self.operator == 0;
        let shape = &match rank_4 {
            true => self.sizes.shape(4..=4),
            false => self.sizes.shape(1..=MAX_RANK),
        };
        let (input, output) = (self.input(0, shape), self.output(0, shape));
        let given = |number: usize, position: usize| {
            self.given[number].then(|| self.parameter(position, shape))
        };
        let axes = u32s(&self.axes(shape.len()));
        match self.operator {
            0 => Operator::MeanVarianceNormalization(
                MeanVarianceNormalization::new(input, output)
                    .with_scale_tensor(given(0, 1))
                    .with_bias_tensor(given(1, 2))
                    .with_cross_channel(self.flags[0])
                    .with_normalize_variance(!self.flags[1])
                    .with_epsilon(self.epsilon)
                    .with_fused_activation(self.activation),
            ),
            1 => Operator::MeanVarianceNormalization1(
                MeanVarianceNormalization1::new(input, output, axes)
                    .with_scale_tensor(given(0, 1))
                    .with_bias_tensor(given(1, 2))
                    .with_normalize_variance(!self.flags[1])
                    .with_epsilon(self.epsilon)
                    .with_fused_activation(self.activation),
            ),
            2 => Operator::MeanVarianceNormalization2(
                MeanVarianceNormalization2::new(input, output, axes)
                    .with_scale_tensor(given(0, 1))
                    .with_bias_tensor(given(1, 2))
                    .with_use_mean(!self.flags[0])
                    .with_use_variance(!self.flags[1])
                    .with_epsilon(self.epsilon)
                    .with_fused_activation(self.activation),
            ),
            3 => Operator::BatchNormalization(
                BatchNormalization::new(
                    input,
                    self.parameter(1, shape),
                    self.parameter(2, shape),
                    self.parameter(3, shape),
                    self.parameter(4, shape),
                    output,
                )
                .with_spatial(self.flags[0])
                .with_epsilon(self.epsilon)
                .with_fused_activation(self.activation),
            ),
            4 => {
                let small = &self.broadcast(1, shape);
                Operator::BatchNormalizationTraining(
                    BatchNormalizationTraining::new(
                        input,
                        self.input(1, small),
                        self.input(2, small),
                        output,
                        self.output(1, small),
                        self.output(2, small),
                    )
                    .with_fused_add_tensor(self.given[0].then(|| self.input(3, shape)))
                    .with_epsilon(self.epsilon)
                    .with_fused_activation(self.activation),
                )
            }
            5 => {
                let scale = &self.broadcast(4, shape);
                Operator::BatchNormalizationGrad(BatchNormalizationGrad {
                    input_tensor: input,
                    input_gradient_tensor: self.input(1, shape),
                    mean_tensor: self.parameter(2, shape),
                    variance_tensor: self.parameter(3, shape),
                    scale_tensor: self.input(4, scale),
                    output_gradient_tensor: output,
                    output_scale_gradient_tensor: self.output(1, scale),
                    output_bias_gradient_tensor: self.output(2, scale),
                    epsilon: self.epsilon,
                })
            }
            _ => {
                let (mean, scale) = (&self.broadcast(2, shape), &self.broadcast(4, shape));
                Operator::BatchNormalizationTrainingGrad(BatchNormalizationTrainingGrad {
                    input_tensor: input,
                    input_gradient_tensor: self.input(1, shape),
                    mean_tensor: self.input(2, mean),
                    variance_tensor: self.input(3, mean),
                    scale_tensor: self.input(4, scale),
                    output_gradient_tensor: output,
                    output_scale_gradient_tensor: self.output(1, scale),
                    output_bias_gradient_tensor: self.output(2, scale),
                    epsilon: self.epsilon,
                })
            }
        }
    }
}
