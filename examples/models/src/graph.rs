//! Steps as graphs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};
use burn::backend::{Backend, BackendTypes, Dispatch, ExecutionError};
use burn::tensor::{Device, Tensor};

use crate::networks::Step;

/// Steps before the recorded one, as in [`burn::tensor::capture`]. The first ones tune kernels, change
/// Burn's fusion, and allocate.
pub const WARM_UP: usize = 3;

/// A recorded step, and its output.
pub struct Graph<'a> {
    graph: <Dispatch as BackendTypes>::GraphPrimitive,
    device: &'a Device,
    output: Tensor<2>,
    /// Owns the tensors that the graph reads.
    _step: Step,
}

impl<'a> Graph<'a> {
    /// Records a step.
    ///
    /// It has the steps of [`burn::tensor::capture`], and keeps the reason of a refusal.
    ///
    /// # Errors
    ///
    /// If Burn or the device refuses.
    pub fn record(device: &'a Device, mut step: Step) -> Result<Self> {
        let dispatch = device.as_dispatch();
        Dispatch::graph_prepare(dispatch).map_err(refusal)?;
        let recorded = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..WARM_UP {
                let output = step.run();
                device.sync().map_err(refusal)?;
                drop(output);
            }
            Dispatch::graph_start_capture(dispatch).map_err(refusal)?;
            anyhow::Ok(step.run())
        }));
        // Also after an error or a panic: until then every launch would be recorded.
        let graph = Dispatch::graph_stop_capture(dispatch).map_err(refusal);
        let output = recorded.map_err(|cause| panicked(cause.as_ref()))??;
        Ok(Self {
            graph: graph?,
            device,
            output,
            _step: step,
        })
    }

    /// Queues a replay.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: The step and this graph own the tensors that the recorded launches use. Only this
        // thread uses the device.
        unsafe { Dispatch::graph_replay(self.device.as_dispatch(), &self.graph) }.map_err(refusal)
    }

    /// The output of the last replay.
    pub fn output(&self) -> Tensor<2> {
        self.output.clone()
    }
}

/// The reason of an error of Burn, on one line.
fn refusal(error: ExecutionError) -> anyhow::Error {
    anyhow!(one_line(&error.to_string()))
}

/// The message of a panic, on one line.
fn panicked(cause: &(dyn Any + Send)) -> anyhow::Error {
    let message = cause.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| cause.downcast_ref::<&str>().copied());
    let message = one_line(message.unwrap_or("no message"));
    anyhow!("the step panicked while it was recorded: {message}")
}

/// The innermost cause of a message, on one line.
fn one_line(message: &str) -> String {
    let cause = message.rsplit("Caused by:").next().unwrap_or_default();
    let words: Vec<&str> = cause.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_one_line() {
        let error = ExecutionError::WithContext {
            reason: "it\nallocates".to_owned(),
        };
        assert_eq!(refusal(error).to_string(), "it allocates");
    }
}
