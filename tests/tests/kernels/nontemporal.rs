//! Non-temporal stores on a CPU.

use cubenorm_core::{
    Activation, BackwardDesc, DType, Hardware, Knobs, Layout, NormDesc, Statistics, StrategyChoice,
    TensorDesc, plan_backward, plan_forward, problem_on,
};
use cubenorm_kernels::{hardware, supports};
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

use super::choices;

/// Hardware of a CPU device.
fn cpu(device: &TestDevice) -> Option<Hardware> {
    let hardware = hardware(&device.client);
    if hardware.cpu_cores.is_none() {
        println!("{}: skipped, not a CPU", device.name);
        return None;
    }
    let caches = device.client.properties().hardware.last_level_cache_size;
    assert_eq!(hardware.nontemporal_threshold, caches, "{}", device.name);
    Some(hardware)
}

fn param(shape: &[usize], dtype: DType) -> TensorDesc {
    TensorDesc::contiguous(shape, dtype)
}

fn norms(dtype: DType) -> Vec<NormDesc> {
    let row = |rows: usize, cols: usize| {
        NormDesc::new(param(&[rows, cols], dtype), [1], Statistics::MeanVariance)
            .with_scale(param(&[cols], dtype))
            .with_bias(param(&[cols], dtype))
    };
    let map = |shape: [usize; 4]| {
        let of_channels = param(&[1, shape[1], shape[2], 1], dtype);
        NormDesc::new(param(&shape, dtype), [2, 3], Statistics::MeanVariance)
            .with_scale(of_channels.clone())
            .with_bias(of_channels)
    };
    let lines = Layout::strided([3, 64, 100], [6400, 1, 64]);
    let given = Statistics::Provided {
        mean: param(&[6, 1], dtype),
        variance: param(&[6, 1], dtype),
    };
    vec![
        row(7, 256),
        row(33, 4096),
        row(1, 1 << 17),
        row(9, 1024)
            .with_residual(param(&[9, 1024], dtype))
            .with_sum(),
        NormDesc::new(param(&[96, 64], dtype), [0], Statistics::MeanSquare),
        NormDesc::new(TensorDesc::new(lines, dtype), [2], Statistics::MeanVariance),
        NormDesc::new(param(&[2, 6, 320], dtype), [0, 2], given.clone()),
        // One vector of channels per spatial position.
        NormDesc::new(
            param(&[900, 16], dtype),
            [0],
            Statistics::Provided {
                mean: param(&[1, 16], dtype),
                variance: param(&[1, 16], dtype),
            },
        ),
        // Feature maps with a tail, one or several per row. Some start within a vector.
        NormDesc::new(param(&[2, 6, 1031], dtype), [0, 2], given),
        map([7, 6, 1, 1031])
            .with_residual(param(&[7, 6, 1, 1031], dtype))
            .with_sum(),
        map([5, 2, 3, 1033]).with_activation(Activation::Relu),
        map([1, 1, 3, 1 << 15 | 1]),
        NormDesc::new(param(&[41, 1031], dtype), [1], Statistics::MeanVariance),
    ]
}

#[test]
fn non_temporal_stores_agree_with_the_reference() {
    for device in devices() {
        // Any traffic exceeds this threshold. Other devices ignore it.
        let is_cpu = cpu(&device).is_some();
        let hardware = Hardware {
            nontemporal_threshold: Some(0),
            ..hardware(&device.client)
        };
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            if !supports(&device.client, dtype) {
                println!("{}: {dtype} skipped", device.name);
                continue;
            }
            for desc in norms(dtype) {
                let plan = |choice| {
                    let problem = problem_on(&desc, &hardware, choice).unwrap();
                    plan_forward(&problem, &hardware, choice)
                };
                let inferred = plan(StrategyChoice::Inferred).unwrap();
                assert!(
                    !is_cpu || inferred.blueprint.output.nontemporal,
                    "{inferred}: {desc:?}"
                );
                let case = Case::new(desc.clone(), 3);
                let mut passed = 0;
                for choice in choices(&device, &desc) {
                    let Ok(plan) = plan(choice) else { continue };
                    passed += usize::from(plan.blueprint.output.nontemporal);
                    let actual = case.run_within(&device.client, choice, &hardware).unwrap();
                    case.compare(&actual)
                        .unwrap_or_else(|error| panic!("{} {plan}: {error}", device.name));
                }
                assert!(
                    !is_cpu || passed > 1,
                    "{}: {passed} of {desc:?}",
                    device.name
                );
            }
        }
    }
}

#[test]
fn non_temporal_gradients_agree_with_differences() {
    for device in devices() {
        let Some(hardware) = cpu(&device) else {
            continue;
        };
        let cols = 1024;
        let Some(caches) = hardware.nontemporal_threshold else {
            println!("{}: skipped, size of caches unknown", device.name);
            continue;
        };
        // Input, dy and dx of f64 take just more than half of the caches.
        let rows = caches / 2 / (3 * DType::F64.size() * cols) + 1;
        if rows > 3000 {
            println!("{}: skipped, {caches} bytes of caches", device.name);
            continue;
        }
        let input = param(&[rows, cols], DType::F64);
        let norm = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(param(&[cols], DType::F64));
        let desc = BackwardDesc::new(norm);
        let choice = StrategyChoice::Forced(Knobs {
            rows_per_unit: Some(1),
            ..Knobs::default()
        });
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &hardware, choice).unwrap();
        let access = plan.blueprint.input_gradient.unwrap();
        assert!(access.nontemporal, "{plan}");
        BackwardCase::of(desc, 5).check(&device, choice).unwrap();
    }
}
