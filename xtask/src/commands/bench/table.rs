//! A run on the terminal: tables, and why times are missing.

use super::{
    recorded::{self, OURS},
    results::Record,
    stats::Clock,
};
use crate::table;

/// The rows of one device, a line for each problem. Ratios come first, because times on a CPU say
/// little about other machines.
pub(super) fn rows(records: &[Record]) -> String {
    let mut providers: Vec<&str> = Vec::new();
    for record in records {
        if !providers.contains(&record.provider.as_str()) {
            providers.push(&record.provider);
        }
    }
    let others: Vec<&str> = providers.iter().copied().filter(|it| *it != OURS).collect();
    let all = Clock::ALL
        .into_iter()
        .flat_map(|clock| providers.iter().map(move |provider| (*provider, clock)));
    let columns: Vec<(&str, Clock)> = all
        .filter(|&(provider, clock)| {
            let mut of_provider = records.iter().filter(|it| it.provider == provider);
            clock == Clock::Wall || of_provider.any(|it| it.time(clock).is_some())
        })
        .collect();

    let mut header = ["op", "shape", "dtype", "pass"].map(str::to_owned).to_vec();
    header.extend(others.iter().map(|other| format!("vs.\n{other}")));
    header.extend(columns.iter().map(|(provider, clock)| match clock {
        Clock::Wall => format!("{provider}\nms"),
        Clock::Device => format!("{provider}\ndevice ms"),
        Clock::Replay => format!("{provider}\nreplay ms"),
    }));
    let problems = records.chunk_by(|one, other| one.problem() == other.problem());
    let lines = problems.map(|problem| {
        let of = |provider: &str| problem.iter().find(|it| it.provider == provider);
        let [op, _, _, dtype, pass] = problem[0].problem().map(str::to_owned);
        let mut cells = vec![op, problem[0].tensor(), dtype, pass];
        cells.extend(others.iter().map(|&other| {
            let wall = |provider| of(provider)?.time(Clock::Wall);
            let ratio = wall(other).zip(wall(OURS));
            ratio.map_or_else(
                || "-".to_owned(),
                |(theirs, ours)| recorded::ratio(other, theirs / ours),
            )
        }));
        cells.extend(columns.iter().map(|&(provider, clock)| {
            of(provider).map_or_else(|| "-".to_owned(), |record| time(record, clock))
        }));
        cells
    });
    table::terminal(header, lines, 4..usize::MAX)
}

/// The median and how far its samples are spread, or how the provider was lost.
fn time(record: &Record, clock: Clock) -> String {
    let (p20, p80) = match clock {
        Clock::Wall => (record.p20_ms, record.p80_ms),
        Clock::Device => (record.device_p20_ms, record.device_p80_ms),
        Clock::Replay => (record.replay_p20_ms, record.replay_p80_ms),
    };
    match (record.time(clock), p20.zip(p80), &record.note) {
        (Some(median), Some((p20, p80)), _) => {
            // Three digits of a millisecond or of a second alike.
            let digits = if median < 10.0 { 3 } else { 1 };
            let spread = 50.0 * (p80 - p20) / median;
            format!("{median:.digits$} ±{spread:.0}%")
        }
        (None, _, Some(note)) => note.split(':').next().unwrap_or_default().to_owned(),
        _ => "-".to_owned(),
    }
}

/// The providers without a time, grouped by reason: provider, problems and reason.
pub(super) fn lost(records: &[Record]) -> Vec<(&str, String, &str)> {
    let mut reasons: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for record in records {
        let Some(why) = &record.note else {
            continue;
        };
        let problem = format!(
            "{} {} {} {}",
            record.op,
            record.tensor(),
            record.dtype,
            record.pass
        );
        let same = |it: &&mut (&str, &str, Vec<String>)| it.0 == record.provider && it.1 == why;
        match reasons.iter_mut().find(same) {
            Some((_, _, problems)) => problems.push(problem),
            None => reasons.push((&record.provider, why, vec![problem])),
        }
    }
    let named = reasons.into_iter().map(|(provider, why, problems)| {
        let problems = match problems.as_slice() {
            [_, _, _, _, ..] => format!("{} problems", problems.len()),
            few => few.join(", "),
        };
        (provider, problems, why)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::results::tests::recorded;

    fn records() -> Vec<Record> {
        let rows = [
            "cubenorm rms_norm 4x8 f32 forward 4 3.2",
            "burn rms_norm 4x8 f32 forward 20 ",
            "copy rms_norm 4x8 f32 forward 3 3",
        ];
        let mut records = recorded("m", "cpu", "d", &rows);
        for record in &mut records {
            let times = [(record.median_ms, 0.75), (record.median_ms, 1.25)];
            [record.p20_ms, record.p80_ms] = times.map(|(time, by)| Some(by * time.unwrap()));
        }
        records.push(Record {
            provider: "onnxruntime".into(),
            median_ms: None,
            note: Some("no result: it has no backward pass".into()),
            ..records[1].clone()
        });
        records
    }

    #[test]
    fn the_table_has_ratios_and_times_with_spread() {
        let text = rows(&records());
        for part in [
            "5.00x",
            "75 %",
            "4x8",
            "device ms",
            "4.000 ±25%",
            "20.0 ±25%",
            "no result",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_shared_reason_is_printed_once() {
        let one = records().remove(3);
        let why = "no result: it has no backward pass";
        assert_eq!(
            lost(&vec![one.clone(); 5]),
            [("onnxruntime", "5 problems".to_owned(), why)]
        );
        assert_eq!(lost(&[one])[0].1, "rms_norm 4x8 f32 forward");
    }
}
