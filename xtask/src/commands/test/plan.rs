//! Runs of the table that this machine can do, and why it cannot do the others.

use std::ffi::OsString;

use anyhow::Result;

use super::suite::{BuildKind, DriverKind, RUNS, Run};
use crate::{
    device::{Device, features},
    llvm::{self, Llvm},
    vulkan::{self, Driver},
};

/// A run that this machine can do, and its driver if there is a choice.
pub(crate) type Ready = (&'static Run, Option<Driver>);

/// Runs to do, and runs that are skipped, with the reason.
pub(crate) struct Plan {
    pub runs: Vec<Ready>,
    pub skipped: Vec<(&'static Run, String)>,
    /// True if the builds may contain `cpu`.
    llvm: bool,
}

impl Plan {
    /// The runs on these devices, or on all. `large` adds the runs of `--large`.
    pub(crate) fn new(devices: &[Device], large: bool) -> Result<Self> {
        let asked = |device| devices.is_empty() || devices.contains(&device);
        let machine = Machine {
            llvm: llvm::find()?,
            software: vulkan::software_drivers(),
        };
        let mut plan = Self {
            runs: Vec::new(),
            skipped: Vec::new(),
            // LLVM is large: it is fetched for a device that needs it, and used if it is there.
            llvm: match machine.llvm {
                Llvm::Installed => true,
                Llvm::Downloadable => asked(Device::Cpu),
                Llvm::Missing => false,
            },
        };
        for run in RUNS.iter().filter(|run| asked(run.device)) {
            let can = match run.large && !large {
                true => Err("only with --large".to_owned()),
                false => machine.can(run),
            };
            match can {
                Ok(driver) => plan.runs.push((run, driver)),
                Err(why) => plan.skipped.push((run, why)),
            }
        }
        Ok(plan)
    }

    /// The runs of a build, and the features that it needs for them; `None` if there are none.
    pub(crate) fn of(&self, kind: BuildKind) -> Option<(Vec<&Ready>, String)> {
        let of_kind = self.runs.iter().filter(|(run, _)| run.build == kind);
        let runs: Vec<_> = of_kind.collect();
        if runs.is_empty() {
            return None;
        }
        let mut devices: Vec<Device> = Vec::new();
        for (run, _) in &runs {
            if !devices.contains(&run.device) {
                devices.push(run.device);
            }
        }
        let runtimes = features(&devices, self.llvm);
        let features = match kind {
            BuildKind::Burn => format!("burn,{runtimes}"),
            _ => runtimes,
        };
        Some((runs, features))
    }
}

/// Restricts a Vulkan program to this driver.
pub(crate) fn choosing(driver: &Option<Driver>) -> Option<(&'static str, OsString)> {
    let manifest = driver.as_ref().map(|driver| driver.manifest.clone().into());
    manifest.map(|manifest| ("VK_DRIVER_FILES", manifest))
}

/// Runtimes and drivers of this machine.
struct Machine {
    llvm: Llvm,
    software: Vec<Driver>,
}

impl Machine {
    /// The driver to run with, or why the run is skipped.
    fn can(&self, run: &Run) -> Result<Option<Driver>, String> {
        if run.device == Device::Cpu && self.llvm == Llvm::Missing {
            return Err("no LLVM, and its download is out of reach".to_owned());
        }
        match run.driver {
            DriverKind::Software(name) => {
                let driver = self.software.iter().find(|driver| driver.name() == name);
                driver
                    .cloned()
                    .map(Some)
                    .ok_or_else(|| format!("{name} is not installed"))
            }
            DriverKind::System if cfg!(target_os = "linux") && !vulkan::has_gpu() => {
                Err("no GPU with a Vulkan driver".to_owned())
            }
            _ => run.device.missing().map_or(Ok(None), Err),
        }
    }
}
