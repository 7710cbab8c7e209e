//! Gradients of the kernels against central differences of the f64 reference, on every runtime.

use cubenorm_core::{
    Activation, BackwardDesc, BackwardPlan, DType, Epsilon, Knobs, Layout, NormDesc, ParamSums,
    ResidualPlace, RowBuffering, Staging, StagingPreference, Statistics, Strategy, StrategyChoice,
    TensorDesc, sums_on,
};
use cubenorm_kernels::{
    BackwardTensors, LaunchError, hardware, launch_backward, plan_backward_for, supports,
};
use cubenorm_tests::activations::activations;
use cubenorm_tests::backward::{ActualGradients, BackwardCase};
use cubenorm_tests::case::noise;
use cubenorm_tests::choice::{choices, gradient_runs};
use cubenorm_tests::device::{TestDevice, devices};

fn norm(shape: &[usize], axes: &[usize], statistics: Statistics, dtype: DType) -> NormDesc {
    NormDesc::new(TensorDesc::contiguous(shape, dtype), axes, statistics)
        .with_epsilon(Epsilon::InsideSqrt(1e-3))
}

/// Scale and bias of these shapes.
fn with_params(desc: NormDesc, scale: &[usize], bias: &[usize]) -> NormDesc {
    let dtype = desc.input.dtype;
    desc.with_scale(TensorDesc::contiguous(scale, dtype))
        .with_bias(TensorDesc::contiguous(bias, dtype))
}

#[track_caller]
fn check_all(device: &TestDevice, case: &BackwardCase) {
    let runs = |choice| gradient_runs(device, &case.desc, choice);
    for choice in choices(device, runs) {
        if let Err(error) = case.check(device, choice) {
            panic!("{error}");
        }
    }
}

/// Compares all gradients of two runs, up to a tolerance relative to each number.
#[track_caller]
fn assert_alike(actual: ActualGradients, expected: ActualGradients, tolerance: f64, at: &str) {
    for (actual, expected) in [
        (actual.input, expected.input),
        (actual.scale, expected.scale),
        (actual.bias, expected.bias),
        (actual.gate, expected.gate),
    ] {
        assert_eq!(actual.is_some(), expected.is_some(), "{at}");
        let pairs = actual
            .into_iter()
            .flatten()
            .zip(expected.into_iter().flatten());
        for (place, (actual, expected)) in pairs.enumerate() {
            let is_close = (actual - expected).abs() <= tolerance * (1.0 + expected.abs());
            assert!(is_close, "{at} at {place}: {actual}, expected {expected}");
        }
    }
}

#[test]
fn every_strategy_agrees_with_central_differences() {
    for device in devices() {
        for (rows, cols) in [(5, 7), (3, 64), (9, 256), (2, 1024), (1, 4096), (70, 16)] {
            let desc = norm(&[rows, cols], &[1], Statistics::MeanVariance, DType::F32);
            check_all(
                &device,
                &BackwardCase::new(with_params(desc, &[cols], &[cols]), 1),
            );
        }
        // Channels first: adjacent rows in memory.
        let desc = norm(&[3, 24, 20], &[1], Statistics::MeanVariance, DType::F32);
        let desc = with_params(desc, &[24, 1], &[24, 1]);
        check_all(&device, &BackwardCase::new(desc, 1));
    }
}

#[test]
fn every_strategy_adds_the_gradient_of_the_sum() {
    for device in devices() {
        let shapes = [[5, 7], [3, 64], [9, 256], [2, 1024], [1, 4096], [70, 16]];
        let half = match device.dtypes().contains(&DType::F16) {
            true => DType::F16,
            false => DType::F32,
        };
        for ([rows, cols], dtype) in shapes.into_iter().zip([DType::F32, half].repeat(3)) {
            let desc = norm(&[rows, cols], &[1], Statistics::MeanSquare, dtype);
            let desc = BackwardDesc::new(with_params(desc, &[cols], &[cols]));
            let dsum = TensorDesc::contiguous([rows, cols], dtype);
            check_all(&device, &BackwardCase::of(desc.with_sum_gradient(dsum), 2));
        }
        // Tiles of adjacent rows, then channels-last groups of segments.
        let tiled = norm(&[3, 24, 20], &[1], Statistics::MeanVariance, DType::F32);
        let tiled = BackwardDesc::new(with_params(tiled, &[24, 1], &[24, 1]));
        let groups = channels_last([2, 8, 6, 40], Statistics::MeanVariance, DType::F32);
        for desc in [tiled, groups] {
            let dsum = desc.input_gradient.clone().expect("it is wanted");
            check_all(&device, &BackwardCase::of(desc.with_sum_gradient(dsum), 2));
        }
    }
}

#[test]
fn the_gradient_of_the_sum_has_the_layout_of_dx() {
    let norm = norm(&[6, 8], &[1], Statistics::MeanVariance, DType::F32);
    let desc = BackwardDesc::new(norm);
    let permuted = TensorDesc::new(Layout::strided([6, 8], [1, 6]), DType::F32);
    let other = BackwardDesc {
        sum_gradient: Some(permuted.clone()),
        ..desc.clone()
    };
    let error = other.validate().unwrap_err().to_string();
    assert_eq!(
        error,
        "sum gradient has strides [1, 6]: expected the input gradient's, [8, 1]"
    );
    for device in devices() {
        let desc = desc.clone().with_sum_gradient(permuted.clone());
        check_all(&device, &BackwardCase::of(desc, 3));
    }
}

#[test]
fn gates_have_gradients() {
    let places = [ResidualPlace::InputGate, ResidualPlace::OutputGate];
    let activations = [Activation::Silu, Activation::Sigmoid, Activation::Identity];
    for device in devices() {
        for (place, activation) in places
            .into_iter()
            .flat_map(|it| activations.map(|a| (it, a)))
        {
            let gated = |desc: NormDesc, dtype: DType| {
                let gate = TensorDesc::new(desc.input.layout.kept(), dtype);
                let desc = desc.with_residual(gate).with_residual_place(place);
                desc.with_activation(activation)
            };
            for statistics in [Statistics::MeanVariance, Statistics::MeanSquare] {
                for (rows, cols) in [(12, 24), (3, 1000), (2, 5000)] {
                    let desc = norm(&[rows, cols], &[1], statistics.clone(), DType::F32);
                    let desc = with_params(desc, &[cols], &[cols]).with_offset(1.0);
                    check_all(&device, &BackwardCase::new(gated(desc, DType::F32), 2));
                }
            }
            // Tiles of adjacent rows, then channels-last groups of segments.
            let tiled = norm(&[3, 24, 20], &[1], Statistics::MeanVariance, DType::F32);
            let tiled = with_params(tiled, &[24, 1], &[24, 1]);
            let groups = channels_last([2, 8, 6, 40], Statistics::MeanVariance, DType::F32).norm;
            for desc in [tiled, groups] {
                check_all(&device, &BackwardCase::new(gated(desc, DType::F32), 3));
            }
            for dtype in device.dtypes().into_iter().filter(|it| it.is_half()) {
                for of_gate in [dtype, DType::F32] {
                    let desc = norm(&[5, 640], &[1], Statistics::MeanSquare, dtype);
                    let desc = with_params(desc, &[640], &[640]);
                    check_all(&device, &BackwardCase::new(gated(desc, of_gate), 4));
                }
            }
        }
    }
}

#[test]
fn the_gradient_of_a_gate_needs_a_gate_and_the_gradient_of_the_input() {
    let plain = norm(&[6, 8], &[1], Statistics::MeanSquare, DType::F32);
    let gate = TensorDesc::contiguous([6, 8], DType::F32);
    let gated = plain.clone().with_residual(gate.clone());
    let gated = BackwardDesc::new(gated.with_residual_place(ResidualPlace::OutputGate));
    let message = |desc: BackwardDesc| desc.validate().unwrap_err().to_string();
    let without = BackwardDesc {
        gate_gradient: Some(gate),
        ..BackwardDesc::new(plain)
    };
    assert_eq!(
        message(without),
        "gate gradient has strides [8, 1]: expected no gate gradient without a gate"
    );
    let alone = BackwardDesc {
        input_gradient: None,
        ..gated.clone()
    };
    assert_eq!(
        message(alone),
        "gate gradient has strides [8, 1]: expected an input gradient beside it"
    );
    let sum = TensorDesc::contiguous([6, 8], DType::F32);
    assert_eq!(
        message(gated.with_sum_gradient(sum)),
        "sum gradient has strides [8, 1]: expected no sum gradient beside a gate"
    );
}

/// The gradient of a late gate is a multiple of the value behind the bias, whatever the activation.
#[test]
fn the_gradient_of_a_late_gate_reads_the_bias() {
    for device in devices() {
        for place in [ResidualPlace::OutputGate, ResidualPlace::InputGate] {
            let desc = norm(&[3, 16], &[1], Statistics::MeanVariance, DType::F32);
            let gate = TensorDesc::contiguous([3, 16], DType::F32);
            let desc = with_params(desc, &[16], &[16]).with_residual(gate);
            let desc = BackwardDesc::new(desc.with_residual_place(place));
            let buffer = || device.client.create_from_slice(&[0; 4 * 3 * 16]);
            let tensors = BackwardTensors {
                saved: Some(buffer()),
                scale: Some(buffer()),
                gate: Some(buffer()),
                ..BackwardTensors::new(buffer(), buffer())
            };
            let analytic = StrategyChoice::Inferred;
            let refused = launch_backward(&device.client, &desc, &tensors, analytic).err();
            let missing = LaunchError::Missing { tensor: "bias" };
            let is_late = place == ResidualPlace::OutputGate;
            assert_eq!(refused, is_late.then_some(missing), "{}", device.name);
        }
    }
}

#[test]
fn every_statistic_and_epsilon_has_gradients() {
    let statistics = [
        Statistics::MeanVariance,
        Statistics::MeanSquare,
        Statistics::Mean,
        Statistics::L1Norm,
        Statistics::L2Norm,
        Statistics::None,
    ];
    for device in devices() {
        for statistics in statistics.clone() {
            for epsilon in [Epsilon::InsideSqrt(1e-2), Epsilon::AddedToDeviation(1e-1)] {
                let desc = norm(&[4, 24], &[1], statistics.clone(), DType::F32);
                let desc = with_params(desc, &[24], &[24]).with_epsilon(epsilon);
                check_all(&device, &BackwardCase::new(desc, 2));
            }
        }
    }
}

#[test]
fn provided_statistics_are_constants() {
    for device in devices() {
        let param = |shape: &[usize]| TensorDesc::contiguous(shape, DType::F32);
        let given = Statistics::Provided {
            mean: param(&[6, 1]),
            variance: param(&[6, 1]),
        };
        let desc = norm(&[3, 6, 8], &[0, 2], given, DType::F32);
        let desc = with_params(desc, &[6, 1], &[6, 1]);
        check_all(&device, &BackwardCase::new(desc, 3));
    }
}

#[test]
fn parameters_of_any_broadcast_shape_have_gradients() {
    let shapes: [(&[usize], &[usize], &[usize]); 9] = [
        // Layer norm, batch norm, instance norm, group norm.
        (&[2], &[12], &[12]),
        (&[0, 2], &[5, 1], &[5, 1]),
        (&[2], &[5, 1], &[5, 1]),
        (&[1, 2], &[5, 1], &[5, 1]),
        // One number, one number per element, and different shapes of scale and bias.
        (&[2], &[1], &[1]),
        (&[1], &[4, 5, 12], &[4, 5, 12]),
        (&[2], &[12], &[5, 1]),
        (&[0, 1, 2], &[4, 1, 12], &[1]),
        (&[0], &[4, 1, 1], &[1, 5, 12]),
    ];
    for device in devices() {
        for (axes, scale, bias) in shapes {
            let desc = norm(&[4, 5, 12], axes, Statistics::MeanVariance, DType::F32);
            check_all(
                &device,
                &BackwardCase::new(with_params(desc, scale, bias), 4),
            );
        }
    }
}

#[test]
fn offset_of_the_scale_has_gradients() {
    let shapes: [(&[usize], &[usize], &[usize]); 5] = [
        // Layer norm, channels first, batch norm, instance norm, group norm.
        (&[9, 256], &[1], &[256]),
        (&[3, 24, 20], &[1], &[24, 1]),
        (&[4, 5, 12], &[0, 2], &[5, 1]),
        (&[4, 5, 12], &[2], &[5, 1]),
        (&[2, 3, 4, 64], &[2, 3], &[3, 4, 1]),
    ];
    for device in devices() {
        for (shape, axes, scale) in shapes {
            for statistics in [Statistics::MeanVariance, Statistics::MeanSquare] {
                let desc = norm(shape, axes, statistics, DType::F32).with_offset(1.0);
                let desc = with_params(desc, scale, scale);
                check_all(&device, &BackwardCase::new(desc, 31));
            }
        }
        // Channels-last groups, whose channels are combined between two launches.
        let last = Layout::strided([2, 3, 16, 64], [3072, 16, 1, 48]);
        let input = TensorDesc::new(last, DType::F32);
        let desc = NormDesc::new(input, [2, 3], Statistics::MeanVariance).with_offset(1.0);
        let desc = with_params(desc, &[3, 16, 1], &[3, 16, 1]);
        check_all(&device, &BackwardCase::new(desc.clone(), 32));
        // The slope of an activation depends on the offset.
        let desc = desc.with_activation(Activation::Sigmoid);
        BackwardCase::new(desc, 33)
            .check(&device, StrategyChoice::Inferred)
            .unwrap();
        for dtype in device.dtypes() {
            let desc = norm(&[6, 96], &[1], Statistics::MeanSquare, dtype).with_offset(1.0);
            let desc = desc.with_scale(TensorDesc::contiguous([96], dtype.accumulation()));
            check_all(&device, &BackwardCase::new(desc, 34));
        }
    }
}

#[test]
fn gradients_pass_through_a_rounding_unchanged() {
    use cubenorm_core::Rounding;
    for device in devices() {
        for dtype in device.dtypes() {
            let desc = norm(&[6, 96], &[1], Statistics::MeanSquare, dtype);
            let desc = desc.with_scale(TensorDesc::contiguous([96], dtype));
            let plan = |desc: &NormDesc| {
                let desc = BackwardDesc::new(desc.clone());
                plan_backward_for(&device.client, &desc, StrategyChoice::Inferred).unwrap()
            };
            let rounded = desc.clone().with_rounding(Rounding::BeforeScale);
            assert_eq!(plan(&rounded), plan(&desc), "{} {dtype}", device.name);
        }
    }
}

#[test]
fn one_launch_sums_dgamma_and_dbeta_of_groups() {
    // Samples, groups, channels per group, positions. 49 positions are no multiple of the vector
    // width: they need a separate launch, or tail vectors on a CPU.
    let shapes = [
        [2, 3, 4, 256],
        [5, 2, 3, 128],
        [1, 1, 70, 64],
        [3, 2, 40, 49],
    ];
    let with_ends = [[3, 2, 3, 131], [1, 2, 2, 1021]];
    for device in devices() {
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        let (mut on_the_way, mut has_tail) = (0, 0);
        for shape in shapes
            .into_iter()
            .chain(with_ends.into_iter().filter(|_| is_cpu))
        {
            let [_, groups, channels, _] = shape;
            let param = [groups, channels, 1];
            for dtype in [DType::F32, DType::F16] {
                if !supports(&device.client, dtype) {
                    continue;
                }
                let desc = norm(&shape, &[2, 3], Statistics::MeanVariance, dtype);
                let desc = with_params(desc, &param, &param);
                // Other layouts of dy: channels-last, and one number per channel.
                let [_, _, _, pixels] = shape;
                let last = [groups * channels * pixels, channels * pixels, 1, channels];
                for strides in [last, [groups * channels, channels, 1, 0]] {
                    let mut gradient = BackwardDesc::new(desc.clone());
                    let layout = Layout::strided(shape, strides);
                    gradient.output_gradient = TensorDesc::new(layout, dtype);
                    let case = BackwardCase::of(gradient, 22);
                    case.check(&device, StrategyChoice::Inferred).unwrap();
                }
                let sigmoid = desc.clone().with_activation(Activation::Sigmoid);
                let bias_alone = desc.clone().with_scale(None);
                for (i, desc) in [desc, sigmoid, bias_alone].into_iter().enumerate() {
                    let case = BackwardCase::new(desc, 21);
                    let inferred = StrategyChoice::Inferred;
                    let plan = plan_backward_for(&device.client, &case.desc, inferred).unwrap();
                    on_the_way += usize::from(plan.blueprint.sums_segments());
                    let team = plan.blueprint.team;
                    has_tail +=
                        usize::from(team.has_tail() && plan.blueprint.team.params_by_segment());
                    let is_whole = shape[3] % team.vector == 0 || team.has_tail();
                    assert!(is_whole || !plan.blueprint.sums_segments(), "{plan}");
                    // Drivers compile a kernel for seconds, so only one form runs every strategy.
                    match i {
                        0 => check_all(&device, &case),
                        _ => case.check(&device, inferred).unwrap(),
                    }
                }
            }
        }
        assert!(on_the_way > 0, "{}", device.name);
        assert!(!is_cpu || has_tail >= 12, "{}: {has_tail}", device.name);
    }
}

#[test]
fn computes_only_requested_gradients() {
    for device in devices() {
        let desc = norm(&[6, 5, 8], &[2], Statistics::MeanSquare, DType::F32);
        let desc = with_params(desc, &[8], &[8]);
        for wants in [
            [true, false, false],
            [false, true, false],
            [false, false, true],
        ] {
            let mut gradient = BackwardDesc::new(desc.clone());
            gradient.input_gradient = gradient.input_gradient.filter(|_| wants[0]);
            (gradient.wants_scale, gradient.wants_bias) = (wants[1], wants[2]);
            let case = BackwardCase::of(gradient, 5);
            let actual = case.run(&device, StrategyChoice::Inferred).unwrap();
            let came = [
                actual.input.is_some(),
                actual.scale.is_some(),
                actual.bias.is_some(),
            ];
            assert_eq!(came, wants, "{}", device.name);
            check_all(&device, &case);
        }
    }
}

#[test]
fn every_activation_has_gradients() {
    for device in devices() {
        for activation in activations() {
            let desc = norm(&[3, 40], &[1], Statistics::MeanVariance, DType::F32);
            let desc = with_params(desc, &[40], &[40]).with_activation(activation);
            let case = BackwardCase::new(desc, 6);
            if let Err(error) = case.check(&device, StrategyChoice::Inferred) {
                panic!("{error}");
            }
        }
    }
}

#[test]
fn strided_tensors_are_read_in_place() {
    for device in devices() {
        // Batch norm of NHWC viewed as NCHW; then rows with gaps.
        let nhwc = Layout::strided([3, 8, 4, 5], [160, 1, 40, 8]);
        let desc = NormDesc::new(
            TensorDesc::new(nhwc, DType::F32),
            [0, 2, 3],
            Statistics::MeanVariance,
        );
        let desc = with_params(desc, &[8, 1, 1], &[8, 1, 1]);
        check_all(&device, &BackwardCase::new(desc, 7));

        let gaps = Layout::strided([6, 10], [13, 1]);
        let desc = NormDesc::new(
            TensorDesc::new(gaps, DType::F32),
            [1],
            Statistics::MeanVariance,
        );
        let mut gradient = BackwardDesc::new(with_params(desc, &[10], &[10]));
        gradient.output_gradient = TensorDesc::new(Layout::strided([6, 10], [1, 6]), DType::F32);
        check_all(&device, &BackwardCase::of(gradient, 8));
    }
}

#[test]
fn every_dtype_works_with_parameters_of_either_dtype() {
    for device in devices() {
        for dtype in device.dtypes() {
            let desc = norm(&[4, 48], &[1], Statistics::MeanVariance, dtype);
            let param = TensorDesc::contiguous([48], dtype.accumulation());
            let mixed = desc.clone().with_scale(param.clone()).with_bias(param);
            for desc in [with_params(desc, &[48], &[48]), mixed] {
                check_all(&device, &BackwardCase::new(desc, 9));
            }
        }
    }
}

#[test]
fn gradients_of_empty_batches_are_zero() {
    for device in devices() {
        let desc = norm(&[0, 4], &[1], Statistics::MeanVariance, DType::F32);
        let case = BackwardCase::new(with_params(desc, &[4], &[4]), 10);
        let actual = case.run(&device, StrategyChoice::Inferred).unwrap();
        assert_eq!(actual.input, Some(vec![]), "{}", device.name);
        assert_eq!(actual.scale, Some(vec![0.0; 4]), "{}", device.name);
        assert_eq!(actual.bias, Some(vec![0.0; 4]), "{}", device.name);
    }
}

#[test]
fn gradients_are_bitwise_reproducible() {
    for device in devices() {
        for dtype in device.dtypes() {
            for (rows, cols) in [(64, 512), (3, 5000)] {
                let desc = norm(&[rows, cols], &[1], Statistics::MeanVariance, dtype);
                let case = BackwardCase::new(with_params(desc, &[cols], &[cols]), 11);
                let runs = |choice| gradient_runs(&device, &case.desc, choice);
                for choice in choices(&device, runs) {
                    let first = case.run(&device, choice).unwrap();
                    for _ in 0..3 {
                        let again = case.run(&device, choice).unwrap();
                        assert!(again == first, "{} {dtype} {choice:?}", device.name);
                    }
                }
            }
        }
    }
}

#[test]
fn cores_that_share_a_row_write_their_own_column_sums() {
    for device in devices() {
        // One row and two; lengths that are a multiple of the vector width or not.
        for (rows, cols, dtype) in [
            (1, 40_000, DType::F32),
            (1, 33_001, DType::F32),
            (2, 33_024, DType::F32),
            (1, 40_000, DType::F16),
        ] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            let desc = with_params(
                norm(&[rows, cols], &[1], Statistics::MeanVariance, dtype),
                &[cols],
                &[cols],
            );
            let case = BackwardCase::of(BackwardDesc::new(desc), 7);
            // The analytic plan gives rows this short one core.
            let cores = hardware(&device.client).cpu_cores;
            let choice = StrategyChoice::Forced(Knobs {
                units: cores,
                ..Strategy::Split.into()
            });
            let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
            if let Some(cores) = cores {
                let blueprint = plan.blueprint;
                assert_eq!(
                    blueprint.column_sums.any(),
                    rows <= cores as usize,
                    "{}: {plan}",
                    device.name
                );
            }
            case.check(&device, choice).unwrap();
        }
    }
}

#[test]
fn rows_with_a_tail_use_a_tail_vector() {
    let shapes: [(&[usize], &[usize], &[usize]); 7] = [
        (&[5, 49], &[1], &[5, 1]),
        (&[3, 1021], &[1], &[3, 1]),
        (&[1, 16 * 128 + 1], &[1], &[1]),
        (&[4, 3, 7, 7], &[0, 2, 3], &[3, 1, 1]),
        (&[70, 2, 37], &[0, 2], &[2, 1]),
        (&[2, 5, 65, 3], &[1, 2, 3], &[1]),
        // A scale per column whose gradient is not requested.
        (&[9, 197], &[1], &[197]),
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axes, param) in shapes {
                for kind in [Statistics::MeanVariance, Statistics::L1Norm] {
                    if dtype != DType::F32 && kind == Statistics::L1Norm {
                        continue;
                    }
                    let desc = with_params(norm(shape, axes, kind, dtype), param, param);
                    let mut gradient = BackwardDesc::new(desc);
                    if param == [197] {
                        (gradient.wants_scale, gradient.wants_bias) = (false, false);
                    }
                    let case = BackwardCase::of(gradient, 8);
                    let choice = StrategyChoice::Inferred;
                    let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                    let is_cpu = hardware(&device.client).cpu_cores.is_some();
                    let has_tail = plan.blueprint.team.has_tail();
                    assert_eq!(has_tail, is_cpu, "{} {shape:?}: {plan}", device.name);
                    check_all(&device, &case);
                }
            }
        }
    }
}

#[test]
fn kept_axes_with_a_tail_use_a_tail_vector() {
    // Parameters per column and per row; few rows, which are split; several segments of rows.
    let shapes: [(&[usize], &[usize], &[usize]); 3] = [
        (&[7, 197], &[0], &[197]),
        (&[3, 5, 7, 7], &[1], &[5, 1, 1]),
        (&[2, 300, 35], &[1], &[300, 1]),
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axes, param) in shapes {
                let desc = norm(shape, axes, Statistics::MeanVariance, dtype);
                let desc = with_params(desc, param, param);
                let case = BackwardCase::of(BackwardDesc::new(desc), 9);
                let choice = StrategyChoice::Inferred;
                let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                let is_cpu = hardware(&device.client).cpu_cores.is_some();
                let has_tail = plan.blueprint.team.has_row_tail();
                assert_eq!(has_tail, is_cpu, "{} {shape:?}: {plan}", device.name);
                check_all(&device, &case);
            }
        }
    }
}

#[test]
fn tiles_of_adjacent_rows_have_gradients() {
    for device in devices() {
        let mut tile = 0;
        for dtype in device.dtypes() {
            // One feature map for all cores, and three; positions with a tail.
            for shape in [[1, 192, 70], [3, 320, 12], [2, 100, 33]] {
                let [_, channels, pixels] = shape;
                for (axes, is_last) in [(&[2][..], true), (&[0, 2], true), (&[1], false)] {
                    let mut desc = norm(&shape, axes, Statistics::MeanVariance, dtype);
                    if is_last {
                        desc.input.layout.strides = vec![channels * pixels, 1, channels];
                    }
                    let desc = with_params(desc, &[channels, 1], &[channels, 1]);
                    let case = BackwardCase::of(BackwardDesc::new(desc), 10);
                    let choice = StrategyChoice::Inferred;
                    let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                    tile += usize::from(plan.blueprint.team.is_tile());
                    match dtype {
                        DType::F32 => check_all(&device, &case),
                        _ => case.check(&device, choice).unwrap(),
                    }
                }
            }
        }
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        assert_eq!(tile > 0, is_cpu, "{}", device.name);
    }
}

#[test]
fn perpendicular_column_sums_count_each_lane_once() {
    // Positions that are a multiple of the vector width, and positions whose tail vector overlaps.
    // One map per core, parts of all maps per core, and more channels than a tile has.
    let shapes = [
        [5, 96, 32],
        [5, 96, 33],
        [64, 96, 49],
        [3, 4096, 20],
        [1, 96, 3136],
    ];
    for device in devices() {
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        let mut on_the_way = 0;
        for shape in shapes {
            let [maps, channels, pixels] = shape;
            let gradient = |i: usize| f64::from((1.0 + 0.5 * noise(14, i)) as f32);
            let desc = norm(&shape, &[1], Statistics::MeanVariance, DType::F32);
            let desc = with_params(desc, &[channels, 1], &[channels, 1]);
            let case = BackwardCase::new(desc, 14).with_output_gradient(gradient);
            let plan =
                plan_backward_for(&device.client, &case.desc, StrategyChoice::Inferred).unwrap();
            let is_summed = plan.blueprint.column_sums.any();
            on_the_way += usize::from(is_summed && plan.lanes_of_column() > 1);
            // Other devices use the general column sums.
            let runs = |choice| {
                (is_cpu || choice == StrategyChoice::Inferred)
                    && gradient_runs(&device, &case.desc, choice)
            };
            for choice in choices(&device, runs) {
                let sums = case.run(&device, choice).unwrap().bias.unwrap();
                for (channel, actual) in sums.into_iter().enumerate() {
                    let map = |map: usize| (map * channels + channel) * pixels;
                    let places = (0..maps).flat_map(|n| map(n)..map(n) + pixels);
                    let expected: f64 = places.map(gradient).sum();
                    let off = (actual - expected).abs() / expected;
                    let at = format!("{} {choice:?} {shape:?}", device.name);
                    assert!(off < 1e-5, "{at} {channel}: {actual}, expected {expected}");
                }
            }
        }
        let expected = if is_cpu { shapes.len() } else { 0 };
        assert_eq!(on_the_way, expected, "{}", device.name);
    }
}

#[test]
fn large_cubes_agree_with_small_ones_on_full_gpus() {
    for device in devices() {
        let Some(rows) = device.rows_that_fill_a_gpu() else {
            continue;
        };
        for dtype in device.dtypes() {
            for (channels, pixels) in [(384, 49), (768, 49), (768, 36)] {
                let shape = [2 * rows.div_ceil(pixels), channels, pixels];
                let desc = norm(&shape, &[1], Statistics::MeanVariance, dtype);
                let desc = with_params(desc, &[channels, 1], &[channels, 1]);
                let case = BackwardCase::new(desc, 15);
                let plan = plan_backward_for(&device.client, &case.desc, StrategyChoice::Inferred)
                    .unwrap();
                let at = format!("{}, {dtype}: {plan}", device.name);
                let units: u32 = plan.grid.cube_dim.iter().product();
                assert!(units > 256 || dtype == DType::F64, "{at}");
                // Other tests compare this small cube with central differences.
                let few = Knobs {
                    units: Some(8),
                    ..Strategy::Perpendicular.into()
                };
                let [actual, expected] = [StrategyChoice::Inferred, few.into()]
                    .map(|choice| case.run(&device, choice).unwrap());
                let tolerance = match dtype {
                    DType::F32 | DType::F64 => 1e-4,
                    DType::F16 => 2e-3,
                    DType::BF16 => 1.6e-2,
                };
                assert_alike(actual, expected, tolerance, &at);
            }
        }
    }
}

#[test]
fn sums_of_tiled_rows_keep_their_digits() {
    for device in devices() {
        if hardware(&device.client).cpu_cores.is_none() {
            println!("{}: skipped, not a CPU", device.name);
            continue;
        }
        // One block of steps, and dy of one sign, whose roundoff grows with the sum.
        let [channels, pixels] = [320, 64];
        let gradient = |i: usize| f64::from((1.0 + 0.5 * noise(13, i)) as f32);
        let shape = [1, channels, pixels];
        let mut desc = norm(&shape, &[0, 2], Statistics::MeanVariance, DType::F32);
        desc.input.layout.strides = vec![channels * pixels, 1, channels];
        let desc = with_params(desc, &[channels, 1], &[channels, 1]);
        let case = BackwardCase::new(desc, 13).with_output_gradient(gradient);
        let choice = StrategyChoice::Inferred;
        let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
        assert!(plan.blueprint.team.is_tile(), "{plan}");
        case.check(&device, choice).unwrap();
        let sums = case.run(&device, choice).unwrap().bias.unwrap();
        let squares = sums.into_iter().enumerate().map(|(channel, actual)| {
            let places = (0..pixels).map(|pixel| pixel * channels + channel);
            let expected: f64 = places.map(gradient).sum();
            ((actual - expected) / expected).powi(2)
        });
        let off = (squares.sum::<f64>() / channels as f64).sqrt();
        let unit = f64::from(f32::EPSILON) / 2.0;
        println!("{}: {:.2} units of roundoff", device.name, off / unit);
        // A serial sum is off by 1.9 units.
        assert!(off < unit, "{}: off by {} units", device.name, off / unit);
    }
}

#[test]
fn sums_of_several_rows_per_unit_keep_their_digits() {
    // The dx of a row adds up to zero. A remainder is the roundoff of its sums.
    let input = |i: usize| f64::from(noise(29, i) as f32);
    let gradient = |i: usize| f64::from((1.0 + 0.5 * noise(31, i)) as f32);
    let (channels, pixels) = (64, 2144);
    for device in devices() {
        if hardware(&device.client).cpu_cores.is_none() {
            println!("{}: skipped, not a CPU", device.name);
            continue;
        }
        let shapes: [(&[usize], &[usize]); 2] = [
            (&[64, 4096], &[4096]),
            (&[4, channels, pixels], &[channels, 1]),
        ];
        for (shape, bias) in shapes {
            let desc = norm(shape, &[1], Statistics::MeanVariance, DType::F32)
                .with_bias(TensorDesc::contiguous(bias, DType::F32));
            let case = BackwardCase::with_input(desc, 29, input).with_output_gradient(gradient);
            let choice = StrategyChoice::Inferred;
            let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
            let (rows_per_unit, together) =
                (plan.blueprint.rows_per_unit, plan.blueprint.team.is_tile());
            assert!(rows_per_unit > 1 && !together, "{plan}");
            let passed_back = case.run(&device, choice).unwrap().input.unwrap();
            let row_of = |i: usize| match shape {
                [_, cols] => i / cols,
                _ => i / (channels * pixels) * pixels + i % pixels,
            };
            let mut rows = vec![[0.0; 4]; row_of(passed_back.len() - 1) + 1];
            for (i, value) in passed_back.iter().enumerate() {
                let [left, gradients, sum, squares] = &mut rows[row_of(i)];
                *left += value;
                *gradients += gradient(i);
                *sum += input(i);
                *squares += input(i) * input(i);
            }
            let cols = (passed_back.len() / rows.len()) as f64;
            let off = rows.iter().map(|[left, gradients, sum, squares]| {
                let variance = squares / cols - (sum / cols).powi(2);
                left * (variance + 1e-3).sqrt() / gradients
            });
            let off = (off.map(|off| off * off).sum::<f64>() / rows.len() as f64).sqrt();
            let unit = f64::from(f32::EPSILON) / 2.0;
            println!(
                "{}: {:.2} units of roundoff: {plan}",
                device.name,
                off / unit
            );
            assert!(off < unit, "{}: off by {} units", device.name, off / unit);
        }
    }
}

#[test]
fn loads_in_flight_cover_all_steps() {
    // As in the forward test: from one step per unit to three times the loads in flight.
    for device in devices() {
        let mut asked = 0;
        for cols in [32, 100, 127, 128, 150, 256, 390] {
            let row = norm(&[5, cols], &[1], Statistics::MeanVariance, DType::F32);
            let column = norm(&[cols, 6], &[0], Statistics::MeanVariance, DType::F32);
            for (strategy, desc) in [
                (Strategy::Cube, with_params(row.clone(), &[5, 1], &[cols])),
                (Strategy::Plane, with_params(row.clone(), &[cols], &[cols])),
                (Strategy::Split, with_params(row.clone(), &[cols], &[5, 1])),
                (
                    Strategy::Perpendicular,
                    with_params(column, &[cols, 1], &[6]),
                ),
                // Lavapipe: all steps of a unit have the same scale.
                (Strategy::Unit, with_params(row, &[5, 1], &[5, 1])),
            ] {
                let case = BackwardCase::of(BackwardDesc::new(desc), 17);
                let choice = StrategyChoice::Forced(Knobs {
                    vector: Some(1),
                    units: Some(32),
                    plane_size: device.plane_size,
                    ..strategy.into()
                });
                if !gradient_runs(&device, &case.desc, choice) {
                    continue;
                }
                let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                let is_read_again = plan.blueprint.staged_columns == Staging::Reload;
                asked += usize::from(is_read_again && plan.blueprint.loads_in_flight() > 1);
                case.check(&device, choice).unwrap();
            }
        }
        let hardware = hardware(&device.client);
        let of_units = if hardware.is_cpu_vulkan() { 7 } else { 0 };
        match device.shares_memory() && hardware.cpu_cores.is_none() {
            true => assert!(asked >= 14 + of_units, "{}: {asked}", device.name),
            false => println!("{}: skipped, each unit owns a row", device.name),
        }
    }
}

#[test]
fn persistent_teams_stage_column_sums() {
    for device in devices() {
        // Columns that fill no vector, fewer columns than units, and several columns per unit.
        for (rows, cols) in [(601, 7), (530, 96), (528, 520)] {
            let desc = with_params(
                norm(&[rows, cols], &[1], Statistics::MeanVariance, DType::F32),
                &[cols],
                &[cols],
            );
            let case = BackwardCase::of(BackwardDesc::new(desc), 4);
            let (mut staged, mut shared_rows) = (0, 0);
            for (strategy, row, cluster_size) in [
                (Strategy::Cube, None, None),
                (Strategy::Plane, None, None),
                (Strategy::Cube, Some(StagingPreference::Shared), None),
                (Strategy::Cube, None, Some(2)),
                (Strategy::Cube, Some(StagingPreference::Reload), Some(4)),
            ] {
                let choice = StrategyChoice::Forced(Knobs {
                    plane_size: device.plane_size,
                    row,
                    cluster_size,
                    ..strategy.into()
                });
                if !gradient_runs(&device, &case.desc, choice) {
                    continue;
                }
                let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                let place = plan.blueprint.staged_columns;
                staged += usize::from(place != Staging::Reload);
                let has_peers = plan.blueprint.team.cluster_size() > 1;
                shared_rows += usize::from(has_peers);
                if row == Some(StagingPreference::Shared) && device.shares_memory() {
                    let is_shared = matches!(place, Staging::Shared(_));
                    assert!(is_shared || place == Staging::Reload, "{place}");
                }
                case.check(&device, choice).unwrap();
            }
            let is_cpu = hardware(&device.client).cpu_cores.is_some();
            let may_hold = device.shares_memory() && !is_cpu;
            match may_hold {
                true => assert!(staged > 0, "{}: {rows}x{cols}", device.name),
                false => println!("{}: skipped, its teams stage no column sums", device.name),
            }
            let talk = hardware(&device.client).inter_cube_atomics;
            assert_eq!(shared_rows > 0, may_hold && talk, "{}", device.name);
            println!(
                "{}: {rows}x{cols}: {staged} strategies stage column sums, {shared_rows} in clusters",
                device.name
            );
        }
    }
}

/// Teams of several rows load the next row, and so its gate, ahead.
#[test]
fn persistent_teams_load_gates_ahead() {
    for device in devices() {
        let mut ahead = 0;
        for place in [ResidualPlace::InputGate, ResidualPlace::OutputGate] {
            for (rows, cols) in [(530, 96), (528, 520)] {
                let desc = norm(&[rows, cols], &[1], Statistics::MeanSquare, DType::F32);
                let gate = TensorDesc::contiguous([rows, cols], DType::F32);
                let desc = desc.with_scale(TensorDesc::contiguous([cols], DType::F32));
                let desc = desc.with_residual(gate).with_residual_place(place);
                let case = BackwardCase::new(desc.with_activation(Activation::Silu), 6);
                for (strategy, row) in [
                    (Strategy::Cube, None),
                    (Strategy::Plane, None),
                    (Strategy::Cube, Some(StagingPreference::Shared)),
                ] {
                    let choice = StrategyChoice::Forced(Knobs {
                        plane_size: device.plane_size,
                        row,
                        ..strategy.into()
                    });
                    if gradient_runs(&device, &case.desc, choice) {
                        let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                        ahead += usize::from(plan.blueprint.row.is_ahead());
                        case.check(&device, choice).unwrap();
                    }
                }
            }
        }
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        match device.shares_memory() && !is_cpu {
            true => assert!(ahead > 0, "{}", device.name),
            false => println!("{}: skipped, its teams load no row ahead", device.name),
        }
    }
}

#[test]
fn perpendicular_teams_stage_channel_sums() {
    for device in devices() {
        let hardware = hardware(&device.client);
        let shares = device.shares_memory() && hardware.cpu_cores.is_none();
        if !shares {
            println!("{}: skipped, its columns have one unit each", device.name);
            continue;
        }
        // Channels that fill no vector, several channels per unit, and too few positions for all
        // columns; in one round and in several.
        let (mut rounds, mut held_rows, mut read_again) = (0, 0, 0);
        for (channels, places) in [(7, 1500), (96, 36), (33, 100), (200, 20)] {
            for (dtype, scaled, biased) in [
                (DType::F32, true, true),
                (DType::F32, true, false),
                (DType::F32, false, true),
                (DType::F16, true, true),
            ] {
                if !supports(&device.client, dtype) {
                    continue;
                }
                let shape = [3, channels, places];
                let param = TensorDesc::contiguous([channels, 1], dtype);
                let desc = NormDesc {
                    scale: scaled.then(|| param.clone()),
                    bias: biased.then_some(param),
                    ..norm(&shape, &[1], Statistics::MeanVariance, dtype)
                };
                let case = BackwardCase::of(BackwardDesc::new(desc), 23);
                for row in [StagingPreference::Registers, StagingPreference::Reload] {
                    let choice = StrategyChoice::Forced(Knobs {
                        row: Some(row),
                        ..Strategy::Perpendicular.into()
                    });
                    if !gradient_runs(&device, &case.desc, choice) {
                        continue;
                    }
                    let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                    let staged = plan.blueprint.staged_columns;
                    assert_ne!(staged, Staging::Reload, "{}: {plan}", device.name);
                    match plan.blueprint.row {
                        RowBuffering::Single => held_rows += 1,
                        _ => read_again += 1,
                    }
                    rounds = rounds.max(plan.grid.groups_per_team);
                    case.check(&device, choice).unwrap();
                }
            }
        }
        assert!(held_rows > 0 && read_again > 0, "{}", device.name);
        assert!(rounds > 1 || hardware.is_gpu(), "{}", device.name);
    }
}

#[test]
fn wide_rows_of_f16_and_bf16_use_double_buffering() {
    // Columns that fill all units or not, for odd and even numbers of rounds. A scale that fits in
    // registers, and an f32 scale. An activation, whose slope needs the bias.
    for device in devices() {
        let halves: Vec<_> = (device.dtypes().into_iter())
            .filter(|dtype| dtype.is_half())
            .collect();
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        if halves.is_empty() || !device.shares_memory() || is_cpu {
            println!(
                "{}: skipped, no double-buffered rows of f16 or bf16",
                device.name
            );
            continue;
        }
        let (mut in_registers, mut in_shared) = (0, 0);
        for (dtype, (rounds, cols)) in halves
            .into_iter()
            .flat_map(|dtype| [(4, 2048), (5, 2004)].map(|shape| (dtype, shape)))
        {
            let knobs = |row| Knobs {
                units: Some(64),
                row: Some(row),
                plane_size: device.plane_size,
                ..Strategy::Cube.into()
            };
            for (statistics, param, activation) in [
                (Statistics::MeanVariance, dtype, Activation::Identity),
                (
                    Statistics::MeanSquare,
                    dtype.accumulation(),
                    Activation::Identity,
                ),
                (Statistics::MeanVariance, dtype, Activation::Silu),
            ] {
                let param = TensorDesc::contiguous([cols], param);
                let of = |rows| {
                    let desc = norm(&[rows, cols], &[1], statistics.clone(), dtype)
                        .with_scale(param.clone())
                        .with_bias(param.clone())
                        .with_activation(activation);
                    BackwardCase::new(desc, 8)
                };
                let choice = StrategyChoice::Forced(knobs(StagingPreference::Shared));
                let many = plan_backward_for(&device.client, &of(1028).desc, choice).unwrap();
                // With an odd number of rounds the last team has fewer rows. Four rows per team
                // would be distributed among more teams.
                let teams = many.parts_of_columns();
                let case = of(match rounds {
                    5 => (5 * teams - 2) | 1,
                    _ => rounds * teams,
                });
                let (plan, actual) = all_of(&device, &case, knobs(StagingPreference::Shared));
                let (again, expected) = all_of(&device, &case, knobs(StagingPreference::Reload));
                assert!(plan.blueprint.row.is_double(), "{plan}");
                assert!(again.blueprint.row.reloads(), "{again}");
                assert_close(&plan, &actual, &expected, dtype);
                match plan.blueprint.staged_scale() {
                    Staging::Registers(_) => in_registers += 1,
                    Staging::Shared(_) => in_shared += 1,
                    staged => panic!("{plan}: {staged:?}"),
                }
                assert_eq!(plan.grid.groups_per_team, rounds, "{plan}");
            }
        }
        println!(
            "{}: {in_registers} with their scale in registers, {in_shared} in shared memory",
            device.name
        );
        assert!(in_registers > 0 && in_shared > 0, "{}", device.name);
    }
}

#[test]
fn constant_rows_have_zero_dgamma() {
    // Unlike `x - mean`, both `x * rstd` and `mean * rstd` are rounded and would not cancel.
    for device in devices() {
        for dtype in device.dtypes() {
            let (rows, cols) = (1030, 2048);
            let desc = norm(&[rows, cols], &[1], Statistics::MeanVariance, dtype);
            let param = TensorDesc::contiguous([cols], dtype);
            let case = BackwardCase::with_input(desc.with_scale(param), 9, |at| {
                1000.0 + 8.0 * (at / cols % 99) as f64
            });
            let turns = Knobs {
                units: Some(64),
                row: Some(StagingPreference::Shared),
                plane_size: device.plane_size,
                ..Strategy::Cube.into()
            };
            let turns = device.shares_memory().then_some(turns.into());
            for choice in [Some(StrategyChoice::Inferred), turns]
                .into_iter()
                .flatten()
            {
                let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
                let scale = case.run(&device, choice).unwrap().scale.unwrap();
                let largest = scale
                    .into_iter()
                    .fold(0.0, |most, x| f64::max(most, x.abs()));
                assert_eq!(largest, 0.0, "{}, {dtype}: {plan}", device.name);
            }
        }
    }
}

/// Plan and gradients of a case for these knobs, all gradients concatenated.
fn all_of(device: &TestDevice, case: &BackwardCase, knobs: Knobs) -> (BackwardPlan, Vec<f64>) {
    let choice = StrategyChoice::Forced(knobs);
    let plan = plan_backward_for(&device.client, &case.desc, choice).unwrap();
    let actual = case.run(device, choice).unwrap();
    let parts = [actual.input, actual.scale, actual.bias];
    (plan, parts.map(Option::unwrap).concat())
}

#[track_caller]
fn assert_close(plan: &BackwardPlan, actual: &[f64], expected: &[f64], dtype: DType) {
    let unit = if dtype == DType::F32 { 1e-5 } else { 2e-3 };
    let unit = if dtype == DType::BF16 {
        8.0 * unit
    } else {
        unit
    };
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let is_close = (actual - expected).abs() <= unit * (1.0 + expected.abs());
        assert!(
            is_close,
            "{plan}, at {place}: {actual}, expected {expected}"
        );
    }
}

#[test]
fn clusters_on_short_rows_agree_with_one_cube() {
    // One vector per unit: cubes hardly wait for each other.
    check_clusters(520, DType::F32);
}

#[test]
fn clusters_on_long_rows_agree_with_one_cube() {
    // Lengths with a tail, and cubes with fewer columns than others.
    check_clusters(20_003, DType::F32);
    check_clusters(33_000, DType::F16);
}

/// Checks that clusters agree with one cube on rows of `cols` elements, bitwise reproducibly.
fn check_clusters(cols: usize, dtype: DType) {
    // Enough rows for persistent cubes on a large GPU.
    let rows = 600;
    for device in devices() {
        if !(hardware(&device.client).inter_cube_atomics && device.shares_memory()) {
            println!("{}: skipped, no cooperating cubes", device.name);
            continue;
        }
        let desc = norm(&[rows, cols], &[1], Statistics::MeanVariance, dtype);
        let case = BackwardCase::new(with_params(desc, &[cols], &[cols]), 13);
        let of = |cluster_size| {
            all_of(
                &device,
                &case,
                Knobs {
                    cluster_size: Some(cluster_size),
                    ..Strategy::Cube.into()
                },
            )
        };
        let (alone, expected) = of(1);
        assert_eq!(alone.blueprint.team.cluster_size(), 1, "{alone}");
        let (mut numbers, mut told_ahead) = (Vec::new(), 0);
        for cluster_size in [2, 4, 8] {
            let (plan, actual) = of(cluster_size);
            if plan.blueprint.team.cluster_size() == cluster_size {
                numbers.push(cluster_size);
            }
            told_ahead += usize::from(plan.blueprint.publishes_ahead());
            assert_close(&plan, &actual, &expected, dtype);
            if cluster_size == 4 {
                let again = of(cluster_size).1;
                let is_same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
                assert!(actual.iter().zip(&again).all(is_same), "{plan}, again");
            }
        }
        assert!(!numbers.is_empty(), "{}: {cols} columns", device.name);
        // With one vector per unit there is nothing to publish ahead.
        assert_eq!(told_ahead > 0, cols > 1024, "{}: {cols}", device.name);
        println!(
            "{}: {cols} {dtype}: clusters of {numbers:?} agree with one cube, {told_ahead} publish ahead",
            device.name
        );
    }
}

#[test]
fn long_rows_survive_the_drivers_loop_limit() {
    // Lavapipe ends loops after 65,535 iterations. Several rows per unit leave fewer iterations for
    // each row, and none for 131,068 elements. Central differences would take minutes, so one row
    // per unit is the reference here. Other tests check it.
    for (device, cols) in devices()
        .iter()
        .flat_map(|device| [(device, 65_532), (device, 131_068)])
    {
        let rows = 67;
        let desc = norm(&[rows, cols], &[1], Statistics::MeanVariance, DType::F32);
        let case = BackwardCase::new(with_params(desc, &[cols], &[cols]), 12);
        let of = |rows_per_unit| {
            let knobs = Knobs {
                rows_per_unit: Some(rows_per_unit),
                ..Strategy::Unit.into()
            };
            case.run(device, knobs.into()).unwrap()
        };
        let (expected, actual) = (of(1), of(8));
        assert_alike(actual, expected, 1e-5, device.name);
    }
}

/// Backward pass of a group norm whose input and gradients are channels-last.
fn channels_last(shape: [usize; 4], statistics: Statistics, dtype: DType) -> BackwardDesc {
    let [_, groups, members, pixels] = shape;
    let channels = groups * members;
    let strides = [pixels * channels, members, 1, channels];
    let mut desc = norm(&shape, &[2, 3], statistics, dtype);
    desc.input.layout.strides = strides.to_vec();
    let param = [groups, members, 1];
    let mut desc = BackwardDesc::new(with_params(desc, &param, &param));
    desc.output_gradient = desc.norm.input.clone();
    desc.input_gradient = Some(desc.norm.input.clone());
    desc
}

fn sums(device: &TestDevice, desc: &BackwardDesc) -> ParamSums {
    sums_on(desc, &hardware(&device.client))
}

#[test]
fn channels_last_groups_use_segments() {
    let kinds = [
        Statistics::MeanVariance,
        Statistics::MeanSquare,
        Statistics::L1Norm,
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            let kinds = match dtype {
                DType::F32 => &kinds[..],
                _ => &kinds[..1],
            };
            for kind in kinds {
                for shape in [[2, 8, 3, 60], [1, 4, 10, 900], [3, 16, 2, 50]] {
                    let desc = channels_last(shape, kind.clone(), dtype);
                    assert_eq!(sums(&device, &desc), ParamSums::Segments);
                    let plan = plan_backward_for(&device.client, &desc, Default::default());
                    let plan = plan.unwrap();
                    assert!(
                        plan.blueprint.team.is_segmented(),
                        "{}: {plan}",
                        device.name
                    );
                    let case = BackwardCase::of(desc, 71);
                    check_all(&device, &case);
                    // Also one vector at a time, without whole rows.
                    if plan.blueprint.combines_within() {
                        let single = Knobs {
                            rows_per_unit: Some(1),
                            ..Knobs::default()
                        };
                        case.check(&device, single.into()).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn segments_compute_only_requested_gradients() {
    let desc = channels_last([2, 8, 6, 40], Statistics::MeanVariance, DType::F32);
    for device in devices() {
        for (scale, bias) in [(false, false), (true, false), (false, true)] {
            let mut desc = desc.clone();
            (desc.wants_scale, desc.wants_bias) = (scale, bias);
            assert_eq!(sums(&device, &desc), ParamSums::Segments);
            check_all(&device, &BackwardCase::of(desc, 72));
        }
        let mut params_alone = desc.clone();
        params_alone.input_gradient = None;
        assert_ne!(sums(&device, &params_alone), ParamSums::Segments);
        check_all(&device, &BackwardCase::of(params_alone, 73));
        // Parameters that repeat over groups, or have one number per group, with an activation.
        for param in [[1, 6, 1], [8, 1, 1]] {
            let norm = with_params(desc.norm.clone(), &param, &param);
            let norm = norm.with_activation(Activation::Sigmoid);
            let desc = BackwardDesc {
                norm,
                ..desc.clone()
            };
            check_all(&device, &BackwardCase::of(desc, 74));
        }
        // A scale per element varies within a segment. A large batch has too many partial sums.
        let elements = with_params(desc.norm.clone(), &[8, 6, 40], &[8, 6, 40]);
        let elements = BackwardDesc {
            norm: elements,
            ..desc.clone()
        };
        assert_eq!(sums(&device, &elements), ParamSums::Elsewhere);
        check_all(&device, &BackwardCase::of(elements, 75));
        let many = channels_last([4200, 4, 2, 3], Statistics::MeanVariance, DType::F32);
        check_all(&device, &BackwardCase::of(many, 76));
    }
}

#[test]
fn batches_of_small_feature_maps_use_segments() {
    for device in devices() {
        for [images, channels, pixels] in [[70, 16, 9], [300, 8, 4]] {
            let shape = [images, channels, pixels];
            let desc = norm(&shape, &[0, 2], Statistics::MeanVariance, DType::F32);
            let desc = with_params(desc, &[channels, 1], &[channels, 1]);
            let case = BackwardCase::new(desc, 77);
            assert_eq!(sums(&device, &case.desc), ParamSums::Segments);
            check_all(&device, &case);
        }
    }
}

#[test]
fn rows_of_one_element_have_zero_dx() {
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axis) in [(vec![6, 1], 1), (vec![1, 37], 0), (vec![3, 1, 16], 1)] {
                let input = TensorDesc::contiguous(shape.clone(), dtype);
                let norm = NormDesc::new(input, [axis], Statistics::MeanVariance)
                    .with_scale(TensorDesc::contiguous(shape, dtype));
                // The scale makes products inexact, and the large rstd amplifies a remainder.
                let case = BackwardCase::with_input(norm, 9, |i| 100.0 * noise(5, i));
                let actual = case.run(&device, StrategyChoice::Inferred).unwrap();
                let dx = actual.input.unwrap();
                assert!(
                    dx.iter().all(|&x| x == 0.0),
                    "{} {dtype}: {dx:?}",
                    device.name
                );
            }
        }
    }
}

#[test]
fn slopes_hold_at_extreme_arguments() {
    let inputs = [f64::NAN, -1e30, -1e20, -3.0, 3.0, 1e20, 1e30, 0.0];
    for device in devices() {
        for (activation, expected) in [
            (
                Activation::HardSwish,
                [f64::NAN, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5],
            ),
            (
                Activation::GeluTanh,
                [f64::NAN, 0.0, 0.0, -0.011584, 1.011584, 1.0, 1.0, 0.5],
            ),
        ] {
            let input = TensorDesc::contiguous([8], DType::F32);
            let norm = NormDesc::new(input, [0], Statistics::None).with_activation(activation);
            let case =
                BackwardCase::with_input(norm, 9, |i| inputs[i]).with_output_gradient(|_| 1.0);
            let dx = case
                .run(&device, StrategyChoice::Inferred)
                .unwrap()
                .input
                .unwrap();
            for (i, (is, should)) in dx.iter().zip(expected).enumerate() {
                let agrees = (is - should).abs() < 1e-4 || is.is_nan() && should.is_nan();
                assert!(
                    agrees,
                    "{} {activation} at {}: {is}, expected {should}",
                    device.name, inputs[i]
                );
            }
        }
    }
}
