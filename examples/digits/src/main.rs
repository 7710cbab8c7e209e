//! Teaches a network digits, and shows what fused norms change.

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

/// Epochs of a whole training and of a quick one.
const EPOCHS: usize = 20;
const QUICK_EPOCHS: usize = 2;

/// A small residual network that learns handwritten digits in Burn, its norms fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "digits", version)]
struct Arguments {
    /// What runs the norms
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    norms: Choice,

    /// What the network normalizes by
    #[arg(long, value_enum, default_value_t = Layer::Batch)]
    layer: Layer,

    /// The device to run on: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, as far as they
    /// are compiled in [default: BURN_DEVICE, or the first of them]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Learn for two epochs only, from kernels that are not tuned first
    #[arg(long)]
    quick: bool,

    /// Exit with an error if a check fails: what is learned, and whether both kinds of norm agree
    #[arg(long)]
    check: bool,

    /// The folder of the digits, which are fetched when it lacks them, and of the plot [default:
    /// target/digits]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Learn for one epoch: this process is there to tune the kernels
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
    let progress = Progress::start("Learning");
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
