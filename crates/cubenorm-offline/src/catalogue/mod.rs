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
    /// That and one of each strategy that applies; for a software driver what the tuner would measure.
    Strategies,
    /// Those and all that the tuner would measure.
    Candidates,
}

impl Breadth {
    /// All candidates of the dtype with the widest vectors, which has the most of them.
    fn of_candidates(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::Candidates,
            _ => Self::Strategies,
        }
    }
}

impl Case {
    /// Everything in f32, and of the other dtypes what is [essential](Self::essential).
    pub fn all() -> Vec<Self> {
        let float = DType::F32;
        let mut cases = forward::measured(float);
        cases.extend(forward::variants(float));
        cases.extend(backward::gradients(float));
        cases.extend(elementwise::blends(float));
        // Functions are another dtype's own where they are computed in it.
        cases.extend(forward::activated(DType::F64));
        let others = Self::essential().into_iter();
        cases.extend(others.filter(|case| case.work.dtype() != float));
        cases
    }

    /// Of each dtype the strategies there and back: for a device that differs from another in its numbers
    /// alone.
    pub fn essential() -> Vec<Self> {
        let of = |dtype| {
            let mut cases = forward::measured(dtype);
            cases.extend(backward::gradients(dtype));
            cases.retain(|case| case.breadth > Breadth::Analytic);
            cases.extend(forward::mixed(dtype));
            cases.extend(elementwise::blends(dtype));
            cases
        };
        DType::ALL.into_iter().flat_map(of).collect()
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
