//! Summary of a run: how much faster than each baseline, and how near to the copy.

use cubenorm_problems::{DType, Pass};

use super::{
    measure::Measurement,
    provider::{Baseline, Provider},
    stats::Clock,
};
use crate::{commands::ratios::geometric_mean, device::Device};

/// Bytes of an input above which the libraries' own cost of a call no longer counts.
const LARGE: usize = 4 << 20;

/// A device, a pass and a type against one other provider, by one clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub device: Device,
    pub pass: Pass,
    pub dtype: DType,
    pub against: Provider,
    pub clock: Clock,
    pub all: Ratios,
    /// Of the inputs of 4 MiB and larger, if there are any.
    pub large: Option<Ratios>,
}

/// Our speed divided by a baseline's, or our time divided by the copy's.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    pub problems: usize,
    pub mean: f64,
    pub worst: f64,
    /// The problem of the worst.
    pub at: String,
}

/// The meaning of a ratio against a provider.
pub fn unit(against: Provider) -> String {
    match against {
        Provider::Copy => "times a copy's time".to_owned(),
        ceiling if ceiling.is_ceiling() => format!("times the {ceiling}'s time"),
        baseline => format!("times {baseline}'s speed"),
    }
}

/// Ours against another provider on one problem, in that unit and by one clock.
pub fn ratio(measurement: &Measurement, against: Provider, clock: Clock) -> Option<f64> {
    // No device can tell the host's cost of a call.
    if (against, clock) == (Provider::Baseline(Baseline::Elementwise), Clock::Device) {
        return None;
    }
    match against.is_ceiling() {
        true => measurement.ratio(Provider::Cubenorm, against, clock),
        false => measurement.ratio(against, Provider::Cubenorm, clock),
    }
}

/// True if one ratio is worse than another.
pub fn is_worse(against: Provider, one: f64, other: f64) -> bool {
    match against.is_ceiling() {
        true => one > other,
        false => one < other,
    }
}

/// The summaries of a run, in the order of its rows.
pub fn summaries(measurements: &[Measurement]) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = Vec::new();
    for first in measurements {
        let (device, pass, dtype) = (first.device, first.problem.pass, first.problem.dtype);
        let is_known = |s: &Summary| s.device == device && s.pass == pass && s.dtype == dtype;
        if summaries.iter().any(is_known) {
            continue;
        }
        let alike: Vec<&Measurement> = measurements
            .iter()
            .filter(|m| m.device == device && m.problem.pass == pass && m.problem.dtype == dtype)
            .collect();
        let large: Vec<&Measurement> = alike
            .iter()
            .copied()
            .filter(|m| m.said(|about| about.input_bytes) >= Some(LARGE))
            .collect();
        for against in first.providers.iter().map(|measured| measured.provider) {
            if against == Provider::Cubenorm {
                continue;
            }
            for clock in Clock::BOTH {
                if let Some(all) = Ratios::of(&alike, against, clock) {
                    summaries.push(Summary {
                        device,
                        pass,
                        dtype,
                        against,
                        clock,
                        all,
                        large: Ratios::of(&large, against, clock),
                    });
                }
            }
        }
    }
    summaries
}

impl Ratios {
    fn of(measurements: &[&Measurement], against: Provider, clock: Clock) -> Option<Self> {
        let found: Vec<(f64, &Measurement)> = measurements
            .iter()
            .filter_map(|measurement| Some((ratio(measurement, against, clock)?, *measurement)))
            .collect();
        let ratios: Vec<f64> = found.iter().map(|(ratio, _)| *ratio).collect();
        let (worst, at) =
            found
                .into_iter()
                .reduce(|worst, next| match is_worse(against, next.0, worst.0) {
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
    fn worst_is_slowest_vs_baseline_and_farthest_from_copy() {
        let all = summaries(&measurements());
        let of = |against| {
            let found = all.iter().find(|s| {
                s.against == against && s.pass == Pass::Forward && s.clock == Clock::Wall
            });
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
    fn more_time_is_farther_from_a_ceiling() {
        let probe = Provider::Baseline(Baseline::Probe);
        assert_eq!(unit(probe), "times the probe's time");
        assert!(is_worse(probe, 2.0, 1.5));
        assert!(is_worse(Provider::Baseline(Baseline::Burn), 1.5, 2.0));
    }

    #[test]
    fn each_clock_that_timed_both_has_a_summary() {
        let all = summaries(&measurements());
        let forward = |against| {
            let of = all
                .iter()
                .filter(move |s| s.against == against && s.pass == Pass::Forward);
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
    fn a_provider_without_a_time_has_no_summary() {
        let all = summaries(&measurements());
        let full: Vec<&str> = all
            .iter()
            .filter(|summary| summary.pass == Pass::Full && summary.clock == Clock::Wall)
            .map(|summary| summary.against.name())
            .collect();
        assert_eq!(full, ["burn", "torch", "copy"]);
    }
}
