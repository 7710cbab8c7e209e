//! Random descriptions against the reference, and their gradients against central differences.
//!
//! Rank, axes, strides, broadcasting, dtype, statistics, epsilon, residual, offset, rounding, rotation, activation and
//! strategy vary all at once.
//!
//! `CUBENORM_PROPERTY_CASES` sets the number of cases per device (default: 200). proptest shrinks a
//! failure and prints its description.

use cubenorm_core::{
    Activation, BackwardDesc, DType, Epsilon, Layout, NormDesc, Offset, ResidualPlace,
    RotatedPairs, Rotation, Rounding, Statistics, StrategyChoice, TensorDesc, WrittenStatistics,
};
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::Case;
use cubenorm_tests::choice::{all_knobs, gradient_runs, runs};
use cubenorm_tests::device::{TestDevice, devices};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A random layout of a shape: permuted axes, gaps, and repeated axes of stride 0.
fn layout(shape: Vec<usize>, may_repeat: bool) -> impl Strategy<Value = Layout> {
    let rank = shape.len();
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let order = prop_oneof![3 => Just((0..rank).collect::<Vec<_>>()), 2 => order];
    let gaps = prop::collection::vec(prop_oneof![6 => Just(1usize), 1 => 2usize..4], rank);
    let repeats = prop::collection::vec(prop::bool::weighted(0.1), rank);
    (order, gaps, repeats).prop_map(move |(order, gaps, repeats)| {
        let mut strides = vec![0; rank];
        let mut stride = 1;
        for &dim in order.iter().rev() {
            stride *= gaps[dim];
            strides[dim] = match may_repeat && repeats[dim] {
                true => 0,
                false => stride,
            };
            stride *= shape[dim].max(1);
        }
        Layout::strided(shape.clone(), strides)
    })
}

/// A shape that broadcasts to `shape`: leading dimensions are missing, others may be 1.
fn broadcast(shape: Vec<usize>) -> impl Strategy<Value = Vec<usize>> {
    let rank = shape.len();
    let missing = prop_oneof![2 => Just(0), 1 => 0..rank];
    (missing, prop::collection::vec(any::<bool>(), rank)).prop_map(move |(missing, ones)| {
        (missing..rank)
            .map(|dim| if ones[dim] { 1 } else { shape[dim] })
            .collect()
    })
}

fn param(shape: Vec<usize>, dtype: DType) -> impl Strategy<Value = Option<TensorDesc>> {
    let tensor = broadcast(shape)
        .prop_flat_map(|shape| layout(shape, true))
        .prop_map(move |layout| TensorDesc::new(layout, dtype));
    prop::option::of(tensor)
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1usize..4, Just(8), Just(16), Just(31), Just(64)];
    prop_oneof![
        prop::collection::vec(size, 1..4),
        prop::collection::vec(1usize..5, 3..9),
        (1usize..6, prop_oneof![Just(1024usize), 500usize..1500]).prop_map(|(r, c)| vec![r, c]),
    ]
}

fn activation() -> impl Strategy<Value = Activation> {
    prop::sample::select(vec![
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu { alpha: 0.2 },
        Activation::HardSigmoid {
            alpha: 0.3,
            beta: 0.4,
        },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Softplus { steepness: 1.5 },
        Activation::Shrink {
            bias: 0.1,
            threshold: 0.1,
        },
    ])
}

/// A rotation of a part of the last dimension.
fn rotation(shape: Vec<usize>, dtype: DType) -> impl Strategy<Value = Option<Rotation>> {
    let pairs = prop::sample::select(vec![RotatedPairs::HalfSplit, RotatedPairs::Interleaved]);
    let features = shape.last().copied().unwrap_or(0);
    let dim = (1..=(features / 2).max(1)).prop_map(|half| 2 * half);
    let rotation = (broadcast(shape), dim, pairs).prop_flat_map(move |(mut shape, dim, pairs)| {
        shape.pop();
        shape.push(2 * dim);
        layout(shape, true).prop_map(move |layout| Rotation {
            table: TensorDesc::new(layout, dtype),
            pairs,
        })
    });
    prop::option::of(rotation).prop_map(move |it| it.filter(|it| it.dim() <= features))
}

fn desc(dtypes: Vec<DType>) -> impl Strategy<Value = NormDesc> {
    let dtype = prop::sample::select(dtypes.clone());
    (shape(), dtype, any::<[bool; 2]>()).prop_flat_map(move |(shape, dtype, wide)| {
        let [params, given] = wide.map(|wide| if wide { dtype.accumulation() } else { dtype });
        let of_given = (broadcast(shape.clone()), broadcast(shape.clone())).prop_map(
            move |(mean, variance)| Statistics::Provided {
                mean: TensorDesc::contiguous(mean, given),
                variance: TensorDesc::contiguous(variance, given),
            },
        );
        let of_alpha = broadcast(shape.clone()).prop_map(move |alpha| Statistics::DynamicTanh {
            alpha: TensorDesc::contiguous(alpha, given),
        });
        let statistics = prop_oneof![
            5 => Just(Statistics::MeanVariance),
            2 => Just(Statistics::MeanSquare),
            1 => Just(Statistics::Mean),
            1 => Just(Statistics::L1Norm),
            1 => Just(Statistics::L2Norm),
            1 => Just(Statistics::None),
            1 => of_given,
            1 => of_alpha,
        ];
        let epsilon = prop_oneof![
            3 => (1e-5..1e-1f64).prop_map(Epsilon::InsideSqrt),
            1 => (1e-3..1e-1f64).prop_map(Epsilon::AddedToDeviation),
        ];
        let axes = prop::sample::subsequence((0..shape.len()).collect::<Vec<_>>(), 0..=shape.len());
        let input = layout(shape.clone(), true);
        let residual = prop::option::weighted(0.3, layout(shape.clone(), true));
        let output = prop::option::weighted(0.3, layout(shape.clone(), false));
        let turn = rotation(shape.clone(), dtype.accumulation());
        let (scale, bias) = (param(shape.clone(), params), param(shape, params));
        let offset = prop_oneof![3 => Just(0.0), 1 => Just(1.0), 1 => -2.0..2.0];
        let rounding = prop_oneof![3 => Just(Rounding::None), 1 => Just(Rounding::BeforeScale)];
        let mixing: Vec<DType> = dtypes
            .iter()
            .copied()
            .filter(|it| it.mixes_with(dtype))
            .collect();
        let mixed = || prop_oneof![4 => Just(dtype), 1 => prop::sample::select(mixing.clone())];
        let tensors = (input, residual, scale, bias, output, mixed(), mixed());
        let rest = (
            axes,
            statistics,
            epsilon,
            activation(),
            any::<bool>(),
            prop::sample::select(vec![
                ResidualPlace::Input,
                ResidualPlace::Output,
                ResidualPlace::InputGate,
                ResidualPlace::OutputGate,
            ]),
            prop::option::of(prop::sample::select(vec![
                WrittenStatistics::MeanRstd,
                WrittenStatistics::MeanVariance,
            ])),
            (offset, rounding, turn),
        );
        (tensors, rest).prop_map(move |(tensors, rest)| {
            let (input, residual, scale, bias, output, of_residual, of_output) = tensors;
            let (axes, statistics, epsilon, activation, sum, place, written, more) = rest;
            let (offset, rounding, turn) = more;
            let tensor = |dtype| move |layout| TensorDesc::new(layout, dtype);
            let written = written.filter(|written| match statistics {
                Statistics::MeanVariance | Statistics::MeanSquare => true,
                Statistics::Provided { .. } | Statistics::None | Statistics::DynamicTanh { .. } => {
                    false
                }
                _ => *written == WrittenStatistics::MeanRstd,
            });
            let mut desc = NormDesc::new(tensor(dtype)(input), axes, statistics)
                .with_epsilon(epsilon)
                .with_residual(residual.map(tensor(of_residual)))
                .with_scale(scale)
                .with_offset(Offset::from(offset))
                .with_rounding(rounding)
                .with_bias(bias)
                .with_activation(activation)
                .with_output(output.map(tensor(of_output)));
            desc.residual_place = place;
            // A gate in front takes no parameters.
            if place == ResidualPlace::InputGate && activation.parameters() != [0.0, 0.0] {
                desc.activation = Activation::Silu;
            }
            desc.writes_sum = sum && place == ResidualPlace::Input;
            desc.written_statistics = written;
            // A rotation takes whole rows and no activation.
            let is_given = matches!(
                desc.statistics,
                Statistics::Provided { .. } | Statistics::DynamicTanh { .. }
            );
            let is_of_rows = desc.axes == [desc.input.shape().len() - 1] && !is_given;
            if let Some(turn) = turn.filter(|_| is_of_rows && place == ResidualPlace::Input) {
                desc.activation = Activation::Identity;
                desc.rotation = Some(turn);
            }
            desc
        })
    })
}

/// Gradients of a random description that central differences can check.
///
/// The activation is smooth, since a difference across a kink is meaningless. Epsilon is large
/// enough for a smooth reciprocal deviation.
fn gradient(dtypes: Vec<DType>) -> impl Strategy<Value = BackwardDesc> {
    let all = dtypes.clone();
    let wants = any::<[bool; 3]>().prop_filter("nothing to compute", |wants| wants.contains(&true));
    let is_small = |norm: &NormDesc| norm.input.shape().iter().product::<usize>() <= 5000;
    let norm = desc(dtypes).prop_filter("differences take long", is_small);
    let norm = norm.prop_map(|mut norm| {
        norm.activation = match norm.activation {
            Activation::Relu | Activation::LeakyRelu { .. } => Activation::Silu,
            Activation::HardSigmoid { .. } | Activation::Shrink { .. } => Activation::Gelu,
            smooth => smooth,
        };
        norm.epsilon = match norm.epsilon {
            Epsilon::InsideSqrt(epsilon) => Epsilon::InsideSqrt(epsilon.max(1e-2)),
            Epsilon::AddedToDeviation(epsilon) => Epsilon::AddedToDeviation(epsilon.max(1e-1)),
        };
        // Provided statistics are one pair per row: reduce the axes along which both repeat.
        if let Statistics::Provided { mean, variance } = &norm.statistics {
            let rank = norm.input.shape().len();
            let repeats = |tensor: &TensorDesc, dim: usize| {
                let shape = tensor.shape();
                let missing = rank - shape.len();
                dim < missing || shape[dim - missing] == 1
            };
            let both = |dim: &usize| repeats(mean, *dim) && repeats(variance, *dim);
            norm.axes = (0..rank).filter(both).collect();
        }
        if !norm.residual_place.is_gate() {
            (norm.residual, norm.residual_place) = (None, ResidualPlace::Input);
        }
        (norm.output, norm.writes_sum, norm.written_statistics) = (None, false, None);
        // A difference sees the steps of a rounding, which gradients pass through unchanged.
        (norm.rotation, norm.rounding) = (None, Rounding::None);
        if let Statistics::DynamicTanh { .. } = norm.statistics {
            norm.statistics = Statistics::MeanSquare;
        }
        norm
    });
    (norm, wants).prop_flat_map(move |(norm, [input, scale, bias])| {
        let dtype = norm.input.dtype;
        let mixing: Vec<DType> = all
            .iter()
            .copied()
            .filter(|it| it.mixes_with(dtype))
            .collect();
        let of_output = prop_oneof![4 => Just(dtype), 1 => prop::sample::select(mixing)];
        let shape = norm.input.shape().to_vec();
        let of_sum = prop::option::weighted(0.3, layout(shape.clone(), false));
        (layout(shape, true), of_sum, of_output).prop_map(move |(above, of_sum, of_output)| {
            let mut gradient = BackwardDesc::new(norm.clone());
            if let Some(layout) = of_sum.filter(|_| input && gradient.gate_gradient.is_none()) {
                gradient = gradient.with_sum_gradient(TensorDesc::new(layout, dtype));
            }
            gradient.output_gradient = TensorDesc::new(above, of_output);
            gradient.input_gradient = gradient.input_gradient.filter(|_| input);
            gradient.gate_gradient = gradient.gate_gradient.filter(|_| input);
            gradient.wants_scale &= scale;
            gradient.wants_bias &= bias;
            gradient
        })
    })
}

fn check(
    device: &TestDevice,
    desc: NormDesc,
    choice: StrategyChoice,
    seed: u64,
) -> Result<(), String> {
    let computed = |activation| {
        cubenorm_kernels::supports_activation(&device.client, desc.input.dtype, activation)
    };
    let is_tanh = matches!(desc.statistics, Statistics::DynamicTanh { .. });
    if !computed(desc.activation) || is_tanh && !computed(Activation::Tanh) {
        return Ok(());
    }
    // A forced strategy may not apply. The inferred one always does.
    let choice = match runs(device, &desc, choice) {
        true => choice,
        false => StrategyChoice::Inferred,
    };
    Case::new(desc.clone(), seed).check(device, choice)
}

fn check_backward(
    device: &TestDevice,
    desc: BackwardDesc,
    choice: StrategyChoice,
    seed: u64,
) -> Result<(), String> {
    let (client, norm) = (&device.client, &desc.norm);
    if !cubenorm_kernels::supports_activation(client, norm.input.dtype, norm.activation) {
        return Ok(());
    }
    let choice = match gradient_runs(device, &desc, choice) {
        true => choice,
        false => StrategyChoice::Inferred,
    };
    BackwardCase::of(desc.clone(), seed).check(device, choice)
}

/// Runs random cases on every device.
fn run<T: std::fmt::Debug, S: Strategy<Value = T>>(
    what: &str,
    values: impl Fn(Vec<DType>) -> S,
    check: impl Fn(&TestDevice, T, StrategyChoice, u64) -> Result<(), String>,
) {
    let cases = std::env::var("CUBENORM_PROPERTY_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(200);
    for device in devices() {
        let knobs = prop::sample::select(all_knobs(&device));
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        });
        let result = runner.run(
            &(values(device.dtypes()), knobs, any::<u64>()),
            |(desc, knobs, seed)| {
                check(&device, desc, knobs.into(), seed).map_err(TestCaseError::fail)
            },
        );
        if let Err(error) = result {
            panic!("{}: {error}", device.name);
        }
        println!("{}: {cases} random {what} agree", device.name);
    }
}

#[test]
fn random_descriptions_agree_with_the_reference() {
    run("descriptions", desc, check);
}

#[test]
fn random_gradients_agree_with_central_differences() {
    run("gradients", gradient, check_backward);
}
