//! A run on the terminal: tables, and why times are missing.

use comfy_table::{CellAlignment, Table, presets};

use super::{
    measure::{Measured, Measurement},
    provider::Provider,
    stats::{Clock, Stats},
    summary::{self, Ratios, Summary},
    worker::Lost,
};

/// The measurements of one device. Ratios come first, because times on a CPU say little about
/// other machines.
pub fn measurements(measurements: &[Measurement]) -> String {
    let providers: Vec<Provider> = measurements
        .first()
        .map(|measurement| measurement.providers.iter().map(|m| m.provider).collect())
        .unwrap_or_default();
    let others: Vec<Provider> = providers
        .iter()
        .copied()
        .filter(|provider| *provider != Provider::Cubenorm)
        .collect();
    let mut header: Vec<String> = ["op", "shape", "dtype", "pass"].map(str::to_owned).into();
    header.extend(others.iter().map(|&other| broken(&summary::unit(other))));
    let columns = columns(&measurements.iter().collect::<Vec<_>>());
    header.extend(columns.iter().map(|column| broken(&column.heading())));
    let rows = measurements.iter().map(|measurement| {
        let problem = &measurement.problem;
        let mut cells = vec![
            problem.op.to_string(),
            problem.tensor(),
            problem.dtype.to_string(),
            problem.pass.to_string(),
        ];
        cells.extend(others.iter().map(|&other| {
            let ratio = summary::ratio(measurement, other, Clock::Wall);
            ratio.map_or_else(|| "-".to_owned(), times)
        }));
        cells.extend(columns.iter().map(|column| column.cell(measurement)));
        cells
    });
    table(header, rows, 4)
}

/// The first word, the last one and what is between them on lines of their own: a narrow heading.
fn broken(text: &str) -> String {
    let text = text.replacen(' ', "\n", 1);
    match text.rsplit_once(' ') {
        Some((head, tail)) => format!("{head}\n{tail}"),
        None => text,
    }
}

/// A column of times.
pub struct Column {
    provider: Provider,
    clock: Clock,
}

/// A column for each provider, and after them one for each that a device's clock has timed.
pub fn columns(measurements: &[&Measurement]) -> Vec<Column> {
    let Some(first) = measurements.first() else {
        return Vec::new();
    };
    let all = Clock::BOTH.into_iter().flat_map(|clock| {
        let providers = first.providers.iter().map(|measured| measured.provider);
        providers.map(move |provider| Column { provider, clock })
    });
    let is_there = |column: &Column| {
        column.clock == Clock::Wall
            || measurements
                .iter()
                .any(|m| m.median(column.provider, column.clock).is_some())
    };
    all.filter(is_there).collect()
}

impl Column {
    pub fn heading(&self) -> String {
        match self.clock {
            Clock::Wall => format!("{} ms", self.provider),
            Clock::Device => format!("{} device ms", self.provider),
        }
    }

    /// The median and how far its samples are spread, or how the provider was lost.
    pub fn cell(&self, measurement: &Measurement) -> String {
        let mut all = measurement.providers.iter();
        let Some(Measured { result, .. }) = all.find(|it| it.provider == self.provider) else {
            return "-".to_owned();
        };
        match result {
            Ok(timed) => timed
                .by(self.clock)
                .map_or_else(|| "-".to_owned(), |stats| spread(&stats)),
            Err(lost) => lost.words().0.to_owned(),
        }
    }
}

fn spread(&Stats { median, p20, p80 }: &Stats) -> String {
    // Three digits of a millisecond or of a second alike.
    let digits = if median < 10.0 { 3 } else { 1 };
    let spread = 50.0 * (p80 - p20) / median;
    format!("{median:.digits$} ±{spread:.0}%")
}

/// The summaries of a run.
pub fn summaries(summaries: &[Summary]) -> String {
    let header = [
        "device",
        "pass",
        "dtype",
        "cubenorm is",
        "by clock",
        "problems",
        "mean",
        "worst",
        "4 MiB and larger",
        "mean",
        "worst",
        "worst of all at",
    ];
    let rows = summaries.iter().map(|summary| {
        let [problems, mean, worst] = ratios(Some(&summary.all));
        let [large, large_mean, large_worst] = ratios(summary.large.as_ref());
        vec![
            summary.device.to_string(),
            summary.pass.to_string(),
            summary.dtype.to_string(),
            summary::unit(summary.against),
            summary.clock.name().to_owned(),
            problems,
            mean,
            worst,
            large,
            large_mean,
            large_worst,
            summary.all.at.clone(),
        ]
    });
    table(header.map(str::to_owned).into(), rows, 5)
}

fn table(header: Vec<String>, rows: impl Iterator<Item = Vec<String>>, words: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Number of problems, their mean and the worst.
fn ratios(ratios: Option<&Ratios>) -> [String; 3] {
    match ratios {
        Some(ratios) => [
            ratios.problems.to_string(),
            times(ratios.mean),
            times(ratios.worst),
        ],
        None => ["0", "-", "-"].map(str::to_owned),
    }
}

/// A ratio.
pub fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// The providers without a time: name, kind, reason and problems, grouped by reason.
pub fn lost(measurements: &[Measurement]) -> Vec<(Provider, &Lost, String)> {
    let mut reasons: Vec<(Provider, &Lost, Vec<String>)> = Vec::new();
    for measurement in measurements {
        for measured in &measurement.providers {
            let Err(lost) = &measured.result else {
                continue;
            };
            let problem = measurement.problem.to_string();
            let same = |it: &&mut (Provider, &Lost, Vec<String>)| {
                it.0 == measured.provider && it.1 == lost
            };
            match reasons.iter_mut().find(same) {
                Some((_, _, problems)) => problems.push(problem),
                None => reasons.push((measured.provider, lost, vec![problem])),
            }
        }
    }
    let named = reasons.into_iter().map(|(provider, lost, problems)| {
        let problems = match problems.as_slice() {
            [_, _, _, _, ..] => format!("{} problems", problems.len()),
            few => few.join(", "),
        };
        (provider, lost, problems)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::fixture;

    #[test]
    fn the_table_has_ratios_and_times_with_spread() {
        let text = measurements(&fixture::measurements());
        for part in ["onnxruntime's", "5.00x", "1.33x", "2048x4096", "device"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["4.000 ±25%", "3.200 ±25%", "20.0 ±25%", "no result"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_shared_reason_is_printed_once() {
        let one = fixture::measurements().remove(3);
        let all = vec![one; 5];
        let [(provider, lost, problems)] = &lost(&all)[..] else {
            panic!("one reason");
        };
        assert_eq!(
            (provider.name(), problems.as_str()),
            ("onnxruntime", "5 problems")
        );
        assert_eq!(
            lost.words(),
            ("no result", "ONNX Runtime has no backward pass")
        );
        let few = &fixture::measurements();
        assert_eq!(super::lost(few)[0].2, "layer_norm 2048x4096 f32 full");
    }
}
