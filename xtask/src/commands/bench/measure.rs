//! Providers on a problem: set up one after the other, then round by round.

use anyhow::Result;
use cubenorm_problems::{
    Problem,
    protocol::{About, Samples},
};
use indicatif::ProgressBar;

use super::{
    provider::{Field, Provider},
    stats::{Clock, Stats},
    worker::{Lost, Worker},
};
use crate::device::Device;

/// One problem on one device.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub device: Device,
    pub problem: Problem,
    pub providers: Vec<Measured>,
}

/// One provider on one problem.
#[derive(Clone, Debug)]
pub struct Measured {
    pub provider: Provider,
    pub result: Result<Timed, Lost>,
}

/// A provider's times, and its description.
#[derive(Clone, Debug)]
pub struct Timed {
    pub about: About,
    pub wall: Stats,
    pub device: Option<Stats>,
}

impl Timed {
    pub fn by(&self, clock: Clock) -> Option<Stats> {
        match clock {
            Clock::Wall => Some(self.wall),
            Clock::Device => self.device,
        }
    }
}

impl Measurement {
    /// Runs all providers on a problem.
    pub fn take(
        field: &Field,
        device: Device,
        problem: &Problem,
        rounds: usize,
        bar: &ProgressBar,
    ) -> Result<Self> {
        let title = format!("{problem} on {device}");
        bar.set_message(format!("{title}: warming up"));
        let exported = field.export(problem);
        let mut lanes = Vec::new();
        for &provider in &field.providers {
            let prepared = match &exported {
                Err(why) if provider.library().is_some() => Err(Lost::Failed(format!("{why:#}"))),
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
            for lane in &mut lanes {
                lane.round();
            }
            bar.inc(1);
        }
        Ok(Self {
            device,
            problem: problem.clone(),
            providers: lanes.into_iter().map(Lane::finish).collect(),
        })
    }

    pub fn of(&self, provider: Provider) -> Option<&Timed> {
        let mut all = self.providers.iter();
        let measured = all.find(|measured| measured.provider == provider)?;
        measured.result.as_ref().ok()
    }

    /// Milliseconds.
    pub fn median(&self, provider: Provider, clock: Clock) -> Option<f64> {
        Some(self.of(provider)?.by(clock)?.median)
    }

    /// The median of `a` divided by the median of `b`, by the same clock.
    pub fn ratio(&self, a: Provider, b: Provider, clock: Clock) -> Option<f64> {
        Some(self.median(a, clock)? / self.median(b, clock)?)
    }

    /// A fact about the problem, from any provider that knows it.
    pub fn said(&self, what: impl Fn(&About) -> Option<usize>) -> Option<usize> {
        let results = self.providers.iter();
        let mut timed = results.filter_map(|measured| measured.result.as_ref().ok());
        timed.find_map(|timed| what(&timed.about))
    }
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

    fn finish(self) -> Measured {
        let result = self.state.and_then(|(_, about, samples)| {
            let wall = Stats::of(&samples.wall);
            Ok(Timed {
                about,
                wall: wall.ok_or_else(|| Lost::Failed("returned no sample".to_owned()))?,
                device: Stats::of(&samples.device),
            })
        });
        Measured {
            provider: self.provider,
            result,
        }
    }
}
