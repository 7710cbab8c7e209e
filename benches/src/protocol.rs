//! Messages between the benchmark driver and a worker: one JSON value per line.
//!
//! The driver is `cargo xtask bench`. A worker is any program that answers, so a provider may be
//! outside Rust. A worker that cannot continue answers [`Reply::Failed`] and stays alive. One that
//! dies is reported as crashed. Lines that are no reply are ignored, because drivers and compilers
//! of GPUs write to standard output too.
//!
//! A worker outside Rust finds the data in files and leaves its result in files; see
//! [`exchange`](crate::exchange).

use serde::{Deserialize, Serialize};

use crate::problems::Problem;

/// A line from the driver.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Set the problem up, check its result and warm up.
    Prepare(Problem),
    /// Time one round of the problem that is set up.
    Round,
}

/// A line from the worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The problem is set up, right and warm. The driver checks the result of a worker outside
    /// Rust.
    Ready(About),
    /// Milliseconds per run, one number per sample of the round.
    Round {
        /// From the first launch until the device is idle, by the host's clock.
        wall: Vec<f64>,
        /// Time of the kernels alone, by the device's clock; empty if it has none.
        #[serde(default)]
        device: Vec<f64>,
    },
    /// The provider does not have the operator, the type or the pass.
    Unsupported(String),
    /// The reason for a missing number.
    Failed(String),
}

/// A worker's description of the problem that it has set up.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Runtime, library and version, threads.
    pub runtime: String,
    /// The plan, if the worker has one.
    pub plan: Option<String>,
    /// Bytes of the input, if the worker knows them.
    pub input_bytes: Option<usize>,
    /// Bytes that the pass must move at least, if the worker knows them.
    pub bytes: Option<usize>,
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
        let known = Reply::Round {
            wall: vec![1.5],
            device: Vec::new(),
        };
        assert_eq!(serde_json::from_str::<Reply>(round).unwrap(), known);
        let reply: Reply = serde_json::from_str(r#"{"ready":{"runtime":"x"}}"#).unwrap();
        let about = About {
            runtime: "x".into(),
            ..About::default()
        };
        assert_eq!(reply, Reply::Ready(about));
    }
}
