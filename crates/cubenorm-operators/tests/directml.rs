//! Every DirectML operator against its formula, element by element.

mod support;

use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, DataType, FusedActivation,
    MeanVarianceNormalization, MeanVarianceNormalization1, MeanVarianceNormalization2, Operator,
    TensorDesc,
};
use support::{Random, Tensor, assert_close, indices, moments, run};

const EPSILON: f32 = 1e-3;

fn u32s(values: &[usize]) -> Vec<u32> {
    values.iter().map(|&value| value as u32).collect()
}

fn desc(tensor: &Tensor) -> TensorDesc {
    let strides = u32s(&tensor.layout.strides);
    TensorDesc::packed(DataType::Float32, u32s(tensor.shape())).with_strides(strides)
}

fn activations() -> [FusedActivation; 16] {
    use FusedActivation::*;
    [
        Elu { alpha: 0.5 },
        HardSigmoid {
            alpha: 0.25,
            beta: 0.5,
        },
        Identity,
        LeakyRelu { alpha: 0.125 },
        Linear {
            alpha: 1.5,
            beta: -0.5,
        },
        ParametricSoftplus {
            alpha: 0.75,
            beta: 1.25,
        },
        Relu,
        ScaledElu {
            alpha: 1.5,
            gamma: 1.25,
        },
        ScaledTanh {
            alpha: 1.5,
            beta: 0.75,
        },
        Sigmoid,
        Softplus { steepness: 2.0 },
        Softsign,
        Tanh,
        ThresholdedRelu { alpha: 0.5 },
        Shrink {
            bias: 0.25,
            threshold: 0.5,
        },
        Celu { alpha: 0.75 },
    ]
}

/// The formulas of DirectML's pages of the activations.
fn activate(activation: FusedActivation, x: f64) -> f64 {
    use FusedActivation::*;
    let w = f64::from;
    match activation {
        Elu { alpha } if x < 0.0 => w(alpha) * (x.exp() - 1.0),
        HardSigmoid { alpha, beta } => (w(alpha) * x + w(beta)).clamp(0.0, 1.0),
        LeakyRelu { alpha } if x < 0.0 => w(alpha) * x,
        Elu { .. } | LeakyRelu { .. } | Identity => x,
        Linear { alpha, beta } => w(alpha) * x + w(beta),
        ParametricSoftplus { alpha, beta } => w(alpha) * (1.0 + (w(beta) * x).exp()).ln(),
        Relu => x.max(0.0),
        ScaledElu { gamma, .. } if x > 0.0 => w(gamma) * x,
        ScaledElu { alpha, gamma } => w(gamma) * (w(alpha) * x.exp() - w(alpha)),
        ScaledTanh { alpha, beta } => w(alpha) * (w(beta) * x).tanh(),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Softplus { steepness } => (1.0 + (w(steepness) * x).exp()).ln() / w(steepness),
        Softsign => x / (1.0 + x.abs()),
        Tanh => x.tanh(),
        ThresholdedRelu { alpha } if x > w(alpha) => x,
        ThresholdedRelu { .. } => 0.0,
        Shrink { bias, threshold } if x > w(threshold) => x - w(bias),
        Shrink { bias, threshold } if x < -w(threshold) => x + w(bias),
        Shrink { .. } => 0.0,
        Celu { alpha } => x.max(0.0) + (w(alpha) * ((x / w(alpha)).exp() - 1.0)).min(0.0),
    }
}

/// A tensor, optional parameters and an output, of any shape and layout.
struct Case {
    shape: Vec<usize>,
    input: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    output: TensorDesc,
    activation: Option<FusedActivation>,
}

impl Case {
    fn new(shape: Vec<usize>, random: &mut Random) -> Self {
        let mut parameter = || {
            random.flag().then(|| {
                let shape = random.broadcast(&shape);
                Tensor::strided(&shape, random)
            })
        };
        let (scale, bias) = (parameter(), parameter());
        let strides = random.strides(&shape);
        let output = TensorDesc::packed(DataType::Float32, u32s(&shape));
        Self {
            input: Tensor::strided(&shape, random),
            scale,
            bias,
            output: output.with_strides(random.flag().then(|| u32s(&strides))),
            activation: random.flag().then(|| activations()[random.below(16)]),
            shape,
        }
    }

    fn scale_desc(&self) -> Option<TensorDesc> {
        self.scale.as_ref().map(desc)
    }

    fn bias_desc(&self) -> Option<TensorDesc> {
        self.bias.as_ref().map(desc)
    }

    /// Compares an operator with the formula of a normalized value.
    #[track_caller]
    fn check(&self, operator: Operator, normalized: impl Fn(&[usize]) -> f64) {
        let program = operator.lower().unwrap();
        let mut inputs = vec![(0, &self.input)];
        inputs.extend(self.scale.as_ref().map(|scale| (1, scale)));
        inputs.extend(self.bias.as_ref().map(|bias| (2, bias)));
        let actual = run(&program, &inputs).output(0);
        let expected: Vec<f64> = indices(&self.shape)
            .iter()
            .map(|index| {
                let scale = self.scale.as_ref().map_or(1.0, |scale| scale.at(index));
                let bias = self.bias.as_ref().map_or(0.0, |bias| bias.at(index));
                let value = scale * normalized(index) + bias;
                self.activation.map_or(value, |f| activate(f, value))
            })
            .collect();
        assert_close(&actual, &expected, &operator);
    }
}

#[test]
fn mean_variance_normalization_is_over_height_and_width_or_channels_too() {
    for seed in 0..60 {
        let random = &mut Random::new(seed);
        let shape = random.shape(4);
        let case = Case::new(shape.clone(), random);
        let (cross_channel, normalize_variance) = (random.flag(), random.flag());
        let operator = MeanVarianceNormalization::new(desc(&case.input), case.output.clone())
            .with_scale_tensor(case.scale_desc())
            .with_bias_tensor(case.bias_desc())
            .with_cross_channel(cross_channel)
            .with_normalize_variance(normalize_variance)
            .with_epsilon(EPSILON)
            .with_fused_activation(case.activation);
        let axes: &[usize] = if cross_channel { &[1, 2, 3] } else { &[2, 3] };
        case.check(Operator::MeanVarianceNormalization(operator), |index| {
            let row = moments(&shape, |i| case.input.at(i), axes, index);
            let centered = case.input.at(index) - row.mean;
            match normalize_variance {
                true => centered / (row.variance + f64::from(EPSILON)).sqrt(),
                false => centered,
            }
        });
    }
}

#[test]
fn mean_variance_normalization1_is_over_any_axes_of_any_rank() {
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let case = Case::new(shape.clone(), random);
        let axes = random.axes(rank);
        let normalize_variance = random.flag();
        let output = case.output.clone();
        let operator = MeanVarianceNormalization1::new(desc(&case.input), output, u32s(&axes))
            .with_scale_tensor(case.scale_desc())
            .with_bias_tensor(case.bias_desc())
            .with_normalize_variance(normalize_variance)
            .with_epsilon(EPSILON)
            .with_fused_activation(case.activation);
        case.check(Operator::MeanVarianceNormalization1(operator), |index| {
            let row = moments(&shape, |i| case.input.at(i), &axes, index);
            let centered = case.input.at(index) - row.mean;
            match normalize_variance {
                true => centered / (row.variance + f64::from(EPSILON)).sqrt(),
                false => centered,
            }
        });
    }
}

#[test]
fn mean_variance_normalization2_takes_mean_and_variance_each_by_choice() {
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let case = Case::new(shape.clone(), random);
        let axes = random.axes(rank);
        let (use_mean, use_variance) = (random.flag(), random.flag());
        let output = case.output.clone();
        let operator = MeanVarianceNormalization2::new(desc(&case.input), output, u32s(&axes))
            .with_scale_tensor(case.scale_desc())
            .with_bias_tensor(case.bias_desc())
            .with_use_mean(use_mean)
            .with_use_variance(use_variance)
            .with_epsilon(EPSILON)
            .with_fused_activation(case.activation);
        case.check(Operator::MeanVarianceNormalization2(operator), |index| {
            let row = moments(&shape, |i| case.input.at(i), &axes, index);
            let x = case.input.at(index);
            let epsilon = f64::from(EPSILON);
            match (use_mean, use_variance) {
                (true, true) => (x - row.mean) / (row.variance + epsilon).sqrt(),
                (true, false) => x - row.mean,
                (false, true) => x / (row.mean_square + epsilon).sqrt(),
                (false, false) => x,
            }
        });
    }
}

#[test]
fn axes_0_2_3_share_statistics_between_batch_entries_where_cross_channel_false_does_not() {
    let random = &mut Random::new(1);
    let input = Tensor::contiguous(&[2, 3, 2, 2], random);
    let tensor = desc(&input);
    let of = |axes: &[u32]| {
        let operator = MeanVarianceNormalization1::new(tensor.clone(), tensor.clone(), axes);
        run(&operator.lower().unwrap(), &[(0, &input)]).output(0)
    };
    let operator = MeanVarianceNormalization::new(tensor.clone(), tensor.clone());
    let per_channel = run(&operator.lower().unwrap(), &[(0, &input)]).output(0);
    let operator = operator.with_cross_channel(true);
    let cross_channel = run(&operator.lower().unwrap(), &[(0, &input)]).output(0);
    assert_eq!(per_channel, of(&[2, 3]));
    assert_eq!(cross_channel, of(&[1, 2, 3]));
    assert!((per_channel[0] - of(&[0, 2, 3])[0]).abs() > 1e-3);
}

#[test]
fn every_activation_is_applied_last() {
    let random = &mut Random::new(7);
    let input = Tensor::contiguous(&[3, 16], random);
    for activation in activations() {
        let operator = MeanVarianceNormalization2::new(desc(&input), desc(&input), [1])
            .with_use_variance(false)
            .with_fused_activation(activation);
        let actual = run(&operator.lower().unwrap(), &[(0, &input)]).output(0);
        let expected: Vec<f64> = indices(&[3, 16])
            .iter()
            .map(|index| {
                let row = moments(&[3, 16], |i| input.at(i), &[1], index);
                activate(activation, input.at(index) - row.mean)
            })
            .collect();
        assert_close(&actual, &expected, activation);
    }
}

#[test]
fn batch_normalization_broadcasts_each_parameter_on_its_own() {
    for seed in 0..80 {
        let random = &mut Random::new(seed);
        let shape = random.shape(1 + seed as usize % 8);
        let mut parameter = || {
            let shape = random.broadcast(&shape);
            Tensor::strided(&shape, random)
        };
        let [mean, scale, bias] = [parameter(), parameter(), parameter()];
        let variance = parameter().positive();
        let input = Tensor::strided(&shape, random);
        let strides = random.strides(&shape);
        let output =
            TensorDesc::packed(DataType::Float32, u32s(&shape)).with_strides(u32s(&strides));
        let activation = activations()[random.below(16)];
        let operator = BatchNormalization::new(
            desc(&input),
            desc(&mean),
            desc(&variance),
            desc(&scale),
            desc(&bias),
            output,
        )
        .with_spatial(random.flag())
        .with_epsilon(EPSILON)
        .with_fused_activation(activation);
        let program = Operator::BatchNormalization(operator).lower().unwrap();
        let inputs = [
            (0, &input),
            (1, &mean),
            (2, &variance),
            (3, &scale),
            (4, &bias),
        ];
        let expected: Vec<f64> = indices(&shape)
            .iter()
            .map(|i| {
                let deviation = (variance.at(i) + f64::from(EPSILON)).sqrt();
                let value = scale.at(i) * (input.at(i) - mean.at(i)) / deviation + bias.at(i);
                activate(activation, value)
            })
            .collect();
        assert_close(&run(&program, &inputs).output(0), &expected, seed);
    }
}

#[test]
fn batch_normalization_training_writes_mean_and_variance_of_where_the_scale_is_1() {
    for seed in 0..80 {
        let random = &mut Random::new(seed);
        let shape = random.shape(1 + seed as usize % 8);
        let small = random.broadcast(&shape);
        let [scale, bias] = [(); 2].map(|()| Tensor::strided(&small, random));
        let input = Tensor::strided(&shape, random);
        let add = random.flag().then(|| Tensor::strided(&shape, random));
        let mut output = |shape: &[usize]| {
            let strides = random.strides(shape);
            TensorDesc::packed(DataType::Float32, u32s(shape)).with_strides(u32s(&strides))
        };
        let outputs = [output(&shape), output(&small), output(&small)];
        let [result, mean, variance] = outputs;
        let activation = activations()[random.below(16)];
        let operator = BatchNormalizationTraining::new(
            desc(&input),
            desc(&scale),
            desc(&bias),
            result,
            mean,
            variance,
        )
        .with_fused_add_tensor(add.as_ref().map(desc))
        .with_epsilon(EPSILON)
        .with_fused_activation(activation);
        let program = Operator::BatchNormalizationTraining(operator)
            .lower()
            .unwrap();
        let mut inputs = vec![(0, &input), (1, &scale), (2, &bias)];
        inputs.extend(add.as_ref().map(|add| (3, add)));
        let actual = run(&program, &inputs);

        let axes: Vec<usize> = (0..shape.len()).filter(|&dim| small[dim] == 1).collect();
        let of = |index: &[usize]| moments(&shape, |i| input.at(i), &axes, index);
        let expected: Vec<f64> = indices(&shape)
            .iter()
            .map(|i| {
                let row = of(i);
                let deviation = (row.variance + f64::from(EPSILON)).sqrt();
                let value = scale.at(i) * (input.at(i) - row.mean) / deviation + bias.at(i);
                activate(
                    activation,
                    value + add.as_ref().map_or(0.0, |add| add.at(i)),
                )
            })
            .collect();
        assert_close(&actual.output(0), &expected, seed);
        let rows = indices(&small);
        let means: Vec<f64> = rows.iter().map(|index| of(index).mean).collect();
        let variances: Vec<f64> = rows.iter().map(|index| of(index).variance).collect();
        assert_close(&actual.output(1), &means, seed);
        assert_close(&actual.output(2), &variances, seed);
    }
}
