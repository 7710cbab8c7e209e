//! A part of the suite: run in a process of its own, its output kept, its time limited.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use super::super::{
    outcome::Outcome,
    package::{self, CASES, LIBRARIES, LOADER, Manifest},
};
use crate::exec::{Cmd, trouble};

/// Interval between two looks at a running process.
const TICK: Duration = Duration::from_millis(100);

/// The suite of a package, and the extent of the checks.
pub(super) struct Suite {
    pub manifest: Manifest,
    pub is_quick: bool,
    /// Folder of the package.
    pub folder: PathBuf,
    /// Folder of the report.
    pub out: PathBuf,
    /// Longest time of a step.
    pub timeout: Duration,
    /// The benchmark's program, if there is one.
    pub bench: Option<PathBuf>,
}

/// The end of a process.
pub(super) struct Ended {
    /// Text of both of its outputs.
    pub output: String,
    pub elapsed: Duration,
    /// Why it failed, if it did.
    pub trouble: Option<String>,
}

impl Ended {
    /// Outcome of tests, of which one at least has to run.
    pub(super) fn outcome(self) -> Outcome {
        let outcome = Outcome::of_tests(&self.output, self.trouble);
        let elapsed = self.elapsed;
        match outcome.counts {
            Some(counts) if counts.ran() > 0 => Outcome { elapsed, ..outcome },
            _ => Outcome::of(Err(anyhow!("no test ran"))),
        }
    }
}

impl Suite {
    /// The folder of ONNX's node tests, if the package has it.
    pub(super) fn cases(&self) -> Option<PathBuf> {
        Some(self.folder.join(CASES)).filter(|cases| cases.is_dir())
    }

    /// The suite with these arguments.
    pub(super) fn tests(&self, arguments: &[&str]) -> Cmd {
        self.tests_in(&self.program(), arguments)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join(&self.manifest.suite)
    }

    /// A program that runs the suite, with these arguments.
    pub(super) fn tests_in(&self, program: &Path, arguments: &[&str]) -> Cmd {
        let mut command = self
            .command(program)
            .args(arguments)
            .env("CUBENORM_TEST_DEVICES", &self.manifest.device)
            // The suite has many small shapes, and each would be tuned. Tests of the tuner turn it
            // on themselves.
            .env("CUBENORM_TUNING", "off");
        if let Some(cases) = self.cases() {
            command = command.env("CUBENORM_CASES", cases);
        }
        command
    }

    /// A program that finds the libraries of the package.
    pub(super) fn command(&self, program: &Path) -> Cmd {
        let mut command = Cmd::new(program.to_string_lossy()).folder(&self.out);
        // If the package has CUDA's functions and the machine has not named its own.
        if self.folder.join("nvvm").is_dir() && env::var_os("CUDA_PATH").is_none() {
            command = command.env("CUDA_PATH", &self.folder);
        }
        let mut libraries = vec![self.folder.join(LIBRARIES)];
        // The machine's own loader knows where its drivers are.
        if package::loader().is_err() {
            libraries.push(self.folder.join(LOADER));
        }
        libraries.retain(|folder| folder.is_dir());
        if !libraries.is_empty() {
            // Behind what the machine has itself said.
            let said = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            let paths = env::split_paths(&said).filter(|path| !path.as_os_str().is_empty());
            if let Ok(paths) = env::join_paths(paths.chain(libraries)) {
                command = command.env("LD_LIBRARY_PATH", paths);
            }
        }
        command
    }

    /// Runs a command and keeps its output in NAME.log.
    pub(super) fn run(&self, name: &str, command: &Cmd) -> Result<Ended> {
        let path = self.out.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = command.command();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let spinner = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        spinner.set_message(name.to_owned());
        let start = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        let trouble = loop {
            if let Some(status) = child.try_wait()? {
                break trouble(status);
            }
            if start.elapsed() > self.timeout {
                child.kill()?;
                child.wait()?;
                break Some(format!("stopped after {} s", self.timeout.as_secs()));
            }
            spinner.tick();
            thread::sleep(TICK);
        };
        spinner.finish_and_clear();
        let output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        Ok(Ended {
            output,
            elapsed: start.elapsed(),
            trouble,
        })
    }
}
