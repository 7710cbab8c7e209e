//! The providers of a run, and how each is started.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use cubenorm_problems::{Problem, Provider, protocol::About};

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

/// Cubenorm, these baselines and the copy, in the order of a round.
pub(super) fn with(baselines: &[Provider]) -> Vec<Provider> {
    let mut all = [&[Provider::Cubenorm, Provider::Copy], baselines].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The library that a provider is, if it is one outside Rust.
pub(super) fn library(provider: Provider) -> Option<Library> {
    match provider {
        Provider::Torch | Provider::TorchCompile => Some(Library::PyTorch),
        Provider::Onnxruntime => Some(Library::OnnxRuntime),
        Provider::Liger => Some(Library::Liger),
        Provider::Quack => Some(Library::Quack),
        _ => None,
    }
}

/// All providers that are measured, and the means to start them.
pub(super) struct Field {
    pub providers: Vec<Provider>,
    program: PathBuf,
    /// The providers outside Rust, each with an interpreter that has it.
    libraries: Vec<(Provider, Python)>,
}

impl Field {
    /// Installs the libraries that are missing.
    ///
    /// # Errors
    ///
    /// If one cannot be installed.
    pub(super) fn new(program: &Path, providers: Vec<Provider>) -> Result<Self> {
        let mut libraries = Vec::new();
        for &provider in &providers {
            if let Some(library) = library(provider) {
                let installed = library.install();
                let without = || format!("no {provider}; leave it out of --against to go without");
                libraries.push((provider, installed.with_context(without)?));
            }
        }
        Ok(Self {
            providers,
            program: program.to_owned(),
            libraries,
        })
    }

    /// Writes a problem's data for libraries outside Rust, if one is measured.
    pub(super) fn export(&self, problem: &Problem) -> Result<()> {
        match self.libraries.is_empty() {
            true => Ok(()),
            false => self.exchange("export", problem),
        }
    }

    /// A provider's process that has set the problem up, checked and warm, and its description.
    pub(super) fn prepare(
        &self,
        provider: Provider,
        problem: &Problem,
        device: Device,
    ) -> Result<Prepared> {
        if library(provider).is_some() && !problem.op.is_classic() {
            let why = format!("{provider} has no {} of its own", problem.op);
            return Ok(Err(Lost::Unsupported(why)));
        }
        let mut worker = Worker::start(&self.command(provider).env("BURN_DEVICE", device.name()))?;
        let about = match worker.prepare(problem) {
            Ok(about) => about,
            Err(lost) => return Ok(Err(lost)),
        };
        // The others compare by themselves.
        if library(provider).is_some()
            && let Err(wrong) = self.exchange("judge", problem)
        {
            return Ok(Err(Lost::Failed(format!("{wrong:#}"))));
        }
        Ok(Ok((worker, about)))
    }

    fn command(&self, provider: Provider) -> Cmd {
        let name = provider.to_string();
        match self.libraries.iter().find(|(other, _)| *other == provider) {
            Some((_, python)) => {
                let script = python.script(SCRIPT).arg(name).arg(EXCHANGE);
                KEEP_MEMORY
                    .iter()
                    .fold(script, |script, (name, value)| script.env(*name, value))
            }
            None => Cmd::new(self.program.to_string_lossy()).args(["work", &name]),
        }
    }

    /// Has the program write a problem's data, or judge the result in the same folder.
    fn exchange(&self, verb: &str, problem: &Problem) -> Result<()> {
        let output = Cmd::new(self.program.to_string_lossy())
            .arg(verb)
            .arg(workspace().join(EXCHANGE))
            .arg(serde_json::to_string(problem)?)
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("`{}` could not be started", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().last().unwrap_or("it gave no reason");
        let reason = reason.trim_start_matches("error: ");
        ensure!(output.status.success(), "{reason}");
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
pub(super) type Prepared = Result<(Worker, About), Lost>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_first_and_the_copy_last() {
        let names: Vec<String> = with(&[Provider::Onnxruntime, Provider::TorchCompile])
            .iter()
            .map(Provider::to_string)
            .collect();
        assert_eq!(names, ["cubenorm", "torch.compile", "onnxruntime", "copy"]);
    }
}
