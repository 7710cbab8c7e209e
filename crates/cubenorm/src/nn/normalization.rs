use burn::config::Config;
use burn::module::Module;
use burn::nn::Identity;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use super::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig,
    LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig,
};
use crate::functional::or_panic;

/// Configuration to create a [normalization](Normalization) with [`init`](NormalizationConfig::init): the variants,
/// conversions and methods of `burn::nn::norm::NormalizationConfig`.
///
/// A model that takes any norm stores such a config with 0 features. It sets the size of each layer by
/// [`with_num_features`](Self::with_num_features).
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::nn::{NormalizationConfig, RmsNormConfig};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let any = NormalizationConfig::from(RmsNormConfig::new(0).with_epsilon(1e-12));
/// let norm = any.with_num_features(2).init(&device);
/// let y = norm.forward(Tensor::<2>::from_floats([[3.0, -3.0]], &device));
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
/// # }
/// ```
#[derive(Config, Debug)]
#[non_exhaustive]
pub enum NormalizationConfig {
    /// No normalization.
    Identity,
    /// Configuration of a batch norm.
    Batch(BatchNormConfig),
    /// Configuration of a group norm.
    Group(GroupNormConfig),
    /// Configuration of an instance norm.
    Instance(InstanceNormConfig),
    /// Configuration of a layer norm.
    Layer(LayerNormConfig),
    /// Configuration of an RMS norm.
    Rms(RmsNormConfig),
}

/// One of the norms that `burn::nn::norm::Normalization` has, or none: a drop-in for that enum, with its records.
///
/// Create it with [`NormalizationConfig`], or from a layer by `into`.
#[derive(Module, Debug)]
#[non_exhaustive]
pub enum Normalization {
    /// No normalization.
    Identity(Identity),
    /// Batch norm.
    Batch(BatchNorm),
    /// Group norm.
    Group(GroupNorm),
    /// Instance norm.
    Instance(InstanceNorm),
    /// Layer norm.
    Layer(LayerNorm),
    /// RMS norm.
    Rms(RmsNorm),
}

impl NormalizationConfig {
    /// Initializes a [normalization](Normalization).
    ///
    /// # Panics
    ///
    /// As `init` of the layer's own config.
    pub fn init(&self, device: &Device) -> Normalization {
        match self {
            Self::Identity => Identity::new().into(),
            Self::Batch(config) => config.init(device).into(),
            Self::Group(config) => config.init(device).into(),
            Self::Instance(config) => config.init(device).into(),
            Self::Layer(config) => config.init(device).into(),
            Self::Rms(config) => config.init(device).into(),
        }
    }

    /// Sets the number of features, or of channels. The identity has none.
    pub fn with_num_features(mut self, num_features: usize) -> Self {
        match &mut self {
            Self::Identity => {}
            Self::Batch(config) => config.num_features = num_features,
            Self::Group(config) => config.num_channels = num_features,
            Self::Instance(config) => config.num_channels = num_features,
            Self::Layer(config) => config.d_model = num_features,
            Self::Rms(config) => config.d_model = num_features,
        }
        self
    }

    /// Number of features, or of channels; 0 for the identity.
    pub fn num_features(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Batch(config) => config.num_features,
            Self::Group(config) => config.num_channels,
            Self::Instance(config) => config.num_channels,
            Self::Layer(config) => config.d_model,
            Self::Rms(config) => config.d_model,
        }
    }
}

impl Normalization {
    /// Normalizes as the layer does, or returns the input.
    ///
    /// # Shapes
    ///
    /// - input, output: as for the layer
    ///
    /// # Panics
    ///
    /// If [`try_forward`](Self::try_forward) returns an error, with that message.
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        or_panic(self.try_forward(input))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As `try_forward` of the layer.
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        match self {
            Self::Identity(_) => Ok(input),
            Self::Batch(norm) => norm.try_forward(input),
            Self::Group(norm) => norm.try_forward(input),
            Self::Instance(norm) => norm.try_forward(input),
            Self::Layer(norm) => norm.try_forward(input),
            Self::Rms(norm) => norm.try_forward(input),
        }
    }

    /// Number of features, or of channels; 0 for the identity.
    pub fn num_features(&self) -> usize {
        match self {
            Self::Identity(_) => 0,
            Self::Batch(norm) => norm.gamma.shape()[0],
            Self::Group(norm) => norm.num_channels,
            Self::Instance(norm) => norm.num_channels,
            Self::Layer(norm) => norm.gamma.shape()[0],
            Self::Rms(norm) => norm.gamma.shape()[0],
        }
    }
}

/// Wraps a layer or its config in a variant.
macro_rules! wraps {
    ($enum:ident { $($variant:ident($inner:ty)),* $(,)? }) => {
        $(
            impl From<$inner> for $enum {
                fn from(inner: $inner) -> Self {
                    Self::$variant(inner)
                }
            }
        )*
    };
}

wraps!(NormalizationConfig {
    Batch(BatchNormConfig),
    Group(GroupNormConfig),
    Instance(InstanceNormConfig),
    Layer(LayerNormConfig),
    Rms(RmsNormConfig),
});
wraps!(Normalization {
    Identity(Identity),
    Batch(BatchNorm),
    Group(GroupNorm),
    Instance(InstanceNorm),
    Layer(LayerNorm),
    Rms(RmsNorm),
});
