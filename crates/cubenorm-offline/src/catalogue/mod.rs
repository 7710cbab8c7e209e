//! The catalogue of problems that together reach every kernel, strategy and variant of a kernel.

mod backward;
mod descriptions;
mod elementwise;
mod forward;
mod work;

pub use work::Work;

use cubecl::client::Client;
use cubenorm_core::{BackwardDesc, DType, NormDesc, StrategyChoice};

/// A problem to launch.
#[derive(Debug, Clone)]
pub struct Case {
    /// Description in words.
    pub name: String,
    /// The launch.
    pub work: Work,
    /// The plans to launch.
    pub breadth: Breadth,
    /// True if the benchmark measures it, so its analytic plan should be fast.
    pub measured: bool,
}

/// The selection of plans for a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// The analytic plan.
    Analytic,
    /// The analytic plan and each strategy that applies. On a CPU Vulkan driver, the autotuning
    /// candidates instead of strategies.
    Strategies,
    /// All of these, and all autotuning candidates.
    Candidates,
}

impl Breadth {
    /// All candidates for the dtype with the widest vectors, which has the most of them.
    fn of_candidates(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::Candidates,
            _ => Self::Strategies,
        }
    }
}

impl Case {
    /// All cases in f32, and the [essential](Self::essential) cases of the other dtypes.
    pub fn all() -> Vec<Self> {
        let float = DType::F32;
        let mut cases = forward::measured(float);
        cases.extend(forward::variants(float));
        cases.extend(forward::heads(float));
        cases.extend(forward::quantized(float));
        cases.extend(backward::gradients(float));
        cases.extend(elementwise::lerps(float));
        // f64 computes activations in its own dtype.
        cases.extend(forward::activated(DType::F64));
        let others = Self::essential().into_iter();
        cases.extend(others.filter(|case| case.work.dtype() != float));
        cases
    }

    /// The forward and backward strategies of each dtype: for devices that differ only in numbers.
    pub fn essential() -> Vec<Self> {
        let of = |dtype| {
            let mut cases = forward::measured(dtype);
            cases.extend(backward::gradients(dtype));
            cases.retain(|case| case.breadth > Breadth::Analytic);
            cases.extend(forward::mixed(dtype));
            cases.extend(forward::heads(dtype));
            cases.extend(forward::quantized(dtype));
            cases.extend(elementwise::lerps(dtype));
            cases
        };
        DType::ALL.into_iter().flat_map(of).collect()
    }

    /// The choices for the requested plans; some may not apply.
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

    fn pair(name: impl Into<String>, descs: [NormDesc; 2]) -> Self {
        Self {
            name: name.into(),
            work: Work::Pair(descs),
            breadth: Breadth::Analytic,
            measured: false,
        }
    }

    fn backward(name: impl Into<String>, desc: BackwardDesc) -> Self {
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
