use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use crate::functional::or_panic;

/// Configuration to create an [instance norm](InstanceNorm) with
/// [`init`](InstanceNormConfig::init).
#[derive(Debug, Config)]
pub struct InstanceNormConfig {
    /// The number of channels expected in the input.
    pub num_channels: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// True for a learnable weight and bias per channel. Default: true
    #[config(default = true)]
    pub affine: bool,
}

/// [`instance_norm`](crate::instance_norm) with learnable `gamma` and `beta` for each channel: a
/// drop-in for `burn::nn::InstanceNorm`.
///
/// Create it with [`InstanceNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct InstanceNorm {
    /// The learnable weight, `[num_channels]`.
    pub gamma: Option<Param<Tensor<1>>>,
    /// The learnable bias, `[num_channels]`.
    pub beta: Option<Param<Tensor<1>>>,
    /// The number of channels expected in the input.
    pub num_channels: usize,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// True if the layer has a learnable weight and bias.
    pub affine: bool,
}

impl InstanceNormConfig {
    /// Initializes an [instance norm](InstanceNorm) with `gamma` 1 and `beta` 0.
    pub fn init(&self, device: &Device) -> InstanceNorm {
        let param = |initializer: Initializer| {
            self.affine
                .then(|| initializer.init([self.num_channels], device))
        };
        InstanceNorm {
            gamma: param(Initializer::Ones),
            beta: param(Initializer::Zeros),
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl InstanceNorm {
    /// Normalizes each channel of each sample.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, num_channels, ...]`
    ///
    /// # Panics
    ///
    /// If the input has fewer than two dimensions or another number of channels, or
    /// [`try_instance_norm`](crate::try_instance_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::InstanceNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = InstanceNormConfig::new(1).with_epsilon(0.0).init(&device);
    /// let y = norm.forward(Tensor::<3>::from_floats([[[1.0, 3.0]]], &device));
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
    /// [`NormError::Shape`] if the input has fewer than two dimensions or another number of channels, else as
    /// [`try_instance_norm`](crate::try_instance_norm).
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        super::expect_channels(&input, self.num_channels)?;
        let gamma = self.gamma.as_ref().map(Param::val);
        let beta = self.beta.as_ref().map(Param::val);
        crate::try_instance_norm(input, gamma, beta, self.epsilon)
    }
}

impl ModuleDisplay for InstanceNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("num_channels", &self.num_channels)
            .add("epsilon", &self.epsilon)
            .add("affine", &self.affine)
            .optional()
    }
}
