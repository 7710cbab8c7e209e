use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::{Activation, NormError};

use crate::GateOptions;
use crate::functional::or_panic;

/// Configuration to create a [gated RMS norm](GatedRmsNorm) with [`init`](GatedRmsNormConfig::init).
#[derive(Debug, Config)]
pub struct GatedRmsNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// True if the normalized value is multiplied by the gate, false if the input is. Default: true
    #[config(default = true)]
    pub norm_before_gate: bool,
    /// The number of features that are normalized together. Default: all
    pub group_size: Option<usize>,
    /// The activation of the gate. Default: SiLU
    #[config(default = "Activation::Silu")]
    pub activation: Activation,
}

/// [`gated_rms_norm`](crate::gated_rms_norm) with a learnable `gamma`: `RMSNormGated` of
/// [Mamba-2](https://arxiv.org/abs/2405.21060).
///
/// Create it with [`GatedRmsNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct GatedRmsNorm {
    /// The learnable weight, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// True if the normalized value is multiplied by the gate, false if the input is.
    pub norm_before_gate: bool,
    /// The number of features that are normalized together.
    #[module(skip)]
    pub group_size: Option<usize>,
    /// The activation of the gate.
    #[module(skip)]
    pub activation: Activation,
}

impl GatedRmsNormConfig {
    /// Initializes a [gated RMS norm](GatedRmsNorm) with `gamma` 1.
    pub fn init(&self, device: &Device) -> GatedRmsNorm {
        GatedRmsNorm {
            gamma: Initializer::Ones.init([self.d_model], device),
            epsilon: self.epsilon,
            norm_before_gate: self.norm_before_gate,
            group_size: self.group_size,
            activation: self.activation,
        }
    }
}

impl GatedRmsNorm {
    /// Normalizes the last axis, or groups of it, with the gate.
    ///
    /// # Shapes
    ///
    /// - input, gate, output: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// If [`try_gated_rms_norm`](crate::try_gated_rms_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::Activation;
    /// use cubenorm::nn::GatedRmsNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let config = GatedRmsNormConfig::new(4).with_epsilon(0.0).with_group_size(Some(2));
    /// let norm = config.with_activation(Activation::Relu).init(&device);
    /// let x = Tensor::<2>::from_floats([[1.0, -1.0, 5.0, 5.0]], &device);
    /// let gate = Tensor::<2>::from_floats([[1.0, 2.0, -1.0, 3.0]], &device);
    /// let y = norm.forward(x, gate);
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -2.0, 0.0, 3.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>, gate: Tensor<D>) -> Tensor<D> {
        or_panic(self.try_forward(input, gate))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_gated_rms_norm`](crate::try_gated_rms_norm).
    pub fn try_forward<const D: usize>(
        &self,
        input: Tensor<D>,
        gate: Tensor<D>,
    ) -> Result<Tensor<D>, NormError> {
        let options = GateOptions::new()
            .with_epsilon(self.epsilon)
            .with_norm_before_gate(self.norm_before_gate)
            .with_group_size(self.group_size)
            .with_activation(self.activation);
        crate::try_gated_rms_norm(input, gate, self.gamma.val(), &options)
    }
}

impl ModuleDisplay for GatedRmsNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        let content = content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon)
            .add("norm_before_gate", &self.norm_before_gate)
            .add_debug_attribute("activation", &self.activation);
        let content = match self.group_size {
            Some(size) => content.add("group_size", &size),
            None => content,
        };
        content.optional()
    }
}
