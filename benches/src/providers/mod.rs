//! The providers, each behind [`Subject`].

mod copy;
mod layers;
mod norm;
mod probe;

use std::time::Duration;

use anyhow::{Result, bail};
use burn::tensor::Device;

use crate::{
    check::Outcome,
    clock::Clock,
    problems::{HostData, Pass, Problem, Provider},
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

    /// Records `runs` runs as a graph, and returns the time of each of `samples` samples of its replays, divided by the
    /// replays. Empty if the device records no graph.
    fn replay(&mut self, _runs: usize, _samples: usize) -> Result<Vec<Duration>> {
        Ok(Vec::new())
    }

    /// One run, read back to the host; `None` if there is nothing to compare.
    fn outcome(&mut self) -> Result<Option<Outcome>>;
}

/// Why a provider cannot run the problem, if it cannot.
pub fn lacks(provider: Provider, problem: &Problem) -> Option<&'static str> {
    match provider {
        _ if problem.pass == Pass::Forward => None,
        Provider::Elementwise => Some("an elementwise operation is measured forward only"),
        Provider::Installed => Some("install leaves training to Burn"),
        _ => None,
    }
}

/// Uploads a problem to the device, for a provider.
pub fn subject(
    provider: Provider,
    problem: &Problem,
    data: &HostData,
    device: &Device,
) -> Result<Box<dyn Subject>> {
    match provider {
        Provider::Cubenorm => norm::subject(&layers::Cubenorm, problem, data, device),
        Provider::Burn | Provider::Installed => norm::subject(&layers::Burn, problem, data, device),
        Provider::Elementwise => norm::subject(&layers::AddOne, problem, data, device),
        Provider::Probe => probe::subject(problem, device),
        Provider::Copy => copy::subject(problem, device),
        library => bail!("{library} is no provider in Rust"),
    }
}
