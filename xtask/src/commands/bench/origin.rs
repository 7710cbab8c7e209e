//! Origin of recorded rows: the code, the machine, and the command.

use std::{env, thread};

use anyhow::{Context, Result};

use super::results::Record;
use crate::{
    cargo::locked,
    commands::package::commit,
    device::Device,
    llvm,
    machine::{nvidia_gpu, processor, said_by},
    vulkan,
};

/// The fields that all rows of a run share. The code is this clone's, or the code of `built_from`.
///
/// # Errors
///
/// If `date` does not answer.
pub(crate) fn of_run(built_from: Option<&str>) -> Result<Record> {
    Ok(Record {
        date: date()?,
        // Without git there is no clone.
        commit: match built_from {
            Some(commit) => commit.to_owned(),
            None => commit().unwrap_or_else(|_| UNKNOWN.to_owned()),
        },
        burn: locked("burn")?,
        cubecl: locked("cubecl")?,
        command: command(env::args().skip(1)),
        ..Record::default()
    })
}

/// Commit of a run that was not in a clone.
pub(crate) const UNKNOWN: &str = "unknown";

/// The fields that all rows of a run on a device share.
pub(crate) fn on(device: Device, run: &Record) -> Record {
    Record {
        machine: machine(device),
        driver: driver(device),
        device: device.to_string(),
        ..run.clone()
    }
}

/// Day and minute in UTC, as rows have them.
pub(crate) fn date() -> Result<String> {
    said_by("date", &["-u", "+%Y-%m-%dT%H:%MZ"]).context("`date` does not tell the date")
}

/// The command line that repeats the measurement, without the names of files that it writes and of
/// a program that was built elsewhere.
pub(crate) fn command(arguments: impl Iterator<Item = String>) -> String {
    const LEFT_OUT: [&str; 5] = ["--json", "--csv", "--record", "--program", "--commit"];
    let mut words = vec!["cargo xtask".to_owned()];
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let name = argument.split('=').next().unwrap_or_default();
        match LEFT_OUT.contains(&name) {
            false => words.push(argument),
            true if name == argument => _ = arguments.next_if(|value| !value.starts_with('-')),
            true => {}
        }
    }
    words.join(" ")
}

/// The GPU's name, or the processor's with what its speed depends on.
pub(crate) fn machine(device: Device) -> String {
    let is_gpu = match device {
        Device::Cuda => true,
        Device::Wgpu | Device::Vulkan => vulkan::has_gpu(),
        _ => false,
    };
    let gpu = is_gpu.then(nvidia_gpu).flatten();
    if let Some(name) = gpu.as_deref().and_then(|gpu| gpu.split(',').next()) {
        return name.trim().to_owned();
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let name = processor().unwrap_or_else(|| env::consts::ARCH.to_owned());
    let vectors = vectors().map_or_else(String::new, |name| format!(", {name}"));
    format!("{name}{vectors}, {cores} cores")
}

/// The widest vector extension that kernels for a CPU are compiled to.
fn vectors() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return Some("AVX-512");
        }
        is_x86_feature_detected!("avx2").then_some("AVX2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

/// Compiler or driver of the kernels, with its version.
pub(crate) fn driver(device: Device) -> String {
    match device {
        Device::Cuda => {
            let gpu = nvidia_gpu().unwrap_or_default();
            let version = gpu.split(',').nth(1).unwrap_or_default().trim();
            format!("NVIDIA {version}").trim().to_owned()
        }
        Device::Wgpu | Device::Vulkan => {
            // A GPU's own driver, if there is a GPU: runtimes prefer it. Manifests of others may be there without one.
            let mut drivers = vulkan::drivers();
            let has_gpu = vulkan::has_gpu();
            drivers.sort_by_key(|driver| driver.is_cpu_vulkan() == has_gpu);
            let name = drivers.first().map_or("", |driver| driver.name());
            let query = ["--show", "--showformat=${Version}", "mesa-vulkan-drivers"];
            match said_by("dpkg-query", &query) {
                Some(mesa) if name == "lavapipe" => format!("{name} {mesa}"),
                _ => name.to_owned(),
            }
        }
        Device::Cpu => llvm::version().map_or_else(|_| "LLVM".to_owned(), |v| format!("LLVM {v}")),
        Device::Rocm | Device::Metal | Device::Webgpu | Device::Flex => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_command_leaves_out_what_it_writes() {
        let told = |line: &str| command(line.split(' ').map(str::to_owned));
        assert_eq!(
            told("bench --quick --record --json rows.json --device cpu"),
            "cargo xtask bench --quick --device cpu"
        );
        assert_eq!(
            told("bench --record=x.csv --program a/b --json=y --rounds 5 --commit abc"),
            "cargo xtask bench --rounds 5"
        );
    }

    #[test]
    fn a_run_has_an_origin_on_each_device() {
        let run = of_run(Some("abc")).unwrap();
        assert_eq!((run.commit.as_str(), run.date.len()), ("abc", 17));
        let here = on(Device::Cpu, &run);
        assert_eq!((here.device.as_str(), here.commit), ("cpu", run.commit));
        assert!(!here.machine.is_empty() && here.driver.starts_with("LLVM"));
    }
}
