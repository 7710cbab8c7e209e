//! Trains a model on this project's source text, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::training::{self, Outcome};
use cubenorm_example_common::{Choice, exit, open, target_folder, tuning};
use transformer::learning::{self, EPOCH, Learned, SIZE};
use transformer::text::Text;

/// Epochs of a complete training and of a quick one.
const EPOCHS: usize = 16;
const QUICK_EPOCHS: usize = 2;

/// A pre-norm language model on bytes in Burn, its norms and residuals fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "transformer", version)]
struct Arguments {
    /// Training text [default: this project's source text]
    text: Option<PathBuf>,

    /// Implementation of the norms
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    norms: Choice,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Train for 50 steps only, without tuning first
    #[arg(long)]
    quick: bool,

    /// Exit with an error if a check of the losses or of their agreement fails
    #[arg(long)]
    check: bool,

    /// File of the plot [default: target/transformer/losses.svg]
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,

    /// Train for one epoch: this process only tunes the kernels
    #[arg(long, hide = true)]
    tune: bool,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let opened = open(arguments.device.as_deref())?;
    let text = Text::read(arguments.text.as_deref(), SIZE.context)?;

    if !arguments.quick && !arguments.tune && tuning::needed(&opened.name) {
        tuning::in_another_process("--tune")?;
    }
    let epochs = match (arguments.tune, arguments.quick) {
        (true, _) => 1,
        (false, true) => QUICK_EPOCHS,
        (false, false) => EPOCHS,
    };
    println!(
        "{} bytes of text on {opened}, {} steps\n",
        text.training.len(),
        epochs * EPOCH
    );
    let progress = Progress::start("Training");
    let learned = learning::learn(&text, epochs, arguments.norms.kinds(), &opened.device)?;
    drop(progress);

    let outcomes: Vec<_> = learned.iter().map(outcome).collect();
    let epoch = format!("{EPOCH} steps");
    println!("{}", training::table(&epoch, "test loss", &outcomes));

    let plot = match &arguments.plot {
        Some(plot) => plot.clone(),
        None => target_folder("transformer").join("losses.svg"),
    };
    let runs: Vec<_> = learned.iter().map(|learned| &learned.run).collect();
    training::plot("Language model on bytes, RMS norm", &runs, &plot)?;
    println!("  loss curves: {}\n", plot.display());

    let checks = learning::checks(&learned);
    print!("{}", training::checks(&checks));
    if arguments.check && checks.iter().any(|check| !check.passed) {
        bail!("a check failed");
    }
    Ok(())
}

fn outcome(learned: &Learned) -> Outcome<'_> {
    Outcome {
        run: &learned.run,
        result: format!("{:.3} nats", learned.test_loss),
    }
}
