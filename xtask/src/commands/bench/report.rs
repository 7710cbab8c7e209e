//! The rows of a run: as a table for people, as JSON for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{stats::Stats, worker::Lost};
use crate::commands::selection::Problem;

/// One contender on one problem.
pub struct Measured {
    pub contender: &'static str,
    pub result: Result<Stats, Lost>,
}

/// One problem on one device.
pub struct Measurement {
    pub device: String,
    pub problem: Problem,
    pub contenders: Vec<Measured>,
}

impl Measurement {
    fn median(&self, contender: &str) -> Option<f64> {
        let measured = self.contenders.iter().find(|m| m.contender == contender)?;
        Some(measured.result.as_ref().ok()?.median)
    }

    /// How many times the median of `b` goes into that of `a`.
    fn ratio(&self, a: &str, b: &str) -> Option<f64> {
        Some(self.median(a)? / self.median(b)?)
    }
}

/// What a JSON row says; programs rely on the names.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    device: &'a str,
    contender: &'a str,
    median_ms: Option<f64>,
    p20_ms: Option<f64>,
    p80_ms: Option<f64>,
}

/// All rows as a JSON array; times are null where a contender has none.
pub fn json(measurements: &[Measurement]) -> serde_json::Result<String> {
    let rows: Vec<Row> = measurements
        .iter()
        .flat_map(|measurement| {
            measurement.contenders.iter().map(|measured| {
                let stats = measured.result.as_ref().ok();
                Row {
                    problem: &measurement.problem,
                    device: &measurement.device,
                    contender: measured.contender,
                    median_ms: stats.map(|stats| stats.median),
                    p20_ms: stats.map(|stats| stats.p20),
                    p80_ms: stats.map(|stats| stats.p80),
                }
            })
        })
        .collect();
    serde_json::to_string_pretty(&rows)
}

/// The measurements of one device: ratios first, because on a software device the times say
/// little about any other machine.
pub fn table(measurements: &[&Measurement]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let contenders: Vec<&str> = measurements
        .first()
        .map(|measurement| measurement.contenders.iter().map(|m| m.contender).collect())
        .unwrap_or_default();
    let times = contenders
        .iter()
        .map(|contender| format!("{contender} ms (p20-p80)"));
    let fixed = [
        "op",
        "shape",
        "dtype",
        "pass",
        "times burn's speed",
        "times a copy's time",
    ];
    table.set_header(fixed.map(str::to_owned).into_iter().chain(times));
    for measurement in measurements {
        let problem = &measurement.problem;
        let mut cells = vec![
            problem.op.clone(),
            shape(&problem.shape),
            problem.dtype.clone(),
            problem.pass.clone(),
            ratio(measurement.ratio("burn", "cubenorm")),
            ratio(measurement.ratio("cubenorm", "copy")),
        ];
        cells.extend(measurement.contenders.iter().map(|m| time(&m.result)));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// `2048x4096`, as a shape is written in commands.
pub fn shape(shape: &[usize]) -> String {
    shape
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join("x")
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"))
}

fn time(result: &Result<Stats, Lost>) -> String {
    match result {
        Ok(Stats { median, p20, p80 }) => {
            // Three digits of a millisecond or of a second alike.
            let digits = if *median < 10.0 { 3 } else { 1 };
            format!("{median:.digits$} ({p20:.digits$}-{p80:.digits$})")
        }
        Err(Lost::Crashed(_)) => "crashed".to_owned(),
        Err(Lost::Failed(_)) => "failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement() -> Measurement {
        let stats = |median| {
            Ok(Stats {
                median,
                p20: median - 1.0,
                p80: median + 1.0,
            })
        };
        Measurement {
            device: "wgpu".into(),
            problem: Problem {
                op: "layer_norm".into(),
                shape: vec![64, 65536],
                dtype: "f32".into(),
                pass: "forward".into(),
            },
            contenders: vec![
                Measured {
                    contender: "cubenorm",
                    result: stats(4.0),
                },
                Measured {
                    contender: "burn",
                    result: stats(20.0),
                },
                Measured {
                    contender: "copy",
                    result: Err(Lost::Crashed("signal 11".into())),
                },
            ],
        }
    }

    #[test]
    fn a_json_row_has_exactly_the_documented_fields() {
        let rows: serde_json::Value =
            serde_json::from_str(&json(&[measurement()]).unwrap()).unwrap();
        assert_eq!(
            rows[0],
            serde_json::json!({
                "op": "layer_norm", "shape": [64, 65536], "dtype": "f32", "pass": "forward",
                "device": "wgpu", "contender": "cubenorm",
                "median_ms": 4.0, "p20_ms": 3.0, "p80_ms": 5.0,
            })
        );
        assert_eq!(rows[2]["median_ms"], serde_json::Value::Null);
        assert_eq!(rows[2]["contender"], "copy");
    }

    #[test]
    fn the_table_says_ratios_and_crashes() {
        let text = table(&[&measurement()]);
        assert!(text.contains("5.00x"), "{text}");
        assert!(
            text.contains("64x65536") && text.contains("crashed"),
            "{text}"
        );
        assert!(
            text.contains("4.000 (3.000-5.000)") && text.contains("20.0 (19.0-21.0)"),
            "{text}"
        );
    }
}
