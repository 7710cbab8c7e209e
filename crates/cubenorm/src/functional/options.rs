//! Norms over the last axis with an offset of the weight, a rounding before it, and an output of another dtype.

use burn::tensor::{FloatDType, Tensor};
use cubenorm_core::{NormError, Offset, Rounding};

use super::{add_last_axis, last_axis, or_panic};
use crate::ops::{NormSpec, Reduction, dtype};

/// Options of [`rms_norm_with`], [`layer_norm_with`] and their forms with a residual.
///
/// # Example
///
/// ```
/// use cubenorm::{NormOptions, Rounding};
///
/// // Gemma and Qwen3-Next: the weight is stored as its difference from 1.
/// let gemma = NormOptions::new().with_epsilon(1e-6).with_offset(1.0);
/// // Llama in half precision: the normalized value is rounded before the weight.
/// let llama = NormOptions::new().with_rounding(Rounding::BeforeScale);
/// # let _ = (gemma, llama);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormOptions {
    epsilon: f64,
    offset: f64,
    rounding: Rounding,
    output_dtype: Option<FloatDType>,
}

impl Default for NormOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl NormOptions {
    /// Epsilon 1e-5, offset 0, no rounding, and the input's dtype.
    pub const fn new() -> Self {
        Self {
            epsilon: 1e-5,
            offset: 0.0,
            rounding: Rounding::None,
            output_dtype: None,
        }
    }

    /// Sets epsilon, added to the variance inside the square root.
    pub const fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets the number that is added to every element of `gamma`.
    pub const fn with_offset(mut self, offset: f64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets the rounding of the normalized value.
    pub const fn with_rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Sets the dtype of the result, in place of the input's: `f16`, `bf16` or `f32` for an input of one of these. The result
    /// is rounded once. A [flex32](FloatDType::Flex32) is `f32` here.
    pub const fn with_output_dtype(mut self, dtype: FloatDType) -> Self {
        self.output_dtype = Some(dtype);
        self
    }

    /// The specification of a norm over an axis.
    pub(super) fn spec(&self, axis: usize, reduction: Reduction) -> NormSpec {
        NormSpec {
            offset: Offset::new(self.offset),
            rounding: self.rounding,
            output_dtype: self.output_dtype.and_then(|wanted| dtype(wanted.into())),
            ..NormSpec::new([axis], reduction, self.epsilon)
        }
    }
}

/// [`rms_norm`](crate::rms_norm) with an offset of the weight, and a rounding before it:
///
/// ```text
/// y = round(x / sqrt(mean(x^2) + epsilon)) * (offset + gamma)
/// ```
///
/// `round` is the identity, or with [`Rounding::BeforeScale`] the rounding to the result's dtype. No tensor is made for
/// `offset + gamma`. It is added in the accumulation dtype.
///
/// | model | offset | rounding |
/// | --- | --- | --- |
/// | [Gemma](https://github.com/huggingface/transformers/blob/main/src/transformers/models/gemma/modeling_gemma.py), Qwen3-Next, zero-centred gamma of Transformer Engine | 1 | [`Rounding::None`] |
/// | [Llama](https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/modeling_llama.py), Mistral, Qwen2, T5 | 0 | [`Rounding::BeforeScale`] |
///
/// Gradients pass through the rounding unchanged. `gamma` has the gradient that it has without an offset.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `gamma`: `[d]`; without it the factor is 1, and the offset is not used
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm). The result has the input's dtype, unless
/// [`with_output_dtype`](NormOptions::with_output_dtype) sets another.
///
/// # Panics
///
/// If [`try_rms_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::NormOptions;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[3.0, -3.0]], &device);
/// let gamma = Tensor::from_floats([0.0, 1.0], &device);
/// let options = NormOptions::new().with_epsilon(0.0).with_offset(1.0);
/// let y = cubenorm::rms_norm_with(x, gamma, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -2.0]);
/// # }
/// ```
pub fn rms_norm_with<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Tensor<D> {
    or_panic(try_rms_norm_with(input, gamma, options))
}

/// [`rms_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), and [`NormError::Offset`] for an offset that is not finite.
pub fn try_rms_norm_with<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Result<Tensor<D>, NormError> {
    last_axis(input, gamma.into(), None, options, Reduction::MeanSquare)
}

/// [`layer_norm`](crate::layer_norm) with an offset of the weight, and a rounding before it:
///
/// ```text
/// y = round((x - mean) / sqrt(variance + epsilon)) * (offset + gamma) + beta
/// ```
///
/// `round` and the offset are as in [`rms_norm_with`]. Nemotron's `LayerNorm1P` has the offset 1.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `gamma`, `beta`: `[d]`; without `gamma` the factor is 1, and the offset is not used
///
/// # Dtypes
///
/// As [`rms_norm_with`].
///
/// # Panics
///
/// If [`try_layer_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::NormOptions;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
/// let gamma = Tensor::from_floats([0.0, 1.0], &device);
/// let options = NormOptions::new().with_epsilon(0.0).with_offset(1.0);
/// let y = cubenorm::layer_norm_with(x, gamma, None, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 2.0]);
/// # }
/// ```
pub fn layer_norm_with<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Tensor<D> {
    or_panic(try_layer_norm_with(input, gamma, beta, options))
}

/// [`layer_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_rms_norm_with`].
pub fn try_layer_norm_with<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Result<Tensor<D>, NormError> {
    let (gamma, beta) = (gamma.into(), beta.into());
    last_axis(input, gamma, beta, options, Reduction::MeanVariance)
}

/// [`rms_norm_with`] of `input + residual`, and that sum. The addition runs as in
/// [`add_rms_norm`](crate::add_rms_norm).
///
/// # Shapes
///
/// - `input`, `residual`, both results: `[..., d]`
/// - `gamma`: `[d]`; without it the factor is 1, and the offset is not used
///
/// # Dtypes
///
/// As [`add_layer_norm`](crate::add_layer_norm).
///
/// # Panics
///
/// If [`try_add_rms_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::NormOptions;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, -1.0]], &device);
/// let residual = Tensor::<2>::from_floats([[2.0, -2.0]], &device);
/// let gamma = Tensor::from_floats([0.0, 1.0], &device);
/// let options = NormOptions::new().with_epsilon(0.0).with_offset(1.0);
/// let (y, sum) = cubenorm::add_rms_norm_with(x, residual, gamma, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -2.0]);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [3.0, -3.0]);
/// # }
/// ```
pub fn add_rms_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_rms_norm_with(input, residual, gamma, options))
}

/// [`add_rms_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_rms_norm_with`], and [`NormError::Shape`] if the residual's shape is not the input's.
pub fn try_add_rms_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let gamma = gamma.into();
    add_last_axis(input, residual, gamma, None, options, Reduction::MeanSquare)
}

/// [`layer_norm_with`] of `input + residual`, and that sum. The addition runs as in
/// [`add_layer_norm`](crate::add_layer_norm).
///
/// # Shapes
///
/// - `input`, `residual`, both results: `[..., d]`
/// - `gamma`, `beta`: `[d]`; without `gamma` the factor is 1, and the offset is not used
///
/// # Dtypes
///
/// As [`add_layer_norm`](crate::add_layer_norm).
///
/// # Panics
///
/// If [`try_add_layer_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::NormOptions;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 1.0]], &device);
/// let residual = Tensor::<2>::from_floats([[0.0, 2.0]], &device);
/// let gamma = Tensor::from_floats([0.0, 1.0], &device);
/// let options = NormOptions::new().with_epsilon(0.0).with_offset(1.0);
/// let (y, sum) = cubenorm::add_layer_norm_with(x, residual, gamma, None, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 2.0]);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0]);
/// # }
/// ```
pub fn add_layer_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_layer_norm_with(
        input, residual, gamma, beta, options,
    ))
}

/// [`add_layer_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_add_rms_norm_with`].
pub fn try_add_layer_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &NormOptions,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let (gamma, beta) = (gamma.into(), beta.into());
    add_last_axis(
        input,
        residual,
        gamma,
        beta,
        options,
        Reduction::MeanVariance,
    )
}
