use burn::config::{Config, config_to_json};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::serde::{Deserialize, Serialize};
use burn::tensor::{Device, Tensor};
use cubenorm_core::{NormError, Rounding};

use crate::NormOptions;
use crate::functional::or_panic;

/// Configuration to create an [RMS norm](RmsNorm) with [`init`](RmsNormConfig::init).
///
/// A saved config of `burn::nn` loads: it has neither offset nor rounding.
// Not by Burn's derive, which has no defaults for absent fields of a saved config.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(crate = "burn::serde")]
pub struct RmsNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// A value required for numerical stability. Default: 1e-5
    pub epsilon: f64,
    /// Added to `gamma`; Gemma has 1. Default: 0
    #[serde(default)]
    pub offset: f64,
    /// The rounding of the normalized value; Llama has [`Rounding::BeforeScale`]. Default: [`Rounding::None`]
    #[serde(default)]
    pub rounding: Rounding,
}

impl Config for RmsNormConfig {}

impl std::fmt::Display for RmsNormConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&config_to_json(self))
    }
}

/// [`rms_norm`](crate::rms_norm) with a learnable `gamma`: a drop-in for `burn::nn::RmsNorm`.
///
/// With an offset or a rounding it is [`rms_norm_with`](crate::rms_norm_with). Records hold `gamma` without the offset.
///
/// Create it with [`RmsNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RmsNorm {
    /// The learnable weight, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// Added to `gamma`.
    #[module(skip)]
    pub offset: f64,
    /// The rounding of the normalized value.
    #[module(skip)]
    pub rounding: Rounding,
}

impl RmsNormConfig {
    /// Defaults for this size of the input features.
    pub fn new(d_model: usize) -> Self {
        Self {
            d_model,
            epsilon: 1e-5,
            offset: 0.0,
            rounding: Rounding::None,
        }
    }

    /// Sets [`epsilon`](Self::epsilon).
    pub fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets [`offset`](Self::offset).
    pub fn with_offset(mut self, offset: f64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets [`rounding`](Self::rounding).
    pub fn with_rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Initializes an [RMS norm](RmsNorm) with `offset + gamma = 1`.
    ///
    /// # Panics
    ///
    /// Panics if `epsilon` is not positive, as `burn::nn`'s does.
    pub fn init(&self, device: &Device) -> RmsNorm {
        assert!(self.epsilon > 0.0, "epsilon must be positive.");
        RmsNorm {
            gamma: super::initial_gamma(self.offset).init([self.d_model], device),
            epsilon: self.epsilon,
            offset: self.offset,
            rounding: self.rounding,
        }
    }
}

impl RmsNorm {
    fn options(&self) -> NormOptions {
        NormOptions::new()
            .with_epsilon(self.epsilon)
            .with_offset(self.offset)
            .with_rounding(self.rounding)
    }

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
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        or_panic(self.try_forward(x))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_rms_norm_with`](crate::try_rms_norm_with).
    pub fn try_forward<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>, NormError> {
        crate::try_rms_norm_with(x, self.gamma.val(), &self.options())
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
    #[track_caller]
    pub fn forward_add<const D: usize>(
        &self,
        x: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        or_panic(self.try_forward_add(x, residual))
    }

    /// [`forward_add`](Self::forward_add) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_add_rms_norm_with`](crate::try_add_rms_norm_with).
    pub fn try_forward_add<const D: usize>(
        &self,
        x: Tensor<D>,
        residual: Tensor<D>,
    ) -> Result<(Tensor<D>, Tensor<D>), NormError> {
        crate::try_add_rms_norm_with(x, residual, self.gamma.val(), &self.options())
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
        let content = content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon);
        super::show_weight(content, self.offset, self.rounding).optional()
    }
}
