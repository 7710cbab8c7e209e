//! What is checked, step by step, and how each went.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{
    part::{Ended, Suite},
    sanitizer,
};
use crate::{commands::test::output::Counts, style};

/// A step. Most are a part of the suite of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Every strategy, layout, dtype and kind of value against the reference
    Kernels,
    /// Gradients against central differences
    Gradients,
    /// What the tuner chooses
    Tuning,
    /// Nothing is compiled twice
    Compilation,
    /// Launches that fail, and threads at once
    Robustness,
    /// Random descriptions and gradients
    Property,
    /// Random operators of DirectML and ONNX
    Operators,
    /// ONNX's own node tests
    Conformance,
    /// The same bits from two processes, for every strategy
    Determinism,
    /// compute-sanitizer's memcheck, where it is installed
    Memcheck,
    /// compute-sanitizer's racecheck, where it is installed
    Racecheck,
    /// More than 2^32 elements, 100,000 calls (with --large, or by name)
    Large,
    /// Throughput beside a copy of the same bytes
    Bench,
}

/// Steps that only run where they are asked for.
const ON_REQUEST: [Step; 1] = [Step::Large];

/// How a step went.
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

impl Step {
    /// Those that were named, or all.
    pub fn chosen(only: &[Self], large: bool) -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(move |step| {
            let is_on_request = ON_REQUEST.contains(step);
            match only.contains(step) {
                true => true,
                false => only.is_empty() && (large || !is_on_request),
            }
        })
    }

    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Runs the step; rows of a benchmark go to `throughput`.
    pub fn run(self, suite: &Suite, throughput: &mut Vec<Value>) -> Outcome {
        let name = self.name();
        let outcome = match self {
            Self::Conformance if suite.cases().is_none() => {
                Ok(Outcome::skipped("the package has no node tests"))
            }
            Self::Conformance => tests(suite, &name, &["--ignored", "conformance::"]),
            Self::Large => tests(suite, &name, &["--ignored", "large::", "many_small_calls"]),
            Self::Determinism => determinism(suite, &name),
            Self::Memcheck | Self::Racecheck => sanitizer::run(suite, &name),
            Self::Bench => bench(suite, &name, throughput),
            _ => tests(suite, &name, &[&format!("{name}::")]),
        };
        let outcome = outcome.unwrap_or_else(|error| Outcome::crashed(format!("{error:#}")));
        Outcome {
            step: name,
            ..outcome
        }
    }
}

/// Tests of the suite.
fn tests(suite: &Suite, name: &str, arguments: &[&str]) -> Result<Outcome> {
    let mut command = suite.command(&[], arguments);
    if suite.is_quick {
        command.env("CUBENORM_PROPERTY_CASES", "50");
    }
    let ended = suite.run(name, command)?;
    Ok(Outcome::of(&ended))
}

/// Digests of two processes, side by side.
fn determinism(suite: &Suite, name: &str) -> Result<Outcome> {
    let arguments = ["--ignored", "--nocapture", "determinism::"];
    let digests = |number: u32| -> Result<(Ended, BTreeMap<String, String>)> {
        let command = suite.command(&[], &arguments);
        let ended = suite.run(&format!("{name}-{number}"), command)?;
        let digests = digests(&ended.output);
        Ok((ended, digests))
    };
    let (first, digests_of_first) = digests(1)?;
    let (second, digests_of_second) = digests(2)?;
    let differ: Vec<String> = digests_of_first
        .iter()
        .filter(|(what, digest)| digests_of_second.get(*what) != Some(digest))
        .map(|(what, _)| what.clone())
        .collect();
    let total = digests_of_first.len().max(digests_of_second.len());
    let same = total - differ.len().min(total);
    let trouble = first.trouble.or(second.trouble);
    let is_good = trouble.is_none() && differ.is_empty() && same == digests_of_first.len();
    Ok(Outcome {
        result: Verdict::of(is_good && total > 0),
        passed: same,
        failed: total - same,
        elapsed: first.elapsed + second.elapsed,
        note: trouble
            .unwrap_or_else(|| format!("{same} results have the same bits in two processes")),
        failures: differ,
        ..Outcome::default()
    })
}

/// What was computed and its digest, by line.
fn digests(output: &str) -> BTreeMap<String, String> {
    let lines = output.lines().filter_map(|line| {
        let (what, digest) = line.strip_prefix("digest ")?.rsplit_once(' ')?;
        Some((what.to_owned(), digest.to_owned()))
    });
    lines.collect()
}

fn bench(suite: &Suite, name: &str, throughput: &mut Vec<Value>) -> Result<Outcome> {
    let mut command = suite.command(&[], &["--ignored", "--nocapture", "measure::throughput"]);
    if suite.is_quick {
        command.env("CUBENORM_MEBIBYTES", "32");
    }
    let ended = suite.run(name, command)?;
    let rows = ended.output.lines().filter_map(|line| {
        let row = line.strip_prefix("throughput ")?;
        serde_json::from_str(row).ok()
    });
    throughput.extend(rows);
    let mut outcome = Outcome::of(&ended);
    if outcome.result == Verdict::Passed && throughput.is_empty() {
        outcome.result = Verdict::Failed;
        outcome.note = "nothing was measured".to_owned();
    }
    Ok(outcome)
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

    fn crashed(note: String) -> Self {
        Self {
            failed: 1,
            note,
            ..Self::default()
        }
    }

    /// What libtest's output says.
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
    fn large_tests_run_where_they_are_asked_for() {
        let all: Vec<_> = Step::chosen(&[], false).collect();
        assert!(!all.contains(&Step::Large) && all.contains(&Step::Bench));
        assert!(Step::chosen(&[], true).any(|step| step == Step::Large));
        let named: Vec<_> = Step::chosen(&[Step::Large, Step::Kernels], false).collect();
        assert_eq!(named, [Step::Kernels, Step::Large]);
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

    #[test]
    fn a_digest_is_the_last_word_of_its_line() {
        let digests = digests("noise\ndigest cpu forward f32 [1, 2] Inferred 00ff\n");
        assert_eq!(digests["cpu forward f32 [1, 2] Inferred"], "00ff");
        assert_eq!(digests.len(), 1);
    }
}
