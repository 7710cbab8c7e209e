//! The checks, step by step.

use std::{collections::BTreeMap, env, path::Path};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;

use super::part::{Ended, Suite};
use crate::{
    commands::outcome::{Counts, Line, Outcome},
    exec::on_path,
};

/// A step. Most are a part of the suite of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
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
    /// The benchmark against CubeCL's probe of a copy; CUBENORM_OPS selects operators
    Bench,
}

/// NVIDIA's sanitizer, and its folder in CUDA's toolkit if it is not on the path.
const SANITIZER: &str = "compute-sanitizer";
const TOOLKIT: &str = "/usr/local/cuda/bin";
/// Exit code of the sanitizer if it found something. Nothing else has it.
const FOUND: &str = "86";
/// Every strategy forward and backward, and cooperating cubes. Not all tests: each access is
/// checked, which takes many times longer.
const SANITIZED: [&str; 4] = [
    "kernels::strategies::every_strategy",
    "gradients::every_strategy",
    "kernels::strategies::cubes_of_a_cluster",
    "gradients::clusters_on_short_rows",
];

impl Step {
    /// The named steps, or all but the one that only runs on request.
    pub(super) fn chosen(only: &[Self], large: bool) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|step| match only {
            [] => large || *step != Self::Large,
            only => only.contains(step),
        })
        .collect()
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Runs the step.
    pub(super) fn run(self, suite: &Suite) -> Line {
        let name = self.name();
        let outcome = match self {
            Self::Conformance if suite.cases().is_none() => {
                Ok(Outcome::skipped("the package has no node tests"))
            }
            Self::Conformance => tests(suite, &name, &["--ignored", "conformance::"]),
            Self::Large => tests(suite, &name, &["--ignored", "large::", "many_small_calls"]),
            Self::Determinism => determinism(suite, &name),
            Self::Memcheck | Self::Racecheck => sanitizer(suite, &name),
            Self::Bench => bench(suite, &name),
            _ => tests(suite, &name, &[&format!("{name}::")]),
        };
        Line::new(
            name,
            outcome.unwrap_or_else(|error| Outcome::of(Err(error))),
        )
    }
}

/// Tests of the suite.
fn tests(suite: &Suite, name: &str, arguments: &[&str]) -> Result<Outcome> {
    let mut command = suite.tests(arguments);
    if suite.is_quick {
        command = command.env("CUBENORM_PROPERTY_CASES", "50");
    }
    Ok(suite.run(name, &command)?.outcome())
}

/// Compares the digests of two processes.
fn determinism(suite: &Suite, name: &str) -> Result<Outcome> {
    let command = suite.tests(&["--ignored", "--nocapture", "determinism::"]);
    let digests = |number: u32| -> Result<(Ended, BTreeMap<String, String>)> {
        let ended = suite.run(&format!("{name}-{number}"), &command)?;
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
    let nothing = || (total == 0).then(|| "no result".to_owned());
    let trouble = first.trouble.or(second.trouble).or_else(nothing);
    let counts = Counts {
        passed: same,
        failed: total - same,
        skipped: 0,
    };
    Ok(Outcome {
        elapsed: first.elapsed + second.elapsed,
        failures: differ,
        ..Outcome::counted(counts, trouble)
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

/// Runs some tests under NVIDIA's `memcheck` or `racecheck`.
fn sanitizer(suite: &Suite, tool: &str) -> Result<Outcome> {
    let in_toolkit = Path::new(TOOLKIT).join(SANITIZER);
    let program = match on_path(SANITIZER) {
        true => Path::new(SANITIZER),
        false => &in_toolkit,
    };
    if suite.manifest.device != "cuda" {
        return Ok(Outcome::skipped("it is for cuda"));
    }
    if !on_path(SANITIZER) && !in_toolkit.is_file() {
        return Ok(Outcome::skipped("compute-sanitizer is not installed"));
    }
    let command = suite
        .tests_in(program, &["--tool", tool, "--error-exitcode", FOUND])
        .arg(suite.program())
        .args(SANITIZED);
    let ended = suite.run(tool, &command)?;
    let summary = summary(&ended.output);
    let note = summary.join("; ");
    let mut outcome = match summary.is_empty() {
        // Without its own word nothing was checked.
        true => Outcome::of(Err(anyhow!("{tool} said nothing"))),
        false => ended.outcome(),
    };
    if !note.is_empty() {
        outcome.note = note;
    }
    Ok(outcome)
}

/// The sanitizer's last words: `========= ERROR SUMMARY: 0 errors`.
fn summary(output: &str) -> Vec<&str> {
    let lines = output.lines().filter(|line| line.contains("SUMMARY:"));
    lines
        .map(|line| line.trim_start_matches(['=', ' ']).trim())
        .collect()
}

/// Runs `bench`, which is in this program too, and leaves its rows in throughput.csv.
fn bench(suite: &Suite, name: &str) -> Result<Outcome> {
    let Some(program) = &suite.bench else {
        return Ok(Outcome::skipped("--program names no cubenorm-bench"));
    };
    let manifest = &suite.manifest;
    let this = env::current_exe().context("this program has no file")?;
    let mut command = suite
        .command(&this)
        .args(["bench", "--against", "probe", "--rounds", "2", "--suite"])
        .arg(if suite.is_quick { "quick" } else { "rows" })
        .args(["--device", &manifest.device, "--commit", &manifest.commit])
        .args(["--csv", "throughput.csv", "--program"])
        .arg(program);
    if let Some(ops) = env::var_os("CUBENORM_OPS") {
        command = command.arg("--op").arg(ops);
    }
    let ended = suite.run(name, &command)?;
    let result = ended
        .trouble
        .map_or(Ok(()), |trouble| Err(anyhow!(trouble)));
    Ok(Outcome {
        elapsed: ended.elapsed,
        ..Outcome::of(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tests_run_where_they_are_asked_for() {
        let all = Step::chosen(&[], false);
        assert!(!all.contains(&Step::Large) && all.contains(&Step::Bench));
        assert!(Step::chosen(&[], true).contains(&Step::Large));
        let named = Step::chosen(&[Step::Large, Step::Kernels], false);
        assert_eq!(named, [Step::Kernels, Step::Large]);
    }

    #[test]
    fn a_digest_is_the_last_word_of_its_line() {
        let digests = digests("noise\ndigest cpu forward f32 [1, 2] Inferred 00ff\n");
        assert_eq!(digests["cpu forward f32 [1, 2] Inferred"], "00ff");
        assert_eq!(digests.len(), 1);
    }

    #[test]
    fn the_summary_is_found_between_the_tests_lines() {
        let output = "test a ... ok\n========= ERROR SUMMARY: 2 errors\n";
        assert_eq!(summary(output), ["ERROR SUMMARY: 2 errors"]);
        assert!(summary("test a ... ok").is_empty());
    }
}
