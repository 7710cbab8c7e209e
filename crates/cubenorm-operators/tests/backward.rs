//! Backward passes of ONNX's operators, and one of DirectML's, against central differences of the
//! forward passes.

mod support;

use cubenorm_core::{DType, Layout, TensorDesc};
use cubenorm_operators::onnx::{
    BatchNormalization, BatchNormalizationVersion, GroupNormalization, GroupNormalizationVersion,
    InstanceNormalization, LayerNormalization, LpNormalization, MeanVarianceNormalization,
    Operator, RmsNormalization, SimplifiedLayerNormalization, SkipLayerNormalization,
};
use cubenorm_operators::{OperatorError, Program, Role, Step, directml};
use support::{Random, Tensor, indices, run};

const EPSILON: f32 = 1e-2;
/// Distance between the two sides of a central difference.
const STEP: f64 = 1e-5;

type Inputs<'a> = Vec<Option<(&'a Tensor, DType)>>;

/// A tensor in any order in memory, with gaps, without shared elements.
fn any_order(random: &mut Random, shape: &[usize]) -> Tensor {
    let strides = random.strides(shape);
    Tensor::new(Layout::strided(shape, strides), random)
}

/// Sizes from 2 to 4: a row of one element has no slope.
fn sizes(random: &mut Random, rank: usize) -> Vec<usize> {
    (0..rank).map(|_| 2 + random.below(3)).collect()
}

fn lowered(operator: &Operator, inputs: &Inputs<'_>, wanted: &[bool]) -> Program {
    let desc = |&(tensor, dtype): &(&Tensor, DType)| tensor.desc(dtype);
    let descs: Vec<_> = inputs
        .iter()
        .map(|input| input.as_ref().map(desc))
        .collect();
    operator.lower(&descs, wanted).unwrap()
}

/// Compares the gradients of the inputs at `positions` (input, then optional scale and bias) with
/// central differences of `sum(dY * Y)`. Returns the backward program.
#[track_caller]
fn check(
    forward: &Program,
    inputs: &[(usize, &Tensor)],
    positions: &[usize],
    random: &mut Random,
) -> Program {
    let program = forward.gradient().unwrap();
    let y = forward.tensor(forward.output_at(0).unwrap());
    let dy = Tensor::contiguous(y.desc.shape(), random);
    let mut given = inputs.to_vec();
    given.push((Program::OUTPUT_GRADIENT, &dy));
    let actual = run(&program, &given);
    let loss = |inputs: &[(usize, &Tensor)]| -> f64 {
        let y = run(forward, inputs).output(0);
        y.iter().zip(&dy.buffer).map(|(y, dy)| y * dy).sum()
    };
    for (output, &position) in positions.iter().enumerate() {
        let at = inputs.iter().position(|&(p, _)| p == position).unwrap();
        let tensor = inputs[at].1;
        let slopes = indices(tensor.shape()).into_iter().map(|index| {
            let steps = index.iter().zip(&tensor.layout.strides);
            let address: usize = steps.map(|(i, stride)| i * stride).sum();
            let beside = |step: f64| {
                let mut moved = tensor.clone();
                moved.buffer[address] += step;
                let mut inputs = inputs.to_vec();
                inputs[at].1 = &moved;
                loss(&inputs)
            };
            (beside(STEP) - beside(-STEP)) / (2.0 * STEP)
        });
        let slot = program
            .output_at(output)
            .expect("there is a gradient to it");
        let gradient = program.tensor(slot);
        assert_eq!(gradient.name, ["dX", "dScale", "dBias"][output]);
        let input = forward.tensor(forward.input_at(position).unwrap());
        let like_input = TensorDesc::contiguous(input.desc.shape(), input.desc.dtype);
        assert_eq!(gradient.desc, like_input);
        for (slope, actual) in slopes.zip(actual.output(output)) {
            assert!(
                (slope - actual).abs() <= 1e-5 * slope.abs().max(1.0),
                "{} is {actual}, the slope {slope}: {forward:#?}",
                gradient.name
            );
        }
    }
    assert_eq!(program.outputs().count(), positions.len());
    let above = program.tensor(program.input_at(Program::OUTPUT_GRADIENT).unwrap());
    assert_eq!(above.name, "dY");
    assert_eq!(
        above.desc,
        TensorDesc::contiguous(y.desc.shape(), y.desc.dtype)
    );
    program
}

#[track_caller]
fn check_operator(
    operator: Operator,
    inputs: Inputs<'_>,
    positions: &[usize],
    random: &mut Random,
) -> Program {
    let forward = lowered(&operator, &inputs, &[true]);
    let tensors = inputs.iter().enumerate();
    let tensors: Vec<_> = tensors
        .filter_map(|(p, t)| Some((p, t.as_ref()?.0)))
        .collect();
    check(&forward, &tensors, positions, random)
}

/// A tensor, a scale and a bias, of any shapes.
fn with_parameters(random: &mut Random, shape: &[usize], parameters: &[usize]) -> [Tensor; 3] {
    let x = any_order(random, shape);
    let [scale, bias] = [(); 2].map(|()| any_order(random, parameters));
    [x, scale, bias]
}

#[test]
fn mean_variance_normalization_differentiates_the_deviation() {
    for seed in 0..12 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 1 + seed as usize % 4);
        let x = any_order(random, &shape);
        let mut axes = random.axes(shape.len());
        if axes.is_empty() {
            axes.push(0);
        }
        let axes = axes.iter().map(|&axis| axis as i64).collect();
        let operator = Operator::MeanVarianceNormalization(MeanVarianceNormalization { axes });
        check_operator(operator, vec![Some((&x, DType::F64))], &[0], random);
    }
}

#[test]
fn lp_normalization_differentiates_its_norm() {
    for seed in 0..16 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 1 + seed as usize % 4);
        let x = any_order(random, &shape);
        let operator = Operator::LpNormalization(LpNormalization {
            axis: random.below(shape.len()) as i64,
            p: 1 + (seed / 4) as i64 % 2,
        });
        check_operator(operator, vec![Some((&x, DType::F32))], &[0], random);
    }
}

#[test]
fn layer_normalization_has_gradients_of_its_parameters() {
    for seed in 0..16 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 1 + seed as usize % 4);
        let first = random.below(shape.len());
        let aligned = random.below(first + 1);
        let parameters = random.broadcast(&shape[aligned..]);
        let [x, scale, bias] = with_parameters(random, &shape, &parameters);
        let operator = Operator::LayerNormalization(LayerNormalization {
            axis: first as i64,
            epsilon: EPSILON,
            ..LayerNormalization::default()
        });
        let mut inputs = vec![Some((&x, DType::F32)), Some((&scale, DType::F32))];
        check_operator(operator.clone(), inputs.clone(), &[0, 1], random);
        inputs.push(Some((&bias, DType::F32)));
        check_operator(operator, inputs, &[0, 1, 2], random);
    }
}

#[test]
fn further_outputs_change_nothing() {
    let random = &mut Random::new(7);
    let [x, scale, bias] = with_parameters(random, &[2, 3, 4], &[4]);
    let operator = Operator::LayerNormalization(LayerNormalization::default());
    let inputs: Inputs<'_> = [&x, &scale, &bias].map(|t| Some((t, DType::F32))).into();
    let alone = lowered(&operator, &inputs, &[true]).gradient();
    let with_statistics = lowered(&operator, &inputs, &[true, true, true]).gradient();
    assert_eq!(alone, with_statistics);
    assert!(alone.is_ok());
}

#[test]
fn rms_normalization_converts_other_dtypes() {
    for seed in 0..24 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 1 + seed as usize % 3);
        let first = random.below(shape.len());
        let x = any_order(random, &shape);
        let scale = any_order(random, &shape[first..]);
        let dtypes = [(); 2].map(|()| DType::ALL[random.below(DType::ALL.len())]);
        let operator = RmsNormalization {
            axis: first as i64,
            epsilon: EPSILON,
            stash_type: [1, 11][random.below(2)],
        };
        let operator = match random.flag() {
            true => Operator::RmsNormalization(operator),
            false => Operator::SimplifiedLayerNormalization(SimplifiedLayerNormalization {
                axis: operator.axis,
                epsilon: operator.epsilon,
                stash_type: operator.stash_type,
            }),
        };
        let inputs = vec![Some((&x, dtypes[0])), Some((&scale, dtypes[1]))];
        check_operator(operator, inputs, &[0, 1], random);
    }
}

#[test]
fn instance_normalization_gradients_stay_in_channels() {
    for seed in 0..8 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 3 + seed as usize % 2);
        let [x, scale, bias] = with_parameters(random, &shape, &shape[1..2]);
        let operator = InstanceNormalization { epsilon: EPSILON };
        let inputs = [&x, &scale, &bias].map(|t| Some((t, DType::F32)));
        let operator = Operator::InstanceNormalization(operator);
        check_operator(operator, inputs.into(), &[0, 1, 2], random);
    }
}

#[test]
fn group_normalization_gradients_are_per_channel() {
    for seed in 0..16 {
        let random = &mut Random::new(seed);
        let mut shape = sizes(random, 2 + seed as usize % 3);
        let groups = 1 + random.below(3);
        shape[1] = groups * (2 + random.below(2));
        let by_group = random.flag();
        let parameters = [if by_group { groups } else { shape[1] }];
        let [x, scale, bias] = with_parameters(random, &shape, &parameters);
        let mut operator = GroupNormalization::new(groups as i64);
        operator.epsilon = EPSILON;
        operator.stash_type = [1, 11][random.below(2)];
        if by_group {
            operator.version = GroupNormalizationVersion::V18;
        }
        let inputs = [&x, &scale, &bias].map(|t| Some((t, DType::F16)));
        let operator = Operator::GroupNormalization(operator);
        check_operator(operator, inputs.into(), &[0, 1, 2], random);
    }
}

#[test]
fn batch_normalization_differentiates_statistics_in_training() {
    for seed in 0..24 {
        let random = &mut Random::new(seed);
        let shape = sizes(random, 1 + seed as usize % 4);
        let channels = [shape.get(1).copied().unwrap_or(1)];
        let [x, scale, bias] = with_parameters(random, &shape, &channels);
        let mean = any_order(random, &channels);
        let variance = any_order(random, &channels).positive();
        let trains = seed % 2 == 0;
        let operator = Operator::BatchNormalization(BatchNormalization {
            epsilon: EPSILON,
            training_mode: trains,
            ..BatchNormalization::new(BatchNormalizationVersion::V15)
        });
        let given = if random.flag() {
            DType::F32
        } else {
            DType::F16
        };
        let inputs: Inputs<'_> = vec![
            Some((&x, DType::F16)),
            Some((&scale, DType::F16)),
            Some((&bias, DType::F16)),
            Some((&mean, given)),
            Some((&variance, given)),
        ];
        let program = check_operator(operator.clone(), inputs.clone(), &[0, 1, 2], random);
        assert_eq!(program.input_at(3).is_none(), trains);
        let normalizes = |step: &Step| matches!(step, Step::Normalize(_));
        assert_eq!(program.steps.iter().any(normalizes), trains);
        if trains {
            let moved = lowered(&operator, &inputs, &[true, true, true]).gradient();
            assert_eq!(moved, Ok(program));
        }
    }
}

#[test]
fn nonspatial_batch_normalization_has_parameters_per_element() {
    let random = &mut Random::new(3);
    let [x, scale, bias] = with_parameters(random, &[3, 2, 4], &[2, 4]);
    let [mean, variance] = [(); 2].map(|()| any_order(random, &[2, 4]).positive());
    let operator = Operator::BatchNormalization(BatchNormalization {
        spatial: false,
        ..BatchNormalization::new(BatchNormalizationVersion::V7)
    });
    let inputs = [&x, &scale, &bias, &mean, &variance].map(|t| Some((t, DType::F32)));
    check_operator(operator, inputs.into(), &[0, 1, 2], random);
}

#[test]
fn directml_activations_are_differentiated() {
    for has_statistics in [true, false] {
        let random = &mut Random::new(5);
        let sizes = [2, 3, 4, 5];
        let tensor = directml::TensorDesc::packed(directml::DataType::Float32, [2, 3, 4, 5]);
        let parameter = directml::TensorDesc::packed(directml::DataType::Float32, [1, 3, 1, 1]);
        let mut operator =
            directml::MeanVarianceNormalization2::new(tensor.clone(), tensor, [0, 2, 3])
                .with_scale_tensor(parameter.clone())
                .with_bias_tensor(parameter)
                .with_fused_activation(directml::FusedActivation::Softplus { steepness: 1.5 });
        if !has_statistics {
            (operator.use_mean, operator.use_variance) = (false, false);
        }
        let forward = operator.lower().unwrap();
        let x = Tensor::contiguous(&sizes, random);
        let [scale, bias] = [(); 2].map(|()| Tensor::contiguous(&[1, 3, 1, 1], random));
        let positions: Vec<usize> = forward
            .inputs()
            .map(|(_, tensor)| tensor.position)
            .collect();
        let inputs = [&x, &scale, &bias];
        let inputs: Vec<_> = positions.iter().copied().zip(inputs).collect();
        let program = check(&forward, &inputs, &positions, random);
        assert!(
            program
                .inputs()
                .any(|(_, tensor)| tensor.name == "BiasTensor")
        );
    }
}

#[test]
fn unread_inputs_are_not_required() {
    let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
    let inputs = [f32(&[2, 3, 4]), f32(&[3]), f32(&[3]), f32(&[3]), f32(&[3])];
    let operator = BatchNormalization::new(BatchNormalizationVersion::V15);
    let program = operator
        .lower(&inputs, &[true])
        .unwrap()
        .gradient()
        .unwrap();
    let read: Vec<&str> = program.inputs().map(|(_, tensor)| tensor.name).collect();
    assert_eq!(read, ["X", "scale", "input_mean", "input_var", "dY"]);
    let roles = program.tensors.iter().filter(|t| t.role == Role::Output);
    assert_eq!(roles.count(), 3);
}

#[test]
fn residuals_and_gradients_have_no_backward_pass() {
    let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
    let reason = |program: Program| match program.gradient() {
        Err(OperatorError::NoGradient { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let inputs = [f32(&[2, 4]), f32(&[2, 4]), f32(&[4]), None];
    let skip = SkipLayerNormalization::default();
    let program = skip.lower(&inputs, &[true]).unwrap();
    assert_eq!(reason(program), "it adds a residual");
    let inputs = [f32(&[2, 4]), f32(&[2, 4]), f32(&[4]), None, f32(&[4])];
    let program = skip.lower(&inputs, &[true]).unwrap();
    assert_eq!(reason(program), "it is more than one normalization");
    let program = LpNormalization::default().lower(&[f32(&[2, 4])], &[true]);
    let gradient = program.unwrap().gradient().unwrap();
    assert_eq!(reason(gradient), "it is a gradient itself");
    let nothing = Program {
        tensors: vec![],
        steps: vec![],
    };
    assert_eq!(reason(nothing), "it does not normalize");
}
