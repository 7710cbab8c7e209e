//! `cargo xtask gpu-check`: all checks of a GPU, in one command and one report.

mod machine;
mod outcome;
mod part;
mod report;
mod rows;
mod sanitizer;
mod steps;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use self::{machine::Machine, part::Suite, report::Report, steps::Step};
use super::package::{self, MANIFEST, Manifest};
use crate::{device::Device, exec::workspace, setup, style};

/// Check a device: conformance, random cases, determinism, memory errors, throughput; writes a
/// report.
///
/// In a clone it builds the suite first. A package, which `cargo xtask package` makes, needs only
/// the device's driver. Writes report.json, report.md, the output of each step, and throughput.csv,
/// which `cargo xtask bench --record FILE` records. The exit code tells whether all passed.
#[derive(clap::Args)]
pub struct Args {
    /// Write the report and the output of each step into this folder
    #[arg(long, value_name = "DIR", default_value = "gpu-check-report")]
    out: PathBuf,
    /// The device [default: the package's, or the best of this machine]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// Only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<Step>,
    /// Fewer random cases, and tensors of 32 MiB instead of 256
    #[arg(long)]
    quick: bool,
    /// The tests that take gigabytes of memory and minutes, too
    #[arg(long)]
    large: bool,
    /// The seconds that a step may take
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
}

/// Extent of the checks, and the folder for their output.
pub struct Options {
    pub out: PathBuf,
    pub quick: bool,
    pub timeout: Duration,
}

pub fn run(args: &Args) -> Result<()> {
    let folder = match packaged() {
        Some(folder) => folder,
        None => {
            let device = setup::device(args.device, false)?;
            package::assemble(device, &workspace().join("target/package"))?
        }
    };
    let manifest = fs::read(folder.join(MANIFEST)).context("the package says nothing of itself")?;
    let manifest: Manifest = serde_json::from_slice(&manifest)?;
    if let Some(asked) = args.device {
        ensure!(
            asked.name() == manifest.device,
            "this package checks {}: for {asked}, build another",
            manifest.device
        );
    }
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let options = Options {
        out: args.out.canonicalize()?,
        quick: args.quick,
        timeout: Duration::from_secs(args.timeout.max(1)),
    };
    let suite = Suite::new(&folder, &manifest, &options);

    let mut report = Report::new(manifest, Machine::here(&suite), options.quick);
    for step in Step::chosen(&args.only, args.large) {
        let outcome = step.run(&suite, &mut report.throughput);
        anstream::println!("{outcome}");
        report.steps.push(outcome);
        // After each step: the report of a machine that goes away is then kept.
        report.write(&options.out)?;
    }
    anstream::println!(
        "{} {}",
        style::heading("report:"),
        options.out.join("report.md").display()
    );
    report.verdict()
}

/// The command line. A package has one verb, so its command line leaves it out.
pub fn command_line() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if packaged().is_some() && !arguments.is_empty() {
        arguments.insert(1, package::PROGRAM.into());
    }
    arguments
}

/// The folder of the package that this program is of.
fn packaged() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent().map(Path::to_owned)?;
    folder.join(MANIFEST).is_file().then_some(folder)
}
