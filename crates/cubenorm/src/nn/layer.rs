use burn::config::{Config, config_to_json};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::serde::{Deserialize, Serialize};
use burn::tensor::{Device, Tensor};
use cubenorm_core::{NormError, Rounding};

use crate::NormOptions;
use crate::functional::or_panic;

/// Configuration to create a [layer norm](LayerNorm) with [`init`](LayerNormConfig::init).
///
/// A saved config of `burn::nn` loads: it has neither offset nor rounding.
// Not by Burn's derive, which has no defaults for absent fields of a saved config.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(crate = "burn::serde")]
pub struct LayerNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// A value required for numerical stability. Default: 1e-5
    pub epsilon: f64,
    /// True for a bias (beta). Default: true
    pub bias: bool,
    /// Added to `gamma`. Default: 0
    #[serde(default)]
    pub offset: f64,
    /// The rounding of the normalized value. Default: [`Rounding::None`]
    #[serde(default)]
    pub rounding: Rounding,
}

impl Config for LayerNormConfig {}

impl std::fmt::Display for LayerNormConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&config_to_json(self))
    }
}

/// [`layer_norm`](crate::layer_norm) with learnable `gamma` and `beta`: a drop-in for
/// `burn::nn::LayerNorm`.
///
/// With an offset or a rounding it is [`layer_norm_with`](crate::layer_norm_with). Records hold `gamma` without the
/// offset.
///
/// Create it with [`LayerNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm {
    /// The learnable weight, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// The learnable bias, `[d_model]`.
    pub beta: Option<Param<Tensor<1>>>,
    /// A value required for numerical stability.
    pub(super) epsilon: f64,
    /// Added to `gamma`.
    #[module(skip)]
    pub offset: f64,
    /// The rounding of the normalized value.
    #[module(skip)]
    pub rounding: Rounding,
}

impl LayerNormConfig {
    /// Defaults for this size of the input features.
    pub fn new(d_model: usize) -> Self {
        Self {
            d_model,
            epsilon: 1e-5,
            bias: true,
            offset: 0.0,
            rounding: Rounding::None,
        }
    }

    /// Sets [`epsilon`](Self::epsilon).
    pub fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets [`bias`](Self::bias).
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
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

    /// Initializes a [layer norm](LayerNorm) with `offset + gamma = 1` and `beta` 0.
    pub fn init(&self, device: &Device) -> LayerNorm {
        let zeros = || Initializer::Zeros.init([self.d_model], device);
        LayerNorm {
            gamma: super::initial_gamma(self.offset).init([self.d_model], device),
            beta: self.bias.then(zeros),
            epsilon: self.epsilon,
            offset: self.offset,
            rounding: self.rounding,
        }
    }
}

impl LayerNorm {
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
    /// If [`try_layer_norm`](crate::try_layer_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::LayerNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = LayerNormConfig::new(2).with_epsilon(0.0).init(&device);
    /// let y = norm.forward(Tensor::<2>::from_floats([[1.0, 3.0]], &device));
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
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
    /// As [`try_layer_norm_with`](crate::try_layer_norm_with).
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        let beta = self.beta.as_ref().map(Param::val);
        crate::try_layer_norm_with(input, self.gamma.val(), beta, &self.options())
    }

    /// Normalizes `input + residual`, and returns that sum too: see [`add_layer_norm`](crate::add_layer_norm).
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
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        or_panic(self.try_forward_add(input, residual))
    }

    /// [`forward_add`](Self::forward_add) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_add_layer_norm_with`](crate::try_add_layer_norm_with).
    pub fn try_forward_add<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> Result<(Tensor<D>, Tensor<D>), NormError> {
        let beta = self.beta.as_ref().map(Param::val);
        crate::try_add_layer_norm_with(input, residual, self.gamma.val(), beta, &self.options())
    }
}

impl ModuleDisplay for LayerNorm {
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
            .add("bias", &self.beta.is_some());
        super::show_weight(content, self.offset, self.rounding).optional()
    }
}
