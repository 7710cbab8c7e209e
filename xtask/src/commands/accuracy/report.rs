//! The rows of a run: as a table for people, as JSON for programs.

use std::fmt;

use anyhow::{Result, ensure};
use cubenorm_problems::{protocol::Verdict, sizes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{device::Device, style, table::terminal};

/// A case; the program knows what the words mean.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub op: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    pub input: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = sizes(&self.shape);
        write!(f, "{} {shape} {} {}", self.op, self.dtype, self.input)
    }
}

/// A provider's verdict on each case.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub provider: &'static str,
    pub verdicts: Vec<Verdict>,
}

/// Every provider's results on one device; the first column is ours.
pub(super) struct Table<'a> {
    pub device: Device,
    pub cases: &'a [Case],
    pub columns: Vec<Column>,
}

/// One case: every provider's verdict, ours first, and the providers that were more exact.
struct Line<'a> {
    case: &'a Case,
    ours: &'a Verdict,
    verdicts: Vec<&'a Verdict>,
    better: Vec<&'a str>,
}

impl Table<'_> {
    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.cases.iter().enumerate().map(|(place, case)| {
            let columns = self.columns.iter();
            let verdicts: Vec<&Verdict> = columns.map(|it| &it.verdicts[place]).collect();
            let ours = verdicts[0];
            let others = self.columns.iter().zip(&verdicts);
            let better = others.filter(|(_, other)| is_better(other, ours));
            Line {
                case,
                ours,
                better: better.map(|(column, _)| column.provider).collect(),
                verdicts,
            }
        })
    }
}

/// True if a result is more exact than ours in the digits that the table shows.
fn is_better(other: &Verdict, ours: &Verdict) -> bool {
    match (other, ours) {
        (Verdict::Measured(other), Verdict::Measured(ours)) => {
            if other.not_finite != ours.not_finite {
                return other.not_finite < ours.not_finite;
            }
            let shown = |value: f64| number(value).parse().unwrap_or(value);
            shown(other.max_ulp) < shown(ours.max_ulp)
                || shown(other.mean_ulp) < shown(ours.mean_ulp)
        }
        (Verdict::Measured(_), Verdict::Failed(_)) => true,
        _ => false,
    }
}

/// Three digits, and no fewer than the whole ones.
fn number(value: f64) -> String {
    match value.abs() {
        ..100.0 => format!("{value:.2}"),
        100.0..1e6 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

fn cell(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Skipped(_) => "-".to_owned(),
        Verdict::Failed(_) => "FAILED".to_owned(),
        Verdict::Measured(found) => match found.not_finite {
            0 => format!("{} / {}", number(found.max_ulp), number(found.mean_ulp)),
            count if count == found.elements => "none finite".to_owned(),
            count => format!("{count} not finite"),
        },
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = ["op", "shape", "dtype", "input"].into_iter();
        let names = self.columns.iter().map(|column| column.provider);
        let header = fixed.chain(names).chain(["worse than"]);
        // Ours is skipped if the device has no such type.
        let is_shown = |line: &Line| !matches!(line.ours, Verdict::Skipped(_));
        let rows = self.lines().filter(is_shown).map(|line| {
            let Case {
                op,
                shape,
                dtype,
                input,
            } = line.case;
            let input = input.replace('_', " ");
            let mut cells = vec![op.clone(), sizes(shape), dtype.clone(), input];
            cells.extend(line.verdicts.into_iter().map(cell));
            cells.push(line.better.join(", "));
            cells
        });
        f.write_str(&terminal(header, rows, 4..4 + self.columns.len()))?;
        let mut skipped: Vec<&str> = self
            .lines()
            .filter_map(|line| match line.ours {
                Verdict::Skipped(why) => Some(why.as_str()),
                _ => None,
            })
            .collect();
        skipped.sort_unstable();
        skipped.dedup();
        for why in skipped {
            write!(f, "\nskipped: {why}")?;
        }
        for Column { provider, verdicts } in &self.columns {
            for (case, verdict) in self.cases.iter().zip(verdicts) {
                if let Verdict::Failed(why) = verdict {
                    let why = why.lines().next().unwrap_or_default();
                    write!(f, "\n{provider} failed: {case}: {why}")?;
                }
            }
        }
        Ok(())
    }
}

/// All rows as a JSON array; programs rely on the names.
pub(super) fn json(tables: &[Table]) -> serde_json::Result<String> {
    let mut rows = Vec::new();
    for table in tables {
        for column in &table.columns {
            for (case, verdict) in table.cases.iter().zip(&column.verdicts) {
                let (found, note) = match verdict {
                    Verdict::Measured(found) => (serde_json::to_value(found)?, None),
                    Verdict::Skipped(why) | Verdict::Failed(why) => (Value::Null, Some(why)),
                };
                rows.push(json!({
                    "op": case.op, "shape": case.shape, "dtype": case.dtype, "input": case.input,
                    "device": table.device.name(), "provider": column.provider,
                    "max_ulp": found["max_ulp"], "mean_ulp": found["mean_ulp"],
                    "not_finite": found["not_finite"], "elements": found["elements"], "note": note,
                }));
            }
        }
    }
    serde_json::to_string_pretty(&rows)
}

/// Says in how many rows ours is as exact as everyone.
///
/// # Errors
///
/// Cases without a result of ours.
pub(super) fn check(tables: &[Table]) -> Result<()> {
    let lines: Vec<Line> = tables.iter().flat_map(Table::lines).collect();
    let measured = lines
        .iter()
        .filter(|line| matches!(line.ours, Verdict::Measured(_)));
    let (best, behind): (Vec<_>, Vec<_>) = measured.partition(|line| line.better.is_empty());
    let total = best.len() + behind.len();
    let summary = format!(
        "cubenorm is at least as exact as every other in {} of {total} rows",
        best.len()
    );
    let paint = if behind.is_empty() {
        style::good
    } else {
        style::warning
    };
    anstream::println!("\n{}", paint(summary));
    let failed = lines
        .iter()
        .filter(|line| matches!(line.ours, Verdict::Failed(_)));
    let failed = failed.count();
    ensure!(failed == 0, "cubenorm has no result in {failed} rows");
    ensure!(total > 0, "nothing was measured");
    Ok(())
}

#[cfg(test)]
mod tests {
    use cubenorm_problems::protocol::Deviation;

    use super::*;

    fn measured(max_ulp: f64, mean_ulp: f64, not_finite: usize) -> Verdict {
        Verdict::Measured(Deviation {
            max_ulp,
            mean_ulp,
            not_finite,
            elements: 8,
        })
    }

    fn check_table(columns: &[(&'static str, Verdict)], look: impl Fn(&Table)) {
        let cases = [Case {
            op: "layer_norm".into(),
            shape: vec![2, 4],
            dtype: "f32".into(),
            input: "large_offset".into(),
        }];
        let column = |(provider, verdict): &(&'static str, Verdict)| Column {
            provider,
            verdicts: vec![verdict.clone()],
        };
        look(&Table {
            device: Device::Wgpu,
            cases: &cases,
            columns: columns.iter().map(column).collect(),
        });
    }

    #[test]
    fn more_exact_means_fewer_strays_then_less_error() {
        let ours = measured(1.0, 0.25, 0);
        assert!(is_better(&measured(0.9, 0.25, 0), &ours));
        assert!(is_better(&measured(1.2, 0.2, 0), &ours));
        assert!(!is_better(&measured(0.999, 0.251, 0), &ours));
        assert!(!is_better(&measured(0.5, 0.1, 1), &ours));
        assert!(!is_better(&Verdict::Skipped(String::new()), &ours));
        assert!(is_better(&ours, &Verdict::Failed(String::new())));
    }

    #[test]
    fn the_table_names_more_exact_providers() {
        let columns = [
            ("cubenorm", measured(1.0, 0.25, 0)),
            ("burn", measured(4321.0, 17.0, 0)),
            ("pytorch", measured(0.5, 0.25, 0)),
            ("onnxruntime", measured(0.0, 0.0, 8)),
        ];
        check_table(&columns, |table| {
            let text = table.to_string();
            for part in [
                "1.00 / 0.25",
                "4321 / 17.00",
                "2x4",
                "large offset",
                "none finite",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(table.lines().next().unwrap().better, ["pytorch"]);
            check(std::slice::from_ref(table)).unwrap();
        });
    }

    #[test]
    fn a_json_row_has_exactly_the_documented_fields() {
        let failed = Verdict::Failed("it fell".into());
        check_table(&[("cubenorm", failed)], |table| {
            let tables = std::slice::from_ref(table);
            let rows: Value = serde_json::from_str(&json(tables).unwrap()).unwrap();
            assert_eq!(
                rows[0],
                json!({
                    "op": "layer_norm", "shape": [2, 4], "dtype": "f32", "input": "large_offset",
                    "device": "wgpu", "provider": "cubenorm", "max_ulp": null, "mean_ulp": null,
                    "not_finite": null, "elements": null, "note": "it fell",
                })
            );
            assert!(check(tables).is_err());
        });
    }
}
