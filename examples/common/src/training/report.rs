use std::fmt::Write;

use super::check::Check;
use super::trainer::Run;

/// Steps in the average of the reported loss.
const LAST_STEPS: usize = 10;

/// A run and the quality of its model.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    /// The run.
    pub run: &'a Run,
    /// Quality of the model with its unit: `98.6 %`.
    pub result: String,
}

/// Table of times, memory and results, one line per run. `epoch` and `result` are column headers.
pub fn table(epoch: &str, result: &str, outcomes: &[Outcome<'_>]) -> String {
    let mut text = String::new();
    writeln!(
        text,
        "  norms     {epoch:>18}  {:>18}  {:>12}  {:>10}  {result:>14}",
        "saved for backward", "peak memory", "last loss"
    )
    .unwrap();
    for Outcome { run, result } in outcomes {
        let (kept, peak) = match run.memory {
            Some(memory) => (mebibytes(memory.kept), mebibytes(memory.peak)),
            None => ("not available".to_owned(), "not available".to_owned()),
        };
        writeln!(
            text,
            "  {:8}  {:>16.3} s  {kept:>18}  {peak:>12}  {:>10.4}  {result:>14}",
            run.norms,
            run.epoch().as_secs_f64(),
            run.last_losses(LAST_STEPS),
        )
        .unwrap();
    }
    if let [one, other] = outcomes {
        let ratio = one.run.epoch().as_secs_f64() / other.run.epoch().as_secs_f64();
        writeln!(
            text,
            "\n  speed-up of {} over {}: {ratio:.2}x",
            other.run.norms, one.run.norms
        )
        .unwrap();
    }
    text
}

/// Results of checks, one line each.
pub fn checks(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        writeln!(text, "  {verdict:6}  {}", check.text).unwrap();
    }
    text
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Norms;
    use crate::training::Memory;

    fn run(norms: Norms, memory: Option<Memory>) -> Run {
        Run {
            norms,
            losses: vec![0.5],
            epochs: vec![Duration::from_millis(if norms == Norms::Burn {
                30
            } else {
                20
            })],
            memory,
        }
    }

    fn outcome(run: &Run) -> Outcome<'_> {
        Outcome {
            run,
            result: "98.6 %".to_owned(),
        }
    }

    #[test]
    fn table_compares_two_runs() {
        let memory = Memory {
            kept: 1 << 20,
            peak: 3 << 20,
        };
        let (burn, cubenorm) = (run(Norms::Burn, Some(memory)), run(Norms::Cubenorm, None));
        let text = table(
            "per epoch",
            "accuracy",
            &[outcome(&burn), outcome(&cubenorm)],
        );
        for part in ["1.00 MiB", "3.00 MiB", "not available", "0.030 s", "98.6 %"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("speed-up of cubenorm over burn: 1.50x"),
            "{text}"
        );
    }

    #[test]
    fn table_of_one_run_has_no_speed_up() {
        let burn = run(Norms::Burn, None);
        let text = table("per epoch", "accuracy", &[outcome(&burn)]);
        assert!(!text.contains("speed-up"), "{text}");
    }

    #[test]
    fn failed_checks_are_marked() {
        let text = checks(&[Check::at_most("a", 1.0, 2.0), Check::at_most("b", 2.0, 1.0)]);
        assert!(text.contains("  ok      a: "), "{text}");
        assert!(text.contains("  FAILED  b: "), "{text}");
    }
}
