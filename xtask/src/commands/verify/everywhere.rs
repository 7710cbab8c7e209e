//! The same cases on every runtime and driver of the machine.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};

use super::{PROGRAM, arguments};
use crate::{
    cargo::Build,
    commands::test::{
        plan::{Plan, choosing},
        suite::{BuildKind, Run},
    },
    device::Device,
    exec::{Cmd, ending, workspace},
    style,
};

/// Builds what is needed, runs the cases on these devices or on all, and prints a table.
///
/// # Errors
///
/// Where a case failed, or a runtime ran none.
pub fn verify(paths: &[PathBuf], devices: &[Device]) -> Result<()> {
    let plan = Plan::new(devices)?;
    let mut lines = Vec::new();
    for kind in [BuildKind::Burn, BuildKind::Spirv] {
        let Some((runs, features)) = plan.of(kind) else {
            continue;
        };
        let build = Build::binaries(kind.packages(), &features);
        let program = build.and_then(|build| build.program(PROGRAM));
        for (run, driver) in runs {
            let outcome = match &program {
                Err(error) => Err(format!("{error:#}")),
                Ok(program) => {
                    anstream::println!("\n{}", style::heading(run));
                    let command = Cmd::new(program.to_string_lossy())
                        .folder(&workspace())
                        .args(arguments(run.device, paths));
                    let environment = choosing(driver).into_iter();
                    let command = environment.fold(command, |c, (name, value)| c.env(name, value));
                    counted(&command)
                }
            };
            lines.push(Line {
                run,
                outcome: outcome.map(Ok),
            });
        }
    }
    lines.extend(plan.skipped.iter().map(|(run, why)| Line {
        run,
        outcome: Ok(Err(why.clone())),
    }));
    report(&lines)
}

/// How the cases of a run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// A line of the table.
struct Line<'a> {
    run: &'a Run,
    /// What came of it, or why nothing did; within, the counts or why the machine cannot run it.
    outcome: Result<Result<Counts, String>, String>,
}

fn counted(command: &Cmd) -> Result<Counts, String> {
    let (text, status) = command.tee("").map_err(|error| format!("{error:#}"))?;
    let counts = text.lines().rev().find_map(counts);
    match counts {
        Some(counts) if counts.passed + counts.failed == 0 => Err("no case ran".to_owned()),
        Some(counts) if counts.failed > 0 || status.success() => Ok(counts),
        _ => Err(ending(status)),
    }
}

/// `3 passed, 1 failed, 2 skipped`
fn counts(line: &str) -> Option<Counts> {
    let mut parts = line.trim().split(", ");
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some(Counts {
        passed: number(" passed")?,
        failed: number(" failed")?,
        skipped: number(" skipped")?,
    })
}

fn report(lines: &[Line]) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["runtime", "passed", "failed", "skipped", "note"]);
    for line in lines {
        let name = line.run.to_string();
        let none = || "-".to_owned();
        table.add_row(match &line.outcome {
            Ok(Ok(counts)) => [
                name,
                counts.passed.to_string(),
                counts.failed.to_string(),
                counts.skipped.to_string(),
                String::new(),
            ],
            Ok(Err(why)) => [name, none(), none(), none(), format!("skipped: {why}")],
            Err(why) => [name, none(), none(), none(), format!("FAILED: {why}")],
        });
    }
    for column in table.column_iter_mut().skip(1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{table}");

    let counts = lines
        .iter()
        .filter_map(|line| line.outcome.as_ref().ok()?.as_ref().ok());
    let total = counts.fold(Counts::default(), |total, counts| Counts {
        passed: total.passed + counts.passed,
        failed: total.failed + counts.failed,
        skipped: total.skipped + counts.skipped,
    });
    let lost: Vec<String> = lines
        .iter()
        .filter(|line| line.outcome.is_err())
        .map(|line| line.run.to_string())
        .collect();
    // Nothing more on this line: programs read it.
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    if !lost.is_empty() {
        bail!("no result from {}", lost.join("; "));
    }
    ensure!(total.failed == 0, "{} cases failed", total.failed);
    ensure!(total.passed > 0, "no runtime to run them on");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_report_has_counts() {
        let expected = Counts {
            passed: 65,
            failed: 0,
            skipped: 2,
        };
        assert_eq!(counts("65 passed, 0 failed, 2 skipped"), Some(expected));
        assert_eq!(counts("FAILED a: 1 passed, 2 failed, 3 skipped"), None);
        assert_eq!(counts("65 passed"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_run_without_cases_has_no_result() {
        let run = |script: &str| counted(&Cmd::new("sh").args(["-c", script]));
        assert_eq!(
            run("echo 0 passed, 0 failed, 3 skipped; exit 1"),
            Err("no case ran".to_owned())
        );
        assert_eq!(run("echo no; exit 3"), Err("exit code 3".to_owned()));
        let failed = run("echo 1 passed, 2 failed, 0 skipped; exit 1").unwrap();
        assert_eq!(failed.failed, 2);
    }
}
