//! NVIDIA's compute-sanitizer over a part of the suite, if it is installed.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{
    outcome::{Outcome, Verdict},
    part::Suite,
};
use crate::exec::on_path;

const PROGRAM: &str = "compute-sanitizer";
/// Folder of CUDA's toolkit, if the tool is not on the path.
const TOOLKIT: &str = "/usr/local/cuda/bin";
/// Exit code of the tool if it found something. Nothing else has it.
const FOUND: &str = "86";
/// Every strategy forward and backward, and cooperating cubes. Not all tests: each access is
/// checked, which takes many times longer.
const TESTS: [&str; 3] = [
    "kernels::strategies::every_strategy",
    "gradients::every_strategy",
    "gradients::clusters_on_short_rows",
];

/// Runs the tool of this name: `memcheck` or `racecheck`.
pub fn run(suite: &Suite, tool: &str) -> Result<Outcome> {
    if suite.device != "cuda" {
        return Ok(Outcome::skipped("it is for cuda"));
    }
    let Some(program) = find() else {
        return Ok(Outcome::skipped("compute-sanitizer is not installed"));
    };
    let before: Vec<String> = [
        &program.to_string_lossy(),
        "--tool",
        tool,
        "--error-exitcode",
        FOUND,
    ]
    .map(str::to_owned)
    .to_vec();
    let ended = suite.run(tool, suite.command(&before, &TESTS))?;
    let summary = summary(&ended.output);
    let mut outcome = Outcome::of(&ended);
    if summary.is_empty() {
        // Without its own word nothing was checked.
        outcome.result = Verdict::Failed;
    }
    if outcome.note.is_empty() || !summary.is_empty() {
        outcome.note = summary.join("; ");
    }
    Ok(outcome)
}

fn find() -> Option<PathBuf> {
    if on_path(PROGRAM) {
        return Some(PROGRAM.into());
    }
    Some(Path::new(TOOLKIT).join(PROGRAM)).filter(|program| program.is_file())
}

/// Its last words: `========= ERROR SUMMARY: 0 errors`.
fn summary(output: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| line.contains("SUMMARY:"));
    lines
        .map(|line| line.trim_start_matches(['=', ' ']).trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_found_between_the_tests_lines() {
        let output = "test a ... ok\n========= ERROR SUMMARY: 2 errors\n";
        assert_eq!(summary(output), ["ERROR SUMMARY: 2 errors"]);
        assert!(summary("test a ... ok").is_empty());
    }
}
