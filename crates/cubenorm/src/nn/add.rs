use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::tensor::Tensor;
use cubenorm_core::NormError;

use super::{LayerNorm, RmsNorm};

/// [`LayerNorm`] of `input + residual`, and that sum, as between the parts of a transformer block.
///
/// The norm's kernels include the addition, in both passes: see [`add_layer_norm`](crate::add_layer_norm).
///
/// Create it from a layer norm: `AddLayerNorm::from(LayerNormConfig::new(d).init(&device))`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct AddLayerNorm {
    /// The norm, with a name of its own in a record.
    pub norm: LayerNorm,
}

/// [`RmsNorm`] of `input + residual`, and that sum: see [`AddLayerNorm`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct AddRmsNorm {
    /// The norm, with a name of its own in a record.
    pub norm: RmsNorm,
}

impl From<LayerNorm> for AddLayerNorm {
    fn from(norm: LayerNorm) -> Self {
        Self { norm }
    }
}

impl From<RmsNorm> for AddRmsNorm {
    fn from(norm: RmsNorm) -> Self {
        Self { norm }
    }
}

impl AddLayerNorm {
    /// Returns `norm(input + residual)` and `input + residual`.
    ///
    /// # Shapes
    ///
    /// - input, residual, outputs: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// If [`try_add_layer_norm`](crate::try_add_layer_norm) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::nn::{AddLayerNorm, LayerNormConfig};
    ///
    /// # #[cfg(feature = "flex")] {
    /// let device = Device::flex();
    /// let norm = LayerNormConfig::new(2).with_epsilon(0.0).init(&device);
    /// let x = Tensor::<2>::from_floats([[1.0, 1.0]], &device);
    /// let residual = Tensor::<2>::from_floats([[0.0, 2.0]], &device);
    /// let (normalized, sum) = AddLayerNorm::from(norm).forward(x, residual);
    /// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0]);
    /// assert_eq!(normalized.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
    /// # }
    /// ```
    #[track_caller]
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        self.norm.forward_add(input, residual)
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_add_layer_norm`](crate::try_add_layer_norm).
    pub fn try_forward<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> Result<(Tensor<D>, Tensor<D>), NormError> {
        self.norm.try_forward_add(input, residual)
    }
}

impl AddRmsNorm {
    /// Returns `norm(input + residual)` and `input + residual`; see [`AddLayerNorm::forward`].
    ///
    /// # Shapes
    ///
    /// - input, residual, outputs: `[..., d_model]`
    ///
    /// # Panics
    ///
    /// If [`try_add_rms_norm`](crate::try_add_rms_norm) returns an error, with that message.
    #[track_caller]
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        self.norm.forward_add(input, residual)
    }

    /// [`forward`](Self::forward) as a [`Result`].
    ///
    /// # Errors
    ///
    /// As [`try_add_rms_norm`](crate::try_add_rms_norm).
    pub fn try_forward<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> Result<(Tensor<D>, Tensor<D>), NormError> {
        self.norm.try_forward_add(input, residual)
    }
}

impl ModuleDisplay for AddLayerNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.norm.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.norm.custom_content(content)
    }
}

impl ModuleDisplay for AddRmsNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.norm.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.norm.custom_content(content)
    }
}
