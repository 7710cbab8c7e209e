use std::path::Path;

use anyhow::{Result, ensure};

use super::check::Check;
use super::plot::plot;
use super::report::{Outcome, checks, table};
use crate::{Choice, OpenDevice, open, tuning};

/// Epochs of a quick training.
const QUICK: usize = 2;

/// Arguments of a program that trains a model with both implementations of norms.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Implementation of the norms
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    pub norms: Choice,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Train for two epochs only, without tuning first
    #[arg(long)]
    pub quick: bool,

    /// Exit with an error if a check of the result fails
    #[arg(long)]
    pub check: bool,

    /// Train for one epoch: this process only tunes the kernels
    #[arg(long, hide = true)]
    pub tune: bool,
}

impl Command {
    /// Starts the device.
    ///
    /// # Errors
    ///
    /// As [`open`].
    pub fn open(&self) -> Result<OpenDevice> {
        open(self.device.as_deref())
    }

    /// True if all epochs run.
    pub fn is_complete(&self) -> bool {
        !self.quick && !self.tune
    }

    /// Number of epochs, which is `complete` for a complete training. Before that, the kernels are
    /// tuned in another process.
    ///
    /// # Errors
    ///
    /// If that process fails.
    pub fn epochs(&self, opened: &OpenDevice, complete: usize) -> Result<usize> {
        if self.is_complete() && tuning::needed(&opened.name) {
            tuning::in_another_process("--tune")?;
        }
        Ok(match (self.tune, self.quick) {
            (true, _) => 1,
            (false, true) => QUICK,
            (false, false) => complete,
        })
    }

    /// Prints the outcomes with these headers of epoch and result, plots the losses, and prints the
    /// checks.
    ///
    /// # Errors
    ///
    /// If the plot cannot be written, or a check failed and `--check` is given.
    pub fn report(
        &self,
        [epoch, result]: [&str; 2],
        outcomes: &[Outcome<'_>],
        (title, path): (&str, &Path),
        found: &[Check],
    ) -> Result<()> {
        println!("{}", table(epoch, result, outcomes));
        let runs: Vec<_> = outcomes.iter().map(|outcome| outcome.run).collect();
        plot(title, &runs, path)?;
        println!("  loss curves: {}\n", path.display());
        print!("{}", checks(found));
        let passed = found.iter().all(|check| check.passed);
        ensure!(passed || !self.check, "a check failed");
        Ok(())
    }
}
