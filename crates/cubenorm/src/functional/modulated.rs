//! Norms over the last axis whose scale and shift belong to a sample or a token: those of diffusion transformers.

use burn::tensor::Tensor;
use cubenorm_core::{NormError, Offset};

use super::{Call, expect_rank, or_panic};
use crate::ops::{NormSpec, Reduction, View};

/// Layer norm with one scale and one shift per sample instead of learned ones:
/// `y = (x - mean) / sqrt(variance + epsilon) * (1 + scale) + shift`, with statistics over the last
/// axis.
///
/// Source: adaptive layer norm of [Scalable Diffusion Models with
/// Transformers](https://arxiv.org/abs/2212.09748).
///
/// # Shapes
///
/// - `input`, result: `[batch, ..., d]`
/// - `scale`, `shift`: `[batch, d]`
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), with `scale` and `shift` for `gamma` and `beta`. `1 + scale` is computed in the
/// accumulation dtype.
///
/// # Panics
///
/// If [`try_ada_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<3>::from_floats([[[1.0, 3.0]]], &device);
/// let scale = Tensor::from_floats([[1.0, 0.0]], &device);
/// let shift = Tensor::from_floats([[0.0, 5.0]], &device);
/// let y = cubenorm::ada_layer_norm(x, scale, shift, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-2.0, 6.0]);
/// # }
/// ```
pub fn ada_layer_norm<const D: usize>(
    input: Tensor<D>,
    scale: Tensor<2>,
    shift: Tensor<2>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_ada_layer_norm(input, scale, shift, epsilon))
}

/// [`ada_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), with `[batch, d]` as the parameters' shape, and [`NormError::Shape`] for
/// an input of rank below 2.
pub fn try_ada_layer_norm<const D: usize>(
    input: Tensor<D>,
    scale: Tensor<2>,
    shift: Tensor<2>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    expect_rank(&input, 2, "[batch, ..., d]")?;
    let shape = input.dims();
    let (batch, features) = (shape[0], shape[D - 1]);
    let expect = |tensor: &'static str, param: &Tensor<2>| {
        let actual = param.dims();
        if actual != [batch, features] {
            return Err(NormError::Shape {
                tensor,
                shape: actual.to_vec(),
                expected: format!("[{batch}, {features}], a number for each sample and feature"),
            });
        }
        Ok(())
    };
    expect("scale", &scale)?;
    expect("shift", &shift)?;
    let mut params = [1; D];
    (params[0], params[D - 1]) = (batch, features);
    let view = View {
        input: shape.into(),
        params: params.into(),
    };
    let spec = NormSpec {
        view: Some(view),
        ..modulated(D - 1, Reduction::MeanVariance, epsilon)
    };
    run(Call::new(input, spec).with_params(Some(scale), Some(shift)))
}

/// Layer norm with a scale and a shift per sample or per token:
/// `y = (x - mean) / sqrt(variance + epsilon) * (1 + scale) + shift`, with statistics over the last axis.
///
/// Source: the blocks of [Scalable Diffusion Models with Transformers](https://arxiv.org/abs/2212.09748), Stable
/// Diffusion 3 and Flux. [`ada_layer_norm`] takes a number per sample in tensors of rank 2.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `scale`, `shift`: of the input's rank. Each size is the input's, or 1: `[batch, 1, d]` for a sample, `[batch, tokens,
///   d]` for a token. Without `scale` the factor is 1, and without `shift` nothing is added.
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), with `scale` and `shift` for `gamma` and `beta`. `1 + scale` is computed in the
/// accumulation dtype.
///
/// # Panics
///
/// If [`try_modulated_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<3>::from_floats([[[1.0, 3.0], [3.0, 1.0]]], &device);
/// let scale = Tensor::<3>::from_floats([[[1.0], [0.0]]], &device);
/// let y = cubenorm::modulated_layer_norm(x, scale, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-2.0, 2.0, 1.0, -1.0]);
/// # }
/// ```
pub fn modulated_layer_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_modulated_layer_norm(input, scale, shift, epsilon))
}

/// [`modulated_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), with [`NormError::Broadcast`] for a scale or a shift that does not
/// broadcast.
pub fn try_modulated_layer_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    last_axis(
        input,
        scale.into(),
        shift.into(),
        epsilon,
        Reduction::MeanVariance,
    )
}

/// RMS norm with a scale and a shift per sample or per token:
/// `y = x / sqrt(mean(x^2) + epsilon) * (1 + scale) + shift`, with the mean over the last axis.
///
/// Source: the blocks of Lumina and of other diffusion transformers, which have [RMS
/// norm](https://arxiv.org/abs/1910.07467) in place of layer norm.
///
/// # Shapes
///
/// As [`modulated_layer_norm`].
///
/// # Dtypes
///
/// As [`modulated_layer_norm`].
///
/// # Panics
///
/// If [`try_modulated_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[3.0, -3.0]], &device);
/// let scale = Tensor::<2>::from_floats([[1.0, 0.0]], &device);
/// let y = cubenorm::modulated_rms_norm(x, scale, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [2.0, -1.0]);
/// # }
/// ```
pub fn modulated_rms_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_modulated_rms_norm(input, scale, shift, epsilon))
}

/// [`modulated_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_modulated_layer_norm`].
pub fn try_modulated_rms_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    last_axis(
        input,
        scale.into(),
        shift.into(),
        epsilon,
        Reduction::MeanSquare,
    )
}

fn last_axis<const D: usize>(
    input: Tensor<D>,
    scale: Option<Tensor<D>>,
    shift: Option<Tensor<D>>,
    epsilon: f64,
    reduction: Reduction,
) -> Result<Tensor<D>, NormError> {
    expect_rank(&input, 1, "[..., d]")?;
    let spec = modulated(D - 1, reduction, epsilon);
    run(Call::new(input, spec).with_params(scale, shift))
}

/// The specification of a norm over an axis whose scale has 1 added.
fn modulated(axis: usize, reduction: Reduction, epsilon: f64) -> NormSpec {
    NormSpec {
        offset: Offset::new(1.0),
        ..NormSpec::new([axis], reduction, epsilon)
    }
}

fn run<const D: usize>(mut call: Call) -> Result<Tensor<D>, NormError> {
    call.names[..2].copy_from_slice(&["scale", "shift"]);
    Ok(call.run()?.output)
}
