//! Plans of one problem: the analytic plan, the tuner's choice, and the time of each.

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

/// Candidates of one pass of a problem on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The pass: forward, which may write statistics for the backward pass, or backward.
    pub pass: String,
    /// Milliseconds of a copy of the bytes that the pass must move, if CubeCL's probe could measure
    /// it.
    pub copy: Option<f64>,
    /// Every candidate, the analytic plan first.
    pub candidates: Vec<Candidate>,
    /// The name of the one that the tuner chose.
    pub chosen: String,
    /// Milliseconds that the tuner took, compilation included; few if the choice was known already.
    pub took: f64,
}

/// Time of each strategy that can run a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strategies {
    /// The bytes that the pass must move at least.
    pub bytes: usize,
    /// Milliseconds of a copy of these bytes: CubeCL's probe on a GPU, elsewhere the benchmark's
    /// own.
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

/// The plan of a problem, and its reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The description, as JSON.
    pub desc: serde_json::Value,
    /// The analytic plan.
    pub plan: String,
    /// The bytes that any implementation must move.
    pub minimum: usize,
    /// The bytes that this plan requests. Bytes that are read twice count twice.
    pub moved: usize,
    /// True if a cache probably holds the bytes that are read twice.
    pub reads_again: bool,
    /// The candidates of the tuner, best estimate first.
    pub candidates: Vec<String>,
    /// The kernels of the analytic plan, as CubeCL has them before it compiles them.
    pub kernels: Vec<String>,
}
