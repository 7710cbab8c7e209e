//! One elementwise operation of Burn's, for the host's cost of a call.

use std::time::Duration;

use anyhow::Result;
use burn::tensor::{Device, Tensor};

use super::Subject;
use super::norm::{self, Forward, Library};
use crate::check::Outcome;
use crate::clock::Clock;
use crate::problems::{HostData, Problem};

/// Adds a number to the input of a problem.
pub fn subject(problem: &Problem, data: &HostData, device: &Device) -> Result<Box<dyn Subject>> {
    let subject = norm::subject(&AddOne, problem, data, device)?;
    Ok(Box::new(Elementwise(subject)))
}

struct AddOne;

impl Library for AddOne {
    fn forward<const D: usize>(&self, _: &Problem, _: Tensor<1>, _: Tensor<1>) -> Forward<D> {
        Box::new(|input| input.add_scalar(1.0))
    }
}

/// Timed like a norm.
struct Elementwise(Box<dyn Subject>);

impl Subject for Elementwise {
    fn most_runs(&self) -> usize {
        self.0.most_runs()
    }

    fn settle(&mut self, runs: usize) -> Result<()> {
        self.0.settle(runs)
    }

    fn time(&mut self, runs: usize, clock: &Clock) -> Result<Duration> {
        self.0.time(runs, clock)
    }

    fn outcome(&mut self) -> Result<Option<Outcome>> {
        Ok(None)
    }
}
