//! The same cases on every runtime and driver of the machine.

use std::{path::PathBuf, time::Instant};

use anyhow::{Result, anyhow};

use super::PROGRAM;
use crate::{
    cargo::Build,
    commands::{
        outcome::{Counts, Line, Outcome, report},
        test::{
            name,
            plan::{Plan, choosing},
            skipped,
            suite::BuildKind,
        },
    },
    device::Device,
    exec::{Cmd, trouble, workspace},
    style,
};

/// Builds what is needed, runs the cases on these devices or on all, and prints a table.
///
/// # Errors
///
/// If a case failed, or a runtime ran none.
pub(crate) fn verify(paths: &[PathBuf], devices: &[Device]) -> Result<()> {
    let plan = Plan::new(devices, false)?;
    let mut lines = Vec::new();
    for kind in [BuildKind::Burn, BuildKind::Spirv] {
        let Some((runs, features)) = plan.of(kind) else {
            continue;
        };
        let build = Build::binaries(kind.packages(), &features);
        let program = build.and_then(|build| build.program(PROGRAM));
        for (run, driver) in runs {
            let ran = match &program {
                Err(error) => Outcome::of(Err(anyhow!("{error:#}"))),
                Ok(program) => {
                    anstream::println!("\n{}", style::heading(run));
                    let command = Cmd::new(program.to_string_lossy())
                        .folder(&workspace())
                        .args(["--device", run.device.name(), "--"])
                        .args(paths);
                    let environment = choosing(driver).into_iter();
                    counted(&environment.fold(command, |c, (name, value)| c.env(name, value)))
                }
            };
            lines.push(Line::new(name(run), ran).on(run.device));
        }
    }
    lines.extend(plan.skipped.iter().map(|(run, why)| skipped(run, why)));
    report(&lines)
}

/// The counts on the last line that has some.
fn counted(command: &Cmd) -> Outcome {
    let start = Instant::now();
    let (text, status) = match command.tee("") {
        Ok(ended) => ended,
        Err(error) => return Outcome::of(Err(error)),
    };
    let counts = text.lines().rev().find_map(Counts::printed);
    let counts = counts.unwrap_or_default();
    let nothing = || (counts.ran() == 0).then(|| "no case ran".to_owned());
    Outcome::counted(counts, trouble(status).or_else(nothing)).since(start)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_cases_has_failed() {
        let note = |script: &str| {
            let ran = counted(&Cmd::new("sh").args(["-c", script]));
            assert!(ran.has_failed());
            ran.note
        };
        assert_eq!(note("echo 0 passed, 0 failed, 3 skipped"), "no case ran");
        assert_eq!(note("echo no; exit 3"), "exit code 3");
    }
}
