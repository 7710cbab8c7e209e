//! Messages between the benchmark driver and a worker: one JSON value per line.
//!
//! The driver is `cargo xtask bench`. A worker is any program that answers, so a provider may be
//! outside Rust. A worker that cannot continue answers [`Reply::Failed`] and stays alive. One that
//! dies is reported as crashed. Lines that are no reply are ignored, because drivers and compilers
//! of GPUs write to standard output too.
//!
//! A worker outside Rust finds the data in files and leaves its result in files: module `exchange`
//! of the benchmark.

use serde::{Deserialize, Serialize};

use crate::Problem;

/// A line from the driver.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Set the problem up, check its result and warm up.
    Prepare(Problem),
    /// Time one round of the problem that is set up.
    Round,
    /// Record the runs of a sample as a graph and time its replays.
    Replay,
}

/// A line from the worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The problem is set up, right and warm. The driver checks the result of a worker outside
    /// Rust.
    Ready(About),
    /// Times of the round, or of the replays.
    Round(Samples),
    /// The provider does not have the operator, the type or the pass.
    Unsupported(String),
    /// The reason for a missing number.
    Failed(String),
}

/// Milliseconds per run, one number per sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// From the first launch until the device is idle, by the host's clock.
    pub wall: Vec<f64>,
    /// Time of the kernels alone, by the device's clock; empty if it has none.
    #[serde(default)]
    pub device: Vec<f64>,
    /// Time of a replay of the recorded runs, by the host's clock; empty if nothing can be recorded.
    #[serde(default)]
    pub replay: Vec<f64>,
}

/// A worker's description of the problem that it has set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Runtime, library and version, threads.
    pub runtime: String,
    /// The plan, if the worker has one.
    pub plan: Option<String>,
    /// Bytes that the pass must move at least, if the worker knows them.
    pub bytes: Option<usize>,
}

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

/// Error of a provider for one case of `cargo xtask accuracy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured.
    Measured(Deviation),
    /// The provider does not have this operator or data type.
    Skipped(String),
    /// The provider has it, and returned no result.
    Failed(String),
}

/// Error of a result, in units in the last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// The largest deviation; 0.5 is the best that rounding allows.
    pub max_ulp: f64,
    /// The mean deviation.
    pub mean_ulp: f64,
    /// Number of elements that are infinite or NaN and should not be, or the reverse. They are not
    /// in the numbers above.
    pub not_finite: usize,
    /// Number of elements.
    pub elements: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let line =
            r#"{"prepare":{"op":"layer_norm","shape":[2,4],"dtype":"f32","pass":"forward"}}"#;
        let request: Request = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(
            serde_json::from_str::<Request>(r#""round""#).unwrap(),
            Request::Round
        );
    }

    #[test]
    fn a_worker_need_not_say_everything() {
        let round = r#"{"round":{"wall":[1.5]}}"#;
        let known = Reply::Round(Samples {
            wall: vec![1.5],
            ..Samples::default()
        });
        assert_eq!(serde_json::from_str::<Reply>(round).unwrap(), known);
        let reply: Reply = serde_json::from_str(r#"{"ready":{"runtime":"x"}}"#).unwrap();
        let about = About {
            runtime: "x".into(),
            ..About::default()
        };
        assert_eq!(reply, Reply::Ready(about));
    }
}
