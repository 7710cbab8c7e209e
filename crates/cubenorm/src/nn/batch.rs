use burn::config::Config;
use burn::module::{Content, DisplaySettings, Flag, Module, ModuleDisplay, Param, RunningState};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use crate::functional::{is_capturing, or_panic, try_batch_norm_running};

/// Configuration to create a [batch norm](BatchNorm) with [`init`](BatchNormConfig::init).
#[derive(Debug, Config)]
pub struct BatchNormConfig {
    /// The number of features. Must be greater than zero.
    pub num_features: usize,
    /// A finite, positive value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Weight of a batch's statistics in the running average, from 0 to 1. Default: 0.1
    #[config(default = 0.1)]
    pub momentum: f64,
}

/// Batch norm with learnable `gamma` and `beta` and running statistics: a drop-in for
/// `burn::nn::BatchNorm`.
///
/// ```text
/// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta
/// running = (1 - momentum) * running + momentum * batch     in training, for mean and variance
/// ```
///
/// `mean` and `variance` belong to a channel of the batch in training, and are the running ones otherwise. The layer is
/// in training if the input is on an autodiff device and [`training`](Self::training) is true. `valid()` and
/// freezing set `training` to false. The functions are [`batch_norm_train`](crate::batch_norm_train) and
/// [`batch_norm`](crate::batch_norm).
///
/// # Running statistics
///
/// The running variance averages biased variances, as in `burn::nn::BatchNorm`. PyTorch averages unbiased ones.
///
/// **Before you save a layer in training**, call [`sync_running_statistics`](Self::sync_running_statistics) or `valid()`:
/// the last update is pending until then, as in Burn, and a record leaves it out.
///
/// Each thread has one pending update. The next step of a thread applies its own. If several threads have one, the
/// running value becomes their average, with equal weights. An empty batch updates nothing.
///
/// One difference to `burn::nn::BatchNorm`: inference applies the pending updates first. Burn's inference right after a
/// step leaves out that step.
///
/// Create it with [`BatchNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BatchNorm {
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
}

impl BatchNormConfig {
    /// Initializes a [batch norm](BatchNorm) with `gamma` 1, `beta` 0, a running mean of 0 and a
    /// running variance of 1.
    ///
    /// # Panics
    ///
    /// If `num_features` is zero, `epsilon` is not finite and positive, or `momentum` is not finite and within `[0, 1]`.
    pub fn init(&self, device: &Device) -> BatchNorm {
        assert!(
            self.num_features > 0,
            "num_features must be greater than zero."
        );
        assert!(
            self.epsilon.is_finite() && self.epsilon > 0.0,
            "epsilon must be finite and positive."
        );
        assert!(
            (0.0..=1.0).contains(&self.momentum),
            "momentum must be finite and within [0, 1]."
        );
        let size = [self.num_features];
        BatchNorm {
            gamma: Initializer::Ones.init(size, device),
            beta: Initializer::Zeros.init(size, device),
            training: Param::from_bool(true),
            running_mean: RunningState::new(Tensor::zeros(size, device)),
            running_var: RunningState::new(Tensor::ones(size, device)),
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl BatchNorm {
    /// Normalizes each channel.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, num_features, ...]`
    ///
    /// # Panics
    ///
    /// If [`try_forward`](Self::try_forward) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::BatchNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = BatchNormConfig::new(2).init(&device);
    /// // Not in training: the running statistics are still 0 and 1.
    /// let y = norm.forward(Tensor::<2>::from_floats([[0.0, 2.0]], &device));
    /// assert!((y.sum().into_scalar::<f32>() - 2.0).abs() < 1e-4);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        or_panic(self.try_forward(input))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_batch_norm`](crate::try_batch_norm). In training, [`NormError::Recorded`] if a graph is being recorded.
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        match input.device().is_autodiff() && self.training.is_enabled() {
            true => self.forward_train(input),
            false => self.forward_inference(input),
        }
    }

    /// Applies the pending updates of all threads to the running statistics.
    ///
    /// An update that another thread makes later is averaged with the updates of its own time only.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::BatchNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex().autodiff();
    /// let norm = BatchNormConfig::new(1).with_momentum(1.0).init(&device);
    /// norm.forward(Tensor::<2>::from_floats([[1.0], [3.0]], &device));
    /// norm.sync_running_statistics();
    /// assert_eq!(norm.running_mean.value().into_scalar::<f32>(), 2.0);
    /// # }
    /// ```
    pub fn sync_running_statistics(&self) {
        for state in [&self.running_mean, &self.running_var] {
            // `value_sync` applies nothing if this thread has no update of its own. `valid` always does.
            let _ = state.valid();
        }
    }

    fn forward_inference<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        self.sync_running_statistics();
        let device = input.device();
        let mean = self.running_mean.value().to_device(&device);
        let variance = self.running_var.value().to_device(&device);
        crate::try_batch_norm(
            input,
            self.gamma.val(),
            self.beta.val(),
            mean,
            variance,
            self.epsilon,
        )
    }

    fn forward_train<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        let device = input.device();
        if is_capturing(&device) {
            return Err(NormError::Recorded {
                operation: "batch norm in training",
                reason: "a replay would not update the running statistics: record \
                         cubenorm::batch_norm_train, or freeze the BatchNorm",
            });
        }
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        // An empty batch has no mean to average.
        if input.shape().num_elements() == 0 {
            let result = crate::try_batch_norm_train(input, gamma, beta, self.epsilon)?;
            return Ok(result.output);
        }
        let states = [&self.running_mean, &self.running_var];
        let running = states.map(|state| state.value_sync().to_device(&device));
        let (output, updated) =
            try_batch_norm_running(input, gamma, beta, running, self.momentum, self.epsilon)?;
        for (state, updated) in states.into_iter().zip(updated) {
            state.update(updated.detach());
        }
        Ok(output)
    }
}

impl ModuleDisplay for BatchNorm {
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
            .add("epsilon", &self.epsilon);
        match self.training.is_enabled() {
            true => content.optional(),
            false => content.add("training", &self.training).optional(),
        }
    }
}
