//! The report: all of it as JSON, and a page to read.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Result, bail};
use cubenorm_problems::{protocol::Throughput, sizes};
use serde::Serialize;

use super::{
    machine::Machine,
    outcome::{Outcome, Verdict},
    rows,
};
use crate::{commands::package::Manifest, table::markdown};

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub package: Manifest,
    pub machine: Machine,
    /// True if fewer cases than usual ran.
    pub quick: bool,
    pub steps: Vec<Outcome>,
    /// Rows of the benchmark, as the suite wrote them.
    pub throughput: Vec<Throughput>,
}

impl Report {
    pub fn new(package: Manifest, machine: Machine, quick: bool) -> Self {
        Self {
            package,
            machine,
            quick,
            steps: Vec::new(),
            throughput: Vec::new(),
        }
    }

    /// Writes both forms.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::write(
            folder.join("report.json"),
            serde_json::to_string_pretty(self)? + "\n",
        )?;
        fs::write(folder.join("report.md"), self.page())?;
        if !self.throughput.is_empty() {
            fs::write(folder.join("throughput.csv"), rows::csv(self)?)?;
        }
        Ok(())
    }

    /// An error if a step failed or none passed.
    pub fn verdict(&self) -> Result<()> {
        let of = |verdict| self.steps.iter().filter(move |step| step.result == verdict);
        let failed: Vec<&str> = of(Verdict::Failed).map(|step| step.step.as_str()).collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        if of(Verdict::Passed).count() == 0 {
            bail!("nothing ran");
        }
        Ok(())
    }

    fn page(&self) -> String {
        let Manifest {
            device,
            version,
            commit,
            ..
        } = &self.package;
        let Machine { name, date, .. } = &self.machine;
        let quick = if self.quick { ", `--quick`" } else { "" };
        let mut page = format!(
            "# {name}, {date} UTC\n\ncubenorm {version} on `{device}`, commit {commit}{quick}.\n\n"
        );
        let pairs = self.machine.facts.iter().chain(&self.machine.properties);
        page += &markdown(["", ""], pairs.map(|(name, value)| [name, value]));

        page.push_str("\n## Checks\n\n");
        let rows = self.steps.iter().map(|step| {
            let Outcome { passed, failed, .. } = step;
            let result = match step.result {
                Verdict::Passed => "passed",
                Verdict::Failed => "**FAILED**",
                Verdict::Skipped => "skipped",
            };
            let seconds = format!("{:.0}", step.elapsed.as_secs_f64());
            let [passed, failed] = [passed, failed].map(usize::to_string);
            [
                step.step.clone(),
                result.to_owned(),
                passed,
                failed,
                seconds,
                step.note.clone(),
            ]
        });
        let header = ["step", "result", "passed", "failed", "seconds", "note"];
        page += &markdown(header, rows);
        for step in self.steps.iter().filter(|step| !step.failures.is_empty()) {
            _ = write!(page, "\nFailed in {}:\n\n", step.step);
            for failure in &step.failures {
                _ = writeln!(page, "- `{failure}`");
            }
        }
        if !self.throughput.is_empty() {
            page += &throughput(&self.throughput);
        }
        page
    }
}

/// Shares of copy bandwidth: a line for each problem.
fn throughput(rows: &[Throughput]) -> String {
    let problems = rows.chunk_by(|one, other| {
        let problem = |it: &Throughput| (it.op.clone(), it.pass.clone(), it.dtype.clone());
        problem(one) == problem(other) && one.shape == other.shape
    });
    let lines = problems.map(|plans| {
        let share = |is_it: fn(&Throughput) -> bool| {
            let share = plans.iter().find(|it| is_it(it));
            let share = share.and_then(|it| it.share_of_copy);
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", 100.0 * share))
        };
        let Throughput {
            op,
            pass,
            dtype,
            shape,
            ..
        } = &plans[0];
        [
            op.clone(),
            sizes(shape),
            dtype.clone(),
            pass.clone(),
            share(|it| it.analytic),
            share(|it| it.tuned),
        ]
    });
    format!(
        "\n## Share of copy bandwidth\n\nBytes that the pass must move per second, in percent of a copy of these \
         bytes. Forward moves input and output, backward `x`, `dy` and `dx`.\n\n{}",
        markdown(
            [
                "op",
                "shape",
                "dtype",
                "pass",
                "analytic plan",
                "tuned plan"
            ],
            lines
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::gpu_check::rows::tests::row;
    fn report() -> Report {
        let package = Manifest {
            device: "cuda".into(),
            version: "0.1.0".into(),
            commit: "abc".into(),
            suite: "whole".into(),
            cubecl: "0.11.3".into(),
        };
        Report::new(package, Machine::default(), false)
    }

    #[test]
    fn a_failed_step_or_no_step_fails_the_report() {
        let mut report = report();
        assert_eq!(report.verdict().unwrap_err().to_string(), "nothing ran");
        let step = |name: &str, result| Outcome {
            step: name.into(),
            result,
            ..Outcome::default()
        };
        report.steps.push(step("kernels", Verdict::Passed));
        report.steps.push(step("memcheck", Verdict::Skipped));
        report.verdict().unwrap();
        report.steps.push(step("bench", Verdict::Failed));
        assert_eq!(report.verdict().unwrap_err().to_string(), "failed: bench");
        assert!(report.page().contains("| bench | **FAILED** |"));
    }

    #[test]
    fn a_problem_has_the_shares_of_both_plans() {
        let row = |analytic, share| Throughput {
            analytic,
            tuned: !analytic,
            share_of_copy: Some(share),
            ..row("rms_norm")
        };
        let mut report = report();
        report.throughput = vec![row(true, 0.914), row(false, 1.0)];
        let line = "| rms_norm | 4x8 | bf16 | forward | 91 | 100 |";
        assert!(report.page().contains(line), "{}", report.page());
        report.throughput.pop();
        assert!(report.page().contains("| 91 | - |"));
    }
}
