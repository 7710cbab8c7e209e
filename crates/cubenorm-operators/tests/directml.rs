//! Every DirectML operator, lowered and run on the host, compared with the reference.

mod support;

use cubenorm_core::DType;
use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationTraining, DataType, FusedActivation,
    MeanVarianceNormalization, MeanVarianceNormalization1, MeanVarianceNormalization2, Operator,
    TensorDesc,
};
use cubenorm_reference::operators::directml as formula;
use support::{Random, Tensor, assert_close, run};

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

/// Compares every output of an operator with its formula.
#[track_caller]
fn check(operator: Operator, inputs: &[Option<&Tensor>]) {
    let program = operator.lower().unwrap();
    let given = inputs.iter().enumerate();
    let given: Vec<_> = given
        .filter_map(|(position, tensor)| Some((position, (*tensor)?)))
        .collect();
    let actual = run(&program, &given);
    let numbers: Vec<_> = inputs
        .iter()
        .map(|tensor| Some((*tensor)?.numbers(DType::F32)))
        .collect();
    let numbers: Vec<_> = numbers.iter().map(Option::as_ref).collect();
    let expected = formula(&operator, &numbers);
    assert_eq!(program.outputs().count(), expected.len());
    for (position, expected) in expected.iter().enumerate() {
        let expected = expected.as_ref().expect("DirectML writes every output");
        assert_close(&actual.output(position), expected, (&operator, position));
    }
}

/// A tensor, optional parameters and an output, of any shape and layout.
struct Case {
    input: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    output: TensorDesc,
    activation: Option<FusedActivation>,
}

impl Case {
    fn new(shape: &[usize], random: &mut Random) -> Self {
        let mut parameter = || {
            random.flag().then(|| {
                let shape = random.broadcast(shape);
                Tensor::strided(&shape, random)
            })
        };
        let (scale, bias) = (parameter(), parameter());
        let strides = random.strides(shape);
        let output = TensorDesc::packed(DataType::Float32, u32s(shape));
        Self {
            input: Tensor::strided(shape, random),
            scale,
            bias,
            output: output.with_strides(random.flag().then(|| u32s(&strides))),
            activation: random.flag().then(|| activations()[random.below(16)]),
        }
    }

    fn scale_desc(&self) -> Option<TensorDesc> {
        self.scale.as_ref().map(desc)
    }

    fn bias_desc(&self) -> Option<TensorDesc> {
        self.bias.as_ref().map(desc)
    }

    #[track_caller]
    fn check(&self, operator: Operator) {
        let inputs = [Some(&self.input), self.scale.as_ref(), self.bias.as_ref()];
        check(operator, &inputs);
    }
}

#[test]
fn mean_variance_normalization_may_include_channels() {
    for seed in 0..60 {
        let random = &mut Random::new(seed);
        let shape = random.shape(4);
        let case = Case::new(&shape, random);
        let (cross_channel, normalize_variance) = (random.flag(), random.flag());
        let operator = MeanVarianceNormalization::new(desc(&case.input), case.output.clone())
            .with_scale_tensor(case.scale_desc())
            .with_bias_tensor(case.bias_desc())
            .with_cross_channel(cross_channel)
            .with_normalize_variance(normalize_variance)
            .with_epsilon(EPSILON)
            .with_fused_activation(case.activation);
        case.check(Operator::MeanVarianceNormalization(operator));
    }
}

#[test]
fn mean_variance_normalization1_reduces_any_axes() {
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let case = Case::new(&shape, random);
        let axes = random.axes(rank);
        let normalize_variance = random.flag();
        let output = case.output.clone();
        let operator = MeanVarianceNormalization1::new(desc(&case.input), output, u32s(&axes))
            .with_scale_tensor(case.scale_desc())
            .with_bias_tensor(case.bias_desc())
            .with_normalize_variance(normalize_variance)
            .with_epsilon(EPSILON)
            .with_fused_activation(case.activation);
        case.check(Operator::MeanVarianceNormalization1(operator));
    }
}

#[test]
fn mean_variance_normalization2_has_optional_statistics() {
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let case = Case::new(&shape, random);
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
        case.check(Operator::MeanVarianceNormalization2(operator));
    }
}

#[test]
fn axes_0_2_3_differ_from_cross_channel_false() {
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
        check(
            Operator::MeanVarianceNormalization2(operator),
            &[Some(&input)],
        );
    }
}

#[test]
fn batch_normalization_broadcasts_each_parameter() {
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
        let inputs = [&input, &mean, &variance, &scale, &bias].map(Some);
        check(Operator::BatchNormalization(operator), &inputs);
    }
}

#[test]
fn training_reduces_dimensions_with_a_scale_of_size_1() {
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
        let inputs = [Some(&input), Some(&scale), Some(&bias), add.as_ref()];
        check(Operator::BatchNormalizationTraining(operator), &inputs);
    }
}
