//! Trains a small Mamba-2 on handwritten digits, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::training::{Command, Outcome};
use cubenorm_example_common::{exit, target_folder};
use digits::digits::Digits;
use digits::fetch;
use mamba::learning::{self, Learned};

/// Epochs of a complete training.
const EPOCHS: usize = 20;

/// A small Mamba-2 that learns handwritten digits in Burn, its gated norms fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "mamba", version)]
struct Arguments {
    #[command(flatten)]
    training: Command,

    /// Folder of the digits, which are downloaded if missing [default: target/digits]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// File of the plot [default: target/mamba/losses.svg]
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let training = &arguments.training;
    let opened = training.open()?;
    let folder = arguments.folder.clone();
    let folder = folder.unwrap_or_else(fetch::default_folder);
    let digits = Digits::read(&fetch::fetch(&folder)?)?;
    let epochs = training.epochs(&opened, EPOCHS)?;
    println!(
        "{} digits on {opened}, {epochs} epochs\n",
        digits.training.len()
    );
    let progress = Progress::start("Training");
    let learned = learning::learn(&digits, epochs, training.norms.kinds(), &opened.device)?;
    drop(progress);
    let plot = arguments.plot.clone();
    training.report(
        ["epoch", "test accuracy"],
        &learned.iter().map(outcome).collect::<Vec<_>>(),
        (
            "Mamba-2 on handwritten digits, gated RMS norm",
            &plot.unwrap_or_else(|| target_folder("mamba").join("losses.svg")),
        ),
        &learning::checks(&learned, training.is_complete()),
    )
}

fn outcome(learned: &Learned) -> Outcome<'_> {
    Outcome {
        run: &learned.run,
        result: format!("{:.2} %", 100.0 * learned.accuracy),
    }
}
