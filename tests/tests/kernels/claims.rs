//! Rows that the cores of a CPU claim while a launch runs.

use std::thread;

use cubenorm_core::{
    DType, Hardware, Knobs, NormDesc, Statistics, StrategyChoice, TensorDesc, plan_forward,
};
use cubenorm_kernels::{hardware, supports};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

use super::choices;

/// The hardware of a device that is a CPU, with so many cores: units without one wait, and find less to claim.
fn cpu(device: &TestDevice, cores: u32) -> Option<Hardware> {
    let hardware = hardware(&device.client);
    if hardware.cpu_cores.is_none() {
        println!("{}: skipped, no CPU runs units", device.name);
        return None;
    }
    Some(Hardware {
        cpu_cores: Some(cores),
        ..hardware
    })
}

/// The same choice, with rows that are claimed however few there are.
fn claiming(choice: StrategyChoice) -> StrategyChoice {
    StrategyChoice::Forced(Knobs {
        claims: Some(true),
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
    let given = Statistics::Given {
        mean: contiguous(&[6, 1], dtype),
        variance: contiguous(&[6, 1], dtype),
    };
    let columns = contiguous(&[3, 40, 512], dtype);
    vec![
        // Held, and read again: of as many rows as end within a claim, of a length that no vector divides.
        rows(1031, 64),
        rows(301, 1021),
        rows(97, 640)
            .with_residual(contiguous(&[97, 640], dtype))
            .with_sum(),
        // Vectors of rows, and nothing reduced.
        NormDesc::new(columns, [1], Statistics::MeanSquare),
        NormDesc::new(contiguous(&[64, 6, 320], dtype), [0, 2], given),
    ]
}

#[test]
fn rows_that_are_claimed_come_out_once_each_and_alike_from_run_to_run() {
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
                    let mut claimed = 0;
                    for choice in choices(&device, &desc).into_iter().map(claiming) {
                        let problem = desc.problem().unwrap();
                        let Ok(plan) = plan_forward(&problem, &hardware, choice) else {
                            continue;
                        };
                        claimed += usize::from(plan.blueprint.team.claims);
                        let run = || case.run_within(&device.client, choice, &hardware).unwrap();
                        let first = run();
                        case.compare(&first)
                            .unwrap_or_else(|error| panic!("{} {plan}: {error}", device.name));
                        // A launch begins where the one before it has left the count.
                        for _ in 0..3 {
                            assert!(run() == first, "{} {plan}", device.name);
                        }
                    }
                    assert!(claimed > 0, "{}: none of {desc:?}", device.name);
                }
            }
        }
    }
}

#[test]
fn threads_count_their_own_claims() {
    for device in devices() {
        if cpu(&device, 2).is_none() {
            continue;
        }
        thread::scope(|scope| {
            for seed in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let desc = norms(DType::F32).remove(seed % 2);
                    let case = Case::new(desc, seed as u64);
                    let choice = claiming(StrategyChoice::Inferred);
                    for _ in 0..50 {
                        let actual = case.run(&device.client, choice).unwrap();
                        case.compare(&actual).unwrap();
                    }
                });
            }
        });
    }
}
