//! Runs programs on CubeCL's runtimes: buffers are uploaded once, every step is a launch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::server::Handle;
use cubenorm_core::StrategyChoice;
use cubenorm_kernels::{
    BackwardTensors, ForwardTensors, LaunchError, Tensor, launch_backward, launch_forward,
    launch_lerp,
};
use cubenorm_operators::{Gradient, Lerp, Normalize, Program, Role, Slot, Step};

use super::OpenError;
use crate::executor::span_bytes;
use crate::{ExecuteError, Executor, Run};

/// Executor on a CubeCL device.
pub(super) struct CubeExecutor {
    name: String,
    client: Client,
}

impl CubeExecutor {
    /// Starts a device. A runtime without a device or driver panics here. The panic becomes an
    /// error, because a wrong name is a user's mistake.
    pub(super) fn open(name: &str, device: cubecl::Device) -> Result<Self, OpenError> {
        let client = catch_unwind(AssertUnwindSafe(|| device.client()));
        match client {
            Ok(client) => Ok(Self {
                name: name.to_owned(),
                client,
            }),
            Err(cause) => Err(OpenError::NotStarted {
                name: name.to_owned(),
                reason: super::panic_message(cause.as_ref()),
            }),
        }
    }

    fn upload(&self, bytes: &[u8]) -> Handle {
        // Some runtimes cannot allocate an empty buffer. Nothing reads its replacement.
        match bytes.is_empty() {
            true => self.client.empty(size_of::<f64>()),
            false => self.client.create_from_slice(bytes),
        }
    }

    fn step(&self, step: &Step, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        match step {
            Step::Normalize(step) => self.normalize(step, buffers),
            Step::Lerp(step) => self.lerp(step, buffers),
            Step::Gradient(step) => self.gradient(step, buffers),
        }
    }

    fn normalize(&self, step: &Normalize, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        let optional = |slot: Option<Slot>| slot.map(|slot| buffers.get(slot)).transpose();
        let tensors = ForwardTensors {
            input: buffers.get(step.input)?,
            residual: optional(step.residual)?,
            scale: optional(step.scale)?,
            bias: optional(step.bias)?,
            mean: optional(step.mean)?,
            variance: optional(step.variance)?,
            rotation: None,
            codes_scale: None,
            output: Some(buffers.get(step.output)?),
        };
        let choice = StrategyChoice::Inferred;
        let outputs =
            launch_forward(&self.client, &step.desc, &tensors, choice).map_err(launched)?;
        buffers.replace([
            (step.sum, outputs.sum),
            (step.statistics, outputs.statistics),
        ]);
        Ok(())
    }

    fn lerp(&self, step: &Lerp, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        let previous = step.previous.map(|slot| buffers.get(slot)).transpose()?;
        let (input, output) = (buffers.get(step.input)?, buffers.get(step.output)?);
        launch_lerp(&self.client, &step.desc, &input, previous.as_ref(), &output).map_err(launched)
    }

    fn gradient(&self, step: &Gradient, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        let optional = |slot: Option<Slot>| slot.map(|slot| buffers.get(slot)).transpose();
        let tensors = BackwardTensors {
            saved: optional(step.saved)?,
            scale: optional(step.scale)?,
            bias: optional(step.bias)?,
            input_gradient: optional(step.input_gradient)?,
            ..BackwardTensors::new(buffers.get(step.input)?, buffers.get(step.output_gradient)?)
        };
        let choice = StrategyChoice::Inferred;
        let outputs =
            launch_backward(&self.client, &step.desc, &tensors, choice).map_err(launched)?;
        buffers.replace([
            (step.scale_gradient, outputs.scale),
            (step.bias_gradient, outputs.bias),
        ]);
        Ok(())
    }

    fn sync(&self) -> Result<(), ExecuteError> {
        block_on(self.client.sync()).map_err(|error| ExecuteError::Failed(format!("{error:?}")))
    }
}

/// Buffer of each tensor.
struct Buffers(BTreeMap<Slot, Handle>);

impl Buffers {
    fn get(&self, slot: Slot) -> Result<Handle, ExecuteError> {
        let missing = || ExecuteError::Failed(format!("tensor {} has no buffer", slot.0));
        self.0.get(&slot).cloned().ok_or_else(missing)
    }

    /// Replaces the program's buffer by one that a launch has allocated.
    fn replace(&mut self, results: [(Option<Slot>, Option<Tensor>); 2]) {
        for (slot, tensor) in results {
            if let (Some(slot), Some(tensor)) = (slot, tensor) {
                self.0.insert(slot, tensor.handle);
            }
        }
    }
}

/// Separates features that a device lacks from other errors.
fn launched(error: LaunchError) -> ExecuteError {
    let message = error.to_string();
    match error {
        LaunchError::DType { .. } | LaunchError::Activation { .. } => {
            ExecuteError::Unsupported(message)
        }
        _ => ExecuteError::Failed(message),
    }
}

impl Executor for CubeExecutor {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(
        &self,
        program: &Program,
        buffers: &BTreeMap<Slot, Vec<u8>>,
        iterations: usize,
    ) -> Result<Run, ExecuteError> {
        let mut run = Run::default();
        let mut device_times: Option<Vec<Duration>> = Some(Vec::new());
        let mut handles = Buffers(BTreeMap::new());
        for _ in 0..iterations.max(1) {
            for (index, tensor) in program.tensors.iter().enumerate() {
                let slot = Slot(index);
                let handle = match (tensor.role, buffers.get(&slot)) {
                    (Role::Temporary, _) | (_, None) => {
                        let bytes = span_bytes(&tensor.desc).ok_or_else(|| {
                            ExecuteError::Failed(format!("{} is too large", tensor.name))
                        })?;
                        self.client.empty(bytes.max(size_of::<f64>()))
                    }
                    (_, Some(bytes)) => self.upload(bytes),
                };
                handles.0.insert(slot, handle);
            }
            self.sync()?;
            let start = Instant::now();
            let window = self.client.profile_start().ok();
            for step in &program.steps {
                let done = self.step(step, &mut handles);
                if let (Err(error), Some(window)) = (&done, window) {
                    self.client.profile_abandon(window);
                    return Err(error.clone());
                }
                done?;
            }
            let measured = window.and_then(|window| self.client.profile_end(window).ok());
            self.sync()?;
            run.host_times.push(start.elapsed());
            let ticks = measured.and_then(|measured| block_on(measured.resolve()));
            match (&mut device_times, ticks) {
                (Some(times), Some(ticks)) => times.push(ticks.duration()),
                (times, _) => *times = None,
            }
        }
        run.device_times = device_times;
        for (slot, _) in program.outputs() {
            let length = buffers.get(&slot).map_or(0, Vec::len);
            let mut bytes = match length {
                0 => Vec::new(),
                _ => self
                    .client
                    .read_one(handles.get(slot)?)
                    .map_err(|error| ExecuteError::Failed(format!("{error:?}")))?
                    .to_vec(),
            };
            // A buffer allocated by the launch ends with the layout; the caller's may be longer.
            if let Some(rest) = buffers
                .get(&slot)
                .and_then(|before| before.get(bytes.len()..))
            {
                bytes.extend_from_slice(rest);
            }
            bytes.truncate(length);
            run.outputs.insert(slot, bytes);
        }
        Ok(run)
    }
}
