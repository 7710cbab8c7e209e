//! The report: all of it as JSON, and a page to read.

use std::{fmt, fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::{Result, bail};
use serde::{Serialize, Serializer};

use super::part::{Ended, Suite};
use crate::{
    commands::{bench::origin, package::Manifest, test::output::Counts},
    machine, style,
    table::markdown,
};

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub package: Manifest,
    pub machine: Machine,
    /// True if fewer cases than usual ran.
    pub quick: bool,
    pub steps: Vec<Outcome>,
}

/// Names and values, in an order to print them in.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// The GPU's name, or the processor's if the device is no GPU.
    pub name: String,
    /// The day and minute, in UTC.
    pub date: String,
    pub facts: Vec<(String, String)>,
    /// Properties of the device, as CubeCL reports them.
    pub properties: Vec<(String, String)>,
}

impl Machine {
    /// This one.
    fn here(suite: &Suite) -> Result<Self> {
        let device = suite.manifest.device.parse()?;
        let facts = [
            ("GPU", machine::nvidia_gpu()),
            ("driver", Some(origin::driver(device))),
            ("processor", machine::processor()),
            ("system", machine::system()),
            ("kernel", machine::said_by("uname", &["-sr"])),
        ];
        Ok(Self {
            name: origin::machine(device),
            date: origin::date()?,
            facts: facts
                .into_iter()
                .filter_map(|(fact, value)| Some((fact.to_owned(), value?)))
                .filter(|(_, value)| !value.is_empty())
                .collect(),
            properties: properties(suite),
        })
    }
}

/// Properties of the device; empty if it does not start, which the steps then report.
fn properties(suite: &Suite) -> Vec<(String, String)> {
    let command = suite.tests(&["--ignored", "--nocapture", "measure::device_properties"]);
    let Ok(ended) = suite.run("properties", &command) else {
        return Vec::new();
    };
    let lines = ended.output.lines().filter_map(|line| {
        let mut parts = line.strip_prefix("property ")?.splitn(3, '\t').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    });
    lines.collect()
}

/// The result of a step.
#[derive(Debug, Clone, Default, Serialize)]
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    #[default]
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

impl Outcome {
    pub fn skipped(why: &str) -> Self {
        Self {
            result: Verdict::Skipped,
            note: why.to_owned(),
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
        // `test NAME ... FAILED`
        let failures = ended.output.lines().filter_map(|line| {
            let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
            Some(name.to_owned())
        });
        Self {
            result: Verdict::of(failed == 0 && counts.passed > 0),
            passed: counts.passed,
            failed,
            elapsed: ended.elapsed,
            note,
            failures: failures.collect(),
            ..Self::default()
        }
    }
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

impl Report {
    pub fn new(suite: &Suite) -> Result<Self> {
        Ok(Self {
            package: suite.manifest.clone(),
            machine: Machine::here(suite)?,
            quick: suite.is_quick,
            steps: Vec::new(),
        })
    }

    /// Writes both forms.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        fs::write(folder.join("report.json"), json)?;
        fs::write(folder.join("report.md"), self.page())?;
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
            "# {name}, {date}\n\ncubenorm {version} on `{device}`, commit {commit}{quick}.\n\n"
        );
        let pairs = self.machine.facts.iter().chain(&self.machine.properties);
        page += &markdown(["", ""], pairs.map(|(name, value)| [name, value]));

        page.push_str("\n## Checks\n\n");
        let rows = self.steps.iter().map(|step| {
            let result = match step.result {
                Verdict::Passed => "passed",
                Verdict::Failed => "**FAILED**",
                Verdict::Skipped => "skipped",
            };
            [
                step.step.clone(),
                result.to_owned(),
                step.passed.to_string(),
                step.failed.to_string(),
                format!("{:.0}", step.elapsed.as_secs_f64()),
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
        page
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

    #[test]
    fn a_failed_step_or_no_step_fails_the_report() {
        let mut report = Report {
            package: Manifest {
                device: "cuda".into(),
                version: "0.1.0".into(),
                commit: "abc".into(),
                suite: "whole".into(),
            },
            machine: Machine::default(),
            quick: false,
            steps: Vec::new(),
        };
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
}
