//! `cargo xtask gpu-check`: all checks of a GPU, in one command and one report.

mod part;
mod report;
mod steps;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf, absolute},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use self::{part::Suite, report::Report, steps::Step};
use super::{
    package::{self, MANIFEST, Manifest},
    program::{self, BENCH},
};
use crate::{device::Device, exec::workspace, setup, style};

/// Check a device: conformance, random cases, determinism, memory errors, speed; writes a report.
///
/// In a clone it builds the suite first, and the benchmark if that is a step. A package, which
/// `cargo xtask package` makes, needs only the device's driver; its benchmark is the program of
/// --program. Writes report.md, the output of each step, and throughput.csv, which
/// `cargo xtask bench --record FILE` records. The exit code tells whether all passed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the report and the output of each step into this folder
    #[arg(long, value_name = "DIR", default_value = "gpu-check-report")]
    out: PathBuf,
    /// The device [default: the package's, or the best of this machine]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// Only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<Step>,
    /// Fewer random cases, and the benchmark's suite `quick` instead of `rows`
    #[arg(long)]
    quick: bool,
    /// The tests that take gigabytes of memory and minutes, too
    #[arg(long)]
    large: bool,
    /// The seconds that a step may take
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
    /// Measure with this program cubenorm-bench, which was built elsewhere
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let steps = Step::chosen(&args.only, args.large);
    let mut bench = args.program.as_deref().map(absolute).transpose()?;
    let folder = match packaged() {
        Some(folder) => folder,
        None => {
            let device = setup::device(args.device, false)?;
            if steps.contains(&Step::Bench) {
                bench = Some(program::find(BENCH, &[device], bench.as_deref())?);
            }
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
    let suite = Suite {
        manifest,
        is_quick: args.quick,
        folder,
        out: args.out.canonicalize()?,
        timeout: Duration::from_secs(args.timeout.max(1)),
        bench,
    };

    let mut report = Report::new(&suite)?;
    for step in steps {
        let outcome = step.run(&suite);
        anstream::println!("{outcome}");
        report.steps.push(outcome);
        // After each step: the report of a machine that goes away is then kept.
        report.write(&suite.out)?;
    }
    anstream::println!(
        "{} {}",
        style::heading("report:"),
        suite.out.join("report.md").display()
    );
    report.verdict()
}

/// The command line. A package has one verb besides `bench`, so its command line leaves that out.
pub(crate) fn command_line() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let is_bench = arguments.get(1).is_some_and(|verb| verb == "bench");
    if packaged().is_some() && !arguments.is_empty() && !is_bench {
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
