use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};

/// Configuration to create a [layer norm](LayerNorm) with [`init`](LayerNormConfig::init).
#[derive(Debug, Config)]
pub struct LayerNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// True for a bias (beta). Default: true
    #[config(default = true)]
    pub bias: bool,
}

/// [`layer_norm`](crate::layer_norm) with learnable `gamma` and `beta`: a drop-in for
/// `burn::nn::LayerNorm`.
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
}

impl LayerNormConfig {
    /// Initializes a [layer norm](LayerNorm) with `gamma` 1 and `beta` 0.
    pub fn init(&self, device: &Device) -> LayerNorm {
        let zeros = || Initializer::Zeros.init([self.d_model], device);
        LayerNorm {
            gamma: Initializer::Ones.init([self.d_model], device),
            beta: self.bias.then(zeros),
            epsilon: self.epsilon,
        }
    }
}

impl LayerNorm {
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
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let beta = self.beta.as_ref().map(Param::val);
        crate::layer_norm(input, self.gamma.val(), beta, self.epsilon)
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
    pub fn forward_add<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        let beta = self.beta.as_ref().map(Param::val);
        crate::add_layer_norm(input, residual, self.gamma.val(), beta, self.epsilon)
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
        content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon)
            .add("bias", &self.beta.is_some())
            .optional()
    }
}
