//! Measures one network with each kind of norms.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::{graph::records, read};
use serde::{Deserialize, Serialize};

use crate::graph::{Graph, WARM_UP};
use crate::networks::{Instance, Network};
use crate::norms::Kind;

/// First outputs that are compared: of a training, the losses after no, one and two updates.
const COMPARED: usize = 3;
/// The warm-up ends after this number of steps that are at most [`GAIN`] faster than the best one.
const STABLE: usize = 3;
const GAIN: f64 = 0.95;
const LONGEST_WARM_UP: Duration = Duration::from_secs(120);
/// Length of a sample, and most steps in one. CubeCL's queue holds 64 messages, so longer samples of
/// short steps would measure the queue.
const SAMPLE: Duration = Duration::from_millis(60);
const MOST_STEPS: usize = 24;
/// Replays whose outputs are checked.
const CHECKED_REPLAYS: usize = 4;
/// Eager steps whose outputs are kept for the checks: the recorded step is the one after the warm-up.
const KEPT: usize = WARM_UP + CHECKED_REPLAYS;
/// Steps before memory is read: the second one has the optimizer's state from its start on.
const MEMORY_STEPS: usize = 2;

/// Options of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// True for the small size.
    pub small: bool,
    /// Number of rounds. Every kind has a sample per round.
    pub rounds: usize,
}

/// Measurements of a network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The network.
    pub network: Network,
    /// Sizes, element type and pass.
    pub shape: String,
    /// Largest difference between the outputs with Burn's norms and with cubenorm's, relative to
    /// the largest magnitude. None if there is a NaN, which JSON cannot have.
    pub difference: Option<f64>,
    /// Largest accepted difference.
    pub tolerance: f64,
    /// One for each kind, in the order of [`Kind::ALL`].
    pub kinds: Vec<OfKind>,
}

/// Measurements of a network with one kind of norms.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OfKind {
    /// The kind.
    pub kind: Kind,
    /// Time of a step.
    pub eager: Time,
    /// Time of a replay. None if the device records no graphs.
    pub captured: Option<Captured>,
    /// Device memory that CubeCL holds after two steps, in bytes. None if the device does not report
    /// it.
    pub memory: Option<u64>,
}

/// A replay, or the reason that there is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Captured {
    /// Time of a replay.
    Time(Time),
    /// Reason.
    Refused(String),
}

/// Milliseconds of a step: percentiles over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Median.
    pub median: f64,
    /// 20th percentile.
    pub p20: f64,
    /// 80th percentile.
    pub p80: f64,
    /// Samples.
    pub samples: usize,
    /// Steps per sample.
    pub steps: usize,
}

impl Time {
    fn of(mut samples: Vec<f64>, steps: usize) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * samples.len().saturating_sub(1) as f64;
            samples.get(place.round() as usize).copied()
        };
        let at = |share| at(share).unwrap_or(f64::NAN);
        Self {
            median: at(0.5),
            p20: at(0.2),
            p80: at(0.8),
            samples: samples.len(),
            steps,
        }
    }

    /// Half of the range of the middle 60 %, relative to the median.
    pub fn spread(&self) -> f64 {
        0.5 * (self.p80 - self.p20) / self.median
    }
}

impl Measured {
    /// True if the outputs agree. A NaN does not.
    pub fn agrees(&self) -> bool {
        self.difference.is_some_and(|it| it <= self.tolerance)
    }

    /// The eager results of a process that failed for this reason while it recorded.
    pub fn without_graphs(mut self, why: &str) -> Self {
        for kind in &mut self.kinds {
            kind.captured = Some(Captured::Refused(why.to_owned()));
        }
        self
    }

    /// Share of the norms in a step with norms of this kind: one minus the time without norms divided
    /// by the time with them.
    pub fn share(&self, kind: Kind) -> Option<f64> {
        let median = |kind| {
            let mut kinds = self.kinds.iter();
            Some(kinds.find(|it| it.kind == kind)?.eager.median)
        };
        Some(1.0 - median(Kind::Identity)? / median(kind)?)
    }

    /// True if the middle 60 % of the samples lie above those without norms. If not, the share is
    /// noise.
    pub fn is_share_clear(&self, kind: Kind) -> bool {
        let time = |kind| self.kinds.iter().find(|it| it.kind == kind);
        let times = time(kind).zip(time(Kind::Identity));
        times.is_some_and(|(with, without)| with.eager.p20 > without.eager.p80)
    }
}

/// Runs every step of a measurement without timing, so that another process finds all kernels
/// tuned.
///
/// # Errors
///
/// If the device fails.
pub fn tune(network: Network, options: Options, device: &Device) -> Result<()> {
    for kind in Kind::ALL {
        let mut instance = network.build(options.small, kind, device);
        for _ in 0..COMPARED {
            step(&mut instance, device)?;
        }
    }
    Ok(())
}

/// Compares the outputs of a network with Burn's norms and with cubenorm's, then times it with each
/// kind.
///
/// Nothing is timed if the outputs disagree. `report` gets the eager results before a graph is
/// recorded: a driver's crash would lose them.
///
/// # Errors
///
/// If the device or `report` fails.
pub fn measure(
    network: Network,
    options: Options,
    device: &Device,
    report: impl Fn(&Measured) -> Result<()>,
) -> Result<()> {
    let mut instances = Vec::new();
    let mut outputs = Vec::new();
    let mut fastest = Duration::MAX;
    for kind in Kind::ALL {
        let mut instance = network.build(options.small, kind, device);
        let (time, first) = warm_up(&mut instance, device)?;
        fastest = fastest.min(time);
        instances.push(instance);
        outputs.push(first);
    }
    let compared = |outputs: &[Vec<f32>]| outputs[..COMPARED].concat();
    let difference = difference(&compared(&outputs[0]), &compared(&outputs[1]));
    let mut measured = Measured {
        network,
        shape: instances[0].shape.clone(),
        difference: Some(difference).filter(|it| !it.is_nan()),
        tolerance: instances[0].tolerance,
        kinds: Vec::new(),
    };
    if !measured.agrees() {
        return report(&measured);
    }

    let fitting = SAMPLE.as_secs_f64() / fastest.as_secs_f64().max(1e-9);
    let steps = (fitting.ceil() as usize).clamp(1, MOST_STEPS);
    let runs = instances.iter_mut().map(|instance| {
        let run = move || Ok(Some(instance.step.run()));
        Box::new(run) as Run<'_>
    });
    let eager = interleave(runs.collect(), options.rounds, steps, device)?;
    drop(instances);
    for (kind, eager) in Kind::ALL.into_iter().zip(eager) {
        measured.kinds.push(OfKind {
            kind,
            eager,
            captured: None,
            memory: memory(network, options, kind, device)?,
        });
    }
    report(&measured)?;

    if records(device) {
        let graphs = Kind::ALL.into_iter().zip(&outputs);
        let graphs = graphs.map(|(kind, eager)| record(network, options, kind, eager, device));
        let times = captured(graphs.collect(), options.rounds, steps, device)?;
        for (kind, captured) in measured.kinds.iter_mut().zip(times) {
            kind.captured = Some(captured);
        }
        report(&measured)?;
    }
    Ok(())
}

/// Queues a step. Its output lives until the device is idle.
type Run<'a> = Box<dyn FnMut() -> Result<Option<Tensor<2>>> + 'a>;

/// Times runs in turns, a sample each in every round.
fn interleave(
    mut runs: Vec<Run<'_>>,
    rounds: usize,
    steps: usize,
    device: &Device,
) -> Result<Vec<Time>> {
    let mut samples = vec![Vec::with_capacity(rounds); runs.len()];
    for _ in 0..rounds {
        for (samples, run) in samples.iter_mut().zip(&mut runs) {
            sync(device)?;
            let start = Instant::now();
            let outputs = (0..steps).map(|_| run()).collect::<Result<Vec<_>>>()?;
            sync(device)?;
            samples.push(1e3 * start.elapsed().as_secs_f64() / steps as f64);
            drop(outputs);
        }
    }
    let times = samples.into_iter();
    Ok(times.map(|samples| Time::of(samples, steps)).collect())
}

/// Times the replays of graphs.
fn captured(
    graphs: Vec<Result<Graph<'_>>>,
    rounds: usize,
    steps: usize,
    device: &Device,
) -> Result<Vec<Captured>> {
    let runs = graphs.iter().filter_map(|graph| graph.as_ref().ok());
    let runs = runs.map(|graph| {
        let run = move || graph.replay().map(|()| None);
        Box::new(run) as Run<'_>
    });
    let times = interleave(runs.collect(), rounds, steps, device)?;
    let mut times = times.into_iter();
    let captured = graphs.iter().map(|graph| match graph {
        Ok(_) => times.next().map(Captured::Time),
        Err(why) => Some(Captured::Refused(format!("{why:#}"))),
    });
    Ok(captured.flatten().collect())
}

/// Records a step, and checks that replays have the outputs of the eager steps. `eager` has the
/// outputs of these from the first one on.
fn record<'a>(
    network: Network,
    options: Options,
    kind: Kind,
    eager: &[Vec<f32>],
    device: &'a Device,
) -> Result<Graph<'a>> {
    let instance = network.build(options.small, kind, device);
    let (is_training, tolerance) = (instance.is_training, instance.tolerance);
    let graph = Graph::record(device, instance.step)?;
    let mut replayed = Vec::new();
    for _ in 0..CHECKED_REPLAYS {
        graph.replay()?;
        replayed.push(read(graph.output())?);
    }
    let eager = &eager[WARM_UP..];
    if is_training {
        ensure!(
            trains(&eager.concat(), &replayed.concat()),
            "replays do not train: their losses are {}, and eager ones {}",
            losses(&replayed),
            losses(eager)
        );
        return Ok(graph);
    }
    let difference = difference(&eager.concat(), &replayed.concat());
    // Values without norms may overflow, eagerly too.
    let is_finite = eager.iter().flatten().all(|value| value.is_finite());
    ensure!(
        difference <= tolerance || !is_finite,
        "replays differ from eager steps by {difference:.1e} of the largest magnitude: expected at \
         most {tolerance:.1e}"
    );
    Ok(graph)
}

/// True if the losses of replays follow the eager ones: each is off by less than half of the total
/// eager decrease. False for a NaN.
fn trains(eager: &[f32], replayed: &[f32]) -> bool {
    let (Some(first), Some(last)) = (eager.first(), eager.last()) else {
        return false;
    };
    let limit = 0.5 * (first - last);
    let mut pairs = eager.iter().zip(replayed);
    pairs.all(|(a, b)| (a - b).abs() < limit)
}

fn losses(outputs: &[Vec<f32>]) -> String {
    let losses = outputs.iter().flatten().map(|loss| format!("{loss:.4}"));
    losses.collect::<Vec<_>>().join(", ")
}

/// Steps until their time no longer falls: the fastest one, and the first outputs.
fn warm_up(instance: &mut Instance, device: &Device) -> Result<(Duration, Vec<Vec<f32>>)> {
    let start = Instant::now();
    let mut outputs = Vec::new();
    let mut best = Duration::MAX;
    let mut stable = 0;
    while outputs.len() < KEPT || (stable < STABLE && start.elapsed() < LONGEST_WARM_UP) {
        let (time, output) = step(instance, device)?;
        if outputs.len() < KEPT {
            outputs.push(read(output)?);
        }
        stable = match time < best.mul_f64(GAIN) {
            true => 0,
            false => stable + 1,
        };
        best = best.min(time);
    }
    Ok((best, outputs))
}

/// A step of an idle device.
fn step(instance: &mut Instance, device: &Device) -> Result<(Duration, Tensor<2>)> {
    sync(device)?;
    let start = Instant::now();
    let output = instance.step.run();
    sync(device)?;
    Ok((start.elapsed(), output))
}

/// Memory that CubeCL reserves for a network, measured without the other kinds.
fn memory(network: Network, options: Options, kind: Kind, device: &Device) -> Result<Option<u64>> {
    let reserved = || {
        let usage = device.memory_pool_usage();
        usage.map(|usage| usage.bytes_reserved)
    };
    sync(device)?;
    device.memory_cleanup();
    sync(device)?;
    let before = reserved();
    let mut instance = network.build(options.small, kind, device);
    for _ in 0..MEMORY_STEPS {
        step(&mut instance, device)?;
    }
    let during = reserved();
    Ok(during
        .zip(before)
        .map(|(during, before)| during.saturating_sub(before)))
}

fn sync(device: &Device) -> Result<()> {
    let synced = device.sync();
    synced.map_err(|error| anyhow!("the device failed: {error}"))
}

/// Largest difference relative to the largest magnitude of `one`. NaN if there is a NaN or the
/// lengths differ.
fn difference(one: &[f32], other: &[f32]) -> f64 {
    if one.len() != other.len() {
        return f64::NAN;
    }
    // `f64::max` would ignore a NaN.
    let largest = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(0.0, |largest: f64, value| match value <= largest {
            true => largest,
            false => value,
        })
    };
    let magnitude = largest(&mut one.iter().map(|value| f64::from(value.abs())));
    let pairs = one.iter().zip(other);
    let differences = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let differences: Vec<f64> = differences.collect();
    if differences.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    largest(&mut differences.into_iter()) / magnitude.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_relative_to_the_largest() {
        assert_eq!(difference(&[1.0, -4.0], &[1.0, -3.0]), 0.25);
        assert_eq!(difference(&[0.0], &[0.0]), 0.0);
    }

    #[test]
    fn nan_and_other_lengths_never_agree() {
        assert!(difference(&[f32::NAN, 1.0], &[f32::NAN, 1.0]).is_nan());
        assert!(difference(&[1.0], &[1.0, 2.0]).is_nan());
        assert!(difference(&[1.0, 1.0], &[1.0, f32::NAN]).is_nan());
    }

    #[test]
    fn replays_train_only_if_losses_follow() {
        let eager = [5.4, 5.3, 5.2, 5.1];
        assert!(trains(&eager, &[5.4, 5.31, 5.22, 5.13]));
        assert!(!trains(&eager, &[5.4, 5.4, 5.4, 5.4]));
        assert!(!trains(&eager, &[5.4, 5.3, 5.2, f32::NAN]));
        assert!(!trains(&[5.4, 5.4], &[5.4, 5.4]));
    }

    #[test]
    fn times_are_percentiles_of_samples() {
        let time = Time::of(vec![5.0, 1.0, 2.0, 3.0, 4.0, 6.0], 2);
        assert_eq!((time.p20, time.median, time.p80), (2.0, 4.0, 5.0));
        assert_eq!(time.spread(), 0.375);
    }
}
