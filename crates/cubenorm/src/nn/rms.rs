use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};

/// Configuration to create an [RMS norm](RmsNorm) with [`init`](RmsNormConfig::init).
#[derive(Debug, Config)]
pub struct RmsNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// [`rms_norm`](crate::rms_norm) with a learnable `gamma`: a drop-in for `burn::nn::RmsNorm`.
///
/// Create it with [`RmsNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RmsNorm {
    /// The learnable weight, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// A value required for numerical stability.
    pub epsilon: f64,
}

impl RmsNormConfig {
    /// Initializes an [RMS norm](RmsNorm) with `gamma` 1.
    ///
    /// # Panics
    ///
    /// Panics if `epsilon` is not positive, as `burn::nn`'s does.
    pub fn init(&self, device: &Device) -> RmsNorm {
        assert!(self.epsilon > 0.0, "epsilon must be positive.");
        RmsNorm {
            gamma: Initializer::Ones.init([self.d_model], device),
            epsilon: self.epsilon,
        }
    }
}

impl RmsNorm {
    /// Normalizes over the last axis.
    ///
    /// # Shapes
    ///
    /// - input, output: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// If [`try_rms_norm`](crate::try_rms_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::RmsNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = RmsNormConfig::new(2).with_epsilon(1e-12).init(&device);
    /// let y = norm.forward(Tensor::<2>::from_floats([[3.0, -3.0]], &device));
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
    /// # }
    /// ```
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        crate::rms_norm(x, self.gamma.val(), self.epsilon)
    }

    /// Normalizes `x + residual`, and returns that sum too: see [`add_rms_norm`](crate::add_rms_norm).
    ///
    /// # Shapes
    ///
    /// - input, residual, outputs: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), and if the residual's shape is not the input's.
    pub fn forward_add<const D: usize>(
        &self,
        x: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        crate::add_rms_norm(x, residual, self.gamma.val(), self.epsilon)
    }
}

impl ModuleDisplay for RmsNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon)
            .optional()
    }
}
