//! The providers, each behind [`Subject`].

mod copy;
mod elementwise;
mod layers;
mod norm;
mod probe;

use std::{fmt, str::FromStr, time::Duration};

use anyhow::{Result, bail};
use burn::tensor::Device;

use crate::{
    check::Outcome,
    clock::Clock,
    problems::{HostData, Pass, Problem},
};

/// A provider with a problem set up on a device.
pub trait Subject {
    /// Number of runs that one sample may hold without filling the device's memory.
    fn most_runs(&self) -> usize;

    /// Chooses the fastest way to run, if there are several. Called after all compilation.
    fn settle(&mut self, _runs: usize) -> Result<()> {
        Ok(())
    }

    /// The time that an idle device takes for `runs` runs, by a clock.
    fn time(&mut self, runs: usize, clock: &Clock) -> Result<Duration>;

    /// One run, read back to the host; `None` if there is nothing to compare.
    fn outcome(&mut self) -> Result<Option<Outcome>>;
}

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// This project.
    Cubenorm,
    /// `burn::nn`, fusion and autotune on.
    Burn,
    /// One elementwise operation of Burn's: the host's cost of a call with next to nothing to
    /// compute.
    Elementwise,
    /// CubeCL's throughput probe of a copy of the bytes that the pass must move.
    Probe,
    /// A copy kernel of the same bytes, launched like a norm: the floor.
    Copy,
}

impl Provider {
    /// Every provider, in the order of a report.
    pub const ALL: [Self; 5] = [
        Self::Cubenorm,
        Self::Burn,
        Self::Elementwise,
        Self::Probe,
        Self::Copy,
    ];

    /// Why this one cannot run the problem, if it cannot.
    pub fn lacks(self, problem: &Problem) -> Option<&'static str> {
        (self == Self::Elementwise && problem.pass != Pass::Forward)
            .then_some("an elementwise operation is measured forward only")
    }

    /// Uploads a problem to the device.
    pub fn subject(
        self,
        problem: &Problem,
        data: &HostData,
        device: &Device,
    ) -> Result<Box<dyn Subject>> {
        match self {
            Self::Cubenorm => norm::subject(&layers::Cubenorm, problem, data, device),
            Self::Burn => norm::subject(&layers::Burn, problem, data, device),
            Self::Elementwise => elementwise::subject(problem, data, device),
            Self::Probe => probe::subject(problem, device),
            Self::Copy => copy::subject(problem, device),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubenorm => "cubenorm",
            Self::Burn => "burn",
            Self::Elementwise => "elementwise",
            Self::Probe => "probe",
            Self::Copy => "copy",
        })
    }
}

impl FromStr for Provider {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match Self::ALL
            .into_iter()
            .find(|provider| provider.to_string() == name)
        {
            Some(provider) => Ok(provider),
            None => {
                let known = Self::ALL.map(|provider| provider.to_string()).join(", ");
                bail!("no provider is called `{name}`; there are {known}")
            }
        }
    }
}
