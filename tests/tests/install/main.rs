//! `cubenorm::install`: norms of unmodified graphs are matched, and right.
//!
//! The registry of fusers belongs to the process, so these tests have one of their own. The report does too, so they run
//! one after the other.
#![cfg(feature = "burn")]

mod blocks;
mod layers;
mod look_alikes;
mod measure;
mod process;
mod random;
mod spellings;

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::{InstallReport, install_report};

/// Installs, and keeps other tests waiting.
fn installed() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The selection's devices have no tensor yet.
    cubenorm::install().expect("no tensor of a CubeCL device exists yet");
    guard
}

/// Devices whose operations are fused.
fn devices() -> Vec<(&'static str, Device)> {
    let mut devices = cubenorm_tests::tensors::devices();
    devices.retain(|(name, _)| *name != "flex");
    devices
}

/// A tensor of noise in [-2, 2), rounded to a dtype, and its values. The device is synchronized.
fn noise<const D: usize>(
    shape: [usize; D],
    seed: u64,
    dtype: DType,
    device: &Device,
) -> (Tensor<D>, Vec<f64>) {
    let elements = shape.iter().product();
    let round = cubenorm_core_dtype(dtype);
    let values: Vec<f64> = (0..elements)
        .map(|at| 2.0 * cubenorm_tests::case::noise(seed, at))
        .map(|value| cubenorm_reference::round(round, value))
        .collect();
    let data = TensorData::new(values.clone(), shape).convert_dtype(dtype);
    let tensor = Tensor::from_data(data, (device, dtype));
    // It is there before the graph, as a parameter or the output of another layer is.
    device.sync().expect("the device runs");
    (tensor, values)
}

fn cubenorm_core_dtype(dtype: DType) -> cubenorm_core::DType {
    match dtype {
        DType::F16 => cubenorm_core::DType::F16,
        DType::BF16 => cubenorm_core::DType::BF16,
        DType::F64 => cubenorm_core::DType::F64,
        _ => cubenorm_core::DType::F32,
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec().expect("the data was converted to f64")
}

/// Runs a graph. Returns its values, the number of norms that ran fused, and the report.
fn counted<const D: usize>(graph: impl FnOnce() -> Tensor<D>) -> (Vec<f64>, u64, InstallReport) {
    let before = install_report().norms();
    let values = values(graph());
    let report = install_report();
    (values, report.norms() - before, report)
}

/// The largest absolute difference.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f64::max)
}
