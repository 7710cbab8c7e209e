//! Devices that are compiled in.
//!
//! Each runtime is a feature, named as in Burn. CubeCL's runtimes share one executor. Flex, Burn's
//! own backend, has another.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::Executor;

/// All names that [`open`] accepts, in Burn's order of preference.
pub const DEVICES: [&str; 8] = [
    "cuda", "metal", "rocm", "vulkan", "webgpu", "wgpu", "cpu", "flex",
];

/// Error of opening a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is unknown.
    #[error("unknown device `{name}`; choose one of: {}", DEVICES.join(", "))]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The device's runtime is not compiled in.
    #[error("device `{name}` is not compiled in; {}", instead(.name))]
    NotCompiled {
        /// Name of the device.
        name: String,
    },
    /// No runtime is compiled in.
    #[error("no device is compiled in; build with --features wgpu")]
    NoneCompiled,
    /// The device's runtime is compiled in, but did not start.
    #[error("device `{name}` did not start: {reason}")]
    NotStarted {
        /// Name of the device.
        name: String,
        /// The runtime's message.
        reason: String,
    },
}

fn instead(name: &str) -> String {
    match compiled().as_slice() {
        [] => format!("build with --features {name}"),
        names => format!(
            "build with --features {name}, or choose one of: {}",
            names.join(", ")
        ),
    }
}

/// Names of the devices that are compiled in, in the order of [`DEVICES`].
pub fn compiled() -> Vec<&'static str> {
    let features = [
        cfg!(feature = "cuda"),
        cfg!(feature = "metal"),
        cfg!(feature = "rocm"),
        cfg!(feature = "vulkan"),
        cfg!(feature = "webgpu"),
        cfg!(feature = "wgpu"),
        cfg!(feature = "cpu"),
        cfg!(feature = "flex"),
    ];
    let devices = DEVICES.into_iter().zip(features);
    devices
        .filter(|&(_, is_compiled)| is_compiled)
        .map(|(name, _)| name)
        .collect()
}

/// Default device: the one that the environment variable `BURN_DEVICE` names, or the first one
/// compiled in.
///
/// # Errors
///
/// [`OpenError::NoneCompiled`].
pub fn default_device() -> Result<String, OpenError> {
    let named = std::env::var("BURN_DEVICE").ok();
    let named = named.map(|name| name.to_lowercase());
    let first = || compiled().first().map(|name| (*name).to_owned());
    named.or_else(first).ok_or(OpenError::NoneCompiled)
}

/// Starts the device called `name`, one of [`DEVICES`].
///
/// # Errors
///
/// [`OpenError`].
pub fn open(name: &str) -> Result<Box<dyn Executor>, OpenError> {
    #[cfg(feature = "cube")]
    if let Some(device) = cube_device(name) {
        return Ok(Box::new(cube::CubeExecutor::open(name, device)?));
    }
    #[cfg(feature = "flex")]
    if name == "flex" {
        return Ok(Box::new(flex::FlexExecutor));
    }
    let name = name.to_owned();
    match DEVICES.contains(&name.as_str()) {
        false => Err(OpenError::Unknown { name }),
        true => Err(OpenError::NotCompiled { name }),
    }
}

/// CubeCL device of a name, if it is compiled in. `vulkan`, `metal` and `webgpu` are the wgpu
/// runtime with another compiler.
#[cfg(feature = "cube")]
fn cube_device(name: &str) -> Option<cubecl::Device> {
    match name {
        #[cfg(feature = "cuda")]
        "cuda" => Some(cubecl::Device::Cuda(Default::default())),
        #[cfg(feature = "rocm")]
        "rocm" => Some(cubecl::Device::Hip(Default::default())),
        #[cfg(feature = "cpu")]
        "cpu" => Some(cubecl::Device::Cpu(Default::default())),
        #[cfg(any(
            feature = "wgpu",
            feature = "vulkan",
            feature = "metal",
            feature = "webgpu"
        ))]
        "wgpu" | "vulkan" | "metal" | "webgpu" if compiled().contains(&name) => {
            Some(cubecl::Device::Wgpu(Default::default()))
        }
        _ => None,
    }
}

/// Message of a panic.
#[cfg(feature = "cube")]
fn panic_message(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let owned = || cause.downcast_ref::<String>().cloned();
    text.or_else(owned)
        .unwrap_or_else(|| "it panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_missing_device() {
        let message = |name| open(name).map(drop).unwrap_err().to_string();
        assert!(message("abacus").starts_with("unknown device `abacus`"));
        if let Some(missing) = DEVICES.iter().find(|name| !compiled().contains(name)) {
            let expected = format!("device `{missing}` is not compiled in; build with");
            assert!(message(missing).starts_with(&expected));
        }
    }
}
