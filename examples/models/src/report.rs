//! The results as a table, JSON and CSV.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure::{Captured, Measured, OfKind, Time};
use crate::networks::Network;
use crate::norms::Kind;

/// What all rows of a run have in common.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Version of cubenorm.
    pub version: &'static str,
    /// Device name.
    pub device: String,
    /// Device name with its hardware.
    pub hardware: String,
    /// True for the small sizes.
    pub small: bool,
}

/// A network's measurements, or why there are none.
pub type Outcome = (Network, Result<Measured, String>);

/// One time of the results. The fields are the columns of the CSV.
#[derive(Debug, Clone, Serialize)]
pub struct Row<'a> {
    #[serde(flatten)]
    run: &'a Run,
    network: Network,
    shape: &'a str,
    norms: Option<Kind>,
    mode: &'static str,
    median_ms: Option<f64>,
    p20_ms: Option<f64>,
    p80_ms: Option<f64>,
    samples: Option<usize>,
    steps_per_sample: Option<usize>,
    share_of_norms: Option<f64>,
    memory_bytes: Option<u64>,
    difference: Option<f64>,
    tolerance: Option<f64>,
    reason: Option<String>,
}

/// The rows of a run.
pub fn rows<'a>(run: &'a Run, outcomes: &'a [Outcome]) -> Vec<Row<'a>> {
    let rows = outcomes.iter().flat_map(|(network, outcome)| {
        let empty = Row {
            run,
            network: *network,
            shape: "",
            norms: None,
            mode: "eager",
            median_ms: None,
            p20_ms: None,
            p80_ms: None,
            samples: None,
            steps_per_sample: None,
            share_of_norms: None,
            memory_bytes: None,
            difference: None,
            tolerance: None,
            reason: None,
        };
        match outcome {
            Err(why) => vec![Row {
                reason: Some(why.clone()),
                ..empty
            }],
            Ok(measured) if !measured.agrees() => vec![Row {
                shape: &measured.shape,
                difference: measured.difference,
                tolerance: Some(measured.tolerance),
                reason: Some(disagreement(measured)),
                ..empty
            }],
            Ok(measured) => measured
                .kinds
                .iter()
                .flat_map(|it| times(measured, it, &empty))
                .collect(),
        }
    });
    rows.collect()
}

fn times<'a>(measured: &'a Measured, it: &OfKind, empty: &Row<'a>) -> Vec<Row<'a>> {
    let row = |mode, time: Option<Time>| Row {
        shape: &measured.shape,
        norms: Some(it.kind),
        mode,
        median_ms: time.map(|time| time.median),
        p20_ms: time.map(|time| time.p20),
        p80_ms: time.map(|time| time.p80),
        samples: time.map(|time| time.samples),
        steps_per_sample: time.map(|time| time.steps),
        difference: measured.difference,
        tolerance: Some(measured.tolerance),
        ..empty.clone()
    };
    let mut rows = vec![Row {
        share_of_norms: measured.share(it.kind),
        memory_bytes: it.memory,
        ..row("eager", Some(it.eager))
    }];
    match &it.captured {
        Some(Captured::Time(time)) => rows.push(row("captured", Some(*time))),
        Some(Captured::Refused(why)) => rows.push(Row {
            reason: Some(why.clone()),
            ..row("captured", None)
        }),
        None => {}
    }
    rows
}

/// The rows as a JSON array.
///
/// # Errors
///
/// If a row cannot be written as JSON.
pub fn json(rows: &[Row<'_>]) -> Result<String> {
    let text = serde_json::to_string_pretty(rows).context("the rows are no JSON")?;
    Ok(text + "\n")
}

/// The rows as CSV with a header.
///
/// # Errors
///
/// If a row cannot be written as JSON, from which its columns are taken.
pub fn csv(rows: &[Row<'_>]) -> Result<String> {
    const COLUMNS: [&str; 19] = [
        "command",
        "version",
        "device",
        "hardware",
        "small",
        "network",
        "shape",
        "norms",
        "mode",
        "median_ms",
        "p20_ms",
        "p80_ms",
        "samples",
        "steps_per_sample",
        "share_of_norms",
        "memory_bytes",
        "difference",
        "tolerance",
        "reason",
    ];
    let mut text = COLUMNS.join(",") + "\n";
    for row in rows {
        let row = serde_json::to_value(row).context("a row is no JSON")?;
        let cells = COLUMNS.map(|column| match &row[column] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => quoted(text),
            other => other.to_string(),
        });
        text += &cells.join(",");
        text.push('\n');
    }
    Ok(text)
}

/// A cell of a CSV file.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The outcomes as a table, with reasons below it.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:9}{:10}{:>12}{:>8}{:>14}{:>8}{:>8}{:>12}\n",
        "network", "norms", "eager ms", "", "captured ms", "", "norms", "memory MiB"
    );
    let mut notes = String::new();
    for (network, outcome) in outcomes {
        match outcome {
            Ok(measured) if measured.agrees() => {
                write_network(&mut text, &mut notes, *network, measured);
            }
            Ok(measured) => {
                writeln!(text, "{network:9}FAILED").unwrap();
                writeln!(notes, "{network}: {}", disagreement(measured)).unwrap();
            }
            Err(why) => {
                writeln!(text, "{network:9}FAILED").unwrap();
                writeln!(notes, "{network}: {why}").unwrap();
            }
        }
    }
    if !notes.is_empty() {
        write!(text, "\n{notes}").unwrap();
    }
    text
}

fn write_network(text: &mut String, notes: &mut String, network: Network, measured: &Measured) {
    writeln!(text, "{network:9}{}", measured.shape).unwrap();
    for it in &measured.kinds {
        let (captured, spread) = match &it.captured {
            Some(Captured::Time(time)) => (milliseconds(time.median), spread(time)),
            Some(Captured::Refused(why)) => {
                writeln!(notes, "{network} captured, norms {}: {why}", it.kind).unwrap();
                ("-".to_owned(), String::new())
            }
            None => ("-".to_owned(), String::new()),
        };
        let share = match (it.kind, measured.share(it.kind)) {
            (Kind::Identity, _) | (_, None) => "-".to_owned(),
            (kind, Some(share)) if measured.is_share_clear(kind) => {
                format!("{:.0} %", 100.0 * share)
            }
            _ => "noise".to_owned(),
        };
        let memory = it.memory.map_or("-".to_owned(), |bytes| {
            format!("{:.1}", bytes as f64 / f64::from(1 << 20))
        });
        writeln!(
            text,
            "{:9}{:10}{:>12}{:>8}{captured:>14}{spread:>8}{share:>8}{memory:>12}",
            "",
            it.kind,
            milliseconds(it.eager.median),
            self::spread(&it.eager),
        )
        .unwrap();
    }
    let [eager, captured] = speed_ups(measured);
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |it| format!("{it:.2}x"));
    writeln!(
        text,
        "{:9}{:10}{:>12}{:>8}{:>14}{:>8}{:>8}{:>12}",
        "",
        "speed-up",
        ratio(eager),
        "",
        ratio(captured),
        "",
        "",
        "",
    )
    .unwrap();
}

/// Time with Burn's norms divided by that with cubenorm's, eager and captured.
fn speed_ups(measured: &Measured) -> [Option<f64>; 2] {
    let of = |kind| measured.kinds.iter().find(|it| it.kind == kind);
    let replay = |it: &OfKind| match &it.captured {
        Some(Captured::Time(time)) => Some(time.median),
        _ => None,
    };
    let (burn, ours) = (of(Kind::Burn), of(Kind::Cubenorm));
    let eager = burn.zip(ours);
    let eager = eager.map(|(burn, ours)| burn.eager.median / ours.eager.median);
    let burn = burn.and_then(replay);
    let captured = burn.zip(ours.and_then(replay));
    [eager, captured.map(|(burn, ours)| burn / ours)]
}

fn disagreement(measured: &Measured) -> String {
    format!(
        "outputs with Burn's norms and with cubenorm's differ by {:.1e} of the largest magnitude: \
         expected at most {:.1e}",
        measured.difference.unwrap_or(f64::NAN),
        measured.tolerance
    )
}

fn milliseconds(time: f64) -> String {
    match time {
        10.0.. => format!("{time:.1}"),
        _ => format!("{time:.3}"),
    }
}

fn spread(time: &Time) -> String {
    format!("± {:.0} %", 100.0 * time.spread())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(median: f64) -> Time {
        Time {
            median,
            p20: 0.9 * median,
            p80: 1.1 * median,
            samples: 9,
            steps: 4,
        }
    }

    fn measured() -> Measured {
        let refused = Captured::Refused("it allocates, \"twice\"".to_owned());
        let kinds = [
            (Kind::Burn, 40.0, Captured::Time(time(8.0))),
            (Kind::Cubenorm, 25.0, Captured::Time(time(4.0))),
            (Kind::Identity, 20.0, refused),
        ];
        Measured {
            network: Network::Gpt2,
            shape: "2 x 64, f32".to_owned(),
            difference: Some(1e-4),
            tolerance: 1e-2,
            kinds: kinds
                .map(|(kind, eager, captured)| OfKind {
                    kind,
                    eager: time(eager),
                    captured: Some(captured),
                    memory: Some(3 << 20),
                })
                .into(),
        }
    }

    fn run() -> Run {
        Run {
            command: "models --small".to_owned(),
            version: "0.1.0",
            device: "cpu".to_owned(),
            hardware: "cpu (abacus)".to_owned(),
            small: true,
        }
    }

    #[test]
    fn table_has_ratios_shares_and_reasons() {
        let text = table(&[(Network::Gpt2, Ok(measured()))]);
        for part in ["1.60x", "2.00x", "50 %", "20 %", "± 10 %", "3.0"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("gpt2 captured, norms identity: it allocates"),
            "{text}"
        );
    }

    #[test]
    fn overlapping_times_have_no_share() {
        let mut close = measured();
        close.kinds[1].eager = time(22.0);
        let text = table(&[(Network::Gpt2, Ok(close))]);
        assert!(text.contains("50 %") && text.contains("noise"), "{text}");
    }

    #[test]
    fn disagreement_and_error_have_no_times() {
        let wrong = Measured {
            difference: None,
            ..measured()
        };
        let outcomes = [
            (Network::Gpt2, Ok(wrong)),
            (Network::Unet, Err("no memory".to_owned())),
        ];
        let text = table(&outcomes);
        assert!(text.contains("differ by NaN"), "{text}");
        assert!(text.contains("unet: no memory"), "{text}");
        assert!(!text.contains("1.60x"), "{text}");
        let run = run();
        let rows = rows(&run, &outcomes);
        assert_eq!(rows.len(), 2);
        assert!(
            rows.iter()
                .all(|row| row.median_ms.is_none() && row.reason.is_some())
        );
    }

    #[test]
    fn csv_and_json_have_a_row_per_time() {
        let (run, outcomes) = (run(), [(Network::Gpt2, Ok(measured()))]);
        let rows = rows(&run, &outcomes);
        let text = csv(&rows).unwrap();
        assert_eq!(text.lines().count(), 7);
        assert!(text.contains("\"it allocates, \"\"twice\"\"\""), "{text}");
        assert!(text.contains("models --small,0.1.0,cpu"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        assert_eq!(read[0]["median_ms"], 40.0);
        assert_eq!(read[5]["norms"], "identity");
        let fields = read[0].as_object().unwrap().len();
        assert_eq!(fields, text.lines().next().unwrap().split(',').count());
    }
}
