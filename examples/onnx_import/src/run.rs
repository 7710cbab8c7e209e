//! A process that runs the network, and the table of two of them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use cubenorm_example_common::read;
use serde::{Deserialize, Serialize};

use crate::classifier::Model;
use crate::line;

/// Batch norms of the network.
pub(crate) const NORMS: usize = 35;

/// Largest accepted difference of a probability from ONNX Runtime's, as a share of it. The network is sure, so that the
/// smaller probability of each pair tells more.
pub(crate) const TOLERANCE: f32 = 1e-3;

/// Runs before the timed ones: the first compiles kernels, and the next ones still change what Burn fuses.
const WARM_UP: u32 = 3;

/// Measurements of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Probabilities for the line as it is, then for the line upside down.
    probabilities: Vec<f32>,
    /// Median time of a pass over the batch.
    milliseconds: f64,
    /// Norms of a pass that ran on cubenorm's kernels.
    pub(crate) norms: u64,
    /// The report of `install`.
    pub(crate) report: String,
}

impl Outcome {
    /// Largest difference of a probability from ONNX Runtime's, as a share of it.
    pub(crate) fn off(&self) -> Result<f32> {
        let expected = line::expected()?.into_iter().flatten();
        let pairs = expected.zip(&self.probabilities);
        let differences = pairs.map(|(expected, actual)| (expected - actual).abs() / expected);
        // A NaN stays.
        Ok(differences.fold(0.0, |most: f32, off| {
            if off > most || off.is_nan() {
                off
            } else {
                most
            }
        }))
    }
}

/// Runs the network on the lines of text, and times a batch.
pub(crate) fn run(weights: &Path, device: &Device, batch: u32, iterations: u32) -> Result<Outcome> {
    let model = Model::from_file(weights, device);
    let probabilities = read(model.forward(line::batch(2, device)?))?;

    let input = line::batch(batch as usize, device)?;
    let sync = || {
        device
            .sync()
            .map_err(|error| anyhow!("the device failed: {error:?}"))
    };
    let pass = || {
        sync()?;
        let start = Instant::now();
        // Alive until the device is synchronised, since Burn's fusion skips dropped tensors.
        let _output = model.forward(input.clone());
        sync()?;
        anyhow::Ok(start.elapsed())
    };
    for _ in 0..WARM_UP {
        pass()?;
    }
    let before = cubenorm::install_report().norms();
    pass()?;
    let norms = cubenorm::install_report().norms() - before;
    let mut times = (0..iterations)
        .map(|_| pass())
        .collect::<Result<Vec<Duration>>>()?;
    times.sort_unstable();
    Ok(Outcome {
        probabilities,
        milliseconds: times[times.len() / 2].as_secs_f64() * 1e3,
        norms,
        report: cubenorm::install_report().to_string(),
    })
}

/// The table of a process without `install` and one with it.
pub(crate) fn table(outcomes: &[Outcome; 2], batch: u32) -> Result<String> {
    let [plain, installed] = outcomes;
    let mut text = String::new();
    let mut row = |name: &str, plain: String, installed: String| {
        writeln!(text, "{name:44} {plain:>14} {installed:>14}")
    };
    row("", "as generated".to_owned(), "with install".to_owned())?;
    let percent = |outcome: &Outcome, at: usize| {
        let value = outcome.probabilities.get(at).copied().unwrap_or(f32::NAN);
        format!("{:.4} %", value * 100.0)
    };
    row(
        "the line as it is: upright",
        percent(plain, 0),
        percent(installed, 0),
    )?;
    row(
        "the line upside down: upside down",
        percent(plain, 3),
        percent(installed, 3),
    )?;
    let off = |outcome: &Outcome| Ok::<_, anyhow::Error>(format!("{:.1e}", outcome.off()?));
    row(
        "largest difference from ONNX Runtime",
        off(plain)?,
        off(installed)?,
    )?;
    let norms = |outcome: &Outcome| format!("{} of {NORMS}", outcome.norms);
    row(
        "norms on cubenorm's kernels",
        norms(plain),
        norms(installed),
    )?;
    let time = |outcome: &Outcome| format!("{:.2} ms", outcome.milliseconds);
    row(
        &format!("median time of {batch} lines"),
        time(plain),
        time(installed),
    )?;
    writeln!(
        text,
        "\nspeed-up: {:.2}x",
        plain.milliseconds / installed.milliseconds
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generated code.
    const CODE: &str = include_str!("classifier.rs");

    #[test]
    fn norms_are_counted() {
        assert_eq!(CODE.matches(": BatchNorm,").count(), NORMS);
    }

    fn outcome(probabilities: &[f32]) -> Outcome {
        Outcome {
            probabilities: probabilities.to_vec(),
            milliseconds: 1.0,
            norms: 0,
            report: String::new(),
        }
    }

    #[test]
    fn nan_is_no_agreement() {
        let expected = line::expected().unwrap().concat();
        assert!(outcome(&expected).off().unwrap() == 0.0);
        let mut wrong = expected;
        wrong[1] = f32::NAN;
        assert!(outcome(&wrong).off().unwrap().is_nan());
    }
}
