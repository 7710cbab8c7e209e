//! Dynamic schedule: cores of a CPU take rows from a work counter.

use std::thread;

use cubenorm_core::{
    DType, Hardware, Knobs, NormDesc, Statistics, StrategyChoice, TensorDesc, plan_forward,
};
use cubenorm_kernels::{ForwardTensors, hardware, launch_forward, supports};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

use super::choices;

/// Hardware of a CPU device with `cores` cores, for more or fewer units than real cores.
fn cpu(device: &TestDevice, cores: u32) -> Option<Hardware> {
    let hardware = hardware(&device.client);
    if hardware.cpu_cores.is_none() {
        println!("{}: skipped, not a CPU", device.name);
        return None;
    }
    Some(Hardware {
        cpu_cores: Some(cores),
        ..hardware
    })
}

/// The same choice with a dynamic schedule, even for few rows.
fn claiming(choice: StrategyChoice) -> StrategyChoice {
    StrategyChoice::Forced(Knobs {
        dynamic: Some(true),
        ..choice.knobs()
    })
}

fn contiguous(shape: &[usize], dtype: DType) -> TensorDesc {
    TensorDesc::contiguous(shape, dtype)
}

fn norms(dtype: DType) -> Vec<NormDesc> {
    let rows = |rows: usize, cols: usize| {
        let input = contiguous(&[rows, cols], dtype);
        NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(contiguous(&[cols], dtype))
            .with_bias(contiguous(&[cols], dtype))
    };
    let given = Statistics::Provided {
        mean: contiguous(&[6, 1], dtype),
        variance: contiguous(&[6, 1], dtype),
    };
    let columns = contiguous(&[3, 40, 512], dtype);
    vec![
        // Staged and reloaded rows. The last claim is partial, and one length has a tail.
        rows(1031, 64),
        rows(301, 1021),
        rows(97, 640)
            .with_residual(contiguous(&[97, 640], dtype))
            .with_sum(),
        // Perpendicular vectorization, and no reduction.
        NormDesc::new(columns, [1], Statistics::MeanSquare),
        NormDesc::new(contiguous(&[64, 6, 320], dtype), [0, 2], given),
    ]
}

#[test]
fn dynamic_schedule_is_complete_and_reproducible() {
    for device in devices() {
        for cores in [2, 13] {
            let Some(hardware) = cpu(&device, cores) else {
                continue;
            };
            for dtype in [DType::F32, DType::F16, DType::F64] {
                if !supports(&device.client, dtype) {
                    println!("{}: {dtype} skipped", device.name);
                    continue;
                }
                for desc in norms(dtype) {
                    let case = Case::new(desc.clone(), 29);
                    let mut work_counter = 0;
                    for choice in choices(&device, &desc).into_iter().map(claiming) {
                        let problem = desc.problem().unwrap();
                        let Ok(plan) = plan_forward(&problem, &hardware, choice) else {
                            continue;
                        };
                        work_counter += usize::from(plan.blueprint.team.is_dynamic());
                        let run = || case.run_within(&device.client, choice, &hardware).unwrap();
                        let first = run();
                        case.compare(&first)
                            .unwrap_or_else(|error| panic!("{} {plan}: {error}", device.name));
                        for _ in 0..3 {
                            assert!(run() == first, "{} {plan}", device.name);
                        }
                    }
                    assert!(work_counter > 0, "{}: none of {desc:?}", device.name);
                }
            }
        }
    }
}

/// A norm that is large enough for a dynamic schedule on two cores.
fn shared(device: &TestDevice) -> Option<(NormDesc, StrategyChoice)> {
    let hardware = cpu(device, 2)?;
    let desc = NormDesc::new(
        contiguous(&[4096, 256], DType::F32),
        [1],
        Statistics::MeanVariance,
    );
    let choice = claiming(StrategyChoice::Inferred);
    let plan = plan_forward(&desc.problem().unwrap(), &hardware, choice).unwrap();
    assert!(plan.blueprint.team.is_dynamic(), "{}: {plan}", device.name);
    Some((desc, choice))
}

#[test]
fn threads_use_separate_work_counters() {
    for device in devices() {
        let Some((desc, choice)) = shared(&device) else {
            continue;
        };
        thread::scope(|scope| {
            for seed in 0..4 {
                let (device, desc) = (&device, desc.clone());
                scope.spawn(move || {
                    let case = Case::new(desc, seed);
                    for _ in 0..20 {
                        let actual = case.run(&device.client, choice).unwrap();
                        case.compare(&actual).unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn failed_input_fails_only_its_own_launch() {
    cubenorm_tests::guard::leave_out_here();
    for device in devices() {
        let Some((desc, choice)) = shared(&device) else {
            continue;
        };
        let client = &device.client;
        let case = Case::new(desc.clone(), 31);
        // Exceeds any memory, so the buffer carries an allocation error.
        let failed = ForwardTensors {
            input: client.empty(1 << 60),
            ..case.tensors(client)
        };
        // More launches than one allocation of counters.
        for _ in 0..50 {
            let outputs = launch_forward(client, &desc, &failed, choice).unwrap();
            let output = client.read_one(outputs.output.handle);
            assert!(output.is_err(), "{}", device.name);
            let actual = case.run(client, choice).unwrap();
            case.compare(&actual).unwrap();
        }
    }
}
