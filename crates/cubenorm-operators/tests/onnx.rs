//! Every ONNX operator, lowered and run on the host, compared with the reference.

mod support;

use std::collections::BTreeMap;

use cubenorm_core::{DType, TensorDesc};
use cubenorm_operators::onnx::{
    AttributeValue, BatchNormalization, BatchNormalizationVersion, GroupNormalization,
    GroupNormalizationVersion, InstanceNormalization, LayerNormalization, LpNormalization,
    MeanVarianceNormalization, Operator, RmsNormalization, SimplifiedLayerNormalization,
    SkipLayerNormalization, SkipSimplifiedLayerNormalization,
};
use cubenorm_operators::{Program, Role, Step};
use cubenorm_reference::operators::onnx as formula;
use support::{Random, Tensor, assert_close, run};

const EPSILON: f32 = 1e-3;

/// A node's inputs by position, each with its dtype.
type Inputs<'a> = Vec<Option<(&'a Tensor, DType)>>;

fn descs(inputs: &Inputs<'_>) -> Vec<Option<TensorDesc>> {
    let desc = |&(tensor, dtype): &(&Tensor, DType)| tensor.desc(dtype);
    inputs
        .iter()
        .map(|input| input.as_ref().map(desc))
        .collect()
}

fn tensors<'a>(inputs: &Inputs<'a>) -> Vec<(usize, &'a Tensor)> {
    let inputs = inputs.iter().enumerate();
    inputs
        .filter_map(|(position, input)| Some((position, input.as_ref()?.0)))
        .collect()
}

/// Compares every wanted output of an operator with its formula. Returns the program.
#[track_caller]
fn check(operator: &Operator, inputs: &Inputs<'_>, wanted: &[bool]) -> Program {
    let program = operator.lower(&descs(inputs), wanted).unwrap();
    let actual = run(&program, &tensors(inputs));
    let numbers = |&(tensor, dtype): &(&Tensor, DType)| tensor.numbers(dtype);
    let numbers: Vec<_> = inputs
        .iter()
        .map(|input| input.as_ref().map(numbers))
        .collect();
    let numbers: Vec<_> = numbers.iter().map(Option::as_ref).collect();
    let expected = formula(operator, &numbers, wanted);
    for position in (0..wanted.len()).filter(|&position| wanted[position]) {
        let expected = expected[position].as_ref().expect("the operator has it");
        assert_close(&actual.output(position), expected, (operator, position));
    }
    let count = wanted.iter().filter(|&&wanted| wanted).count();
    assert_eq!(program.outputs().count(), count);
    program
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

/// Dtypes of a program's outputs.
fn output_dtypes(program: &Program) -> Vec<DType> {
    program
        .outputs()
        .map(|(_, tensor)| tensor.desc.dtype)
        .collect()
}

/// Shape from some dimension on, with 1 for some sizes.
fn trailing(random: &mut Random, shape: &[usize]) -> Vec<usize> {
    let first = random.below(shape.len() + 1);
    random.broadcast(&shape[first..])
}

#[test]
fn layer_normalization_reduces_dimensions_from_axis_on() {
    for seed in 0..120 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let first = random.below(rank);
        let dtype = pick(random, &DType::ALL);
        let x = Tensor::strided(&shape, random);
        let [scale, bias] = [(); 2].map(|()| {
            let shape = trailing(random, &shape);
            Tensor::contiguous(&shape, random)
        });
        let has_bias = random.flag();
        let operator = Operator::LayerNormalization(LayerNormalization {
            axis: first as i64 - if random.flag() { rank as i64 } else { 0 },
            epsilon: EPSILON,
            stash_type: pick(random, &[1, 16]),
        });
        let inputs = vec![
            Some((&x, dtype)),
            Some((&scale, dtype)),
            has_bias.then_some((&bias, dtype)),
        ];
        let wanted = [true, random.flag(), random.flag()];
        check(&operator, &inputs, &wanted);
    }
}

#[test]
fn layer_normalization_writes_statistics_in_the_stash_type() {
    let x = Some(TensorDesc::contiguous([2, 3], DType::F16));
    let scale = Some(TensorDesc::contiguous([3], DType::F16));
    for (stash_type, dtype) in [(1, DType::F32), (16, DType::BF16)] {
        let operator = LayerNormalization {
            stash_type,
            ..LayerNormalization::default()
        };
        let inputs = [x.clone(), scale.clone()];
        let program = operator.lower(&inputs, &[true, true, true]).unwrap();
        assert_eq!(output_dtypes(&program), [DType::F16, dtype, dtype]);
    }
}

#[test]
fn rms_normalization_outputs_have_the_dtype_of_the_scale() {
    for seed in 0..160 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let first = random.below(rank);
        let (x_dtype, scale_dtype) = (pick(random, &DType::ALL), pick(random, &DType::ALL));
        let x = Tensor::strided(&shape, random);
        let scale = trailing(random, &shape);
        let scale = Tensor::contiguous(&scale, random);
        let axis = first as i64 - if random.flag() { rank as i64 } else { 0 };
        let simplified = random.flag();
        let (operator, wanted) = match simplified {
            false => {
                let operator = RmsNormalization {
                    axis,
                    epsilon: EPSILON,
                    stash_type: pick(random, &[1, 10, 11, 16]),
                };
                (Operator::RmsNormalization(operator), [true, false])
            }
            true => {
                let operator = SimplifiedLayerNormalization {
                    axis,
                    epsilon: EPSILON,
                    stash_type: pick(random, &[1, 11]),
                };
                let operator = Operator::SimplifiedLayerNormalization(operator);
                (operator, [true, random.flag()])
            }
        };
        let inputs = vec![Some((&x, x_dtype)), Some((&scale, scale_dtype))];
        let program = check(&operator, &inputs, &wanted[..1 + usize::from(simplified)]);
        assert_eq!(output_dtypes(&program)[0], scale_dtype);
    }
}

#[test]
fn rms_normalization_of_one_dtype_is_one_step() {
    for dtype in DType::ALL {
        let x = Some(TensorDesc::contiguous([4, 8], dtype));
        let scale = Some(TensorDesc::contiguous([8], dtype));
        let program = RmsNormalization::default()
            .lower(&[x, scale], &[true])
            .unwrap();
        assert_eq!(program.steps.len(), 1);
    }
}

#[test]
fn stash_types_of_f64_compute_in_f64() {
    let x = Some(TensorDesc::contiguous([4, 8], DType::F32));
    let scale = Some(TensorDesc::contiguous([8], DType::F32));
    let operator = RmsNormalization {
        stash_type: 11,
        ..RmsNormalization::default()
    };
    let program = operator.lower(&[x, scale], &[true]).unwrap();
    let computed = program.steps.iter().find_map(|step| match step {
        Step::Normalize(step) => Some(step.desc.input.dtype),
        _ => None,
    });
    assert_eq!(computed, Some(DType::F64));
    assert_eq!(output_dtypes(&program), [DType::F32]);
}

#[test]
fn mean_variance_normalization_adds_epsilon_to_the_deviation() {
    for seed in 0..80 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let x = Tensor::strided(&shape, random);
        let axes = random.axes(rank);
        let negative = |&axis: &usize| axis as i64 - if seed % 2 == 0 { rank as i64 } else { 0 };
        let operator = Operator::MeanVarianceNormalization(MeanVarianceNormalization {
            axes: axes.iter().map(negative).collect(),
        });
        let inputs = vec![Some((&x, pick(random, &DType::ALL)))];
        check(&operator, &inputs, &[true]);
    }
}

#[test]
fn lp_normalization_is_0_for_a_norm_of_0() {
    for seed in 0..80 {
        let random = &mut Random::new(seed);
        let rank = 1 + seed as usize % 8;
        let shape = random.shape(rank);
        let mut x = Tensor::contiguous(&shape, random);
        let zeros = random.below(x.buffer.len());
        x.buffer[..zeros].fill(0.0);
        let (axis, p) = (random.below(rank), 1 + random.below(2) as i64);
        let operator = Operator::LpNormalization(LpNormalization {
            axis: axis as i64,
            p,
        });
        let inputs = vec![Some((&x, DType::F32))];
        check(&operator, &inputs, &[true]);
    }
}

#[test]
fn instance_normalization_reduces_after_the_channels() {
    for seed in 0..70 {
        let random = &mut Random::new(seed);
        let rank = 2 + seed as usize % 7;
        let shape = random.shape(rank);
        let x = Tensor::strided(&shape, random);
        let [scale, bias] = [(); 2].map(|()| Tensor::strided(&[shape[1]], random));
        let operator = Operator::InstanceNormalization(InstanceNormalization { epsilon: EPSILON });
        let dtype = pick(random, &DType::ALL);
        let inputs = [&x, &scale, &bias]
            .map(|tensor| Some((tensor, dtype)))
            .to_vec();
        check(&operator, &inputs, &[true]);
    }
}

#[test]
fn group_normalization_reduces_each_group() {
    for seed in 0..140 {
        let random = &mut Random::new(seed);
        let rank = 2 + seed as usize % 7;
        let mut shape = random.shape(rank);
        let groups = 1 + random.below(3);
        let each = 1 + random.below(2);
        shape[1] = groups * each;
        // The groups take a dimension. At rank 8 the last two are merged, so they must be adjacent.
        let x = match rank {
            8 => Tensor::contiguous(&shape, random),
            _ => Tensor::strided(&shape, random),
        };
        let version = match random.flag() {
            true => GroupNormalizationVersion::V18,
            false => GroupNormalizationVersion::V21,
        };
        let parameters = match version {
            GroupNormalizationVersion::V18 => groups,
            GroupNormalizationVersion::V21 => groups * each,
        };
        let [scale, bias] = [(); 2].map(|()| Tensor::strided(&[parameters], random));
        let operator = Operator::GroupNormalization(GroupNormalization {
            num_groups: groups as i64,
            epsilon: EPSILON,
            stash_type: pick(random, &[1, 10, 11, 16]),
            version,
        });
        let dtype = pick(random, &DType::ALL);
        let inputs = [&x, &scale, &bias]
            .map(|tensor| Some((tensor, dtype)))
            .to_vec();
        let program = check(&operator, &inputs, &[true]);
        let y = program.output_at(0).unwrap();
        assert_eq!(program.tensor(y).desc.shape(), shape);
    }
}

/// Shapes of a BatchNormalization's input and parameters.
fn batch(random: &mut Random, rank: usize, per_element: bool) -> (Vec<usize>, Vec<usize>) {
    let shape = random.shape(rank);
    let channels = match rank {
        1 => vec![1],
        _ if per_element => shape[1..].to_vec(),
        _ => vec![shape[1]],
    };
    (shape, channels)
}

const VERSIONS: [BatchNormalizationVersion; 4] = [
    BatchNormalizationVersion::V7,
    BatchNormalizationVersion::V9,
    BatchNormalizationVersion::V14,
    BatchNormalizationVersion::V15,
];

/// Dtypes of `X`, of scale and bias, and of mean and variance in a version.
fn batch_dtypes(random: &mut Random, version: BatchNormalizationVersion) -> [DType; 3] {
    let x = pick(random, &DType::ALL);
    let parameter = match version {
        BatchNormalizationVersion::V15 => pick(random, &DType::ALL),
        _ => x,
    };
    let statistic = match version >= BatchNormalizationVersion::V14 {
        true => pick(random, &DType::ALL),
        false => x,
    };
    [x, parameter, statistic]
}

#[test]
fn batch_normalization_inference_uses_provided_statistics() {
    for seed in 0..160 {
        let random = &mut Random::new(seed);
        let version = VERSIONS[seed as usize % 4];
        let spatial = version != BatchNormalizationVersion::V7 || random.flag();
        let (shape, channels) = batch(random, 1 + seed as usize / 4 % 8, !spatial);
        let x = Tensor::strided(&shape, random);
        let [scale, bias, mean] = [(); 3].map(|()| Tensor::strided(&channels, random));
        let variance = Tensor::strided(&channels, random).positive();
        let operator = Operator::BatchNormalization(BatchNormalization {
            epsilon: EPSILON,
            spatial,
            ..BatchNormalization::new(version)
        });
        let [t, t1, t2] = batch_dtypes(random, version);
        let inputs = vec![
            Some((&x, t)),
            Some((&scale, t1)),
            Some((&bias, t1)),
            Some((&mean, t2)),
            Some((&variance, t2)),
        ];
        let program = check(&operator, &inputs, &[true]);
        assert_eq!(output_dtypes(&program), [t]);
    }
}

#[test]
fn batch_normalization_training_updates_moving_averages() {
    for seed in 0..160 {
        let random = &mut Random::new(seed);
        let version = VERSIONS[seed as usize % 4];
        let spatial = version != BatchNormalizationVersion::V7 || random.flag();
        let (shape, channels) = batch(random, 1 + seed as usize / 4 % 8, !spatial);
        let x = Tensor::strided(&shape, random);
        let [scale, bias, mean] = [(); 3].map(|()| Tensor::strided(&channels, random));
        let variance = Tensor::strided(&channels, random).positive();
        let momentum = 0.75;
        let by_attribute = version >= BatchNormalizationVersion::V14;
        let operator = Operator::BatchNormalization(BatchNormalization {
            epsilon: EPSILON,
            momentum,
            training_mode: by_attribute,
            spatial,
            version,
        });
        let [t, t1, t2] = batch_dtypes(random, version);
        let inputs = vec![
            Some((&x, t)),
            Some((&scale, t1)),
            Some((&bias, t1)),
            Some((&mean, t2)),
            Some((&variance, t2)),
        ];
        let mut wanted = vec![true];
        wanted.extend((0..if by_attribute { 2 } else { 4 }).map(|_| random.flag()));
        if !by_attribute && !wanted[1..].contains(&true) {
            wanted[1 + random.below(4)] = true;
        }
        let program = check(&operator, &inputs, &wanted);
        // Averages that are not wanted are not read.
        assert_eq!(program.input_at(3).is_some(), wanted[1]);
        assert_eq!(program.input_at(4).is_some(), wanted[2]);
        let dtypes = [t2, t2, t, t];
        for position in (1..wanted.len()).filter(|&position| wanted[position]) {
            let slot = program.output_at(position).unwrap();
            assert_eq!(program.tensor(slot).desc.dtype, dtypes[position - 1]);
            assert_eq!(program.tensor(slot).desc.shape(), channels);
        }
    }
}

#[test]
fn skip_connections_are_added_before_the_normalization() {
    for seed in 0..160 {
        let random = &mut Random::new(seed);
        let rank = 2 + random.below(2);
        let shape = random.shape(rank);
        let hidden = shape[shape.len() - 1];
        let skip = match (shape.len(), random.below(3)) {
            (3, 0) => vec![1, shape[1], shape[2]],
            (3, 1) => vec![shape[1], shape[2]],
            _ => shape.clone(),
        };
        let input = Tensor::strided(&shape, random);
        let skip = Tensor::contiguous(&skip, random);
        let [gamma, beta, bias] = [(); 3].map(|()| Tensor::strided(&[hidden], random));
        let (has_beta, has_bias) = (random.flag(), random.flag());
        let simplified = random.flag();
        let dtype = pick(random, &DType::ALL);
        let mut inputs = vec![
            Some((&input, dtype)),
            Some((&skip, dtype)),
            Some((&gamma, dtype)),
        ];
        let operator = match simplified {
            true => {
                let epsilon = EPSILON;
                let operator = SkipSimplifiedLayerNormalization { epsilon };
                Operator::SkipSimplifiedLayerNormalization(operator)
            }
            false => {
                inputs.push(has_beta.then_some((&beta, dtype)));
                let epsilon = EPSILON;
                Operator::SkipLayerNormalization(SkipLayerNormalization { epsilon })
            }
        };
        inputs.push(has_bias.then_some((&bias, dtype)));
        let wanted = [
            true,
            !simplified && random.flag(),
            random.flag(),
            random.flag(),
        ];
        let program = check(&operator, &inputs, &wanted);
        let normalizations = program.steps.iter();
        let normalizations = normalizations.filter(|step| matches!(step, Step::Normalize(_)));
        assert_eq!(normalizations.count(), if has_bias { 2 } else { 1 });
    }
}

#[test]
fn programs_use_needed_tensors_with_specified_names() {
    let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
    let inputs = [f32(&[2, 3, 4]), f32(&[2, 3, 4]), f32(&[4]), None, f32(&[4])];
    let operator = SkipLayerNormalization::default();
    let program = operator.lower(&inputs, &[true, false, true]).unwrap();
    let tensors: Vec<_> = program
        .tensors
        .iter()
        .map(|tensor| (tensor.name, tensor.role, tensor.position))
        .collect();
    assert_eq!(
        tensors,
        [
            ("input", Role::Input, 0),
            ("skip", Role::Input, 1),
            ("gamma", Role::Input, 2),
            ("bias", Role::Input, 4),
            ("output", Role::Output, 0),
            ("input_skip_bias_sum", Role::Temporary, 0),
            ("statistics", Role::Temporary, 1),
            ("inv_std_var", Role::Output, 2),
        ]
    );
    assert_eq!(program.input_at(3), None);
    assert_eq!(program.output_at(1), None);
    assert_eq!(program.output_at(3), None);
}

#[test]
fn empty_tensors_have_empty_outputs() {
    let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
    let layer = LayerNormalization::default();
    let program = layer
        .lower(&[f32(&[0, 5]), f32(&[5])], &[true, true, true])
        .unwrap();
    let x = Tensor::contiguous(&[0, 5], &mut Random::new(0));
    let scale = Tensor::contiguous(&[5], &mut Random::new(1));
    let run = run(&program, &[(0, &x), (1, &scale)]);
    for position in 0..3 {
        assert_eq!(run.output(position), [] as [f64; 0]);
    }
    let channels = || f32(&[0]);
    let group = GroupNormalization::new(2);
    assert!(
        group
            .lower(&[f32(&[2, 0, 3]), channels(), channels()], &[true])
            .is_ok()
    );
    let instance = InstanceNormalization::default();
    assert!(
        instance
            .lower(&[f32(&[2, 0, 3]), channels(), channels()], &[true])
            .is_ok()
    );
    let rms = RmsNormalization::default();
    assert!(rms.lower(&[f32(&[2, 0]), f32(&[0])], &[true]).is_ok());
    let lp = LpNormalization::default();
    assert!(lp.lower(&[f32(&[2, 0])], &[true]).is_ok());
    let mvn = MeanVarianceNormalization::default();
    assert!(mvn.lower(&[f32(&[0, 3, 4, 5])], &[true]).is_ok());
}

fn attributes(list: &[(&str, AttributeValue)]) -> BTreeMap<String, AttributeValue> {
    let owned = |(name, value): &(&str, AttributeValue)| ((*name).to_owned(), value.clone());
    list.iter().map(owned).collect()
}

#[test]
fn nodes_without_attributes_have_specified_defaults() {
    let none = BTreeMap::new();
    let of = |domain, op_type, opset| Operator::from_node(domain, op_type, opset, &none).unwrap();
    for (opset, version) in [(7, 0), (8, 0), (9, 1), (13, 1), (14, 2), (15, 3), (99, 3)] {
        let expected = BatchNormalization {
            epsilon: 1e-5,
            momentum: 0.9,
            training_mode: false,
            spatial: true,
            version: VERSIONS[version],
        };
        let operator = of("", "BatchNormalization", opset);
        assert_eq!(operator, Operator::BatchNormalization(expected));
    }
    assert_eq!(
        of("ai.onnx", "InstanceNormalization", 6),
        Operator::InstanceNormalization(InstanceNormalization { epsilon: 1e-5 })
    );
    assert_eq!(
        of("", "LayerNormalization", 17),
        Operator::LayerNormalization(LayerNormalization {
            axis: -1,
            epsilon: 1e-5,
            stash_type: 1,
        })
    );
    assert_eq!(
        of("", "LpNormalization", 1),
        Operator::LpNormalization(LpNormalization { axis: -1, p: 2 })
    );
    assert_eq!(
        of("", "MeanVarianceNormalization", 9),
        Operator::MeanVarianceNormalization(MeanVarianceNormalization {
            axes: vec![0, 2, 3]
        })
    );
    assert_eq!(
        of("", "RMSNormalization", 23),
        Operator::RmsNormalization(RmsNormalization {
            axis: -1,
            epsilon: 1e-5,
            stash_type: 1,
        })
    );
    for domain in ["", "com.microsoft"] {
        assert_eq!(
            of(domain, "SimplifiedLayerNormalization", 1),
            Operator::SimplifiedLayerNormalization(SimplifiedLayerNormalization {
                axis: -1,
                epsilon: 1e-5,
                stash_type: 1,
            })
        );
    }
    assert_eq!(
        of("com.microsoft", "SkipLayerNormalization", 1),
        Operator::SkipLayerNormalization(SkipLayerNormalization { epsilon: 1e-12 })
    );
    assert_eq!(
        of("com.microsoft", "SkipSimplifiedLayerNormalization", 1),
        Operator::SkipSimplifiedLayerNormalization(SkipSimplifiedLayerNormalization {
            epsilon: 1e-12
        })
    );
}

#[test]
fn nodes_keep_their_attributes() {
    use AttributeValue::{Float, Int, Ints};
    let of = |op_type, opset, list: &[(&str, AttributeValue)]| {
        Operator::from_node("", op_type, opset, &attributes(list)).unwrap()
    };
    for (opset, version) in [
        (18, GroupNormalizationVersion::V18),
        (20, GroupNormalizationVersion::V18),
        (21, GroupNormalizationVersion::V21),
    ] {
        let list = [("num_groups", Int(4)), ("epsilon", Float(0.5))];
        let expected = GroupNormalization {
            num_groups: 4,
            epsilon: 0.5,
            stash_type: 1,
            version,
        };
        let operator = of("GroupNormalization", opset, &list);
        assert_eq!(operator, Operator::GroupNormalization(expected));
        assert_eq!(operator.name(), "GroupNormalization");
    }
    assert_eq!(
        of(
            "BatchNormalization",
            7,
            &[
                ("spatial", Int(0)),
                ("consumed_inputs", Ints(vec![0, 0, 0, 1, 1])),
                ("is_test", Int(1)),
            ]
        ),
        Operator::BatchNormalization(BatchNormalization {
            spatial: false,
            ..BatchNormalization::new(BatchNormalizationVersion::V7)
        })
    );
    assert_eq!(
        of(
            "BatchNormalization",
            15,
            &[
                ("training_mode", Int(1)),
                ("momentum", Float(0.5)),
                ("epsilon", Float(0.25)),
            ]
        ),
        Operator::BatchNormalization(BatchNormalization {
            training_mode: true,
            momentum: 0.5,
            epsilon: 0.25,
            ..BatchNormalization::new(BatchNormalizationVersion::V15)
        })
    );
    assert_eq!(
        of("MeanVarianceNormalization", 13, &[("axes", Ints(vec![1]))]),
        Operator::MeanVarianceNormalization(MeanVarianceNormalization { axes: vec![1] })
    );
    assert_eq!(
        of("LpNormalization", 22, &[("axis", Int(0)), ("p", Int(1))]),
        Operator::LpNormalization(LpNormalization { axis: 0, p: 1 })
    );
}
