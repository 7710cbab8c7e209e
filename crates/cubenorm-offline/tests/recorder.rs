//! Tests of the recording device.

use cubenorm_core::{DType, NormDesc, Statistics, Strategy, StrategyChoice, TensorDesc};
use cubenorm_kernels::{ForwardTensors, LaunchError, launch_forward};
use cubenorm_offline::{Profile, Recorder};

fn layer_norm(shape: [usize; 2], dtype: DType) -> NormDesc {
    let input = TensorDesc::contiguous(shape, dtype);
    NormDesc::new(input, [1], Statistics::MeanVariance)
}

fn launch(
    recorder: &Recorder,
    desc: &NormDesc,
    choice: impl Into<StrategyChoice>,
) -> Result<(), LaunchError> {
    let client = recorder.client();
    let bytes = desc.input.shape().iter().product::<usize>() * desc.input.dtype.size();
    let tensors = ForwardTensors::new(client.empty(bytes));
    launch_forward(client, desc, &tensors, choice.into()).map(|_| ())
}

fn names(recorder: &Recorder) -> Vec<&'static str> {
    let kernels = recorder.take();
    kernels
        .iter()
        .map(|kernel| kernel.id().short_name())
        .collect()
}

#[test]
fn split_row_launches_two_kernels() {
    let recorder = Recorder::of(&Profile::nvidia(90));
    let desc = layer_norm([2, 1 << 20], DType::F32);
    launch(&recorder, &desc, Strategy::Split).unwrap();
    assert_eq!(names(&recorder), ["ReduceParts", "Normalize"]);
    launch(&recorder, &desc, Strategy::Cube).unwrap();
    assert_eq!(names(&recorder), ["Normalize"]);
}

#[test]
fn equal_properties_launch_equal_kernels() {
    let first = Recorder::of(&Profile::cpu());
    let second = Recorder::like(first.client());
    let desc = layer_norm([64, 768], DType::F16);
    let ids = [&first, &second].map(|recorder| {
        launch(recorder, &desc, StrategyChoice::Inferred).unwrap();
        let kernels = recorder.take();
        kernels.iter().map(|kernel| kernel.id()).collect::<Vec<_>>()
    });
    assert_eq!(ids[0].len(), 1);
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn unsupported_dtype_is_an_error() {
    let recorder = Recorder::of(&Profile::browser());
    let error = launch(
        &recorder,
        &layer_norm([4, 8], DType::BF16),
        StrategyChoice::Inferred,
    );
    assert!(matches!(error, Err(LaunchError::DType { .. })), "{error:?}");
    assert!(recorder.take().is_empty());
}

#[test]
fn tensors_larger_than_memory_are_planned() {
    let recorder = Recorder::of(&Profile::nvidia(80));
    let desc = layer_norm([1 << 22, 1 << 13], DType::F32);
    launch(&recorder, &desc, StrategyChoice::Inferred).unwrap();
    assert_eq!(names(&recorder), ["Normalize"]);
}
