//! Providers on a problem: set up one after the other, then round by round.

use anyhow::Result;
use cubenorm_problems::{
    Problem, Provider,
    protocol::{About, Samples},
};
use indicatif::ProgressBar;

use super::{
    provider::{Field, library},
    results::Record,
    stats::Stats,
    worker::{Lost, Worker},
};
use crate::device::Device;

/// A provider's times, and its description.
struct Timed {
    about: About,
    wall: Stats,
    device: Option<Stats>,
    replay: Option<Stats>,
}

/// Runs all providers on a problem on the device of `origin`: a row for each.
pub(super) fn measure(
    field: &Field,
    device: Device,
    problem: &Problem,
    rounds: usize,
    origin: &Record,
    bar: &ProgressBar,
) -> Result<Vec<Record>> {
    let title = format!("{problem} on {device}");
    bar.set_message(format!("{title}: warming up"));
    let exported = field.export(problem);
    let mut lanes = Vec::new();
    for &provider in &field.providers {
        let prepared = match &exported {
            Err(why) if library(provider).is_some() => Err(Lost::Failed(format!("{why:#}"))),
            _ => field.prepare(provider, problem, device)?,
        };
        lanes.push(Lane {
            provider,
            state: prepared.map(|(worker, about)| (worker, about, Samples::default())),
        });
    }
    bar.inc(1);
    bar.set_message(title);
    for _ in 0..rounds {
        lanes.iter_mut().for_each(Lane::round);
        bar.inc(1);
    }
    // After all rounds: a graph keeps its memory.
    lanes.iter_mut().for_each(Lane::replay);
    let results: Vec<_> = lanes.into_iter().map(Lane::finish).collect();
    Ok(records(problem, &results, origin))
}

/// A row for each provider, of this origin.
fn records(
    problem: &Problem,
    results: &[(Provider, Result<Timed, Lost>)],
    origin: &Record,
) -> Vec<Record> {
    let timed = || {
        results
            .iter()
            .filter_map(|(provider, it)| Some((*provider, it.as_ref().ok()?)))
    };
    // Libraries do not know the bytes.
    let bytes = timed().find_map(|(_, timed)| timed.about.bytes);
    let copy = timed().find(|(provider, _)| *provider == Provider::Copy);
    let rows = results.iter().map(|(provider, result)| {
        let row = Record {
            provider: provider.to_string(),
            op: problem.op.to_string(),
            shape: problem.sizes(),
            layout: problem.layout.to_string(),
            dtype: problem.dtype.to_string(),
            pass: problem.pass.to_string(),
            ..origin.clone()
        };
        let Timed {
            about,
            wall,
            device,
            replay,
        } = match result {
            Ok(timed) => timed,
            Err(lost) => {
                let note = Some(lost.to_string());
                return Record { note, ..row };
            }
        };
        let rate = bytes.map(|bytes| bytes as f64 / wall.median / 1e6);
        let share = copy.map(|(_, copy)| copy.wall.median / wall.median);
        Record {
            runtime: about.runtime.clone(),
            plan: about.plan.clone(),
            median_ms: Some(rounded(wall.median)),
            p20_ms: Some(rounded(wall.p20)),
            p80_ms: Some(rounded(wall.p80)),
            device_ms: device.map(|stats| rounded(stats.median)),
            device_p20_ms: device.map(|stats| rounded(stats.p20)),
            device_p80_ms: device.map(|stats| rounded(stats.p80)),
            gb_per_s: rate.map(rounded),
            share_of_copy: share.map(rounded),
            replay_ms: replay.map(|stats| rounded(stats.median)),
            replay_p20_ms: replay.map(|stats| rounded(stats.p20)),
            replay_p80_ms: replay.map(|stats| rounded(stats.p80)),
            ..row
        }
    });
    rows.collect()
}

/// Six places: nanoseconds of a millisecond. More digits are noise.
fn rounded(value: f64) -> f64 {
    (1e6 * value).round() / 1e6
}

/// A provider during a measurement: its process and samples, or how it was lost.
struct Lane {
    provider: Provider,
    state: Result<(Worker, About, Samples), Lost>,
}

impl Lane {
    fn round(&mut self) {
        if let Ok((worker, _, samples)) = &mut self.state {
            match worker.round() {
                Ok(more) => {
                    samples.wall.extend(more.wall);
                    samples.device.extend(more.device);
                }
                Err(lost) => self.state = Err(lost),
            }
        }
    }

    /// A provider whose runs cannot be recorded keeps its other times.
    fn replay(&mut self) {
        if let Ok((worker, _, samples)) = &mut self.state
            && let Ok(more) = worker.replay()
        {
            samples.replay = more.replay;
        }
    }

    fn finish(self) -> (Provider, Result<Timed, Lost>) {
        let result = self.state.and_then(|(_, about, samples)| {
            let wall = Stats::of(&samples.wall);
            Ok(Timed {
                about,
                wall: wall.ok_or_else(|| Lost::Failed("returned no sample".to_owned()))?,
                device: Stats::of(&samples.device),
                replay: Stats::of(&samples.replay),
            })
        });
        (self.provider, result)
    }
}

#[cfg(test)]
mod tests {
    use cubenorm_problems::Op;

    use super::*;
    use crate::commands::bench::results::tests::origin;

    #[test]
    fn a_row_has_times_rates_or_the_reason_for_none() {
        let timed = |median, bytes| {
            let (p20, p80) = (0.75 * median, 1.25 * median);
            let stats = Stats { median, p20, p80 };
            let runtime = "cpu".to_owned();
            Ok(Timed {
                about: About {
                    runtime,
                    bytes,
                    ..About::default()
                },
                wall: stats,
                device: None,
                replay: None,
            })
        };
        let lost = Lost::Unsupported("it has no backward pass".to_owned());
        let results = [
            (Provider::Cubenorm, timed(4.0, Some(1 << 20))),
            (Provider::Onnxruntime, Err(lost)),
            (Provider::Copy, timed(3.0, None)),
        ];
        let problem = Problem::new(Op::RmsNorm, [4, 8]);
        let rows = records(&problem, &results, &origin("m", "cpu", "d"));
        let [ours, library, copy] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(
            ours.problem(),
            ["rms_norm", "4x8", "contiguous", "f32", "forward"]
        );
        assert_eq!((ours.median_ms, ours.p80_ms), (Some(4.0), Some(5.0)));
        assert_eq!(
            (ours.share_of_copy, ours.gb_per_s),
            (Some(0.75), Some(0.262144))
        );
        assert_eq!(copy.gb_per_s, Some(0.349525));
        let note = library.note.as_deref();
        assert_eq!(note, Some("no result: it has no backward pass"));
    }
}
