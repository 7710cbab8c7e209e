//! Guards detect out-of-bounds stores. Each test provokes one on purpose.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cubenorm_core::{DType, NormDesc, Statistics, Strategy, StrategyChoice, TensorDesc};
use cubenorm_kernels::plan_for;
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};
use cubenorm_tests::guard;

/// Panic message of the guards, if a run provokes it.
fn alarm(run: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let message = panic.downcast_ref::<String>()?;
    message.starts_with("guard: ").then(|| message.clone())
}

fn split(device: &TestDevice) -> (Case, usize) {
    let input = TensorDesc::contiguous([3, 512, 14, 14], DType::F32);
    let case = Case::new(NormDesc::new(input, [1], Statistics::MeanVariance), 1);
    let plan = plan_for(&device.client, &case.desc, Strategy::Split.into()).unwrap();
    assert!(plan.blueprint.split(), "{}: {plan}", device.name);
    (case, 4 * plan.workspace)
}

#[test]
fn guards_detect_a_short_workspace() {
    for device in devices() {
        assert!(guard::install(), "the guards are switched off");
        let (case, bytes) = split(&device);
        let run = || {
            case.run(&device.client, Strategy::Split.into()).unwrap();
        };
        assert_eq!(alarm(run), None, "{}", device.name);
        for by in [4, 64, 256] {
            let message = alarm(|| guard::shortened(bytes, by, run));
            let expected = format!(
                "guard: PartialStatistics wrote {by} bytes behind a buffer of {} bytes",
                bytes - by
            );
            assert_eq!(message, Some(expected), "{}", device.name);
        }
    }
}

#[test]
fn guards_detect_a_short_output() {
    for device in devices() {
        assert!(guard::install(), "the guards are switched off");
        let input = TensorDesc::contiguous([33, 65], DType::F32);
        let case = Case::new(NormDesc::new(input, [1], Statistics::MeanSquare), 2);
        let bytes = 4 * 33 * 65;
        let run = || {
            let tensors = case.tensors(&device.client);
            let choice = Default::default();
            cubenorm_kernels::launch_forward(&device.client, &case.desc, &tensors, choice).unwrap();
        };
        assert_eq!(alarm(run), None, "{}", device.name);
        let message = alarm(|| guard::shortened(bytes, 4, run));
        let message = message.unwrap_or_default();
        assert!(
            message.starts_with("guard: Normalize wrote 4 bytes behind"),
            "{message}"
        );
    }
}

/// Shapes whose split rows once left their workspace on a CPU of two cores and more.
#[test]
fn split_rows_with_tails_stay_in_their_workspace() {
    for device in devices() {
        for shape in [
            vec![3, 512, 14, 14],
            vec![1, 4096, 197],
            vec![1, 1600, 13, 13],
            vec![4, 768, 7, 7],
        ] {
            let input = TensorDesc::contiguous(shape, DType::F32);
            let norm = NormDesc::new(input, [1], Statistics::MeanVariance);
            let forward = Case::new(norm.clone(), 3);
            forward.check(&device, StrategyChoice::Inferred).unwrap();
            let backward = BackwardCase::new(norm, 3);
            backward.run(&device, StrategyChoice::Inferred).unwrap();
        }
    }
}
