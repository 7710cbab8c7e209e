use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};

use super::memory::{Memory, in_use};
use crate::{Norms, read};

/// A model in training and its measurements.
pub struct Trainer<M> {
    model: M,
    optimizer: ModuleOptimizer,
    device: Device,
    run: Run,
}

/// Measurements of a training.
#[derive(Debug, Clone)]
pub struct Run {
    /// Implementation of the norms.
    pub norms: Norms,
    /// Loss of each step's batch, before the update.
    pub losses: Vec<f32>,
    /// Time of each epoch.
    pub epochs: Vec<Duration>,
    /// Memory of a step. None if the device does not report it.
    pub memory: Option<Memory>,
}

impl<M: Module> Trainer<M> {
    /// An untrained model on a device with autodiff.
    pub fn new(norms: Norms, model: M, optimizer: ModuleOptimizer, device: &Device) -> Self {
        Self {
            model,
            optimizer,
            device: device.clone(),
            run: Run {
                norms,
                losses: Vec::new(),
                epochs: Vec::new(),
                memory: None,
            },
        }
    }

    /// Current model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Measurements up to now.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Runs training steps with the loss and the learning rate of each step.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn epoch(
        mut self,
        steps: Range<usize>,
        rate: impl Fn(usize) -> f64,
        loss: impl Fn(&M, usize) -> Tensor<1>,
    ) -> Result<Self> {
        self.sync()?;
        let start = Instant::now();
        // Read together, since each read waits for the device.
        let mut losses = Vec::with_capacity(steps.len());
        for step in steps {
            let loss = loss(&self.model, step);
            let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
            self.model = self.optimizer.step(rate(step), self.model, gradients);
            losses.push(loss.inner());
        }
        let losses = read(Tensor::cat(losses, 0));
        self.sync()?;
        self.run.epochs.push(start.elapsed());
        self.run.losses.extend(losses?);
        Ok(self)
    }

    /// Measures the memory of a step without an update.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_memory(mut self, loss: impl Fn(&M) -> Tensor<1>) -> Result<Self> {
        self.sync()?;
        let before = in_use(&self.device);
        let loss = loss(&self.model);
        let forward = in_use(&self.device);
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        let backward = in_use(&self.device);
        drop(gradients);
        self.run.memory = match (before, forward, backward) {
            (Some(before), Some(forward), Some(backward)) => {
                Some(Memory::of(before, forward, backward))
            }
            _ => None,
        };
        Ok(self)
    }

    fn sync(&self) -> Result<()> {
        self.device
            .sync()
            .map_err(|error| anyhow!("the device failed: {error:?}"))
    }
}

impl Run {
    /// Median time of an epoch. The first one compiles kernels and counts only if it is alone.
    pub fn epoch(&self) -> Duration {
        let mut settled = match self.epochs.as_slice() {
            [_, settled @ ..] if !settled.is_empty() => settled.to_vec(),
            all => all.to_vec(),
        };
        settled.sort_unstable();
        settled.get(settled.len() / 2).copied().unwrap_or_default()
    }

    /// Mean loss of the last `count` steps, or of all if there are fewer; NaN without any.
    pub fn last_losses(&self, count: usize) -> f32 {
        let last = &self.losses[self.losses.len().saturating_sub(count)..];
        last.iter().sum::<f32>() / last.len() as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(epochs: &[u64], losses: &[f32]) -> Run {
        Run {
            norms: Norms::Burn,
            losses: losses.to_vec(),
            epochs: epochs.iter().copied().map(Duration::from_millis).collect(),
            memory: None,
        }
    }

    #[test]
    fn first_epoch_counts_only_alone() {
        assert_eq!(run(&[900, 3, 1, 2], &[]).epoch(), Duration::from_millis(2));
        assert_eq!(run(&[900], &[]).epoch(), Duration::from_millis(900));
        assert_eq!(run(&[], &[]).epoch(), Duration::ZERO);
    }

    #[test]
    fn last_losses_are_averaged() {
        assert_eq!(run(&[], &[9.0, 1.0, 3.0]).last_losses(2), 2.0);
        assert_eq!(run(&[], &[4.0]).last_losses(5), 4.0);
        assert!(run(&[], &[]).last_losses(5).is_nan());
    }
}
