use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::{Activation, NormError};

use crate::functional::or_panic;

/// Configuration to create a [group norm](GroupNorm) with [`init`](GroupNormConfig::init).
#[derive(Debug, Config)]
pub struct GroupNormConfig {
    /// The number of groups to separate the channels into.
    pub num_groups: usize,
    /// The number of channels expected in the input.
    pub num_channels: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// True for a learnable weight and bias per channel. Default: true
    #[config(default = true)]
    pub affine: bool,
}

/// [`group_norm`](crate::group_norm) with learnable `gamma` and `beta` for each channel: a drop-in
/// for `burn::nn::GroupNorm`.
///
/// Create it with [`GroupNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct GroupNorm {
    /// The learnable weight, `[num_channels]`.
    pub gamma: Option<Param<Tensor<1>>>,
    /// The learnable bias, `[num_channels]`.
    pub beta: Option<Param<Tensor<1>>>,
    /// The number of groups to separate the channels into.
    pub num_groups: usize,
    /// The number of channels expected in the input.
    pub num_channels: usize,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// True if the layer has a learnable weight and bias.
    pub affine: bool,
}

impl GroupNormConfig {
    /// Initializes a [group norm](GroupNorm) with `gamma` 1 and `beta` 0.
    ///
    /// # Panics
    ///
    /// If the channels do not divide into the groups.
    pub fn init(&self, device: &Device) -> GroupNorm {
        assert!(
            self.num_groups > 0 && self.num_channels.is_multiple_of(self.num_groups),
            "The number of channels must be divisible by the number of groups"
        );
        let param = |initializer: Initializer| {
            self.affine
                .then(|| initializer.init([self.num_channels], device))
        };
        GroupNorm {
            gamma: param(Initializer::Ones),
            beta: param(Initializer::Zeros),
            num_groups: self.num_groups,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl GroupNorm {
    /// Normalizes each group of channels of each sample.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, num_channels, ...]`
    ///
    /// # Panics
    ///
    /// If the input's second axis is not `num_channels`, or [`try_group_norm`](crate::try_group_norm) returns an error,
    /// with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::GroupNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = GroupNormConfig::new(2, 4).with_epsilon(0.0).init(&device);
    /// let y = norm.forward(Tensor::<2>::from_floats([[1.0, 3.0, 10.0, 30.0]], &device));
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0, -1.0, 1.0]);
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
    /// [`NormError::Shape`] if the input's second axis is not `num_channels`, else as
    /// [`try_group_norm`](crate::try_group_norm).
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        self.try_forward_with(input, None, Activation::Identity)
    }

    /// [`forward`](Self::forward) of `input + residual`, with an activation: see
    /// [`group_norm_with`](crate::group_norm_with).
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, num_channels, ...]`
    /// - residual: the input's, or `[batch, num_channels, 1, ...]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::Activation;
    /// use cubenorm::nn::GroupNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = GroupNormConfig::new(1, 2).with_epsilon(0.0).init(&device);
    /// let x = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
    /// let y = norm.forward_with(x, None, Activation::Relu);
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.0, 1.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward_with<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: impl Into<Option<Tensor<D>>>,
        activation: Activation,
    ) -> Tensor<D> {
        or_panic(self.try_forward_with(input, residual, activation))
    }

    /// [`forward_with`](Self::forward_with) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::Shape`] if the input's second axis is not `num_channels`, else as
    /// [`try_group_norm_with`](crate::try_group_norm_with).
    pub fn try_forward_with<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: impl Into<Option<Tensor<D>>>,
        activation: Activation,
    ) -> Result<Tensor<D>, NormError> {
        super::expect_channels(&input, self.num_channels)?;
        let gamma = self.gamma.as_ref().map(Param::val);
        let beta = self.beta.as_ref().map(Param::val);
        let (groups, epsilon) = (self.num_groups, self.epsilon);
        crate::try_group_norm_with(input, residual, gamma, beta, groups, epsilon, activation)
    }
}

impl ModuleDisplay for GroupNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("num_groups", &self.num_groups)
            .add("num_channels", &self.num_channels)
            .add("epsilon", &self.epsilon)
            .add("affine", &self.affine)
            .optional()
    }
}
