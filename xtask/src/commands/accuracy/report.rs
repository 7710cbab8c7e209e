//! The rows of a run: as a table for people, as JSON for programs.

use std::fmt;

use anyhow::{Result, ensure};
use cubenorm_problems::sizes;
use serde::Serialize;

use super::provider::{Case, Column, Deviation, Verdict};
use crate::{device::Device, style, table::terminal};

/// Every provider's results on one device; the first column is ours.
pub struct Table {
    device: Device,
    columns: Vec<Column>,
}

/// One case: our result, and the providers that were more exact.
struct Line<'a> {
    case: &'a Case,
    ours: &'a Verdict,
    better: Vec<&'a str>,
}

impl Table {
    pub fn new(device: Device, columns: Vec<Column>) -> Self {
        Self { device, columns }
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let (ours, others) = match self.columns.split_first() {
            Some((ours, others)) => (Some(ours), others),
            None => (None, &[][..]),
        };
        let cases = ours
            .into_iter()
            .flat_map(|ours| ours.cases.iter().zip(&ours.verdicts));
        cases.map(move |(case, ours)| Line {
            case,
            ours,
            better: others
                .iter()
                .filter(|other| other.of(case).is_some_and(|other| is_better(other, ours)))
                .map(|other| other.provider.as_str())
                .collect(),
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

fn cell(verdict: Option<&Verdict>) -> String {
    match verdict {
        None | Some(Verdict::Skipped(_)) => "-".to_owned(),
        Some(Verdict::Failed(_)) => "FAILED".to_owned(),
        Some(Verdict::Measured(deviation)) => {
            let Deviation {
                max_ulp,
                mean_ulp,
                not_finite,
                elements,
            } = *deviation;
            match not_finite {
                0 => format!("{} / {}", number(max_ulp), number(mean_ulp)),
                count if count == elements => "none finite".to_owned(),
                count => format!("{count} not finite"),
            }
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = ["op", "shape", "dtype", "input"].into_iter();
        let names = self.columns.iter().map(|column| column.provider.as_str());
        let header = fixed.chain(names).chain(["worse than"]);
        // Ours is skipped if the device has no such type.
        let is_shown = |line: &Line| !matches!(line.ours, Verdict::Skipped(_));
        let rows = self.lines().filter(is_shown).map(|line| {
            let case = line.case;
            let input = case.input.replace('_', " ");
            let mut cells = vec![
                case.op.clone(),
                sizes(&case.shape),
                case.dtype.clone(),
                input,
            ];
            cells.extend(self.columns.iter().map(|column| cell(column.of(case))));
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
        for column in &self.columns {
            for (case, verdict) in column.cases.iter().zip(&column.verdicts) {
                if let Verdict::Failed(why) = verdict {
                    let (name, op, shape) = (&column.provider, &case.op, sizes(&case.shape));
                    let why = why.lines().next().unwrap_or_default();
                    write!(
                        f,
                        "\n{name} failed: {op} {shape} {} {}: {why}",
                        case.dtype, case.input
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// A JSON row; programs rely on the names.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    case: &'a Case,
    device: String,
    provider: &'a str,
    /// `null` if there is no result, as the next three.
    max_ulp: Option<f64>,
    mean_ulp: Option<f64>,
    not_finite: Option<usize>,
    elements: Option<usize>,
    /// Why there is none.
    note: Option<&'a str>,
}

/// All rows as a JSON array.
pub fn json(tables: &[Table]) -> serde_json::Result<String> {
    let mut rows = Vec::new();
    for table in tables {
        for column in &table.columns {
            for (case, verdict) in column.cases.iter().zip(&column.verdicts) {
                let (measured, note) = match verdict {
                    Verdict::Measured(deviation) => (Some(deviation), None),
                    Verdict::Skipped(why) | Verdict::Failed(why) => (None, Some(why.as_str())),
                };
                rows.push(Row {
                    case,
                    device: table.device.to_string(),
                    provider: &column.provider,
                    max_ulp: measured.map(|deviation| deviation.max_ulp),
                    mean_ulp: measured.map(|deviation| deviation.mean_ulp),
                    not_finite: measured.map(|deviation| deviation.not_finite),
                    elements: measured.map(|deviation| deviation.elements),
                    note,
                });
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
pub fn check(tables: &[Table]) -> Result<()> {
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
    use super::*;

    fn measured(max_ulp: f64, mean_ulp: f64, not_finite: usize) -> Verdict {
        Verdict::Measured(Deviation {
            max_ulp,
            mean_ulp,
            not_finite,
            elements: 8,
        })
    }

    fn column(provider: &str, verdict: Verdict) -> Column {
        let case = Case {
            op: "layer_norm".into(),
            shape: vec![2, 4],
            dtype: "f32".into(),
            input: "large_offset".into(),
        };
        Column {
            provider: provider.into(),
            cases: vec![case],
            verdicts: vec![verdict],
        }
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
        let table = Table::new(
            Device::Cpu,
            vec![
                column("cubenorm", measured(1.0, 0.25, 0)),
                column("burn", measured(4321.0, 17.0, 0)),
                column("pytorch", measured(0.5, 0.25, 0)),
                column("onnxruntime", measured(0.0, 0.0, 8)),
            ],
        );
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
        let line = table.lines().next().unwrap();
        assert_eq!(line.better, ["pytorch"]);
        check(&[table]).unwrap();
    }

    #[test]
    fn a_json_row_has_exactly_the_documented_fields() {
        let table = Table::new(
            Device::Wgpu,
            vec![column("cubenorm", Verdict::Failed("it fell".into()))],
        );
        let rows: serde_json::Value =
            serde_json::from_str(&json(std::slice::from_ref(&table)).unwrap()).unwrap();
        assert_eq!(
            rows[0],
            serde_json::json!({
                "op": "layer_norm", "shape": [2, 4], "dtype": "f32", "input": "large_offset",
                "device": "wgpu", "provider": "cubenorm", "max_ulp": null, "mean_ulp": null,
                "not_finite": null, "elements": null, "note": "it fell",
            })
        );
        assert!(check(&[table]).is_err());
    }
}
