//! The rows of a run for programs: JSON and CSV, with the same fields.

use anyhow::Result;
use cubenorm_problems::{DType, Layout, Op, Pass, Problem};
use serde::Serialize;

use super::{measure::Measurement, provider::Provider, results::Record, stats::Clock};

/// A row; programs rely on the names and their order.
#[derive(Debug, Serialize)]
struct Row<'a, Shape> {
    /// The device that cubenorm ran on.
    device: &'static str,
    /// The provider's own runtime; empty if it has no time.
    runtime: &'a str,
    provider: &'static str,
    op: Op,
    shape: Shape,
    layout: Layout,
    dtype: DType,
    pass: Pass,
    /// The plan of cubenorm; the word before the colon is the strategy.
    plan: Option<&'a str>,
    /// From the first launch until the device is idle, by the host's clock.
    median_ms: Option<f64>,
    p20_ms: Option<f64>,
    p80_ms: Option<f64>,
    /// Time of the kernels alone, by the device's clock, if it has one.
    device_ms: Option<f64>,
    device_p20_ms: Option<f64>,
    device_p80_ms: Option<f64>,
    /// The bytes that the pass must move at least, by the median.
    gb_per_s: Option<f64>,
    /// The copy's median by this one.
    share_of_copy: Option<f64>,
    /// Why there is no time.
    note: Option<String>,
}

/// All rows as a JSON array; a shape is an array too.
pub fn json(measurements: &[Measurement]) -> Result<String> {
    let rows: Vec<_> = rows(measurements, |problem| &problem.shape).collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// All rows as CSV with a header; a shape is as it is written in commands.
pub fn csv(measurements: &[Measurement]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows(measurements, Problem::sizes) {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// All rows as records, whose origin is still to be filled in.
pub fn records(measurements: &[Measurement]) -> Vec<Record> {
    let rows = rows(measurements, Problem::sizes);
    rows.map(|row| Record {
        device: row.device.to_owned(),
        runtime: row.runtime.to_owned(),
        provider: row.provider.to_owned(),
        op: row.op.to_string(),
        shape: row.shape,
        layout: row.layout.to_string(),
        dtype: row.dtype.to_string(),
        pass: row.pass.to_string(),
        plan: row.plan.map(str::to_owned),
        median_ms: row.median_ms,
        p20_ms: row.p20_ms,
        p80_ms: row.p80_ms,
        device_ms: row.device_ms,
        device_p20_ms: row.device_p20_ms,
        device_p80_ms: row.device_p80_ms,
        gb_per_s: row.gb_per_s,
        share_of_copy: row.share_of_copy,
        note: row.note,
        ..Record::default()
    })
    .collect()
}

fn rows<'a, Shape: 'a>(
    measurements: &'a [Measurement],
    shape: fn(&'a Problem) -> Shape,
) -> impl Iterator<Item = Row<'a, Shape>> {
    measurements.iter().flat_map(move |measurement| {
        let problem = &measurement.problem;
        let bytes = measurement.said(|about| about.bytes);
        let copy = measurement.median(Provider::Copy, Clock::Wall);
        measurement.providers.iter().map(move |measured| {
            let timed = measured.result.as_ref().ok();
            let wall = timed.map(|timed| timed.wall);
            let device = timed.and_then(|timed| timed.device);
            let median = wall.map(|stats| stats.median);
            let lost = measured.result.as_ref().err().map(|lost| lost.words());
            Row {
                device: measurement.device.name(),
                runtime: timed.map_or("", |timed| &timed.about.runtime),
                provider: measured.provider.name(),
                op: problem.op,
                shape: shape(problem),
                layout: problem.layout,
                dtype: problem.dtype,
                pass: problem.pass,
                plan: timed.and_then(|timed| timed.about.plan.as_deref()),
                median_ms: median.map(rounded),
                p20_ms: wall.map(|stats| rounded(stats.p20)),
                p80_ms: wall.map(|stats| rounded(stats.p80)),
                device_ms: device.map(|stats| rounded(stats.median)),
                device_p20_ms: device.map(|stats| rounded(stats.p20)),
                device_p80_ms: device.map(|stats| rounded(stats.p80)),
                gb_per_s: bytes
                    .zip(median)
                    .map(|(bytes, ms)| rounded(bytes as f64 / ms / 1e6)),
                share_of_copy: copy.zip(median).map(|(copy, ms)| rounded(copy / ms)),
                note: lost.map(|(word, why)| format!("{word}: {why}")),
            }
        })
    })
}

/// Six places: nanoseconds of a millisecond. More digits are noise.
fn rounded(value: f64) -> f64 {
    (1e6 * value).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::{fixture::measurements, results::COLUMNS};

    #[test]
    fn a_json_row_has_exactly_the_documented_fields() {
        let rows: serde_json::Value =
            serde_json::from_str(&json(&measurements()).unwrap()).unwrap();
        assert_eq!(
            rows[0],
            serde_json::json!({
                "device": "cpu", "runtime": "cpu", "provider": "cubenorm",
                "op": "layer_norm", "shape": [2048, 4096],
                "layout": "contiguous", "dtype": "f32", "pass": "forward",
                "plan": "unit: 2 units (a CPU)", "median_ms": 4.0, "p20_ms": 3.0, "p80_ms": 5.0,
                "device_ms": 3.2, "device_p20_ms": 2.4, "device_p80_ms": 4.0,
                "gb_per_s": 16.777216, "share_of_copy": 0.75, "note": null,
            })
        );
        let copy = &rows[4];
        assert_eq!(
            (&copy["provider"], &copy["share_of_copy"]),
            (&"copy".into(), &1.0.into())
        );
        let lost = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["note"].is_string())
            .unwrap();
        assert_eq!(lost["note"], "no result: ONNX Runtime has no backward pass");
        assert_eq!(lost["median_ms"], serde_json::Value::Null);
    }

    #[test]
    fn csv_has_the_columns_of_the_results_file() {
        let text = csv(&measurements()).unwrap();
        let mut lines = text.lines();
        // The results file has the origin before these.
        assert_eq!(lines.next().unwrap(), COLUMNS[8..].join(","));
        assert_eq!(
            lines.next().unwrap(),
            "cpu,cpu,cubenorm,layer_norm,2048x4096,contiguous,f32,forward,unit: 2 units (a CPU),4.0,3.0,5.0,3.2,2.4,4.0,16.777216,0.75,"
        );
        assert_eq!(lines.count() + 1, 5 * measurements().len());
    }
}
