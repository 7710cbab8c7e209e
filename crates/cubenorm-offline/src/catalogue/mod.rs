//! What is compiled: problems that between them reach every kernel, strategy and part of a kernel.

mod backward;
mod descriptions;
mod elementwise;
mod forward;
mod work;

pub use work::Work;

use cubecl::client::Client;
use cubenorm_core::{DType, GradientDesc, NormDesc, StrategyChoice};

/// Something to launch.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is, in words.
    pub name: String,
    /// What is launched.
    pub work: Work,
    /// Which of its plans are wanted.
    pub breadth: Breadth,
    /// Whether it is measured by the benchmark, so that what the analytic plan comes to should be as
    /// fast as it can be.
    pub measured: bool,
}

/// Which of the plans for a problem are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// The analytic one.
    Analytic,
    /// That and one of each strategy that applies.
    Strategies,
    /// Those and all that the tuner would measure.
    Candidates,
}

impl Case {
    /// Everything, in each dtype.
    pub fn all() -> Vec<Self> {
        let of = |dtype| {
            [
                forward::measured(dtype),
                forward::variants(dtype),
                backward::gradients(dtype),
                elementwise::blends(dtype),
            ]
        };
        DType::ALL.into_iter().flat_map(of).flatten().collect()
    }

    /// The choices that the wanted plans come from, some of which may not apply.
    pub fn choices(&self, client: &Client) -> Vec<StrategyChoice> {
        self.work.choices(client, self.breadth)
    }

    fn forward(name: impl Into<String>, desc: NormDesc) -> Self {
        Self {
            name: name.into(),
            work: Work::Forward(desc),
            breadth: Breadth::Analytic,
            measured: false,
        }
    }

    fn backward(name: impl Into<String>, desc: GradientDesc) -> Self {
        Self {
            name: name.into(),
            work: Work::Backward(desc),
            breadth: Breadth::Analytic,
            measured: false,
        }
    }

    fn with(mut self, breadth: Breadth) -> Self {
        self.breadth = breadth;
        self
    }
}
