//! What a run comes to: how much faster than each baseline, and how near to the copy.

use super::{
    measure::Measurement,
    provider::{Baseline, Provider},
    stats::Clock,
};
use crate::{commands::ratios::geometric_mean, device::Device};

/// Bytes of an input from which on the libraries' own cost of a call no longer counts.
const LARGE: usize = 4 << 20;

/// A device, a pass and a type beside one other provider, by one clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub device: Device,
    pub pass: String,
    pub dtype: String,
    pub beside: Provider,
    pub clock: Clock,
    pub all: Ratios,
    /// Of the inputs of 4 MiB and larger, if there are any.
    pub large: Option<Ratios>,
}

/// How many times a baseline's speed ours is, or how many times the copy's time it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    pub problems: usize,
    pub mean: f64,
    pub worst: f64,
    /// The problem of the worst.
    pub at: String,
}

/// What a ratio beside a provider means.
pub fn unit(beside: Provider) -> String {
    match beside {
        Provider::Copy => "times a copy's time".to_owned(),
        ceiling if ceiling.is_ceiling() => format!("times the {ceiling}'s time"),
        baseline => format!("times {baseline}'s speed"),
    }
}

/// Ours beside another provider on one problem, in that unit and by one clock.
pub fn ratio(measurement: &Measurement, beside: Provider, clock: Clock) -> Option<f64> {
    // What a call costs the host no device can tell.
    if (beside, clock) == (Provider::Baseline(Baseline::Elementwise), Clock::Device) {
        return None;
    }
    match beside.is_ceiling() {
        true => measurement.ratio(Provider::Cubenorm, beside, clock),
        false => measurement.ratio(beside, Provider::Cubenorm, clock),
    }
}

/// Whether one ratio is worse than another.
pub fn is_worse(beside: Provider, one: f64, other: f64) -> bool {
    match beside.is_ceiling() {
        true => one > other,
        false => one < other,
    }
}

/// The summaries of a run, in the order of its rows.
pub fn summaries(measurements: &[Measurement]) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = Vec::new();
    for first in measurements {
        let (device, pass, dtype) = (first.device, &first.problem.pass, &first.problem.dtype);
        let is_known = |s: &Summary| s.device == device && s.pass == *pass && s.dtype == *dtype;
        if summaries.iter().any(is_known) {
            continue;
        }
        let alike: Vec<&Measurement> = measurements
            .iter()
            .filter(|m| m.device == device && m.problem.pass == *pass && m.problem.dtype == *dtype)
            .collect();
        let large: Vec<&Measurement> = alike
            .iter()
            .copied()
            .filter(|m| m.said(|about| about.input_bytes) >= Some(LARGE))
            .collect();
        for beside in first.providers.iter().map(|measured| measured.provider) {
            if beside == Provider::Cubenorm {
                continue;
            }
            for clock in Clock::BOTH {
                if let Some(all) = Ratios::of(&alike, beside, clock) {
                    summaries.push(Summary {
                        device,
                        pass: pass.clone(),
                        dtype: dtype.clone(),
                        beside,
                        clock,
                        all,
                        large: Ratios::of(&large, beside, clock),
                    });
                }
            }
        }
    }
    summaries
}

impl Ratios {
    fn of(measurements: &[&Measurement], beside: Provider, clock: Clock) -> Option<Self> {
        let found: Vec<(f64, &Measurement)> = measurements
            .iter()
            .filter_map(|measurement| Some((ratio(measurement, beside, clock)?, *measurement)))
            .collect();
        let ratios: Vec<f64> = found.iter().map(|(ratio, _)| *ratio).collect();
        let (worst, at) =
            found
                .into_iter()
                .reduce(|worst, next| match is_worse(beside, next.0, worst.0) {
                    true => next,
                    false => worst,
                })?;
        Some(Self {
            problems: ratios.len(),
            mean: geometric_mean(&ratios)?,
            worst,
            at: format!("{} {}", at.problem.op, at.problem.tensor()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::fixture::measurements;

    #[test]
    fn the_worst_is_the_slowest_beside_a_peer_and_the_farthest_from_the_copy() {
        let all = summaries(&measurements());
        let of = |beside| {
            let found = all
                .iter()
                .find(|s| s.beside == beside && s.pass == "forward" && s.clock == Clock::Wall);
            found.unwrap().clone()
        };
        let burn = of(Provider::Baseline(Baseline::Burn));
        assert_eq!((burn.all.problems, burn.all.worst), (3, 1.25));
        assert!((burn.all.mean - (5.0f64 * 2.0 * 1.25).cbrt()).abs() < 1e-12);
        assert_eq!(burn.all.at, "rms_norm 1x4096");
        assert_eq!(burn.large.unwrap().problems, 2);
        let copy = of(Provider::Copy);
        assert_eq!(
            (copy.all.worst, copy.all.at.as_str()),
            (4.0, "rms_norm 1x4096")
        );
    }

    #[test]
    fn a_ceiling_is_farther_off_the_longer_ours_takes() {
        let probe = Provider::Baseline(Baseline::Probe);
        assert_eq!(unit(probe), "times the probe's time");
        assert!(is_worse(probe, 2.0, 1.5));
        assert!(is_worse(Provider::Baseline(Baseline::Burn), 1.5, 2.0));
    }

    #[test]
    fn each_clock_has_a_summary_where_both_are_timed_by_it() {
        let all = summaries(&measurements());
        let forward = |beside| {
            let of = all
                .iter()
                .filter(move |s| s.beside == beside && s.pass == "forward");
            of.map(|s| (s.clock, s.all.mean)).collect::<Vec<_>>()
        };
        let [(Clock::Wall, wall), (Clock::Device, device)] =
            forward(Provider::Baseline(Baseline::Burn))[..]
        else {
            panic!("two clocks");
        };
        assert!((device - wall / 0.8).abs() < 1e-12);
        let [(Clock::Wall, _)] = forward(Provider::Baseline(Baseline::Torch))[..] else {
            panic!("one clock");
        };
        let mut tiny = measurements().remove(2);
        tiny.providers[1].provider = Provider::Baseline(Baseline::Elementwise);
        let call = |clock| ratio(&tiny, tiny.providers[1].provider, clock);
        assert!(call(Clock::Wall).is_some() && call(Clock::Device).is_none());
    }

    #[test]
    fn who_has_no_time_has_no_summary() {
        let all = summaries(&measurements());
        let full: Vec<&str> = all
            .iter()
            .filter(|summary| summary.pass == "full" && summary.clock == Clock::Wall)
            .map(|summary| summary.beside.name())
            .collect();
        assert_eq!(full, ["burn", "torch", "copy"]);
    }
}
