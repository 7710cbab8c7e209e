//! The report: all of it as JSON, and a page to read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::{
    machine::Machine,
    outcome::{Outcome, Verdict},
    rows,
};
use crate::commands::package::Manifest;

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub package: Manifest,
    pub machine: Machine,
    /// True if fewer cases than usual ran.
    pub quick: bool,
    pub steps: Vec<Outcome>,
    /// Rows of the benchmark, as the suite wrote them.
    pub throughput: Vec<Value>,
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
        let rows = pairs.map(|(name, value)| vec![name.clone(), value.clone()]);
        table(&mut page, &["", ""], rows);

        page.push_str("\n## Checks\n\n");
        let rows = self.steps.iter().map(|step| {
            let Outcome { passed, failed, .. } = step;
            let result = match step.result {
                Verdict::Passed => "passed",
                Verdict::Failed => "**FAILED**",
                Verdict::Skipped => "skipped",
            };
            let seconds = format!("{:.0}", step.elapsed.as_secs_f64());
            let cells = [
                step.step.clone(),
                result.into(),
                passed.to_string(),
                failed.to_string(),
            ];
            let rest = [seconds, step.note.replace('\n', " ")];
            cells.into_iter().chain(rest).collect()
        });
        let header = ["step", "result", "passed", "failed", "seconds", "note"];
        table(&mut page, &header, rows);
        for step in self.steps.iter().filter(|step| !step.failures.is_empty()) {
            _ = write!(page, "\nFailed in {}:\n\n", step.step);
            for failure in &step.failures {
                _ = writeln!(page, "- `{failure}`");
            }
        }
        if !self.throughput.is_empty() {
            throughput(&mut page, &self.throughput);
            throughput_of_maps(&mut page, &self.throughput);
        }
        page
    }
}

/// Shares of the copy ceiling: rows down, norms and passes across.
fn throughput(page: &mut String, rows: &[Value]) {
    page.push_str(
        "\n## Share of copy bandwidth\n\nBytes that the pass must move per second, in percent of a copy of these bytes: \
         the analytic plan / the tuner's choice. Forward moves input and output, backward `x`, `dy` and `dx`.\n",
    );
    const COLUMNS: [(&str, &str); 4] = [
        ("layer_norm", "forward"),
        ("layer_norm", "backward"),
        ("rms_norm", "forward"),
        ("rms_norm", "backward"),
    ];
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    // By type, then length of rows, then column: the analytic plan's share and the tuned one's.
    type Shares = [Option<f64>; 2];
    let mut types: BTreeMap<String, BTreeMap<u64, BTreeMap<usize, Shares>>> = BTreeMap::new();
    for row in rows {
        let kind = (text(row, "op"), text(row, "pass"));
        let column = COLUMNS
            .iter()
            .position(|(op, pass)| kind.0 == *op && kind.1 == *pass);
        let (Some(column), Some(cols)) = (column, row["cols"].as_u64()) else {
            continue;
        };
        let lengths = types.entry(text(row, "dtype")).or_default();
        let shares = lengths.entry(cols).or_default().entry(column).or_default();
        let share = row["share_of_copy"].as_f64();
        for (place, field) in ["analytic", "tuned"].into_iter().enumerate() {
            if row[field].as_bool() == Some(true) {
                shares[place] = share;
            }
        }
    }
    for (dtype, lengths) in types {
        _ = write!(page, "\n### {dtype}\n\n");
        let rows = lengths.into_iter().map(|(cols, columns)| {
            let cells = (0..COLUMNS.len()).map(|column| {
                let shares = columns.get(&column).copied().unwrap_or_default();
                let percent = |share: Option<f64>| {
                    share.map_or("-".to_owned(), |share| format!("{:.0}", 100.0 * share))
                };
                format!("{} / {}", percent(shares[0]), percent(shares[1]))
            });
            std::iter::once(cols.to_string()).chain(cells).collect()
        });
        let names = COLUMNS.map(|(op, pass)| format!("{} {pass}", op.replace('_', " ")));
        let header: Vec<&str> = std::iter::once("row")
            .chain(names.iter().map(String::as_str))
            .collect();
        table(page, &header, rows);
    }
}

/// The same of feature maps: norms and shapes down, types and passes across.
fn throughput_of_maps(page: &mut String, rows: &[Value]) {
    let dims = |row: &Value| -> Vec<String> {
        let dims = row["shape"].as_array().into_iter().flatten();
        dims.map(Value::to_string).collect()
    };
    let maps: Vec<&Value> = rows.iter().filter(|row| dims(row).len() > 2).collect();
    if maps.is_empty() {
        return;
    }
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let kind = |row: &Value| format!("{} {}", text(row, "dtype"), text(row, "pass"));
    // The batch depends on the type.
    let norm = |row: &Value| {
        let name = text(row, "op").replace('_', " ");
        format!("{name} {}", dims(row)[1..].join(" x "))
    };
    let kinds: BTreeSet<String> = maps.iter().map(|row| kind(row)).collect();
    let mut norms: Vec<String> = maps.iter().map(|row| norm(row)).collect();
    let mut seen = BTreeSet::new();
    norms.retain(|norm| seen.insert(norm.clone()));
    page.push_str("\n### Feature maps\n\n");
    let of = |wanted: &str, of_kind: &str, field: &str| {
        let is_it = |row: &&&Value| {
            norm(row) == wanted && kind(row) == of_kind && row[field].as_bool() == Some(true)
        };
        let share = maps.iter().find(is_it)?["share_of_copy"].as_f64()?;
        Some(format!("{:.0}", 100.0 * share))
    };
    let cells = norms.iter().map(|norm| {
        let shares = kinds.iter().map(|kind| {
            let share = |field| of(norm, kind, field).unwrap_or_else(|| "-".to_owned());
            format!("{} / {}", share("analytic"), share("tuned"))
        });
        std::iter::once(norm.clone()).chain(shares).collect()
    });
    let header: Vec<&str> = std::iter::once("norm")
        .chain(kinds.iter().map(String::as_str))
        .collect();
    table(page, &header, cells);
}

fn table(page: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    page.push_str(&line(header));
    page.push_str(&line(&vec!["---"; header.len()]));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        page.push_str(&line(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn a_cell_has_the_shares_of_both_plans() {
        let row = |share: f64, analytic: bool, tuned: bool| {
            json!({"op": "rms_norm", "pass": "forward", "dtype": "f32", "cols": 1024,
                "share_of_copy": share, "analytic": analytic, "tuned": tuned})
        };
        let mut report = report();
        report.throughput = vec![row(0.914, true, false), row(1.0, false, true)];
        assert!(
            report
                .page()
                .contains("| 1024 | - / - | - / - | 91 / 100 | - / - |")
        );
        report.throughput = vec![row(0.5, true, true)];
        assert!(report.page().contains("| 50 / 50 |"));
        assert!(!report.page().contains("Feature maps"));
    }

    #[test]
    fn feature_maps_have_a_table_of_their_own() {
        let row = |pass: &str, share: f64| {
            json!({"op": "group_norm", "pass": pass, "dtype": "f16", "cols": 490,
                "shape": [2, 32, 10, 7, 7], "share_of_copy": share, "analytic": true, "tuned": true})
        };
        let mut report = report();
        report.throughput = vec![row("forward", 0.9), row("backward", 0.8)];
        let page = report.page();
        assert!(
            page.contains("| norm | f16 backward | f16 forward |"),
            "{page}"
        );
        let line = "| group norm 32 x 10 x 7 x 7 | 80 / 80 | 90 / 90 |";
        assert!(page.contains(line), "{page}");
    }
}
