//! Steps that all run, whatever fails before them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{style, table::terminal};

/// Steps that ran, with their time and result.
#[derive(Default)]
pub struct Steps {
    done: Vec<(String, Duration, bool)>,
}

impl Steps {
    /// Runs a step, and prints the error if it fails.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        anstream::println!("\n{}", style::heading(name));
        let start = Instant::now();
        let result = step();
        if let Err(error) = &result {
            anstream::eprintln!("{}: {error:#}", style::bad("failed"));
        }
        self.done
            .push((name.to_owned(), start.elapsed(), result.is_ok()));
    }

    /// Prints a table of all steps.
    ///
    /// # Errors
    ///
    /// If one failed.
    pub fn report(&self) -> Result<()> {
        let rows = self.done.iter().map(|(name, time, passed)| {
            let result = if *passed { "passed" } else { "FAILED" };
            let seconds = format!("{:.0}", time.as_secs_f64());
            [name.clone(), seconds, result.to_owned()]
        });
        let table = terminal(["step", "seconds", "result"], rows, 1..2);
        println!("\n{table}");
        let total: Duration = self.done.iter().map(|(_, time, _)| *time).sum();
        let minutes = total.as_secs_f64() / 60.0;
        let failed: Vec<&str> = self
            .done
            .iter()
            .filter(|(_, _, passed)| !passed)
            .map(|(name, ..)| name.as_str())
            .collect();
        if failed.is_empty() {
            let steps = self.done.len();
            let line = format!("all {steps} steps passed in {minutes:.1} minutes");
            anstream::println!("{}", style::good(line));
            return Ok(());
        }
        bail!(
            "{} of {} steps failed: {}",
            failed.len(),
            self.done.len(),
            failed.join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_all_and_stops_no_other() {
        let mut steps = Steps::default();
        steps.run("a", || bail!("no"));
        steps.run("b", || Ok(()));
        let message = steps.report().unwrap_err().to_string();
        assert_eq!(message, "1 of 2 steps failed: a");

        let mut steps = Steps::default();
        steps.run("b", || Ok(()));
        steps.report().unwrap();
    }
}
