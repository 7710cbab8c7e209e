//! A part of the suite: run in a process of its own, its output kept, its time limited.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    super::package::{CASES, LIBRARIES, Manifest},
    Options,
};
use crate::exec::{ending, set_runtime_folder};

/// Interval between two looks at a running process.
const TICK: Duration = Duration::from_millis(100);

/// The suite of a package and what its processes are given.
pub struct Suite {
    pub device: String,
    pub is_quick: bool,
    folder: PathBuf,
    program: PathBuf,
    out: PathBuf,
    timeout: Duration,
}

/// The end of a process.
pub struct Ended {
    /// Text of both of its outputs.
    pub output: String,
    pub elapsed: Duration,
    /// Why it failed, if it did.
    pub trouble: Option<String>,
}

impl Suite {
    pub fn new(folder: &Path, manifest: &Manifest, options: &Options) -> Self {
        Self {
            device: manifest.device.clone(),
            is_quick: options.quick,
            folder: folder.to_owned(),
            program: folder.join(&manifest.suite),
            out: options.out.clone(),
            timeout: options.timeout,
        }
    }

    /// The folder of ONNX's node tests, if the package has it.
    pub fn cases(&self) -> Option<PathBuf> {
        Some(self.folder.join(CASES)).filter(|cases| cases.is_dir())
    }

    /// The suite with these arguments, or `program` with the suite and these as its own.
    pub fn command(&self, before: &[String], arguments: &[&str]) -> Command {
        let mut command = match before {
            [] => Command::new(&self.program),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(&self.program);
                command
            }
        };
        set_runtime_folder(&mut command);
        command
            .args(arguments)
            .current_dir(&self.out)
            .env("CUBENORM_TEST_DEVICES", &self.device)
            // The suite has many small shapes, and each would be tuned. Tests of the tuner turn it
            // on themselves.
            .env("CUBENORM_TUNING", "off");
        // If the package has CUDA's functions and the machine has not named its own.
        if self.folder.join("nvvm").is_dir() && env::var_os("CUDA_PATH").is_none() {
            command.env("CUDA_PATH", &self.folder);
        }
        let libraries = self.folder.join(LIBRARIES);
        if libraries.is_dir() {
            // Behind what the machine has itself said.
            let said = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            let paths = env::split_paths(&said).filter(|path| !path.as_os_str().is_empty());
            if let Ok(paths) = env::join_paths(paths.chain([libraries])) {
                command.env("LD_LIBRARY_PATH", paths);
            }
        }
        if let Some(cases) = self.cases() {
            command.env("CUBENORM_CASES", cases);
        }
        command
    }

    /// Runs a command and keeps its output in NAME.log.
    pub fn run(&self, name: &str, mut command: Command) -> Result<Ended> {
        let path = self.out.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
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
        let mut child = command.spawn().context("the suite could not be started")?;
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

fn trouble(status: ExitStatus) -> Option<String> {
    (!status.success()).then(|| ending(status))
}
