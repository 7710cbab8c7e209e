use cubenorm_operators::onnx::{
    BatchNormalization, BatchNormalizationVersion, GroupNormalization, GroupNormalizationVersion,
    InstanceNormalization, LayerNormalization, LpNormalization, MeanVarianceNormalization,
    Operator,
};

use super::rows::{Rows, each};
use super::{Moments, Number, Tensor};

/// Outputs of an ONNX operator by formal position. `None` for an output that the operator lacks or
/// that is a statistic of no elements.
pub fn onnx<N: Number>(
    operator: &Operator,
    inputs: &[Option<&Tensor<N>>],
    wanted: &[bool],
) -> Vec<Option<Vec<N>>> {
    let inputs = &Inputs(inputs);
    match operator {
        Operator::BatchNormalization(operator) => batch(operator, inputs, wanted),
        Operator::GroupNormalization(operator) => vec![Some(group(operator, inputs))],
        Operator::InstanceNormalization(operator) => vec![Some(instance(operator, inputs))],
        Operator::LayerNormalization(operator) => layer(operator, inputs),
        Operator::LpNormalization(operator) => vec![Some(lp(operator, inputs))],
        Operator::MeanVarianceNormalization(operator) => {
            vec![Some(mean_variance(operator, inputs))]
        }
        Operator::RmsNormalization(operator) => {
            let [y, _] = rms(operator.axis, operator.epsilon, inputs);
            vec![y]
        }
        Operator::SimplifiedLayerNormalization(operator) => {
            rms(operator.axis, operator.epsilon, inputs).into()
        }
        Operator::SkipLayerNormalization(operator) => skip_layer(operator.epsilon, inputs).into(),
        Operator::SkipSimplifiedLayerNormalization(operator) => {
            skip_simplified(operator.epsilon, inputs).into()
        }
    }
}

struct Inputs<'a, N>(&'a [Option<&'a Tensor<N>>]);

impl<'a, N: Number> Inputs<'a, N> {
    fn given(&self, position: usize) -> Option<&'a Tensor<N>> {
        *self.0.get(position)?
    }

    fn required(&self, position: usize) -> &'a Tensor<N> {
        self.given(position).expect("the operator has this input")
    }
}

fn number<N: Number>(attribute: f32) -> N {
    N::from(f64::from(attribute))
}

/// Converts a negative axis, which counts from the last.
fn from_first(axis: i64, rank: usize) -> usize {
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(axis).expect("the axis is in range")
}

/// The dimensions from `axis` on, and the shape with these set to 1.
fn trailing(axis: i64, shape: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let axes: Vec<usize> = (from_first(axis, shape.len())..shape.len()).collect();
    let mut rows = shape.to_vec();
    axes.iter().for_each(|&axis| rows[axis] = 1);
    (axes, rows)
}

fn layer<N: Number>(operator: &LayerNormalization, inputs: &Inputs<'_, N>) -> Vec<Option<Vec<N>>> {
    let [x, scale] = [0, 1].map(|at| inputs.required(at));
    let bias = inputs.given(2);
    let (axes, small) = trailing(operator.axis, x.shape());
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    let deviation = |row: Moments<N>| (row.variance + number(operator.epsilon)).sqrt();
    let y = each(x.shape(), |i| {
        let row = rows.of(i);
        let scaled = (x.at(i) - row.mean) / deviation(row) * scale.at(i);
        bias.map_or(scaled, |bias| scaled + bias.at(i))
    });
    let mean = rows.each(&small, |row| row.mean);
    let reciprocal = rows.each(&small, |row| N::from(1.0) / deviation(row));
    vec![Some(y), mean, reciprocal]
}

/// RMSNormalization, and the reciprocal root that SimplifiedLayerNormalization writes.
fn rms<N: Number>(axis: i64, epsilon: f32, inputs: &Inputs<'_, N>) -> [Option<Vec<N>>; 2] {
    let [x, scale] = [0, 1].map(|at| inputs.required(at));
    let (axes, small) = trailing(axis, x.shape());
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    let root = |row: Moments<N>| (row.mean_square + number(epsilon)).sqrt();
    let y = each(x.shape(), |i| x.at(i) / root(rows.of(i)) * scale.at(i));
    [Some(y), rows.each(&small, |row| N::from(1.0) / root(row))]
}

fn mean_variance<N: Number>(
    operator: &MeanVarianceNormalization,
    inputs: &Inputs<'_, N>,
) -> Vec<N> {
    let x = inputs.required(0);
    let rank = x.shape().len();
    let given = operator.axes.iter().map(|&axis| from_first(axis, rank));
    // The reductions of the function body cover all axes if none is listed.
    let axes: Vec<usize> = match operator.axes.is_empty() {
        true => (0..rank).collect(),
        false => given.collect(),
    };
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    each(x.shape(), |i| {
        let row = rows.of(i);
        (x.at(i) - row.mean) / (row.variance.sqrt() + N::from(1e-9))
    })
}

fn lp<N: Number>(operator: &LpNormalization, inputs: &Inputs<'_, N>) -> Vec<N> {
    let x = inputs.required(0);
    let axes = [from_first(operator.axis, x.shape().len())];
    let rows = Rows::over(x.shape(), &axes, |i| x.at(i));
    each(x.shape(), |i| {
        let norm = match operator.p {
            1 => rows.of(i).magnitudes,
            _ => rows.of(i).squares.sqrt(),
        };
        match norm.value() == 0.0 {
            true => N::from(0.0),
            false => x.at(i) / norm,
        }
    })
}

fn instance<N: Number>(operator: &InstanceNormalization, inputs: &Inputs<'_, N>) -> Vec<N> {
    let [x, scale, bias] = [0, 1, 2].map(|at| inputs.required(at));
    let rows = Rows::with(x.shape(), |i| i[..2].to_vec(), |i| x.at(i));
    each(x.shape(), |i| {
        let row = rows.of(i);
        let deviation = (row.variance + number(operator.epsilon)).sqrt();
        scale.at(&i[1..2]) * ((x.at(i) - row.mean) / deviation) + bias.at(&i[1..2])
    })
}

fn group<N: Number>(operator: &GroupNormalization, inputs: &Inputs<'_, N>) -> Vec<N> {
    let [x, scale, bias] = [0, 1, 2].map(|at| inputs.required(at));
    let groups = usize::try_from(operator.num_groups).expect("groups are counted");
    let each_group = x.shape()[1] / groups;
    let rows = Rows::with(x.shape(), |i| vec![i[0], i[1] / each_group], |i| x.at(i));
    each(x.shape(), |i| {
        let row = rows.of(i);
        let deviation = (row.variance + number(operator.epsilon)).sqrt();
        let parameter = match operator.version {
            GroupNormalizationVersion::V18 => [i[1] / each_group],
            GroupNormalizationVersion::V21 => [i[1]],
        };
        scale.at(&parameter) * ((x.at(i) - row.mean) / deviation) + bias.at(&parameter)
    })
}

fn batch<N: Number>(
    operator: &BatchNormalization,
    inputs: &Inputs<'_, N>,
    wanted: &[bool],
) -> Vec<Option<Vec<N>>> {
    let [x, scale, bias] = [0, 1, 2].map(|at| inputs.required(at));
    let [given_mean, given_variance] = [3, 4].map(|at| inputs.required(at));
    let by_outputs = operator.version <= BatchNormalizationVersion::V9;
    let trains = match by_outputs {
        true => wanted.iter().skip(1).any(|&wanted| wanted),
        false => operator.training_mode,
    };
    let per_element = operator.version == BatchNormalizationVersion::V7 && !operator.spatial;
    // The parameter index that the elements of one mean and variance share.
    let channel = |i: &[usize]| match i.len() {
        1 => vec![0],
        _ if per_element => i[1..].to_vec(),
        _ => vec![i[1]],
    };
    let normalized = |i: &[usize], mean: N, variance: N| {
        let deviation = (variance + number(operator.epsilon)).sqrt();
        let c = channel(i);
        (x.at(i) - mean) / deviation * scale.at(&c) + bias.at(&c)
    };
    if !trains {
        let y = each(x.shape(), |i| {
            let c = channel(i);
            normalized(i, given_mean.at(&c), given_variance.at(&c))
        });
        return vec![Some(y)];
    }

    let rows = Rows::with(x.shape(), channel, |i| x.at(i));
    let y = each(x.shape(), |i| {
        normalized(i, rows.of(i).mean, rows.of(i).variance)
    });
    let share = number::<N>(operator.momentum);
    let moved = |old: N, new: N| old * share + new * (N::from(1.0) - share);
    // The first element of a channel represents it.
    let channels = given_mean.shape();
    let of = |c: &[usize]| {
        let mut index = vec![0; x.shape().len()];
        if index.len() > 1 {
            index[1..][..c.len()].copy_from_slice(c);
        }
        rows.of(&index)
    };
    let have_elements = channels.contains(&0) || !x.shape().contains(&0);
    let all = |of: &dyn Fn(&[usize]) -> N| have_elements.then(|| each(channels, of));
    let mut outputs = vec![
        Some(y),
        all(&|c| moved(given_mean.at(c), of(c).mean)),
        all(&|c| moved(given_variance.at(c), of(c).variance)),
    ];
    if by_outputs {
        outputs.push(all(&|c| of(c).mean));
        outputs.push(all(&|c| of(c).variance));
    }
    outputs
}

/// The elements of `input + skip + bias`.
fn sum<'a, N: Number>(
    inputs: &Inputs<'a, N>,
    bias: Option<&'a Tensor<N>>,
) -> impl Fn(&[usize]) -> N + 'a {
    let [input, skip] = [0, 1].map(|at| inputs.required(at));
    move |i| {
        let sum = input.at(i) + skip.at(i);
        // With a bias the sum is rounded before the normalization.
        bias.map_or(sum, |bias| (sum + bias.at(i)).rounded(input.desc.dtype))
    }
}

fn skip_layer<N: Number>(epsilon: f32, inputs: &Inputs<'_, N>) -> [Option<Vec<N>>; 4] {
    let (gamma, beta) = (inputs.required(2), inputs.given(3));
    let sum = sum(inputs, inputs.given(4));
    let shape = inputs.required(0).shape();
    let (axes, small) = trailing(-1, shape);
    let rows = Rows::over(shape, &axes, &sum);
    let reciprocal = |row: Moments<N>| N::from(1.0) / (row.variance + number(epsilon)).sqrt();
    let output = each(shape, |i| {
        let row = rows.of(i);
        let scaled = (sum(i) - row.mean) * reciprocal(row) * gamma.at(i);
        beta.map_or(scaled, |beta| scaled + beta.at(i))
    });
    let mean = rows.each(&small, |row| row.mean);
    let reciprocal = rows.each(&small, reciprocal);
    [Some(output), mean, reciprocal, Some(each(shape, &sum))]
}

fn skip_simplified<N: Number>(epsilon: f32, inputs: &Inputs<'_, N>) -> [Option<Vec<N>>; 4] {
    let gamma = inputs.required(2);
    let sum = sum(inputs, inputs.given(3));
    let shape = inputs.required(0).shape();
    let (axes, small) = trailing(-1, shape);
    let rows = Rows::over(shape, &axes, &sum);
    let reciprocal = |row: Moments<N>| N::from(1.0) / (row.mean_square + number(epsilon)).sqrt();
    let output = each(shape, |i| sum(i) * reciprocal(rows.of(i)) * gamma.at(i));
    let reciprocal = rows.each(&small, reciprocal);
    [Some(output), None, reciprocal, Some(each(shape, &sum))]
}
