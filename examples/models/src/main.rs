//! Times whole networks with Burn's norms and with cubenorm's.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::{exit, open};
use models::measure::{Measured, Options, measure, tune};
use models::networks::Network;
use models::report::{self, Outcome, Run};

/// Rounds, at full and at small size.
const ROUNDS: usize = 15;
const SMALL_ROUNDS: usize = 5;
/// Lines of a failed process's standard error in the report.
const LAST_LINES: usize = 4;

/// Whole networks timed with Burn's norms and with cubenorm's, eager and captured.
///
/// The exit code is 1 if outputs differ or a network fails.
#[derive(Debug, Parser)]
#[command(name = "models", version)]
struct Arguments {
    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Small networks, for tests and a first look
    #[arg(long)]
    small: bool,

    /// Only these networks
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    only: Vec<Network>,

    /// Call cubenorm::install first: Burn's norms then run fused, except in training
    #[arg(long)]
    install: bool,

    /// Number of rounds; every kind of norms has a sample per round [default: 15, or 5 with --small]
    #[arg(long, value_name = "N", value_parser = positive)]
    rounds: Option<usize>,

    /// Write the rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the rows to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Measure this network in this process, and print the result as JSON
    #[arg(long, hide = true, value_enum)]
    work: Option<Network>,

    /// Run this network in this process, which only tunes the kernels
    #[arg(long, hide = true, value_enum)]
    tune: Option<Network>,
}

impl Arguments {
    fn options(&self) -> Options {
        let rounds = if self.small { SMALL_ROUNDS } else { ROUNDS };
        Options {
            small: self.small,
            rounds: self.rounds.unwrap_or(rounds),
        }
    }

    fn networks(&self) -> &[Network] {
        match self.only.as_slice() {
            [] => &Network::ALL,
            only => only,
        }
    }
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.install {
        // Before the first tensor.
        cubenorm::install()?;
    }
    let opened = open(arguments.device.as_deref())?;
    let options = arguments.options();
    if let Some(network) = arguments.tune {
        return tune(network, options, &opened.device);
    }
    if let Some(network) = arguments.work {
        return measure(network, options, &opened.device, |measured| {
            println!("{}", serde_json::to_string(measured)?);
            Ok(())
        });
    }

    for path in [&arguments.json, &arguments.csv].into_iter().flatten() {
        // An error after minutes is too late.
        let mut file = OpenOptions::new();
        let file = file.create(true).append(true).open(path);
        file.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let run = Run {
        command: command(),
        version: env!("CARGO_PKG_VERSION"),
        device: opened.name.clone(),
        hardware: opened.to_string(),
        small: options.small,
    };
    println!(
        "Networks on {opened}, median of {} rounds\n",
        options.rounds
    );

    let mut outcomes: Vec<Outcome> = Vec::new();
    for (place, &network) in arguments.networks().iter().enumerate() {
        let progress = |what: &str| {
            let count = arguments.networks().len();
            Progress::start(format!("{}/{count} {network}: {what}", place + 1))
        };
        outcomes.push((network, outcome(network, &opened.name, progress)));
        // An interrupted run keeps its rows.
        let rows = report::rows(&run, &outcomes);
        if let Some(path) = &arguments.json {
            write(path, &report::json(&rows)?)?;
        }
        if let Some(path) = &arguments.csv {
            write(path, &report::csv(&rows)?)?;
        }
    }
    print!("{}", report::table(&outcomes));
    let failed = |(_, outcome): &&Outcome| !outcome.as_ref().is_ok_and(Measured::agrees);
    let failed = outcomes.iter().filter(failed).count();
    ensure!(
        failed == 0,
        "{failed} of {} networks failed",
        outcomes.len()
    );
    Ok(())
}

/// Measures a network in a process of its own: its memory and its crash are its own.
fn outcome(
    network: Network,
    device: &str,
    progress: impl Fn(&str) -> Progress,
) -> Result<Measured, String> {
    let name = network.to_string();
    let measured = || {
        // On `cpu` tuning slows down the rest of a process.
        if device == "cpu" {
            let _progress = progress("tuning kernels");
            again(["--tune", &name])?.1?;
        }
        let _progress = progress("measuring");
        let (output, ended) = again(["--work", &name])?;
        // Drivers write to standard output too. The last result has the times of graphs.
        let lines = output.lines().rev();
        let mut results = lines.filter_map(|line| serde_json::from_str::<Measured>(line).ok());
        match (results.next(), ended) {
            (Some(measured), Ok(())) => Ok(measured),
            (Some(measured), Err(why)) => Ok(measured.without_graphs(&format!("{why:#}"))),
            (None, ended) => Err(match ended {
                Ok(()) => anyhow!("its process printed no result"),
                Err(why) => why,
            }),
        }
    };
    measured().map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// Runs this program again with further arguments. Returns its standard output, and how it ended.
fn again(arguments: [&str; 2]) -> Result<(String, Result<()>)> {
    let program = env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(arguments)
        .args(env::args_os().skip(1))
        .output()
        .context("cannot run this program a second time")?;
    let error = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = error.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" ");
    let ended = match output.status.success() {
        true => Ok(()),
        false => Err(anyhow!("its process failed ({}): {last}", output.status)),
    };
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), ended))
}

/// The command line of this process.
fn command() -> String {
    let arguments = env::args_os().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let words = ["models".to_owned()].into_iter().chain(arguments);
    words.collect::<Vec<_>>().join(" ")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} not written", path.display()))
}

/// A number of at least one.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
