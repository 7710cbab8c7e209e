//! `cargo xtask accuracy`: units in the last place, of cubenorm, Burn, PyTorch and ONNX Runtime.

mod report;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use cubenorm_problems::protocol::Verdict;

use self::report::{Case, Column, Table};
use super::{
    bench::progress,
    libraries::Library,
    program::{self, BENCH, answers},
};
use crate::{
    device::{self, Device},
    exec::{Cmd, workspace},
    style,
};

/// Providers that are measured on each device.
const PROVIDERS: [&str; 2] = ["cubenorm", "burn"];
/// Folder of inputs and outputs of the other libraries.
const FOLDER: &str = "target/accuracy";

/// Measure how exact the norms are, compared with Burn, PyTorch and ONNX Runtime.
///
/// Every operator and data type is computed on four kinds of values. Well-conditioned: mean 0.5,
/// deviation 1. Large offset: mean 1e4, deviation 1. Tiny variance: 1e-12, with an epsilon as
/// large. Wide range: magnitudes from 1e-30 to 1e30, or the range of the type. The values are
/// rounded to the type first. The expected result is computed with twice the digits of float64.
///
/// A number is |result - expected| in units in the last place (ULP): the distance between
/// neighbouring values of the type at the expected value. The distance at 1/1024 of the row's
/// largest expected value counts instead if that is larger: values that nearly cancel have few
/// right digits in any implementation. Rounding alone makes 0.5 at most and 0.25 in the mean.
///
/// Cells are `largest / mean`. An element that is infinite or NaN, if the rounded expected value is
/// not, or the reverse, is counted instead: `N not finite`. `worse than` names the providers that
/// were more exact than cubenorm in largest or mean.
///
/// PyTorch and ONNX Runtime compute on the CPU. They are the Python packages of target/python, or
/// those of the system's Python, or are installed into target/python. Their columns are left out if
/// they cannot be installed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Devices to measure on [default: cpu and wgpu, as far as this machine has them]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Short rows only, float32 and float16 only
    #[arg(long)]
    quick: bool,
    /// Write all rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave out PyTorch and ONNX Runtime
    #[arg(long)]
    no_peers: bool,
    /// Run this benchmark program, which was built elsewhere, instead of a build
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let devices = device::chosen(&args.device, &[Device::Cpu, Device::Wgpu])?;
    let program = program::find(BENCH, &devices, args.program.as_deref())?;
    let suite = if args.quick { "quick" } else { "full" };
    let cases = worker(&program, &["cases", suite]).capture()?;
    let cases: Vec<Case> = serde_json::from_str(&cases).context("the cases are no JSON")?;

    // Their results do not depend on the device.
    let peers = match args.no_peers {
        true => Vec::new(),
        false => peers(&program, suite, &cases)?,
    };
    let mut tables = Vec::new();
    for device in devices {
        let mut columns = Vec::new();
        for provider in PROVIDERS {
            let command = worker(&program, &["measure", provider]);
            let command = command.env("BURN_DEVICE", device.name());
            columns.push(column(provider, &command, &cases)?);
        }
        columns.extend(peers.iter().cloned());
        let table = Table {
            device,
            cases: &cases,
            columns,
        };
        anstream::println!("\n{}", style::heading(device));
        println!("{table}");
        tables.push(table);
    }
    if let Some(path) = &args.json {
        let text = report::json(&tables)? + "\n";
        fs::write(path, text).with_context(|| format!("{} not written", path.display()))?;
        println!("written to {}", path.display());
    }
    report::check(&tables)
}

fn worker(program: &Path, arguments: &[&str]) -> Cmd {
    Cmd::new(program.to_string_lossy())
        .arg("accuracy")
        .args(arguments)
}

/// The program's verdict on each case. Every panic is in one, and other output would fill the screen.
fn column(provider: &'static str, command: &Cmd, cases: &[Case]) -> Result<Column> {
    let bar = progress(cases.len() as u64).with_message(provider);
    let mut verdicts = Vec::new();
    let take = |_: &Case, answer: Result<Verdict>| {
        verdicts.push(answer.unwrap_or_else(|why| Verdict::Failed(format!("{why:#}"))));
        bar.inc(1);
    };
    answers(&command.clone().quiet(), cases, usize::MAX, take)?;
    bar.finish_and_clear();
    Ok(Column { provider, verdicts })
}

/// Results of the other libraries. A library that cannot be installed is named and left out.
fn peers(program: &Path, suite: &str, cases: &[Case]) -> Result<Vec<Column>> {
    let folder = workspace().join(FOLDER).join(suite);
    worker(program, &["export", suite]).arg(&folder).run()?;
    let mut columns = Vec::new();
    let libraries = [
        ("pytorch", Library::PyTorch),
        ("onnxruntime", Library::OnnxRuntime),
    ];
    for (provider, library) in libraries {
        if let Err(error) = compute(provider, library, &folder) {
            anstream::eprintln!("{} {provider}: {error:#}", style::warning("without"));
            continue;
        }
        let command = worker(program, &["judge"]).arg(&folder).arg(provider);
        columns.push(column(provider, &command, cases)?);
    }
    Ok(columns)
}

/// Has a library compute the cases of a folder.
fn compute(name: &str, library: Library, folder: &Path) -> Result<()> {
    let script = library.install()?.script("accuracy_peers.py");
    script.arg(folder).arg(name).aside().run()
}
