//! Trains a network on handwritten digits, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::training::{self, Outcome};
use cubenorm_example_common::{Choice, exit, open, tuning};
use digits::digits::Digits;
use digits::fetch;
use digits::learning::{self, Learned, Settings};
use digits::norms::Layer;

/// Epochs of a complete training and of a quick one.
const EPOCHS: usize = 20;
const QUICK_EPOCHS: usize = 2;

/// A small residual network that learns handwritten digits in Burn, its norms fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "digits", version)]
struct Arguments {
    /// Implementation of the norms
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    norms: Choice,

    /// Norm of the network
    #[arg(long, value_enum, default_value_t = Layer::Batch)]
    layer: Layer,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Train for two epochs only, without tuning first
    #[arg(long)]
    quick: bool,

    /// Exit with an error if a check of accuracy or agreement fails
    #[arg(long)]
    check: bool,

    /// Folder of the digits, which are downloaded if missing, and of the plot [default:
    /// target/digits]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Train for one epoch: this process only tunes the kernels
    #[arg(long, hide = true)]
    tune: bool,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let opened = open(arguments.device.as_deref())?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(fetch::default_folder);
    let digits = Digits::read(&fetch::fetch(&folder)?)?;

    let whole = !arguments.quick && !arguments.tune;
    if whole && tuning::needed(&opened.name) {
        tuning::in_another_process("--tune")?;
    }
    let settings = Settings {
        layer: arguments.layer,
        epochs: match (arguments.tune, arguments.quick) {
            (true, _) => 1,
            (false, true) => QUICK_EPOCHS,
            (false, false) => EPOCHS,
        },
    };
    println!(
        "{} digits on {opened}, {} norms, {} epochs\n",
        digits.training.len(),
        settings.layer,
        settings.epochs
    );
    let progress = Progress::start("Training");
    let kinds = arguments.norms.kinds();
    let learned = learning::learn(&digits, settings, kinds, &opened.device)?;
    drop(progress);

    let outcomes: Vec<_> = learned.iter().map(outcome).collect();
    println!("{}", training::table("epoch", "test accuracy", &outcomes));

    let plot = folder.join(format!("{}.svg", settings.layer));
    let title = format!("Handwritten digits, {} norm", settings.layer);
    let runs: Vec<_> = learned.iter().map(|learned| &learned.run).collect();
    training::plot(&title, &runs, &plot)?;
    println!("  loss curves: {}\n", plot.display());

    let checks = learning::checks(&learned, whole);
    print!("{}", training::checks(&checks));
    if arguments.check && checks.iter().any(|check| !check.passed) {
        bail!("a check failed");
    }
    Ok(())
}

fn outcome(learned: &Learned) -> Outcome<'_> {
    Outcome {
        run: &learned.run,
        result: format!("{:.2} %", 100.0 * learned.accuracy),
    }
}
