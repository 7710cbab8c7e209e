use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, FusedActivation, MeanVarianceNormalization,
    MeanVarianceNormalization1, MeanVarianceNormalization2, Operator,
};

use super::rows::{Rows, each};
use super::{Number, Tensor};

/// What a DirectML operator writes: the outputs by position among its output tensors.
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

    /// `FusedActivation(Scale * normalized + Bias)` with scale and bias in the second and third place,
    /// where they are.
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
    let axes: Vec<usize> = (0..small.len()).filter(|&dim| small[dim] == 1).collect();
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    let output = each(x.shape(), |i| {
        let row = rows.of(i);
        let deviation = (row.variance + epsilon(operator.epsilon)).sqrt();
        let value = scale.at(i) * ((x.at(i) - row.mean) / deviation) + bias.at(i);
        let value = add.map_or(value, |add| value + add.at(i));
        activated(value, operator.fused_activation)
    });
    // Sizes of the scale are 1 or the input's, so that its indices are some of the input's.
    let mean = each(small, |i| rows.of(i).mean);
    let variance = each(small, |i| rows.of(i).variance);
    vec![output, mean, variance]
}

/// The dimensions of size 1.
fn repeated(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).filter(|&dim| shape[dim] == 1).collect()
}

/// Of both gradient operators: the gradients of scale and bias, over the dimensions that the scale
/// repeats along.
fn param_grads<N: Number>(add: f32, inputs: &Inputs<'_, N>) -> [Vec<N>; 2] {
    let [x, dy, mean, variance, scale] = [0, 1, 2, 3, 4].map(|at| inputs.required(at));
    let small = scale.shape();
    let axes = repeated(small);
    let elements = x.shape().iter().product::<usize>() / small.iter().product::<usize>();
    let count = N::from(elements as f64);
    let normalized =
        |i: &[usize]| (x.at(i) - mean.at(i)) / (variance.at(i) + epsilon(add)).sqrt();
    let products = Rows::over(x.shape(), &axes, |i| dy.at(i) * normalized(i));
    let sums = Rows::over(x.shape(), &axes, |i| dy.at(i));
    [
        each(small, |i| products.of(i).mean * count),
        each(small, |i| sums.of(i).mean * count),
    ]
}

fn grad<N: Number>(add: f32, inputs: &Inputs<'_, N>) -> Vec<Vec<N>> {
    let [x, dy, variance, scale] = [0, 1, 3, 4].map(|at| inputs.required(at));
    let dx = each(x.shape(), |i| {
        dy.at(i) * scale.at(i) / (variance.at(i) + epsilon(add)).sqrt()
    });
    let [of_scale, of_bias] = param_grads(add, inputs);
    vec![dx, of_scale, of_bias]
}

fn training_grad<N: Number>(add: f32, inputs: &Inputs<'_, N>) -> Vec<Vec<N>> {
    let [x, dy, mean, variance, scale] = [0, 1, 2, 3, 4].map(|at| inputs.required(at));
    let axes = repeated(mean.shape());
    let normalized =
        |i: &[usize]| (x.at(i) - mean.at(i)) / (variance.at(i) + epsilon(add)).sqrt();
    let deep = |i: &[usize]| dy.at(i) * scale.at(i);
    let means = Rows::over(x.shape(), &axes, deep);
    let products = Rows::over(x.shape(), &axes, |i| deep(i) * normalized(i));
    let dx = each(x.shape(), |i| {
        let rest = deep(i) - means.of(i).mean - normalized(i) * products.of(i).mean;
        rest / (variance.at(i) + epsilon(add)).sqrt()
    });
    let [of_scale, of_bias] = param_grads(add, inputs);
    vec![dx, of_scale, of_bias]
}
