//! Origin of recorded rows: the code, the machine, and the command.

use std::{env, thread};

use anyhow::{Context, Result};

use super::{measure::Measurement, results::Record, rows};
use crate::{
    cargo::locked,
    commands::package::commit,
    device::Device,
    llvm,
    machine::{nvidia_gpu, processor, said_by},
    vulkan,
};

/// Origin that all rows of a run share, whatever their device.
#[derive(Clone, Debug)]
pub struct Origin {
    date: String,
    commit: String,
    burn: String,
    cubecl: String,
    command: String,
}

impl Origin {
    /// Of a run that begins now. The code is this clone's, or that of `built_from`.
    ///
    /// # Errors
    ///
    /// If git, `date` or the lock file does not answer.
    pub fn now(built_from: Option<&str>) -> Result<Self> {
        Ok(Self {
            date: date()?,
            commit: match built_from {
                Some(commit) => commit.to_owned(),
                None => commit().context("a recorded row names its commit")?,
            },
            burn: locked("burn")?,
            cubecl: locked("cubecl")?,
            command: command(env::args().skip(1)),
        })
    }

    /// The rows of a run, ready to be recorded.
    pub fn records(&self, measurements: &[Measurement]) -> Result<Vec<Record>> {
        let mut records = rows::records(measurements);
        let mut known: Vec<(String, String, String)> = Vec::new();
        for record in &mut records {
            let is_known = |(device, ..): &&(String, String, String)| *device == record.device;
            if known.iter().find(is_known).is_none() {
                let device: Device = record.device.parse()?;
                known.push((record.device.clone(), machine(device), driver(device)));
            }
            if let Some((_, machine, driver)) = known.iter().find(is_known) {
                record.machine.clone_from(machine);
                record.driver.clone_from(driver);
            }
            record.date.clone_from(&self.date);
            record.commit.clone_from(&self.commit);
            record.burn.clone_from(&self.burn);
            record.cubecl.clone_from(&self.cubecl);
            record.command.clone_from(&self.command);
        }
        Ok(records)
    }
}

/// Day and minute in UTC, as rows have them.
pub fn date() -> Result<String> {
    said_by("date", &["-u", "+%Y-%m-%dT%H:%MZ"]).context("`date` does not tell the date")
}

/// The command line that repeats the measurement, without the names of files that it writes.
pub fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut words = vec!["cargo xtask".to_owned()];
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" | "--out" => _ = arguments.next(),
            "--record" => _ = arguments.next_if(|value| !value.starts_with('-')),
            other
                if ["--json=", "--record=", "--out="]
                    .iter()
                    .any(|it| other.starts_with(it)) => {}
            _ => words.push(argument),
        }
    }
    words.join(" ")
}

/// The GPU's name, or the processor's with what its speed depends on.
pub fn machine(device: Device) -> String {
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
pub fn driver(device: Device) -> String {
    match device {
        Device::Cuda => {
            let gpu = nvidia_gpu().unwrap_or_default();
            let version = gpu.split(',').nth(1).unwrap_or_default().trim();
            format!("NVIDIA {version}").trim().to_owned()
        }
        Device::Wgpu | Device::Vulkan => {
            // A GPU's own driver, if there is one: runtimes prefer it.
            let mut drivers = vulkan::drivers();
            let has_gpu = vulkan::has_gpu();
            drivers.sort_by_key(|driver| has_gpu && driver.is_cpu_vulkan());
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
    use crate::commands::bench::{
        fixture::measurements,
        results::{COLUMNS, incoming_text, parse},
    };

    #[test]
    fn the_command_leaves_out_what_it_writes() {
        let told = |line: &str| command(line.split(' ').map(str::to_owned));
        assert_eq!(
            told("bench --quick --record --json rows.json --device cpu"),
            "cargo xtask bench --quick --device cpu"
        );
        assert_eq!(
            told("bench --record=x.csv --json=y --rounds 5"),
            "cargo xtask bench --rounds 5"
        );
    }

    #[test]
    fn a_run_has_records_that_the_table_takes() {
        let origin = Origin {
            date: date().unwrap(),
            commit: "abc".into(),
            burn: "0.22.1".into(),
            cubecl: "0.11.3".into(),
            command: "cargo xtask bench".into(),
        };
        let records = origin.records(&measurements()).unwrap();
        assert_eq!(records.len(), 5 * measurements().len());
        assert!(records.iter().all(|record| !record.machine.is_empty()));
        let text = incoming_text(&records).unwrap();
        assert_eq!(parse(&text, "x", &COLUMNS[1..]).unwrap(), records);
    }
}
