//! The floor as CubeCL has it: its throughput probe of a copy.

use std::time::Duration;

use anyhow::{Context, Result};
use burn::tensor::Device;

use super::Subject;
use crate::{check::Outcome, clock::Clock, environment::apart, problems::Problem};

/// Probes the device that Burn's tensors are on.
pub(super) fn subject(problem: &Problem, device: &Device) -> Result<Box<dyn Subject>> {
    let client = crate::tune::client(device)?;
    // Measured now: CubeCL may have kept a result of another day.
    let probed = || crate::probe::copy_milliseconds(&client, problem.bytes());
    let milliseconds = apart("probe", probed).context("CubeCL's probe failed")?;
    Ok(Box::new(Probe(milliseconds)))
}

/// Milliseconds of a copy: the least of the probe's own samples, and so without a spread. By the
/// device's clock if there is one.
struct Probe(f64);

impl Subject for Probe {
    fn most_runs(&self) -> usize {
        1
    }

    fn time(&mut self, runs: usize, _: &Clock) -> Result<Duration> {
        Ok(Duration::from_secs_f64(1e-3 * self.0 * runs as f64))
    }

    fn outcome(&mut self) -> Result<Option<Outcome>> {
        Ok(None)
    }
}
