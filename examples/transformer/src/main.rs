//! Trains a model on this project's source text, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::training::{Command, Outcome};
use cubenorm_example_common::{OpenDevice, exit, graph, target_folder};
use transformer::decode::continued;
use transformer::learning::{self, EPOCH, Learned, SIZE};
use transformer::text::Text;

/// Epochs of a complete training.
const EPOCHS: usize = 16;
/// Bytes of the continued text.
const CONTINUED: usize = 48;

/// A pre-norm language model on bytes in Burn, its norms and residuals fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "transformer", version)]
struct Arguments {
    /// Training text [default: this project's source text]
    text: Option<PathBuf>,

    #[command(flatten)]
    training: Command,

    /// Continue the test text with the trained model by replayed decode steps, on devices that
    /// record graphs, and time them
    #[arg(long)]
    capture: bool,

    /// File of the plot [default: target/transformer/losses.svg]
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let training = &arguments.training;
    let opened = training.open()?;
    if arguments.capture {
        // An error after a training is too late.
        graph::require(&opened)?;
    }
    let text = Text::read(arguments.text.as_deref(), SIZE.context)?;
    let epochs = training.epochs(&opened, EPOCHS)?;
    println!(
        "{} bytes of text on {opened}, {} steps\n",
        text.training.len(),
        epochs * EPOCH
    );
    let progress = Progress::start("Training");
    let learned = learning::learn(&text, epochs, training.norms.kinds(), &opened.device)?;
    drop(progress);
    let plot = match &arguments.plot {
        Some(plot) => plot.clone(),
        None => target_folder("transformer").join("losses.svg"),
    };
    training.report(
        [&format!("{EPOCH} steps"), "test loss"],
        &learned.iter().map(outcome).collect::<Vec<_>>(),
        ("Language model on bytes, RMS norm", &plot),
        &learning::checks(&learned),
    )?;
    if arguments.capture && !training.tune {
        for learned in &learned {
            decode(learned, &text, &opened)?;
        }
    }
    Ok(())
}

/// Continues the test text, and prints the times of eager and replayed steps.
fn decode(learned: &Learned, text: &Text, opened: &OpenDevice) -> Result<()> {
    let window = &text.test[..SIZE.context];
    let it = continued(&learned.model, window, CONTINUED, true, &opened.device)?;
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    println!("\n  continued with norms by {}:", learned.run.norms);
    println!("  {:?}", String::from_utf8_lossy(&it.bytes));
    print!("  a step: {:.3} ms eager", milliseconds(it.eager));
    if let Some(replayed) = it.replayed {
        print!(", {:.3} ms replayed", milliseconds(replayed));
    }
    println!();
    Ok(())
}

fn outcome(learned: &Learned) -> Outcome<'_> {
    Outcome {
        run: &learned.run,
        result: format!("{:.3} nats", learned.test_loss),
    }
}
