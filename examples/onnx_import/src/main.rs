//! Runs a network that burn-onnx generated, with and without `cubenorm::install`.

mod import;
mod line;
mod run;

/// The generated code, as burn-onnx wrote it.
#[allow(missing_docs, unreachable_pub, unused, unused_qualifications, clippy::all)]
#[rustfmt::skip]
mod classifier;

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::{exit, open, target_folder};

use crate::run::Outcome;

/// A classifier of upside-down text, which burn-onnx generated from ONNX, with and without cubenorm::install.
#[derive(Debug, Parser)]
#[command(name = "onnx_import", version)]
struct Arguments {
    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Exit with an error unless the outputs agree with ONNX Runtime's, and every norm ran fused
    #[arg(long)]
    check: bool,

    /// Print the report of `install`: each norm that ran fused, and each that did not with the reason
    #[arg(long)]
    report: bool,

    /// Lines of text in the timed batch
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Timed runs for the median
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,

    /// Folder of the network's files, which are made if missing [default: target/onnx_import]
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,

    /// Run in this process, with `cubenorm::install` if true, and print the outcome as JSON
    #[arg(long, hide = true)]
    work: Option<bool>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.work == Some(true) {
        // Before the device has a tensor.
        cubenorm::install()?;
    }
    let opened = open(arguments.device.as_deref())?;
    let folder = arguments.model_dir.clone();
    let weights = import::weights(&folder.unwrap_or_else(|| target_folder("onnx_import")))?;
    if arguments.work.is_some() {
        let outcome = run::run(
            &weights,
            &opened.device,
            arguments.batch,
            arguments.iterations,
        )?;
        println!("{}", serde_json::to_string(&outcome)?);
        return Ok(());
    }

    println!("Which way up is the text? A classifier on {opened}\n");
    let outcomes = [
        outcome("false", "Running without install")?,
        outcome("true", "Running with install")?,
    ];
    print!("{}", run::table(&outcomes, arguments.batch)?);
    if arguments.report {
        let [_, installed] = &outcomes;
        print!("\n{}", installed.report);
    }
    if arguments.check {
        check(&outcomes)?;
    }
    Ok(())
}

/// Runs this program again: a process has `install`, or has it not.
fn outcome(installed: &str, what: &str) -> Result<Outcome> {
    let _progress = Progress::start(what.to_owned());
    let program = env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(env::args_os().skip(1))
        .args(["--work", installed])
        .output()
        .context("cannot run this program a second time")?;
    // Drivers write to standard output too.
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    match outcome {
        Some(outcome) if output.status.success() => Ok(outcome),
        _ => bail!(
            "its process failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

/// Fails unless the outputs agree with ONNX Runtime's and every norm ran fused.
fn check(outcomes: &[Outcome; 2]) -> Result<()> {
    let [_, installed] = outcomes;
    for outcome in outcomes {
        let off = outcome.off()?;
        // A NaN is no agreement.
        if off.is_nan() || off > run::TOLERANCE {
            bail!(
                "a probability is off by {off:e} of it: expected at most {:e}",
                run::TOLERANCE
            );
        }
    }
    if installed.norms != run::NORMS as u64 {
        bail!(
            "{} norms of a pass ran fused: expected {}",
            installed.norms,
            run::NORMS
        );
    }
    Ok(())
}
