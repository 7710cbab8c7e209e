//! The table of all runs of `test`: programs, build, runtime and driver.

use std::fmt;

use crate::{cargo::BURN_FACING, device::Device};

/// A build of tests; its programs may run several times, on several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildKind {
    /// Packages that need neither Burn nor CubeCL.
    Host,
    /// Everything on Burn; `wgpu` compiles to WGSL here.
    Burn,
    /// The kernel suite and the files' operators with the feature `vulkan`, which compiles to
    /// SPIR-V. It has no Burn: the build is cheaper, and Burn's own kernels crash some drivers'
    /// SPIR-V compilers.
    Spirv,
}

impl BuildKind {
    pub(crate) fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Host => &[
                "cubenorm-core",
                "cubenorm-operators",
                "cubenorm-models",
                "cubenorm-problems",
                "cubenorm-reference",
                "xtask",
            ],
            Self::Burn => &BURN_FACING,
            Self::Spirv => &["cubenorm-tests", "cubenorm-models"],
        }
    }
}

/// Folder of the package whose tests run once per device; the other packages' tests run once.
pub(crate) const SUITE: &str = "tests";

/// The suite's targets that need CubeCL only. `flex` cannot run them, and a further driver repeats
/// them, except for [`TUNING`].
const KERNEL_TARGETS: [&str; 8] = [
    "guards",
    "kernels",
    "gradients",
    "property",
    "compilation",
    "tuning",
    "robustness",
    "large",
];

/// Targets that run alone: one measures time, the other fills the memory.
pub(crate) const ALONE: [&str; 2] = [TUNING, "large"];

/// The one that has tests of several devices at once.
pub(crate) const TOGETHER: &str = "robustness";

/// The one that a further driver does not repeat: how a device is tuned does not depend on it, and
/// it takes minutes.
const TUNING: &str = "tuning";

/// The one that runs operators from files, through CubeCL or through Burn.
const OPERATORS: &str = "operators";

/// Which of the suite's targets a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    All,
    /// Kernels launched through CubeCL.
    Kernels,
    /// A further driver of the same device.
    Again,
    /// Operators called through Burn, or run on any device.
    Burn,
}

impl Targets {
    pub(crate) fn contain(self, target: &str) -> bool {
        let kernels = KERNEL_TARGETS.contains(&target);
        match self {
            Self::All => true,
            Self::Kernels => kernels || target == OPERATORS,
            Self::Again => Self::Kernels.contain(target) && target != TUNING,
            Self::Burn => !kernels,
        }
    }
}

/// The driver of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverKind {
    /// The runtime has no Vulkan driver to choose.
    None,
    /// The system's preference: a GPU, if there is one.
    System,
    /// One of the CPU Vulkan drivers, by name.
    Software(&'static str),
}

/// One run of the suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub device: Device,
    pub driver: DriverKind,
    pub build: BuildKind,
    pub targets: Targets,
    /// True if only `--large` includes it.
    pub large: bool,
}

/// The runtime, the language it compiles to if there is a choice, and the driver.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let language = match self.device {
            Device::Wgpu if cfg!(target_os = "macos") => "",
            Device::Wgpu => " (WGSL)",
            Device::Vulkan => " (SPIR-V)",
            _ => "",
        };
        let driver = match self.driver {
            DriverKind::None => "",
            DriverKind::System => ", system",
            DriverKind::Software(name) => &format!(", {name}"),
        };
        write!(f, "{}{language}{driver}", self.device)
    }
}

/// Every run there is; one whose device or driver is missing is skipped and says so.
pub(crate) const RUNS: &[Run] = &[
    run(Device::Cpu, NO_DRIVER, BuildKind::Burn, Targets::All),
    run(Device::Flex, NO_DRIVER, BuildKind::Burn, Targets::Burn),
    run(Device::Wgpu, SYSTEM, BuildKind::Burn, Targets::All),
    run(Device::Wgpu, LAVAPIPE, BuildKind::Burn, Targets::All),
    run(Device::Wgpu, SWIFTSHADER, BuildKind::Burn, Targets::Again),
    run(Device::Cuda, NO_DRIVER, BuildKind::Burn, Targets::All),
    run(Device::Rocm, NO_DRIVER, BuildKind::Burn, Targets::All),
    run(Device::Metal, NO_DRIVER, BuildKind::Burn, Targets::All),
    run(Device::Vulkan, SYSTEM, BuildKind::Spirv, Targets::Kernels),
    run(Device::Vulkan, LAVAPIPE, BuildKind::Spirv, Targets::Kernels),
    // The runs above have this language on another driver, and this driver with another language.
    Run {
        large: true,
        ..run(
            Device::Vulkan,
            SWIFTSHADER,
            BuildKind::Spirv,
            Targets::Again,
        )
    },
];

const NO_DRIVER: DriverKind = DriverKind::None;
const SYSTEM: DriverKind = DriverKind::System;
const LAVAPIPE: DriverKind = DriverKind::Software("lavapipe");
const SWIFTSHADER: DriverKind = DriverKind::Software("swiftshader");

const fn run(device: Device, driver: DriverKind, build: BuildKind, targets: Targets) -> Run {
    Run {
        device,
        driver,
        build,
        targets,
        large: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spirv_never_shares_a_build_with_wgsl() {
        for run in RUNS {
            assert_eq!(
                run.build == BuildKind::Spirv,
                run.device == Device::Vulkan,
                "{run:?}"
            );
        }
    }
}
