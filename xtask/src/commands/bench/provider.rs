//! The providers that are measured, and how each is started.

use std::{fmt, path::Path, path::PathBuf, process::Stdio};

use anyhow::{Context, Result};
use clap::ValueEnum;
use cubenorm_problems::{Problem, protocol::About};

use super::worker::{Lost, Worker};
use crate::{
    commands::libraries::Library,
    device::Device,
    exec::{Cmd, workspace},
    python::Python,
};

/// Folder of a problem's data and a library's result.
const EXCHANGE: &str = "target/bench/exchange";
/// The worker for libraries outside Rust.
const SCRIPT: &str = "bench_peers.py";
/// Makes glibc keep what PyTorch frees: its norms allocate each output, and memory that is fresh
/// from the system costs more than the norm.
const KEEP_MEMORY: [(&str, &str); 2] = [
    ("MALLOC_MMAP_MAX_", "0"),
    ("MALLOC_TRIM_THRESHOLD_", "1099511627776"),
];

/// A baseline to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// Burn's own layers, on the same device
    Burn,
    /// PyTorch, on the CPU; on the GPU if the device is `cuda`
    Torch,
    /// ONNX Runtime, on the CPU; forward passes only
    Onnxruntime,
    /// One elementwise operation of Burn's: the host's cost of a call, with the suite `tiny`
    Elementwise,
    /// CubeCL's throughput probe of a copy: a second ceiling
    Probe,
}

/// A provider, as rows name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Cubenorm,
    Baseline(Baseline),
    /// A device copy of the bytes that a pass must move: the ceiling.
    Copy,
}

impl Provider {
    /// Cubenorm first and the copy last, in the order of a round.
    pub fn with(baselines: &[Baseline]) -> Vec<Self> {
        let baselines = Baseline::value_variants()
            .iter()
            .filter(|baseline| baselines.contains(baseline))
            .map(|&baseline| Self::Baseline(baseline));
        [Self::Cubenorm]
            .into_iter()
            .chain(baselines)
            .chain([Self::Copy])
            .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Cubenorm => "cubenorm",
            Self::Baseline(Baseline::Burn) => "burn",
            Self::Baseline(Baseline::Torch) => "torch",
            Self::Baseline(Baseline::Onnxruntime) => "onnxruntime",
            Self::Baseline(Baseline::Elementwise) => "elementwise",
            Self::Baseline(Baseline::Probe) => "probe",
            Self::Copy => "copy",
        }
    }

    /// The library that this is, if it is one outside Rust.
    pub fn library(self) -> Option<Library> {
        match self {
            Self::Baseline(Baseline::Torch) => Some(Library::PyTorch),
            Self::Baseline(Baseline::Onnxruntime) => Some(Library::OnnxRuntime),
            Self::Cubenorm
            | Self::Baseline(Baseline::Burn | Baseline::Elementwise | Baseline::Probe)
            | Self::Copy => None,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All providers that are measured, and the means to start them.
pub struct Field {
    pub providers: Vec<Provider>,
    program: PathBuf,
    /// The libraries outside Rust that are measured, each with an interpreter that has it.
    libraries: Vec<(Library, Python)>,
}

impl Field {
    /// Installs the libraries that are missing.
    ///
    /// # Errors
    ///
    /// If one cannot be installed.
    pub fn new(program: &Path, providers: Vec<Provider>) -> Result<Self> {
        let mut libraries = Vec::new();
        for provider in &providers {
            if let Some(library) = provider.library() {
                let installed = library.install();
                let without = || format!("no {provider}; leave it out of --against to go without");
                libraries.push((library, installed.with_context(without)?));
            }
        }
        Ok(Self {
            providers,
            program: program.to_owned(),
            libraries,
        })
    }

    /// Writes a problem's data for libraries outside Rust, if one is measured.
    pub fn export(&self, problem: &Problem) -> Result<()> {
        match self.libraries.is_empty() {
            true => Ok(()),
            false => self.exchange("export", problem),
        }
    }

    /// A provider's process that has set the problem up, checked and warm, and its description.
    pub fn prepare(
        &self,
        provider: Provider,
        problem: &Problem,
        device: Device,
    ) -> Result<Prepared> {
        let mut worker = Worker::start(&self.command(provider).env("BURN_DEVICE", device.name()))?;
        let about = match worker.prepare(problem) {
            Ok(about) => about,
            Err(lost) => return Ok(Err(lost)),
        };
        // The others compare by themselves.
        if provider.library().is_some()
            && let Err(wrong) = self.exchange("judge", problem)
        {
            return Ok(Err(Lost::Failed(format!("{wrong:#}"))));
        }
        Ok(Ok((worker, about)))
    }

    fn command(&self, provider: Provider) -> Cmd {
        let of_provider = |(library, _): &&(Library, Python)| provider.library() == Some(*library);
        match self.libraries.iter().find(of_provider) {
            Some((_, python)) => {
                let script = python.script(SCRIPT).arg(provider.name()).arg(EXCHANGE);
                KEEP_MEMORY
                    .iter()
                    .fold(script, |script, (name, value)| script.env(*name, value))
            }
            None => Cmd::new(self.program.to_string_lossy()).args(["work", provider.name()]),
        }
    }

    /// Has the program write a problem's data, or judge the result in the same folder.
    fn exchange(&self, verb: &str, problem: &Problem) -> Result<()> {
        let folder = workspace().join(EXCHANGE);
        let output = Cmd::new(self.program.to_string_lossy())
            .arg(verb)
            .arg(folder)
            .arg(serde_json::to_string(problem)?)
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("`{}` could not be started", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().last().unwrap_or("it gave no reason");
        anyhow::ensure!(
            output.status.success(),
            "{}",
            reason.trim_start_matches("error: ")
        );
        Ok(())
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // Of the size of the largest problem, and of no use afterwards.
        let _ = std::fs::remove_dir_all(workspace().join(EXCHANGE));
    }
}

/// A worker and its description, or why there is none.
pub type Prepared = Result<(Worker, About), Lost>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_first_and_the_copy_last() {
        let names: Vec<&str> = Provider::with(&[Baseline::Onnxruntime, Baseline::Burn])
            .into_iter()
            .map(Provider::name)
            .collect();
        assert_eq!(names, ["cubenorm", "burn", "onnxruntime", "copy"]);
    }

    #[test]
    fn rows_and_command_line_name_baselines_alike() {
        for baseline in Baseline::value_variants() {
            let asked = baseline.to_possible_value().unwrap();
            assert_eq!(asked.get_name(), Provider::Baseline(*baseline).name());
        }
    }
}
