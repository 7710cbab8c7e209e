//! Sets a provider up, checks it, warms it up and times it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use burn::tensor::Device;

use crate::{
    check,
    clock::Clock,
    problems::{Problem, Provider},
    providers::{Subject, subject},
};

/// Length of a sample: long compared with the clock's step and one synchronization.
const SAMPLE: Duration = Duration::from_millis(60);
/// Length of a round of samples.
const ROUND: Duration = Duration::from_millis(150);
/// Largest number of samples of one round.
const SAMPLES: usize = 20;

/// A provider that computed the right result and is warm.
pub struct Prepared {
    subject: Box<dyn Subject>,
    /// The device's own, if it has one.
    clock: Option<Clock>,
    /// Runs per sample.
    runs: usize,
    /// Samples per round.
    samples: usize,
}

/// The time of one run, once per sample of a round, by each clock.
pub struct Round {
    /// By the host's clock, from the first launch until the device is idle.
    pub wall: Vec<Duration>,
    /// Time of the kernels by the device's own clock, in samples of their own: reading one clock
    /// would disturb the other. Empty if the device has none.
    pub device: Vec<Duration>,
}

/// Sets a problem up, compares the result with the reference, and warms up until the time of a run
/// no longer falls. Then compilation and tuning are over.
pub fn prepare(provider: Provider, problem: &Problem, device: &Device) -> Result<Prepared> {
    problem.validate()?;
    let data = problem.host_data();
    let mut subject = subject(provider, problem, &data, device)?;
    warm_up(|| subject.time(1, &Clock::Host))?;
    // After the warm-up, so that the timed plan is checked, a tuned choice included.
    if let Some(outcome) = subject.outcome()? {
        check::check(problem, &data, &outcome)?;
    }

    let most = subject.most_runs();
    let one = subject.time(1, &Clock::Host)?;
    let runs = count(SAMPLE, one).min(most);
    subject.settle(runs)?;
    let sample = warm_up(|| subject.time(runs, &Clock::Host))?;
    // A clock that fails is no clock.
    let clock = Clock::of(device).filter(|clock| subject.time(runs, clock).is_ok());
    Ok(Prepared {
        subject,
        clock,
        runs,
        samples: count(ROUND, sample).min(SAMPLES),
    })
}

impl Prepared {
    /// Takes the samples of a round, the clocks in turns.
    pub fn round(&mut self) -> Result<Round> {
        let (mut wall, mut device) = (Vec::new(), Vec::new());
        for _ in 0..self.samples {
            let mut sample = |clock: &Clock| {
                let time = self.subject.time(self.runs, clock)?;
                anyhow::Ok(time.div_f64(self.runs as f64))
            };
            wall.push(sample(&Clock::Host)?);
            // A kernel that the runtime could not time leaves a gap; one that failed fails the next
            // sample.
            device.extend(self.clock.as_ref().and_then(|clock| sample(clock).ok()));
        }
        Ok(Round { wall, device })
    }

    /// The time of one run of a recorded graph of a sample's runs, once per sample. Empty if nothing can be recorded.
    ///
    /// Call it after all rounds: the memory of a graph stays reserved.
    pub fn replay(&mut self) -> Result<Vec<Duration>> {
        let samples = self.subject.replay(self.runs, SAMPLES)?;
        let run = |sample: Duration| sample.div_f64(self.runs as f64);
        Ok(samples.into_iter().map(run).collect())
    }

    /// The time of `runs` runs by the host's clock, in as few samples as fit.
    pub fn time(&mut self, runs: usize) -> Result<Duration> {
        let mut total = Duration::ZERO;
        let mut left = runs;
        while left > 0 {
            let runs = left.min(self.runs);
            total += self.subject.time(runs, &Clock::Host)?;
            left -= runs;
        }
        Ok(total)
    }
}

/// Number of times that `one` fits into `whole`, at least once.
fn count(whole: Duration, one: Duration) -> usize {
    (whole.as_secs_f64() / one.as_secs_f64().max(1e-9))
        .ceil()
        .max(1.0) as usize
}

/// Repeats until three samples in a row were no faster than the best before by 5 %, and returns
/// that best.
fn warm_up(mut sample: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    const STABLE: usize = 3;
    const GAIN: f64 = 0.95;
    const LIMIT: Duration = Duration::from_secs(120);

    let start = Instant::now();
    let mut best = sample()?;
    let mut stable = 0;
    while stable < STABLE {
        ensure!(
            start.elapsed() < LIMIT,
            "still getting faster after {LIMIT:?}"
        );
        let time = sample()?;
        stable = if time < best.mul_f64(GAIN) {
            0
        } else {
            stable + 1
        };
        best = best.min(time);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_ends_when_times_stop_falling() {
        let times = [900, 500, 100, 60, 61, 59, 60, 1];
        let mut given = times.iter().map(|&time| Duration::from_millis(time));
        let best = warm_up(|| Ok(given.next().unwrap())).unwrap();
        assert_eq!(best, Duration::from_millis(59));
        assert_eq!(given.len(), 1);
    }

    #[test]
    fn a_slow_run_is_still_one_run() {
        assert_eq!(count(SAMPLE, Duration::from_secs(1)), 1);
        assert_eq!(count(SAMPLE, Duration::from_millis(7)), 9);
        assert!(count(SAMPLE, Duration::ZERO) > 0);
    }
}
