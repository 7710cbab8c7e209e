//! The report: a page to read.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Result, ensure};

use super::part::Suite;
use crate::{
    commands::{
        bench::origin,
        outcome::{HEADER, Line},
    },
    machine,
    table::markdown,
};

/// What was checked, and the outcomes so far.
pub(super) struct Report {
    head: String,
    pub steps: Vec<Line>,
}

/// Names and values of the device's properties; empty if it does not start, which the steps report.
fn properties(suite: &Suite) -> Vec<[String; 2]> {
    let command = suite.tests(&["--ignored", "--nocapture", "measure::device_properties"]);
    let Ok(ended) = suite.run("properties", &command) else {
        return Vec::new();
    };
    let lines = ended.output.lines().filter_map(|line| {
        let mut parts = line.strip_prefix("property ")?.splitn(3, '\t').skip(1);
        Some([parts.next()?.to_owned(), parts.next()?.to_owned()])
    });
    lines.collect()
}

impl Report {
    pub(super) fn new(suite: &Suite) -> Result<Self> {
        let package = &suite.manifest;
        let device = package.device.parse()?;
        let facts = [
            ("version", Some(package.version.clone())),
            ("commit", Some(package.commit.clone())),
            ("GPU", machine::nvidia_gpu()),
            ("driver", Some(origin::driver(device))),
            ("processor", machine::processor()),
            ("system", machine::system()),
            ("kernel", machine::said_by("uname", &["-sr"])),
        ];
        let facts = facts.map(|(fact, value)| [fact.to_owned(), value.unwrap_or_default()]);
        let known = facts.into_iter().filter(|[_, value]| !value.is_empty());
        let quick = if suite.is_quick { ", `--quick`" } else { "" };
        let (name, date) = (origin::machine(device), origin::date()?);
        Ok(Self {
            head: format!(
                "# {name}: `{device}`\n\n{date}{quick}\n\n{}",
                markdown(["", ""], known.chain(properties(suite)))
            ),
            steps: Vec::new(),
        })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join("report.md"), self.page())?)
    }

    /// An error if a step failed or none passed.
    pub(super) fn verdict(&self) -> Result<()> {
        let failed = self.steps.iter().filter(|step| step.outcome.has_failed());
        let failed: Vec<&str> = failed.map(|step| step.name.as_str()).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        let ran = self.steps.iter().any(|step| step.outcome.counts.is_some());
        ensure!(ran, "nothing ran");
        Ok(())
    }

    fn page(&self) -> String {
        let table = markdown(HEADER, self.steps.iter().map(Line::cells));
        let mut page = format!("{}\n## Checks\n\n{table}", self.head);
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
            head: String::new(),
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
