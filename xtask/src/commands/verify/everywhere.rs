//! The same cases on every runtime and driver of the machine.

use std::path::PathBuf;

use anyhow::{Result, anyhow};

use super::{PROGRAM, arguments};
use crate::{
    cargo::Build,
    commands::test::{
        Line, Ran,
        output::{Counts, printed},
        plan::{Plan, choosing},
        report,
        suite::BuildKind,
    },
    device::Device,
    exec::{Cmd, workspace},
    style,
};

/// Builds what is needed, runs the cases on these devices or on all, and prints a table.
///
/// # Errors
///
/// If a case failed, or a runtime ran none.
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
            let ran = match &program {
                Err(error) => Ran::lost(error),
                Ok(program) => {
                    anstream::println!("\n{}", style::heading(run));
                    let command = Cmd::new(program.to_string_lossy())
                        .folder(&workspace())
                        .args(arguments(run.device, paths));
                    let environment = choosing(driver).into_iter();
                    counted(&environment.fold(command, |c, (name, value)| c.env(name, value)))
                }
            };
            lines.push(Line::of(run, ran));
        }
    }
    let skipped = plan.skipped.iter();
    lines.extend(skipped.map(|(run, why)| Line::skipped(run, why)));
    report(&lines)
}

/// The counts on the last line that has some.
fn counted(command: &Cmd) -> Ran {
    let (text, status) = match command.tee("") {
        Ok(ended) => ended,
        Err(error) => return Ran::lost(&error),
    };
    match text.lines().rev().find_map(printed) {
        Some(counts) if counts.ran() > 0 => Ran::of(counts, status),
        None if !status.success() => Ran::of(Counts::default(), status),
        _ => Ran::lost(&anyhow!("no case ran")),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_cases_has_failed() {
        let run = |script: &str| counted(&Cmd::new("sh").args(["-c", script]));
        let lost = |why: &str| Ran::lost(&anyhow!("{why}"));
        assert_eq!(
            run("echo 0 passed, 0 failed, 3 skipped; exit 1"),
            lost("no case ran")
        );
        assert_eq!(run("echo no; exit 3"), lost("exit code 3"));
        assert!(
            report(&[Line::of(
                &crate::commands::test::suite::RUNS[0],
                run("exit 3")
            )])
            .is_err()
        );
    }
}
