//! The devices a user can name, and what each needs to be there.

use std::{path::Path, str::FromStr};

use anyhow::{Result, bail};
use strum::{Display, IntoStaticStr};

use crate::{exec::on_path, style, vulkan};

/// A runtime of CubeCL or Burn, named as its cargo feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Device {
    Cuda,
    Rocm,
    Metal,
    Vulkan,
    Wgpu,
    Webgpu,
    Cpu,
    Flex,
}

impl Device {
    /// Every device, the one to prefer first.
    pub const ALL: [Self; 8] = [
        Self::Cuda,
        Self::Rocm,
        Self::Metal,
        Self::Wgpu,
        Self::Vulkan,
        Self::Webgpu,
        Self::Cpu,
        Self::Flex,
    ];

    /// The name, which is the cargo feature and the value of `BURN_DEVICE` too.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Why this machine cannot run the device, or `None` if it can.
    pub fn missing(self) -> Option<String> {
        let mac = cfg!(target_os = "macos");
        match self {
            Self::Cuda if on_path("nvidia-smi") || Path::new("/dev/nvidiactl").exists() => None,
            Self::Cuda => Some("no NVIDIA driver".into()),
            Self::Rocm if Path::new("/dev/kfd").exists() => None,
            Self::Rocm => Some("no AMD compute driver (/dev/kfd)".into()),
            Self::Metal if mac => None,
            Self::Metal => Some("not a Mac".into()),
            Self::Wgpu if !cfg!(target_os = "linux") => None,
            Self::Wgpu | Self::Vulkan => match vulkan::drivers().is_empty() {
                true => Some("no Vulkan driver".into()),
                false => None,
            },
            Self::Webgpu => Some("runs in a browser".into()),
            Self::Cpu | Self::Flex => None,
        }
    }
}

impl FromStr for Device {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|device| device.name() == name) {
            Some(device) => Ok(device),
            None => {
                let names = Self::ALL.map(Self::name).join(", ");
                bail!("no device is called `{name}`; there are {names}")
            }
        }
    }
}

/// Keeps the devices that this machine has, and prints why it leaves out the others.
pub fn present(devices: &[Device]) -> Vec<Device> {
    let (here, missing): (Vec<Device>, Vec<Device>) = devices
        .iter()
        .partition(|device| device.missing().is_none());
    for device in missing {
        let why = device.missing().unwrap_or_default();
        anstream::eprintln!("{} {device}: {why}", style::warning("skipped"));
    }
    here
}

/// Fails if this machine lacks one of the devices.
pub fn check(devices: &[Device]) -> Result<()> {
    for device in devices {
        if let Some(why) = device.missing() {
            bail!("{device} cannot run here: {why}");
        }
    }
    Ok(())
}

/// The runtimes to build for these devices, as cargo features.
///
/// The devices that every machine can have share one set. So `demo`, `test` and `bench` share one
/// build of Burn, which takes many minutes. `cpu` is in the set if LLVM can be installed. `vulkan`
/// is not: with it in the build, `wgpu` would compile to SPIR-V instead of WGSL.
pub fn features(devices: &[Device], llvm: bool) -> String {
    let common = [Device::Cpu, Device::Wgpu, Device::Flex];
    let mut set: Vec<Device> = devices
        .iter()
        .copied()
        .filter(|device| !common.contains(device))
        .collect();
    if set.len() < devices.len() || devices.is_empty() {
        let usable = |device: &Device| *device != Device::Cpu || llvm;
        set.extend(common.into_iter().filter(usable));
    }
    set.iter()
        .map(|device| device.name())
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for device in Device::ALL {
            assert_eq!(device.name().parse::<Device>().unwrap(), device);
        }
        let error = "gpu".parse::<Device>().unwrap_err().to_string();
        assert!(error.contains("`gpu`") && error.contains("wgpu"), "{error}");
    }

    #[test]
    fn common_devices_share_a_build_without_vulkan() {
        assert_eq!(features(&[Device::Wgpu], true), "cpu,wgpu,flex");
        assert_eq!(
            features(&[Device::Flex, Device::Cpu], true),
            "cpu,wgpu,flex"
        );
        assert_eq!(features(&[Device::Wgpu], false), "wgpu,flex");
        assert_eq!(features(&[Device::Vulkan], true), "vulkan");
        assert_eq!(
            features(&[Device::Cuda, Device::Cpu], true),
            "cuda,cpu,wgpu,flex"
        );
        assert_eq!(features(&[Device::Cuda], true), "cuda");
    }
}
