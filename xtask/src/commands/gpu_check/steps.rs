//! The checks, step by step.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::ValueEnum;
use cubenorm_problems::protocol::Throughput;

use super::{
    outcome::{Outcome, Verdict},
    part::{Ended, Suite},
    sanitizer,
};

/// A step. Most are a part of the suite of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Guard bytes around buffers see a fault that is made on purpose
    Guards,
    /// Every strategy, layout, dtype and kind of value against the reference
    Kernels,
    /// Gradients against central differences
    Gradients,
    /// Choices of the tuner
    Tuning,
    /// Each kernel is compiled once
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
    /// compute-sanitizer's memcheck, if it is installed
    Memcheck,
    /// compute-sanitizer's racecheck, if it is installed
    Racecheck,
    /// More than 2^32 elements, 100,000 calls (with --large, or by name)
    Large,
    /// Throughput compared with a copy of the same bytes
    Bench,
}

/// Steps that only run on request.
const ON_REQUEST: [Step; 1] = [Step::Large];

impl Step {
    /// The named steps, or all.
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
    pub fn run(self, suite: &Suite, throughput: &mut Vec<Throughput>) -> Outcome {
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

/// Compares the digests of two processes.
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

/// Each result and its digest, by line.
fn digests(output: &str) -> BTreeMap<String, String> {
    let lines = output.lines().filter_map(|line| {
        let (what, digest) = line.strip_prefix("digest ")?.rsplit_once(' ')?;
        Some((what.to_owned(), digest.to_owned()))
    });
    lines.collect()
}

fn bench(suite: &Suite, name: &str, throughput: &mut Vec<Throughput>) -> Result<Outcome> {
    // One after another: two at once would share the device.
    let alone = "--test-threads=1";
    let arguments = ["--ignored", "--nocapture", alone, "measure::throughput"];
    let mut command = suite.command(&[], &arguments);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tests_run_where_they_are_asked_for() {
        let all: Vec<_> = Step::chosen(&[], false).collect();
        assert!(!all.contains(&Step::Large) && all.contains(&Step::Bench));
        assert!(Step::chosen(&[], true).any(|step| step == Step::Large));
        let named: Vec<_> = Step::chosen(&[Step::Large, Step::Kernels], false).collect();
        assert_eq!(named, [Step::Kernels, Step::Large]);
    }

    #[test]
    fn a_digest_is_the_last_word_of_its_line() {
        let digests = digests("noise\ndigest cpu forward f32 [1, 2] Inferred 00ff\n");
        assert_eq!(digests["cpu forward f32 [1, 2] Inferred"], "00ff");
        assert_eq!(digests.len(), 1);
    }
}
