//! Trains a network on handwritten digits, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cubenorm_example_common::exit;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::training::{Command, Outcome};
use digits::digits::Digits;
use digits::fetch;
use digits::learning::{self, Learned, Settings};
use digits::norms::Layer;

/// Epochs of a complete training.
const EPOCHS: usize = 20;

/// A small residual network that learns handwritten digits in Burn, its norms fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "digits", version)]
struct Arguments {
    #[command(flatten)]
    training: Command,

    /// Norm of the network
    #[arg(long, value_enum, default_value_t = Layer::Batch)]
    layer: Layer,

    /// Members that train the network of cubenorm's norms together, each on its part of every batch. They share the device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    devices: u8,

    /// Folder of the digits, which are downloaded if missing, and of the plot [default:
    /// target/digits]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let Arguments {
        training,
        layer,
        devices,
        ..
    } = arguments;
    let opened = training.open()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(fetch::default_folder);
    let digits = Digits::read(&fetch::fetch(&folder)?)?;
    let settings = Settings {
        layer: *layer,
        epochs: training.epochs(&opened, EPOCHS)?,
        devices: usize::from(*devices),
    };
    let members = match devices {
        1 => String::new(),
        devices => format!(", {devices} members"),
    };
    println!(
        "{} digits on {opened}, {layer} norms, {} epochs{members}\n",
        digits.training.len(),
        settings.epochs
    );
    let progress = Progress::start("Training");
    let learned = learning::learn(&digits, settings, training.norms.kinds(), &opened.device)?;
    drop(progress);
    training.report(
        ["epoch", "test accuracy"],
        &learned.iter().map(outcome).collect::<Vec<_>>(),
        (
            &format!("Handwritten digits, {layer} norm"),
            &folder.join(format!("{layer}.svg")),
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
