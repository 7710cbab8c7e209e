//! The devices a user can name, and what each needs to be there.

use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use crate::{exec::on_path, style, vulkan};

/// A runtime of CubeCL or Burn, named as its cargo feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr, VariantNames)]
#[strum(
    serialize_all = "snake_case",
    parse_err_ty = anyhow::Error,
    parse_err_fn = unknown
)]
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

fn unknown(name: &str) -> anyhow::Error {
    let names = Device::VARIANTS.join(", ");
    anyhow!("no device is called `{name}`; there are {names}")
}

/// The devices that were asked for, each of which this machine must have, or those of `usual` that
/// it has.
pub(crate) fn chosen(asked: &[Device], usual: &[Device]) -> Result<Vec<Device>> {
    if asked.is_empty() {
        let here = present(usual);
        ensure!(!here.is_empty(), "this machine has no device to run on");
        return Ok(here);
    }
    for device in asked {
        if let Some(why) = device.missing() {
            bail!("{device} cannot run here: {why}");
        }
    }
    Ok(asked.to_vec())
}

/// Keeps the devices that this machine has, and prints why it leaves out the others.
fn present(devices: &[Device]) -> Vec<Device> {
    let (here, missing): (Vec<Device>, Vec<Device>) = devices
        .iter()
        .partition(|device| device.missing().is_none());
    for device in missing {
        let why = device.missing().unwrap_or_default();
        anstream::eprintln!("{} {device}: {why}", style::warning("skipped"));
    }
    here
}

/// The runtimes to build for these devices, as cargo features.
///
/// The devices that every machine can have share one set. So `demo`, `test` and `bench` share one
/// build of Burn, which takes many minutes. `cpu` is in the set if LLVM can be installed. `vulkan`
/// is not: with it in the build, `wgpu` would compile to SPIR-V instead of WGSL.
pub(crate) fn features(devices: &[Device], llvm: bool) -> String {
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
        for name in Device::VARIANTS {
            assert_eq!(name.parse::<Device>().unwrap().name(), *name);
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
