use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, FusedActivation, MeanVarianceNormalization,
    MeanVarianceNormalization1, MeanVarianceNormalization2, Operator,
};

use super::rows::{Rows, each};
use super::{Number, Tensor};

/// Outputs of a DirectML operator by position among its output tensors.
pub fn directml<N: Number>(
    operator: &Operator,
    inputs: &[Option<&Tensor<N>>],
) -> Vec<Option<Vec<N>>> {
    let inputs = Inputs(inputs);
    let outputs = match operator {
        Operator::MeanVarianceNormalization(operator) => vec![mvn(operator, &inputs)],
        Operator::MeanVarianceNormalization1(operator) => vec![mvn1(operator, &inputs)],
        Operator::MeanVarianceNormalization2(operator) => vec![mvn2(operator, &inputs)],
        Operator::BatchNormalization(operator) => vec![batch(operator, &inputs)],
        Operator::BatchNormalizationTraining(operator) => training(operator, &inputs),
        Operator::BatchNormalizationGrad(operator) => grad(operator.epsilon, &inputs),
        Operator::BatchNormalizationTrainingGrad(operator) => {
            training_grad(operator.epsilon, &inputs)
        }
    };
    outputs.into_iter().map(Some).collect()
}

struct Inputs<'a, N>(&'a [Option<&'a Tensor<N>>]);

impl<'a, N: Number> Inputs<'a, N> {
    fn given(&self, position: usize) -> Option<&'a Tensor<N>> {
        *self.0.get(position)?
    }

    fn required(&self, position: usize) -> &'a Tensor<N> {
        self.given(position).expect("the operator has this input")
    }

    /// `FusedActivation(Scale * normalized + Bias)`, with optional scale and bias in the second and
    /// third position.
    fn finish(&self, index: &[usize], normalized: N, activation: Option<FusedActivation>) -> N {
        let scale = self.given(1).map(|scale| scale.at(index));
        let bias = self.given(2).map(|bias| bias.at(index));
        let scaled = scale.map_or(normalized, |scale| scale * normalized);
        let shifted = bias.map_or(scaled, |bias| scaled + bias);
        activated(shifted, activation)
    }
}

fn activated<N: Number>(x: N, activation: Option<FusedActivation>) -> N {
    activation.map_or(x, |activation| x.activate(activation))
}

fn epsilon<N: Number>(epsilon: f32) -> N {
    N::from(f64::from(epsilon))
}

fn usizes(axes: &[u32]) -> Vec<usize> {
    axes.iter().map(|&axis| axis as usize).collect()
}

fn mvn<N: Number>(operator: &MeanVarianceNormalization, inputs: &Inputs<'_, N>) -> Vec<N> {
    let axes: &[usize] = match operator.cross_channel {
        true => &[1, 2, 3],
        false => &[2, 3],
    };
    let x = inputs.required(0);
    let rows = Rows::over(x.shape(), axes, |i| x.at(i));
    each(x.shape(), |i| {
        let centered = x.at(i) - rows.of(i).mean;
        let normalized = match operator.normalize_variance {
            true => centered / (rows.of(i).variance + epsilon(operator.epsilon)).sqrt(),
            false => centered,
        };
        inputs.finish(i, normalized, operator.fused_activation)
    })
}

fn mvn1<N: Number>(operator: &MeanVarianceNormalization1, inputs: &Inputs<'_, N>) -> Vec<N> {
    let axes = usizes(&operator.axes);
    let x = inputs.required(0);
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    each(x.shape(), |i| {
        let centered = x.at(i) - rows.of(i).mean;
        let normalized = match operator.normalize_variance {
            true => centered / (rows.of(i).variance + epsilon(operator.epsilon)).sqrt(),
            false => centered,
        };
        inputs.finish(i, normalized, operator.fused_activation)
    })
}

fn mvn2<N: Number>(operator: &MeanVarianceNormalization2, inputs: &Inputs<'_, N>) -> Vec<N> {
    let axes = usizes(&operator.axes);
    let x = inputs.required(0);
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    each(x.shape(), |i| {
        let row = rows.of(i);
        let epsilon = epsilon(operator.epsilon);
        let normalized = match (operator.use_mean, operator.use_variance) {
            (true, true) => (x.at(i) - row.mean) / (row.variance + epsilon).sqrt(),
            (true, false) => x.at(i) - row.mean,
            (false, true) => x.at(i) / (row.mean_square + epsilon).sqrt(),
            (false, false) => x.at(i),
        };
        inputs.finish(i, normalized, operator.fused_activation)
    })
}

fn batch<N: Number>(operator: &BatchNormalization, inputs: &Inputs<'_, N>) -> Vec<N> {
    let [x, mean, variance, scale, bias] = [0, 1, 2, 3, 4].map(|at| inputs.required(at));
    each(x.shape(), |i| {
        let deviation = (variance.at(i) + epsilon(operator.epsilon)).sqrt();
        let normalized = (x.at(i) - mean.at(i)) / deviation;
        activated(
            scale.at(i) * normalized + bias.at(i),
            operator.fused_activation,
        )
    })
}

fn training<N: Number>(
    operator: &BatchNormalizationTraining,
    inputs: &Inputs<'_, N>,
) -> Vec<Vec<N>> {
    let [x, scale, bias] = [0, 1, 2].map(|at| inputs.required(at));
    let add = inputs.given(3);
    let small = scale.shape();
    let axes = repeated(small);
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    let output = each(x.shape(), |i| {
        let row = rows.of(i);
        let deviation = (row.variance + epsilon(operator.epsilon)).sqrt();
        let value = scale.at(i) * ((x.at(i) - row.mean) / deviation) + bias.at(i);
        let value = add.map_or(value, |add| value + add.at(i));
        activated(value, operator.fused_activation)
    });
    // Sizes of the scale are 1 or the input's, so its indices are valid for the input.
    let mean = each(small, |i| rows.of(i).mean);
    let variance = each(small, |i| rows.of(i).variance);
    vec![output, mean, variance]
}

/// The dimensions of size 1.
fn repeated(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).filter(|&dim| shape[dim] == 1).collect()
}

/// The tensors of both gradient operators.
struct Gradient<'a, N> {
    x: &'a Tensor<N>,
    above: &'a Tensor<N>,
    mean: &'a Tensor<N>,
    variance: &'a Tensor<N>,
    scale: &'a Tensor<N>,
    epsilon: N,
}

impl<'a, N: Number> Gradient<'a, N> {
    fn new(add: f32, inputs: &Inputs<'a, N>) -> Self {
        let [x, above, mean, variance, scale] = [0, 1, 2, 3, 4].map(|at| inputs.required(at));
        Self {
            x,
            above,
            mean,
            variance,
            scale,
            epsilon: epsilon(add),
        }
    }

    fn deviation(&self, i: &[usize]) -> N {
        (self.variance.at(i) + self.epsilon).sqrt()
    }

    fn normalized(&self, i: &[usize]) -> N {
        (self.x.at(i) - self.mean.at(i)) / self.deviation(i)
    }

    /// The gradients of scale and bias, summed over the dimensions along which the scale repeats.
    fn of_parameters(&self) -> [Vec<N>; 2] {
        let (shape, small) = (self.x.shape(), self.scale.shape());
        let axes = repeated(small);
        let products = Rows::over(shape, &axes, |i| self.above.at(i) * self.normalized(i));
        let sums = Rows::over(shape, &axes, |i| self.above.at(i));
        [products, sums].map(|rows| each(small, |i| rows.of(i).total))
    }
}

fn grad<N: Number>(add: f32, inputs: &Inputs<'_, N>) -> Vec<Vec<N>> {
    let tensors = Gradient::new(add, inputs);
    let of_input = each(tensors.x.shape(), |i| {
        tensors.above.at(i) * tensors.scale.at(i) / tensors.deviation(i)
    });
    let [of_scale, of_bias] = tensors.of_parameters();
    vec![of_input, of_scale, of_bias]
}

fn training_grad<N: Number>(add: f32, inputs: &Inputs<'_, N>) -> Vec<Vec<N>> {
    let tensors = Gradient::new(add, inputs);
    let (shape, small) = (tensors.x.shape(), tensors.mean.shape());
    let axes = repeated(small);
    let count = shape.iter().product::<usize>() / small.iter().product::<usize>();
    let count = N::from(count as f64);
    let g = |i: &[usize]| tensors.above.at(i) * tensors.scale.at(i);
    let sums = Rows::over(shape, &axes, g);
    let products = Rows::over(shape, &axes, |i| g(i) * tensors.normalized(i));
    let of_input = each(shape, |i| {
        let through_mean = sums.of(i).total / count;
        let through_variance = tensors.normalized(i) * (products.of(i).total / count);
        (g(i) - through_mean - through_variance) / tensors.deviation(i)
    });
    let [of_scale, of_bias] = tensors.of_parameters();
    vec![of_input, of_scale, of_bias]
}
