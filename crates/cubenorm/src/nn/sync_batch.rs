use std::sync::Arc;

use burn::module::{Content, DisplaySettings, Flag, Module, ModuleDisplay, Param, RunningState};
use burn::tensor::Tensor;

use super::BatchNorm;
use crate::distributed::{Collective, SyncError};

/// Batch norm that trains with the statistics of the batches of all members: a
/// [`BatchNorm`](super::BatchNorm) for data-parallel training with few samples per device.
///
/// ```text
/// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta
/// running = (1 - momentum) * running + momentum * batch     in training, for mean and variance
/// ```
///
/// In training, `mean` and `variance` belong to a channel of the batches of all members. Otherwise they are the running
/// ones, and nothing is exchanged. The function is [`sync_batch_norm_train`](crate::sync_batch_norm_train), and
/// [`distributed`](crate::distributed) has the order of calls that is safe.
///
/// The running statistics of all members are equal. They average biased variances over all elements, as
/// [`BatchNorm`](super::BatchNorm) does. They are updated unless the batches of all members are empty.
///
/// The gradients of `gamma` and `beta` are sums over the member's own batch: data-parallel training averages them.
///
/// Records of [`BatchNorm`](super::BatchNorm) and `burn::nn::BatchNorm` load into it, and its records into them.
///
/// Create it with [`from_batch_norm`](Self::from_batch_norm), from a layer that shares no parameters with other members:
/// `fork` of Burn's modules makes one.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct SyncBatchNorm {
    /// The learnable weight, `[num_features]`.
    pub gamma: Param<Tensor<1>>,
    /// The learnable bias, `[num_features]`.
    pub beta: Param<Tensor<1>>,
    /// True if the layer takes part in training.
    pub training: Param<Flag>,
    /// The running mean, `[num_features]`.
    pub running_mean: RunningState<Tensor<1>>,
    /// The running variance, `[num_features]`.
    pub running_var: RunningState<Tensor<1>>,
    /// Weight of a batch's statistics in the running average.
    pub momentum: f64,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// The connection to the other members.
    #[module(skip)]
    pub collective: Arc<dyn Collective>,
}

impl SyncBatchNorm {
    /// The same layer with the statistics of all members of `collective` in training.
    ///
    /// The running statistics are copied, with all pending updates. Clones and forks of a layer share them, and members
    /// must not. A layer of `burn::nn` becomes a [`BatchNorm`](super::BatchNorm) by [`from_burn`](super::from_burn) first.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::distributed::InProcess;
    /// use cubenorm::nn::{BatchNormConfig, SyncBatchNorm};
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex().autodiff();
    /// let member = InProcess::group(1, Duration::from_secs(10)).remove(0);
    /// let norm = BatchNormConfig::new(1).with_momentum(1.0).init(&device);
    /// let norm = SyncBatchNorm::from_batch_norm(norm, Arc::new(member));
    /// norm.forward(Tensor::<2>::from_floats([[1.0], [3.0]], &device));
    /// norm.sync_running_statistics();
    /// assert_eq!(norm.running_mean.value().into_scalar::<f32>(), 2.0);
    /// # }
    /// ```
    pub fn from_batch_norm(norm: BatchNorm, collective: Arc<dyn Collective>) -> Self {
        Self {
            gamma: norm.gamma,
            beta: norm.beta,
            training: norm.training,
            running_mean: copy(&norm.running_mean),
            running_var: copy(&norm.running_var),
            momentum: norm.momentum,
            epsilon: norm.epsilon,
            collective,
        }
    }

    /// The same layer with the statistics of its own batch alone, with its pending updates of the running statistics.
    pub fn into_batch_norm(self) -> BatchNorm {
        BatchNorm {
            gamma: self.gamma,
            beta: self.beta,
            training: self.training,
            running_mean: self.running_mean,
            running_var: self.running_var,
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }

    /// Normalizes each channel.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, num_features, ...]`; in training the batch may be empty
    ///
    /// # Panics
    ///
    /// If [`try_forward`](Self::try_forward) returns an error, with that message.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.try_forward(input)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// In training as [`try_sync_batch_norm_train`](crate::try_sync_batch_norm_train), else as
    /// [`try_batch_norm`](crate::try_batch_norm).
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, SyncError> {
        match input.device().is_autodiff() && self.training.is_enabled() {
            true => self.forward_train(input),
            false => self.forward_inference(input),
        }
    }

    /// Applies the pending updates of all threads to the running statistics: see
    /// [`BatchNorm::sync_running_statistics`].
    pub fn sync_running_statistics(&self) {
        for state in [&self.running_mean, &self.running_var] {
            // `value_sync` applies nothing if this thread has no update of its own. `valid` always does.
            let _ = state.valid();
        }
    }

    fn forward_inference<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, SyncError> {
        self.sync_running_statistics();
        let device = input.device();
        let [mean, variance] = [&self.running_mean, &self.running_var]
            .map(|running| running.value().to_device(&device));
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        let output = crate::try_batch_norm(input, gamma, beta, mean, variance, self.epsilon)?;
        Ok(output)
    }

    fn forward_train<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, SyncError> {
        let device = input.device();
        let result = crate::try_sync_batch_norm_train(
            input,
            self.gamma.val(),
            self.beta.val(),
            self.epsilon,
            &self.collective,
        )?;
        // No update if the batches of all members are empty, which only the device knows.
        let momentum = result.count.clamp(0.0, 1.0).mul_scalar(self.momentum);
        let update = |running: &RunningState<Tensor<1>>, batch: Tensor<1>| {
            let old = running.value_sync().to_device(&device);
            let momentum = momentum.clone().cast(old.dtype());
            let kept = momentum.clone().neg().add_scalar(1.0);
            let new = old.clone() * kept + batch.cast(old.dtype()) * momentum;
            running.update(new.detach());
        };
        update(&self.running_mean, result.mean);
        update(&self.running_var, result.variance);
        Ok(result.output)
    }
}

/// The same running value, which shares nothing with the old one.
fn copy(running: &RunningState<Tensor<1>>) -> RunningState<Tensor<1>> {
    // `valid` makes a new one, without autodiff.
    let copy = running.valid();
    match running.value().is_autodiff() {
        true => copy.train(),
        false => copy,
    }
}

impl ModuleDisplay for SyncBatchNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [num_features] = self.beta.shape().dims();
        let content = content
            .add("num_features", &num_features)
            .add("momentum", &self.momentum)
            .add("epsilon", &self.epsilon)
            .add("members", &self.collective.members());
        match self.training.is_enabled() {
            true => content.optional(),
            false => content.add("training", &self.training).optional(),
        }
    }
}
