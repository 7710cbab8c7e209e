//! The report: all of it as JSON, and a page to read.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::part::Suite;
use crate::{
    commands::{
        bench::origin,
        outcome::{HEADER, Line},
        package::Manifest,
    },
    machine,
    table::markdown,
};

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub package: Manifest,
    pub machine: Machine,
    /// True if fewer cases than usual ran.
    pub quick: bool,
    pub steps: Vec<Line>,
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
        let failed = self.steps.iter().filter(|step| step.outcome.has_failed());
        let failed: Vec<&str> = failed.map(|step| step.name.as_str()).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        let ran = self.steps.iter().any(|step| step.outcome.counts.is_some());
        ensure!(ran, "nothing ran");
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
        page += &markdown(HEADER, self.steps.iter().map(Line::cells));
        for Line { name, outcome, .. } in &self.steps {
            if !outcome.failures.is_empty() {
                _ = write!(page, "\nFailed in {name}:\n\n");
            }
            for failure in &outcome.failures {
                _ = writeln!(page, "- `{failure}`");
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::commands::outcome::Outcome;

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
            steps: vec![Line::new("memcheck", Outcome::skipped("not here"))],
        };
        assert_eq!(report.verdict().unwrap_err().to_string(), "nothing ran");
        report.steps.push(Line::new("kernels", Outcome::of(Ok(()))));
        report.verdict().unwrap();
        let mut failed = Outcome::of(Err(anyhow!("no")));
        failed.failures.push("bench::a".into());
        report.steps.push(Line::new("bench", failed));
        assert_eq!(report.verdict().unwrap_err().to_string(), "failed: bench");
        let page = report.page();
        assert!(
            page.contains("| bench | FAILED | 0 | 1 | 0 | 0 | no |"),
            "{page}"
        );
        assert!(
            page.ends_with("Failed in bench:\n\n- `bench::a`\n"),
            "{page}"
        );
    }
}
