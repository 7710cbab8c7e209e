//! The result of a step.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

use super::part::Ended;
use crate::{commands::test::output::Counts, style};

/// The result of a step.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub step: String,
    pub result: Verdict,
    pub passed: usize,
    pub failed: usize,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Why it was skipped, or how it ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The tests that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 10.0).round() / 10.0)
}

impl Verdict {
    pub fn of(is_good: bool) -> Self {
        match is_good {
            true => Self::Passed,
            false => Self::Failed,
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            step: String::new(),
            result: Verdict::Failed,
            passed: 0,
            failed: 0,
            elapsed: Duration::ZERO,
            note: String::new(),
            failures: Vec::new(),
        }
    }
}

impl Outcome {
    pub fn skipped(why: &str) -> Self {
        Self {
            result: Verdict::Skipped,
            note: why.to_owned(),
            ..Self::default()
        }
    }

    pub fn crashed(note: String) -> Self {
        Self {
            failed: 1,
            note,
            ..Self::default()
        }
    }

    /// The counts in libtest's output.
    pub fn of(ended: &Ended) -> Self {
        let counts = Counts::of(&ended.output);
        // It died before it could say how many failed: one at least.
        let crash = ended.trouble.is_some() && counts.failed == 0;
        let failed = counts.failed + usize::from(crash);
        let note = match (&ended.trouble, crash, counts.passed) {
            (Some(trouble), true, _) => trouble.clone(),
            (None, _, 0) => "no test ran".to_owned(),
            _ => String::new(),
        };
        Self {
            result: Verdict::of(failed == 0 && counts.passed > 0),
            passed: counts.passed,
            failed,
            elapsed: ended.elapsed,
            note,
            failures: failures(&ended.output),
            ..Self::default()
        }
    }
}

/// The names in `test NAME ... FAILED`.
fn failures(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(name.to_owned())
    });
    names.collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            passed,
            failed,
            note,
            ..
        } = self;
        let seconds = self.elapsed.as_secs_f64();
        let word = match self.result {
            Verdict::Passed => style::good("passed"),
            Verdict::Failed => style::bad("FAILED"),
            Verdict::Skipped => style::warning("skipped"),
        };
        write!(f, "{word} {step}")?;
        if self.result != Verdict::Skipped {
            write!(f, ": {passed} passed, {failed} failed in {seconds:.0} s")?;
        }
        if !note.is_empty() {
            write!(f, " ({note})")?;
        }
        self.failures
            .iter()
            .try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(output: &str, trouble: Option<&str>) -> Ended {
        Ended {
            output: output.to_owned(),
            elapsed: Duration::from_secs(1),
            trouble: trouble.map(str::to_owned),
        }
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "running 2 tests\ntest kernels::a ... ok\ntest kernels::b ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out";
        let outcome = Outcome::of(&ended(output, Some("exit code 101")));
        assert_eq!(outcome.result, Verdict::Failed);
        assert_eq!(outcome.failures, ["kernels::b"]);
        assert_eq!((outcome.passed, outcome.failed), (1, 1));
    }

    #[test]
    fn a_part_that_dies_or_runs_nothing_has_failed() {
        let died = Outcome::of(&ended("running 3 tests", Some("killed by signal 11")));
        assert_eq!((died.result, died.failed), (Verdict::Failed, 1));
        assert_eq!(died.note, "killed by signal 11");
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        assert_eq!(Outcome::of(&ended(nothing, None)).result, Verdict::Failed);
    }
}
