//! Writes the source that CubeCL generates for every kernel and target, and reports each as a line.
//!
//! `cargo xtask codegen` builds and runs this program and reads its output.

mod jobs;
mod protocol;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cubenorm_offline::Language;
use strum::IntoEnumIterator;

use protocol::Event;

/// Write the source that CubeCL generates for cubenorm's kernels.
#[derive(Parser)]
struct Args {
    /// Languages to write: all, unless some are named.
    #[arg(long, value_delimiter = ',')]
    target: Vec<Language>,
    /// Kernels to write: all, unless some are named.
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// Folder to write to.
    #[arg(long)]
    out: PathBuf,
    /// Check WGSL and the structure of MSL, which need no other program.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    // CubeCL's compilers panic on unsupported input; these panics are caught and reported as
    // failures.
    std::panic::set_hook(Box::new(|_| {}));
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let languages: BTreeSet<Language> = match args.target.is_empty() {
        true => Language::iter().collect(),
        false => args.target.iter().copied().collect(),
    };
    let mut jobs = jobs::all(&languages)?;
    let known: BTreeSet<&str> = jobs.iter().map(|job| job.found.name).collect();
    for name in &args.kernel {
        let known_names = known.iter().copied().collect::<Vec<_>>().join(", ");
        ensure!(
            known.contains(name.as_str()),
            "no kernel is called `{name}`; there are {known_names}"
        );
    }
    if !args.kernel.is_empty() {
        jobs.retain(|job| args.kernel.iter().any(|name| name == job.found.name));
    }
    say(&Event::Planned {
        sources: jobs.len(),
    })?;
    jobs::run(&jobs, &args.out, args.check, |source| {
        say(&Event::Source(source))
    })
}

fn say(event: &Event) -> Result<()> {
    let line = serde_json::to_string(event)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("standard output is closed")
}
