//! The benchmark's rows in the schema of the recorded results.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use cubenorm_problems::sizes;
use serde::Deserialize;
use serde_json::Value;

use super::{command_line, report::Report};
use crate::{
    commands::bench::{origin, results},
    device::Device,
};

/// A line of the suite's benchmark, as far as it is recorded.
#[derive(Deserialize)]
struct Throughput {
    op: String,
    pass: String,
    dtype: String,
    shape: Vec<usize>,
    milliseconds: Option<f64>,
    gigabytes_per_second: Option<f64>,
    share_of_copy: Option<f64>,
    analytic: bool,
    tuned: bool,
    plan: String,
}

/// Layouts that the suite has in the names of its operators.
const LAYOUTS: [&str; 2] = ["channels_last", "padded"];

/// The rows as CSV, for `cargo xtask bench --record FILE`.
///
/// The tuner's choice is the provider `cubenorm`, the analytic plan `cubenorm:analytic`. The
/// ceiling is CubeCL's probe of a copy, so it is the provider `probe`.
pub fn csv(report: &Report) -> Result<String> {
    let device: Device = report.package.device.parse()?;
    let arguments = command_line().into_iter().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let common = results::Record {
        date: report.machine.date.replace(' ', "T") + "Z",
        commit: report.package.commit.clone(),
        machine: origin::machine(device),
        driver: origin::driver(device),
        cubecl: report.package.cubecl.clone(),
        command: origin::command(arguments),
        device: device.name().to_owned(),
        runtime: device.name().to_owned(),
        ..results::Record::default()
    };
    results::incoming_text(&records(&common, &report.throughput)?)
}

fn records(common: &results::Record, throughput: &[Value]) -> Result<Vec<results::Record>> {
    let mut records = Vec::new();
    let mut probed = BTreeSet::new();
    for value in throughput {
        let row = Throughput::deserialize(value).context("the suite wrote another row")?;
        let Some(time) = row.milliseconds else {
            continue;
        };
        let (op, layout) = operator(&row.op);
        let record = results::Record {
            op: op.to_owned(),
            layout: layout.to_owned(),
            shape: sizes(&row.shape),
            dtype: row.dtype,
            pass: row.pass,
            ..common.clone()
        };
        let kinds = [(row.tuned, "cubenorm"), (row.analytic, "cubenorm:analytic")];
        for (_, provider) in kinds.into_iter().filter(|(is_it, _)| *is_it) {
            records.push(results::Record {
                provider: provider.to_owned(),
                plan: Some(row.plan.clone()),
                device_ms: Some(time),
                gb_per_s: row.gigabytes_per_second,
                share_of_copy: row.share_of_copy,
                ..record.clone()
            });
        }
        let is_new = probed.insert(record.problem().map(str::to_owned));
        if let (true, Some(share)) = (is_new, row.share_of_copy) {
            records.push(results::Record {
                provider: "probe".to_owned(),
                device_ms: Some(time * share),
                gb_per_s: row.gigabytes_per_second.map(|rate| rate / share),
                share_of_copy: Some(1.0),
                ..record
            });
        }
    }
    Ok(records)
}

/// An operator's name in the table, and its layout.
fn operator(name: &str) -> (&str, &str) {
    let layouts = LAYOUTS.iter().find_map(|layout| {
        let op = name.strip_suffix(layout)?.strip_suffix('_')?;
        Some((op, *layout))
    });
    layouts.unwrap_or((name, "contiguous"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(op: &str, time: Option<f64>, analytic: bool, tuned: bool) -> Value {
        json!({"op": op, "pass": "forward", "dtype": "bf16", "shape": [4, 8], "rows": 4, "cols": 8,
            "milliseconds": time, "gigabytes_per_second": 100.0, "share_of_copy": 0.5,
            "candidate": "", "analytic": analytic, "tuned": tuned, "plan": "unit"})
    }

    fn common() -> results::Record {
        results::Record {
            date: "2026-11-28T14:10Z".into(),
            commit: "abc".into(),
            machine: "GPU".into(),
            cubecl: "0.11.3".into(),
            command: "cargo xtask gpu-check".into(),
            device: "cuda".into(),
            ..results::Record::default()
        }
    }

    #[test]
    fn each_problem_has_both_plans_and_the_probe() {
        let rows = [
            row("rms_norm", Some(3.0), true, false),
            row("rms_norm", Some(2.0), false, true),
            row("rms_norm", Some(9.0), false, false),
            row("layer_norm", None, true, true),
        ];
        let records = records(&common(), &rows).unwrap();
        let told: Vec<_> = records
            .iter()
            .map(|record| (record.provider.as_str(), record.device_ms))
            .collect();
        assert_eq!(
            told,
            [
                ("cubenorm:analytic", Some(3.0)),
                ("probe", Some(1.5)),
                ("cubenorm", Some(2.0)),
            ]
        );
        assert_eq!(records[1].gb_per_s, Some(200.0));
        let text = results::incoming_text(&records).unwrap();
        let read = results::parse(&text, "x", &results::COLUMNS[1..]).unwrap();
        assert_eq!(read, records);
    }

    #[test]
    fn layouts_are_split_from_operators() {
        assert_eq!(operator("layer_norm"), ("layer_norm", "contiguous"));
        assert_eq!(
            operator("group_norm_channels_last"),
            ("group_norm", "channels_last")
        );
        assert_eq!(
            operator("batch_norm_given_padded"),
            ("batch_norm_given", "padded")
        );
    }

    #[test]
    fn a_row_of_another_form_is_refused() {
        assert!(records(&common(), &[json!({"op": "x"})]).is_err());
    }
}
