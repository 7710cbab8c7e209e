//! Contenders on a problem: set up one after the other, then round by round.

use anyhow::Result;
use indicatif::ProgressBar;

use super::{
    contender::{Contender, Field},
    stats::{Clock, Stats},
    worker::{About, Lost, Samples, Worker},
};
use crate::{commands::problem::Problem, device::Device};

/// One problem on one device.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub device: Device,
    pub problem: Problem,
    pub contenders: Vec<Measured>,
}

/// One contender on one problem.
#[derive(Clone, Debug)]
pub struct Measured {
    pub contender: Contender,
    pub result: Result<Timed, Lost>,
}

/// A contender's times, and what it said of itself.
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
    /// Runs all contenders on a problem.
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
        for &contender in &field.contenders {
            let prepared = match &exported {
                Err(why) if contender.library().is_some() => Err(Lost::Failed(format!("{why:#}"))),
                _ => field.prepare(contender, problem, device)?,
            };
            lanes.push(Lane {
                contender,
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
            contenders: lanes.into_iter().map(Lane::finish).collect(),
        })
    }

    pub fn of(&self, contender: Contender) -> Option<&Timed> {
        let mut all = self.contenders.iter();
        let measured = all.find(|measured| measured.contender == contender)?;
        measured.result.as_ref().ok()
    }

    /// Milliseconds.
    pub fn median(&self, contender: Contender, clock: Clock) -> Option<f64> {
        Some(self.of(contender)?.by(clock)?.median)
    }

    /// How many times the median of `b` goes into that of `a`, by the same clock.
    pub fn ratio(&self, a: Contender, b: Contender, clock: Clock) -> Option<f64> {
        Some(self.median(a, clock)? / self.median(b, clock)?)
    }

    /// What anyone says of the problem.
    pub fn said(&self, what: impl Fn(&About) -> Option<usize>) -> Option<usize> {
        let results = self.contenders.iter();
        let mut timed = results.filter_map(|measured| measured.result.as_ref().ok());
        timed.find_map(|timed| what(&timed.about))
    }
}

/// A contender during a measurement: its process and samples, or how it was lost.
struct Lane {
    contender: Contender,
    state: Result<(Worker, About, Samples), Lost>,
}

impl Lane {
    fn round(&mut self) {
        if let Ok((worker, _, samples)) = &mut self.state {
            match worker.round() {
                Ok(more) => samples.extend(more),
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
            contender: self.contender,
            result,
        }
    }
}
