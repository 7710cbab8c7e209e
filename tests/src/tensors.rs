//! Devices and tensors of the tests of Burn's layers.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::device::is_selected;

/// Every Burn device of this build that the selection names.
///
/// # Panics
///
/// If there is none, since the test would prove nothing.
pub fn devices() -> Vec<(&'static str, Device)> {
    crate::guard::install();
    let mut devices: Vec<(&'static str, Device)> = Vec::new();
    #[cfg(feature = "flex")]
    devices.push(("flex", Device::flex()));
    #[cfg(feature = "cpu")]
    devices.push(("cpu", Device::cpu()));
    #[cfg(feature = "wgpu")]
    devices.push((
        match crate::device::wgpu_name() {
            "metal" => "metal",
            // Burn's layers are tested once, with SPIR-V or with WGSL.
            _ => "wgpu",
        },
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
    ));
    #[cfg(feature = "cuda")]
    devices.push(("cuda", Device::cuda(0)));
    #[cfg(feature = "rocm")]
    devices.push(("rocm", Device::rocm(0)));
    devices.retain(|(name, _)| is_selected(name));
    assert!(!devices.is_empty(), "no runtime to test");
    devices
}

/// True if a device of [`devices`] normalizes a dtype.
///
/// Burn also reports dtypes that the processor of `cpu` cannot round to.
pub fn supports(name: &str, device: &Device, dtype: DType) -> bool {
    let is_rounded = dtype != DType::BF16 || cubenorm_core::DType::BF16.is_rounded_by_processor();
    device.supports_dtype(dtype) && (name != "cpu" || is_rounded)
}

/// A tensor of reproducible noise in [-2, 2).
pub fn noise<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let elements = shape.iter().product();
    let values: Vec<f32> = (0..elements)
        .map(|position| 2.0 * crate::case::noise(seed, position) as f32)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}
