use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

/// Configuration to create a [dynamic tanh](DynamicTanh) with [`init`](DynamicTanhConfig::init).
#[derive(Debug, Config)]
pub struct DynamicTanhConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// The initial `alpha`. Default: 0.5
    #[config(default = 0.5)]
    pub alpha: f64,
    /// True for a bias (beta). Default: true
    #[config(default = true)]
    pub bias: bool,
}

/// [`dynamic_tanh`](crate::dynamic_tanh) with learnable `alpha`, `gamma` and `beta`: it takes the place of a layer norm.
///
/// Create it with [`DynamicTanhConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct DynamicTanh {
    /// The learnable factor of the input, `[1]`.
    pub alpha: Param<Tensor<1>>,
    /// The learnable weight, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// The learnable bias, `[d_model]`.
    pub beta: Option<Param<Tensor<1>>>,
}

impl DynamicTanhConfig {
    /// Initializes a [dynamic tanh](DynamicTanh) with `gamma` 1 and `beta` 0.
    pub fn init(&self, device: &Device) -> DynamicTanh {
        let zeros = || Initializer::Zeros.init([self.d_model], device);
        DynamicTanh {
            alpha: Initializer::Constant { value: self.alpha }.init([1], device),
            gamma: Initializer::Ones.init([self.d_model], device),
            beta: self.bias.then(zeros),
        }
    }
}

impl DynamicTanh {
    /// Applies `tanh(alpha * x) * gamma + beta`.
    ///
    /// # Shapes
    ///
    /// - input, output: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// If [`try_dynamic_tanh`](crate::try_dynamic_tanh) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::DynamicTanhConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = DynamicTanhConfig::new(2).init(&device);
    /// let y = norm.forward(Tensor::<2>::from_floats([[0.0, 100.0]], &device));
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.0, 1.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let beta = self.beta.as_ref().map(Param::val);
        crate::dynamic_tanh(input, self.alpha.val(), self.gamma.val(), beta)
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_dynamic_tanh`](crate::try_dynamic_tanh).
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        let beta = self.beta.as_ref().map(Param::val);
        crate::try_dynamic_tanh(input, self.alpha.val(), self.gamma.val(), beta)
    }
}

impl ModuleDisplay for DynamicTanh {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content
            .add("d_model", &d_model)
            .add("bias", &self.beta.is_some())
            .optional()
    }
}
