use burn::config::Config;
use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use cubenorm_core::NormError;

use crate::functional::or_panic;

/// Configuration to create an [adaptive layer norm](AdaLayerNorm) with
/// [`init`](AdaLayerNormConfig::init).
#[derive(Debug, Config)]
pub struct AdaLayerNormConfig {
    /// The size of the input features.
    pub d_model: usize,
    /// The size of the condition.
    pub d_condition: usize,
    /// A value required for numerical stability. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// Layer norm with one scale and one shift per sample, both linear functions of a condition:
/// [`ada_layer_norm`](crate::ada_layer_norm).
///
/// Create it with [`AdaLayerNormConfig`].
#[derive(Module, Debug)]
pub struct AdaLayerNorm {
    /// Linear layer from the condition to the scale, followed by the shift.
    pub modulation: Linear,
    /// A value required for numerical stability.
    pub epsilon: f64,
}

impl AdaLayerNormConfig {
    /// Initializes an [adaptive layer norm](AdaLayerNorm) with scale and shift 0 for every condition, so that it begins
    /// as a plain layer norm.
    pub fn init(&self, device: &Device) -> AdaLayerNorm {
        AdaLayerNorm {
            modulation: LinearConfig::new(self.d_condition, 2 * self.d_model)
                .with_initializer(Initializer::Zeros)
                .init(device),
            epsilon: self.epsilon,
        }
    }
}

impl AdaLayerNorm {
    /// Normalizes over the last axis, then applies the condition's scale and shift.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch, ..., d_model]`
    /// - condition: `[batch, d_condition]`
    ///
    /// # Panics
    ///
    /// If [`try_ada_layer_norm`](crate::try_ada_layer_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::AdaLayerNormConfig;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = AdaLayerNormConfig::new(2, 3).with_epsilon(0.0).init(&device);
    /// let x = Tensor::<3>::from_floats([[[1.0, 3.0]]], &device);
    /// let condition = Tensor::<2>::from_floats([[1.0, 2.0, 3.0]], &device);
    /// let y = norm.forward(x, condition);
    /// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>, condition: Tensor<2>) -> Tensor<D> {
        or_panic(self.try_forward(input, condition))
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::Shape`] if `modulation` does not take the condition or has fewer than two output features, else as
    /// [`try_ada_layer_norm`](crate::try_ada_layer_norm).
    pub fn try_forward<const D: usize>(
        &self,
        input: Tensor<D>,
        condition: Tensor<2>,
    ) -> Result<Tensor<D>, NormError> {
        let [features, outputs] = self.modulation.weight.dims();
        let [batch, given] = condition.dims();
        if given != features {
            return Err(NormError::Shape {
                tensor: "condition",
                shape: vec![batch, given],
                expected: format!("[batch, {features}]"),
            });
        }
        let mut parts = self.modulation.forward(condition).chunk(2, 1).into_iter();
        let (Some(scale), Some(shift)) = (parts.next(), parts.next()) else {
            return Err(NormError::Shape {
                tensor: "modulation",
                shape: vec![features, outputs],
                expected: "[d_condition, 2 * d_model]".to_owned(),
            });
        };
        crate::try_ada_layer_norm(input, scale, shift, self.epsilon)
    }
}
