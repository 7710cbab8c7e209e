//! One problem's plans: what would run, what the tuner chooses, and how long each takes.

#[cfg(not(feature = "cube"))]
mod absent;
#[cfg(feature = "cube")]
mod bundle;
#[cfg(feature = "cube")]
mod call;
#[cfg(feature = "cube")]
mod described;

use serde::{Deserialize, Serialize};

#[cfg(not(feature = "cube"))]
pub use absent::{bundled, explain, log_sources, plan, running, runtime, strategies, tune};
#[cfg(feature = "cube")]
pub(crate) use described::client;
#[cfg(feature = "cube")]
pub use {
    bundle::bundled,
    call::{running, strategies, tune},
    described::{explain, log_sources, plan, runtime},
};

/// What is known of the candidates of one of a problem's passes on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Which pass: forward, which may write statistics for the way back, or backward.
    pub pass: String,
    /// A copy of as many bytes as the pass must move, in milliseconds, where CubeCL's probe could
    /// measure it.
    pub copy: Option<f64>,
    /// Every candidate, the analytic plan first.
    pub candidates: Vec<Candidate>,
    /// The name of the one that the tuner chose.
    pub chosen: String,
    /// How long the tuner took, in milliseconds, compiling included; little where it knew already.
    pub took: f64,
}

/// How fast each strategy is that can run a problem at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strategies {
    /// The bytes that the pass must move at least.
    pub bytes: usize,
    /// A copy of as many bytes, in milliseconds: CubeCL's probe of a GPU, elsewhere the benchmark's own.
    pub copy: f64,
    /// One for each strategy, the analytic plan last.
    pub candidates: Vec<Candidate>,
}

/// A candidate, timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its knobs, as they print.
    pub name: String,
    /// Its plan, as it prints.
    pub plan: String,
    /// The median of its times, in milliseconds.
    pub time: f64,
}

/// The analytic plan of a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Its strategy.
    pub strategy: String,
    /// All of it, as it prints.
    pub plan: String,
}

/// What would run for a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The description, as JSON.
    pub desc: serde_json::Value,
    /// The analytic plan.
    pub plan: String,
    /// The bytes that any implementation must move.
    pub minimum: usize,
    /// The bytes that this plan asks for, what it reads again counted again.
    pub moved: usize,
    /// Whether what is read again can be expected in a cache.
    pub reads_again: bool,
    /// The candidates of the tuner, best estimate first.
    pub candidates: Vec<String>,
    /// The kernels of the analytic plan, as CubeCL has them before it compiles them.
    pub kernels: Vec<String>,
}
