//! Threads as members, and expected values in f64.

use std::sync::Arc;
use std::thread::{Result, scope};
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::distributed::{Collective, InProcess};
use cubenorm_core::{BackwardDesc, NormDesc};
use cubenorm_reference::{BackwardTensors, Forward, Gradients, Tensors, forward, gradient};
use cubenorm_tests::tensors::supports;
use cubenorm_tests::tolerance;

/// Longest wait for other members. The first exchange waits for the compilation of kernels.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Runs one thread for each member, and returns their results in the order of ranks.
pub(crate) fn run<T: Send>(
    members: usize,
    limit: Duration,
    member: impl Fn(usize, Arc<dyn Collective>) -> T + Sync,
) -> Vec<Result<T>> {
    run_on(InProcess::group(members, limit), member)
}

/// Runs one thread for each member of a group.
pub(crate) fn run_on<C: Collective + 'static, T: Send>(
    group: Vec<C>,
    member: impl Fn(usize, Arc<dyn Collective>) -> T + Sync,
) -> Vec<Result<T>> {
    let member = &member;
    scope(|scope| {
        let threads: Vec<_> = group
            .into_iter()
            .enumerate()
            .map(|(rank, collective)| scope.spawn(move || member(rank, Arc::new(collective))))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

/// [`run`] of members that do not panic.
pub(crate) fn all<T: Send>(
    members: usize,
    member: impl Fn(usize, Arc<dyn Collective>) -> T + Sync,
) -> Vec<T> {
    unwrapped(run(members, LIMIT, member))
}

/// The results of members that did not panic.
pub(crate) fn unwrapped<T>(results: Vec<Result<T>>) -> Vec<T> {
    let unwrap =
        |result: Result<T>| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    results.into_iter().map(unwrap).collect()
}

/// A tensor of a dtype without autodiff.
pub(crate) fn upload<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    let data = TensorData::new(values.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec().expect("the data was converted to f64")
}

/// Values rounded to a dtype.
pub(crate) fn rounded(values: impl Iterator<Item = f64>, dtype: DType) -> Vec<f64> {
    values
        .map(|value| cubenorm_reference::round(core_dtype(dtype), value))
        .collect()
}

pub(crate) fn core_dtype(dtype: DType) -> cubenorm_core::DType {
    match dtype {
        DType::F16 => cubenorm_core::DType::F16,
        DType::BF16 => cubenorm_core::DType::BF16,
        DType::F64 => cubenorm_core::DType::F64,
        _ => cubenorm_core::DType::F32,
    }
}

/// Dtypes of these tests that a device normalizes.
pub(crate) fn dtypes(name: &str, device: &Device) -> Vec<DType> {
    [DType::F32, DType::F16, DType::BF16]
        .into_iter()
        .filter(|&dtype| supports(name, device, dtype))
        .collect()
}

/// A normalization in f64, and the gradients of `sum(dy * output)`.
pub(crate) struct Expected {
    pub(crate) forward: Forward,
    pub(crate) gradients: Gradients,
}

/// `first` is the position of the first element of a row.
pub(crate) fn expected(
    desc: NormDesc,
    [input, scale, bias, dy]: [&[f64]; 4],
    rows: usize,
    first: impl Fn(usize) -> usize,
) -> Expected {
    let tensors = Tensors {
        input,
        scale: Some(scale),
        bias: desc.bias.is_some().then_some(bias),
        ..Tensors::default()
    };
    let forward = forward(&desc, &tensors);
    let saved: Vec<f64> = (0..rows)
        .flat_map(|row| [forward.mean[first(row)], forward.rstd[first(row)]])
        .collect();
    let gradients = gradient(
        &BackwardDesc::new(desc),
        &BackwardTensors {
            input,
            output_gradient: dy,
            saved: Some(&saved),
            scale: tensors.scale,
            bias: tensors.bias,
            ..BackwardTensors::default()
        },
    );
    Expected { forward, gradients }
}

/// Bound of the error of a value whose terms have a magnitude, stored in a dtype.
pub(crate) fn allowed(dtype: DType, cols: usize, magnitude: f64, value: f64) -> f64 {
    let dtype = core_dtype(dtype);
    let computed = tolerance::bound(dtype.accumulation(), cols, magnitude, magnitude);
    4.0 * computed + 1.01 * tolerance::unit_roundoff(dtype) * value.abs()
}

#[track_caller]
pub(crate) fn assert_close(
    at: &str,
    actual: &[f64],
    expected: &[f64],
    allowed: impl Fn(usize, f64) -> f64,
) {
    assert_eq!(actual.len(), expected.len(), "{at}");
    for (place, (&is, &should)) in actual.iter().zip(expected).enumerate() {
        let allowed = allowed(place, should);
        let is_close = (is - should).abs() <= allowed;
        assert!(
            is_close,
            "{at} at {place}: {is}, expected {should} within {allowed:e}"
        );
    }
}
