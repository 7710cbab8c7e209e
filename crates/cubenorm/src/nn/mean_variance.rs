use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use crate::functional::or_panic;

use crate::MeanVarianceOptions;

/// Configuration to create a [mean-variance norm](MeanVarianceNorm) with
/// [`init`](MeanVarianceNormConfig::init).
#[derive(Debug, Config)]
pub struct MeanVarianceNormConfig {
    /// The axes of mean and variance.
    pub axes: Vec<usize>,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// True if the difference is divided by the deviation. Default: true
    #[config(default = true)]
    pub normalize_variance: bool,
}

/// [`mean_variance_norm`](crate::mean_variance_norm) over any axes, with a learnable scale and bias
/// of any shape that broadcasts to the input, or none.
///
/// Create it with [`MeanVarianceNormConfig`].
#[derive(Module, Debug)]
pub struct MeanVarianceNorm<const D: usize> {
    /// The learnable scale.
    pub scale: Option<Param<Tensor<D>>>,
    /// The learnable bias.
    pub bias: Option<Param<Tensor<D>>>,
    /// The axes of mean and variance.
    pub axes: Vec<usize>,
    /// A value required for numerical stability.
    pub epsilon: f64,
    /// True if the difference is divided by the deviation.
    pub normalize_variance: bool,
}

impl MeanVarianceNormConfig {
    /// Initializes a [mean-variance norm](MeanVarianceNorm) without scale and bias.
    pub fn init<const D: usize>(&self) -> MeanVarianceNorm<D> {
        MeanVarianceNorm {
            scale: None,
            bias: None,
            axes: self.axes.clone(),
            epsilon: self.epsilon,
            normalize_variance: self.normalize_variance,
        }
    }

    /// Initializes a [mean-variance norm](MeanVarianceNorm) with a scale of 1 and a bias of 0 of this shape. Each
    /// dimension is 1 or the input's.
    pub fn init_affine<const D: usize>(
        &self,
        shape: [usize; D],
        device: &Device,
    ) -> MeanVarianceNorm<D> {
        MeanVarianceNorm {
            scale: Some(Initializer::Ones.init(shape, device)),
            bias: Some(Initializer::Zeros.init(shape, device)),
            ..self.init()
        }
    }
}

impl<const D: usize> MeanVarianceNorm<D> {
    /// Normalizes over the axes.
    ///
    /// # Shapes
    ///
    /// - input, output: any that scale and bias broadcast to
    ///
    /// # Panics
    ///
    /// If [`try_mean_variance_norm`](crate::try_mean_variance_norm) returns an error, with that
    /// message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::MeanVarianceNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = MeanVarianceNormConfig::new(vec![0]).with_epsilon(0.0).init::<2>();
    /// let y = norm.forward(Tensor::from_floats([[1.0], [3.0]], &device));
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward(&self, input: Tensor<D>) -> Tensor<D> {
        or_panic(self.try_forward(input))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_mean_variance_norm`](crate::try_mean_variance_norm).
    pub fn try_forward(&self, input: Tensor<D>) -> Result<Tensor<D>, NormError> {
        let options = MeanVarianceOptions::new(self.axes.as_slice())
            .with_epsilon(self.epsilon)
            .with_variance(self.normalize_variance);
        let scale = self.scale.as_ref().map(Param::val);
        let bias = self.bias.as_ref().map(Param::val);
        crate::try_mean_variance_norm(input, scale, bias, &options)
    }
}
