//! The Burn face, on every runtime of the build: numbers beside Burn's own layers and the f64
//! reference, records in both directions, gradients, errors word for word, and fusion.
#![cfg(feature = "burn")]

mod errors;
mod forward;
mod gradients;
mod memory;
mod pytorch;
mod records;
mod training;

use burn::tensor::{Device, Tensor, TensorData};
use cubenorm_tests::device::is_selected;

/// Every device of Burn's that this build has and the selection names.
fn devices() -> Vec<(&'static str, Device)> {
    let mut devices: Vec<(&'static str, Device)> = Vec::new();
    #[cfg(feature = "flex")]
    devices.push(("flex", Device::flex()));
    #[cfg(feature = "cpu")]
    devices.push(("cpu", Device::cpu()));
    #[cfg(feature = "wgpu")]
    devices.push((
        "wgpu",
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
    ));
    #[cfg(feature = "cuda")]
    devices.push(("cuda", Device::cuda(0)));
    devices.retain(|(name, _)| is_selected(name));
    assert!(!devices.is_empty(), "no runtime to test");
    devices
}

/// Numbers that look random and are the same everywhere.
fn noise<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let elements = shape.iter().product();
    let values: Vec<f32> = (0..elements)
        .map(|position| 2.0 * cubenorm_tests::case::noise(seed, position) as f32)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The largest absolute difference.
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f64 {
    assert_eq!(a.dims(), b.dims());
    values(a)
        .iter()
        .zip(values(b))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec().expect("the data was converted to f64")
}
