//! Choosing a device by name.

use std::{fmt, panic};

use anyhow::{Context, Result, anyhow, bail};
use burn::tensor::{Device, Tensor};

/// Device names of [`open`], in Burn's order of preference.
pub const DEVICES: [&str; 8] = [
    "cuda", "metal", "rocm", "vulkan", "webgpu", "wgpu", "cpu", "flex",
];

/// A started device.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    /// Burn's device.
    pub device: Device,
    /// Name of the device, one of [`DEVICES`].
    pub name: String,
}

/// Starts the device called `name`.
///
/// The default is the device in `BURN_DEVICE`, or else the first one compiled in.
///
/// # Errors
///
/// If the name is unknown, its runtime is not compiled in, or the device does not start.
pub fn open(name: Option<&str>) -> Result<OpenDevice> {
    let name = name
        .map(str::to_owned)
        .or_else(|| std::env::var("BURN_DEVICE").ok())
        .map(|name| name.to_lowercase())
        .or_else(|| compiled().first().map(ToString::to_string))
        .ok_or_else(|| anyhow!("no runtime is compiled in; build with --features wgpu"))?;

    let Some(device) = by_name(&name) else {
        let compiled = compiled().join(", ");
        if DEVICES.contains(&name.as_str()) {
            bail!(
                "device `{name}` is not compiled in; build with --features {name}, \
                 or choose one of: {compiled}"
            );
        }
        bail!("unknown device `{name}`; choose one of: {compiled}");
    };

    start(&device).with_context(|| format!("device `{name}` did not start"))?;
    Ok(OpenDevice { device, name })
}

/// Names of the compiled-in devices, in the order of [`DEVICES`].
pub fn compiled() -> Vec<&'static str> {
    DEVICES
        .into_iter()
        .filter(|name| by_name(name).is_some())
        .collect()
}

/// The device called `name`, not started yet. None if its runtime is not compiled in.
fn by_name(name: &str) -> Option<Device> {
    match name {
        #[cfg(feature = "cuda")]
        "cuda" => Some(Device::cuda(0)),
        #[cfg(feature = "metal")]
        "metal" => Some(Device::metal(Default::default())),
        #[cfg(feature = "rocm")]
        "rocm" => Some(Device::rocm(0)),
        #[cfg(feature = "vulkan")]
        "vulkan" => Some(Device::vulkan(Default::default())),
        #[cfg(feature = "webgpu")]
        "webgpu" => Some(Device::webgpu(Default::default())),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(Device::wgpu(Default::default())),
        #[cfg(feature = "cpu")]
        "cpu" => Some(Device::cpu()),
        #[cfg(feature = "flex")]
        "flex" => Some(Device::flex()),
        _ => None,
    }
}

/// Runs a first operation.
///
/// A runtime without a device or driver panics there. The panic becomes an error, since a wrong
/// `--device` is a user's mistake and not a bug.
fn start(device: &Device) -> Result<()> {
    let device = device.clone();
    panic::catch_unwind(move || {
        let sum = Tensor::<1>::ones([1], &device) + 1.0;
        sum.try_into_data().map(drop)
    })
    .map_err(|cause| anyhow!(panic_message(cause.as_ref())))?
    .map_err(|error| anyhow!("{error:?}"))
}

/// Message of a panic.
fn panic_message(cause: &(dyn std::any::Any + Send)) -> String {
    if let Some(message) = cause.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = cause.downcast_ref::<String>() {
        message.clone()
    } else {
        "the runtime panicked".to_owned()
    }
}

impl OpenDevice {
    /// Hardware name reported by the runtime, if any.
    fn hardware(&self) -> Option<String> {
        #[cfg(any(
            feature = "cuda",
            feature = "rocm",
            feature = "wgpu",
            feature = "vulkan",
            feature = "webgpu",
            feature = "metal",
            feature = "cpu"
        ))]
        return self.device.identity().map(|identity| identity.name);

        #[allow(unreachable_code)]
        None
    }
}

/// Shows the device's name with the hardware behind it: `wgpu (llvmpipe)`.
impl fmt::Display for OpenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hardware() {
            Some(hardware) if hardware != self.name => write!(f, "{} ({hardware})", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_device_lists_compiled_devices() {
        let error = open(Some("abacus")).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "unknown device `abacus`; choose one of: {}",
                compiled().join(", ")
            )
        );
    }

    #[test]
    fn missing_device_names_its_feature() {
        let Some(missing) = DEVICES.iter().find(|name| by_name(name).is_none()) else {
            return;
        };
        let error = open(Some(missing)).unwrap_err().to_string();
        assert!(error.contains(&format!("--features {missing}")), "{error}");
    }
}
