//! The benchmark's rows in the schema of the recorded results.

use std::collections::BTreeSet;

use anyhow::Result;
use cubenorm_problems::{protocol::Throughput, sizes};

use super::{command_line, report::Report};
use crate::{
    commands::bench::{origin, results},
    device::Device,
};

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
    results::incoming_text(&records(&common, &report.throughput))
}

fn records(common: &results::Record, throughput: &[Throughput]) -> Vec<results::Record> {
    let mut records = Vec::new();
    let mut probed = BTreeSet::new();
    for row in throughput {
        let Some(time) = row.milliseconds else {
            continue;
        };
        let (op, layout) = operator(&row.op);
        let record = results::Record {
            op: op.to_owned(),
            layout: layout.to_owned(),
            shape: sizes(&row.shape),
            dtype: row.dtype.clone(),
            pass: row.pass.clone(),
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
    records
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
pub mod tests {
    use super::*;
    use crate::commands::bench::results::tests::origin;

    /// A row of an operator, by no plan.
    pub fn row(op: &str) -> Throughput {
        Throughput {
            op: op.into(),
            pass: "forward".into(),
            dtype: "bf16".into(),
            shape: vec![4, 8],
            rows: 4,
            cols: 8,
            milliseconds: None,
            gigabytes_per_second: Some(100.0),
            share_of_copy: Some(0.5),
            candidate: String::new(),
            analytic: false,
            tuned: false,
            plan: "unit".into(),
        }
    }

    #[test]
    fn each_problem_has_both_plans_and_the_probe() {
        let timed = |time, analytic, tuned| Throughput {
            milliseconds: Some(time),
            analytic,
            tuned,
            ..row("rms_norm")
        };
        let rows = [
            timed(3.0, true, false),
            timed(2.0, false, true),
            timed(9.0, false, false),
            row("layer_norm"),
        ];
        let records = records(&origin("GPU", "cuda", ""), &rows);
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
        for (name, expected) in [
            ("layer_norm", ("layer_norm", "contiguous")),
            ("group_norm_channels_last", ("group_norm", "channels_last")),
            ("batch_norm_given_padded", ("batch_norm_given", "padded")),
        ] {
            assert_eq!(operator(name), expected);
        }
    }
}
