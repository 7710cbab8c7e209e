//! Norms over the last axis whose scale and shift belong to a sample or a token, as in diffusion transformers.

use burn::tensor::Tensor;
use cubenorm_core::{NormError, Offset, ResidualPlace};

use super::{Call, expect_rank, expect_residual, of_sum, or_panic, with_sum};
use crate::ops::{NormSpec, Reduction, Tracked, View, dtype};

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

/// [`modulated_layer_norm`] of `residual + gate * input`, and that sum, as between the parts of a block of a diffusion
/// transformer:
///
/// ```text
/// sum = residual + gate * input
/// y = (sum - mean) / sqrt(variance + epsilon) * (1 + scale) + shift
/// ```
///
/// Without a gate one kernel adds, normalizes and writes both results. With one, a first kernel makes the sum. In
/// training the backward kernel adds the gradient of the sum to the norm's.
///
/// Source: the blocks of [Scalable Diffusion Models with Transformers](https://arxiv.org/abs/2212.09748).
///
/// # Shapes
///
/// - `input`, `residual`, both results: `[..., d]`
/// - `gate`, `scale`, `shift`: as in [`modulated_layer_norm`]. Without `gate` the factor is 1.
///
/// # Dtypes
///
/// As [`modulated_layer_norm`]. `residual` may have another dtype than `input`, as in
/// [`add_layer_norm`](crate::add_layer_norm). With a gate, all three have the input's.
///
/// # Panics
///
/// If [`try_add_modulated_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
/// let residual = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
/// let gate = Tensor::<2>::from_floats([[2.0, 0.0]], &device);
/// let (y, sum) = cubenorm::add_modulated_layer_norm(x, residual, gate, None, None, 0.0);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [3.0, 3.0]);
/// # let _ = y;
/// # }
/// ```
pub fn add_modulated_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gate: impl Into<Option<Tensor<D>>>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_modulated_layer_norm(
        input, residual, gate, scale, shift, epsilon,
    ))
}

/// [`add_modulated_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_modulated_layer_norm`], and [`NormError::Shape`] if the residual's shape is not the input's.
pub fn try_add_modulated_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gate: impl Into<Option<Tensor<D>>>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let modulation = [gate.into(), scale.into(), shift.into()];
    add_modulated(
        input,
        residual,
        modulation,
        epsilon,
        Reduction::MeanVariance,
    )
}

/// [`modulated_rms_norm`] of `residual + gate * input`, and that sum: see [`add_modulated_layer_norm`].
///
/// # Shapes
///
/// As [`add_modulated_layer_norm`].
///
/// # Dtypes
///
/// As [`add_modulated_layer_norm`].
///
/// # Panics
///
/// If [`try_add_modulated_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, -1.0]], &device);
/// let residual = Tensor::<2>::from_floats([[2.0, -2.0]], &device);
/// let (y, sum) = cubenorm::add_modulated_rms_norm(x, residual, None, None, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [3.0, -3.0]);
/// # }
/// ```
pub fn add_modulated_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gate: impl Into<Option<Tensor<D>>>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_modulated_rms_norm(
        input, residual, gate, scale, shift, epsilon,
    ))
}

/// [`add_modulated_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_add_modulated_layer_norm`].
pub fn try_add_modulated_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gate: impl Into<Option<Tensor<D>>>,
    scale: impl Into<Option<Tensor<D>>>,
    shift: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let modulation = [gate.into(), scale.into(), shift.into()];
    add_modulated(input, residual, modulation, epsilon, Reduction::MeanSquare)
}

/// A norm of a sum. The modulation is gate, scale and shift.
fn add_modulated<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    [gate, scale, shift]: [Option<Tensor<D>>; 3],
    epsilon: f64,
    reduction: Reduction,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    expect_rank(&input, 1, "[..., d]")?;
    let spec = modulated(D - 1, reduction, epsilon);
    expect_residual(&input, &residual)?;
    match gate {
        None => with_sum(named(
            of_sum(input, residual, spec).with_params(scale, shift),
        )),
        Some(gate) => {
            let sum = gated_sum(input, residual, gate)?;
            sum_of(Call::new(sum, spec).with_params(scale, shift))
        }
    }
}

/// Runs a norm of a sum that is there. Under autodiff its node has two results, so that the backward kernel adds both
/// gradients.
fn sum_of<const D: usize>(mut call: Call) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let sum = Tensor::from_dispatch(call.input.clone());
    call.spec.writes_sum = call.tracked() != Tracked::default();
    let outcome = named(call).run()?;
    Ok((outcome.output, outcome.sum.unwrap_or(sum)))
}

/// `residual + gate * input`, if the gate broadcasts to the input and all three have one dtype and one device.
///
/// A kernel without statistics adds and multiplies. If gradients are tracked, Burn's operations do.
fn gated_sum<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gate: Tensor<D>,
) -> Result<Tensor<D>, NormError> {
    let mut spec = NormSpec::new([D - 1], Reduction::None, 0.0);
    spec.residual_place = ResidualPlace::Output;
    let mut call = Call::new(input.clone(), spec)
        .with_params(Some(gate.clone()), None)
        .with_residual(residual.clone());
    call.names[0] = "gate";
    call.check()?;
    let expected = input.dtype();
    for (tensor, actual) in [("gate", gate.dtype()), ("residual", residual.dtype())] {
        if let (Some(actual_dtype), Some(input)) = (dtype(actual), dtype(expected))
            && actual != expected
        {
            return Err(NormError::MixedDTypes {
                tensor,
                expected: input.to_string(),
                actual: actual_dtype,
                input,
            });
        }
    }
    if call.tracked() != Tracked::default() {
        return Ok(residual + gate * input);
    }
    // The sum takes a tensor's buffer if the call alone has it.
    drop((input, residual, gate));
    Ok(call.register().output)
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

fn named(mut call: Call) -> Call {
    call.names[..2].copy_from_slice(&["scale", "shift"]);
    call
}

fn run<const D: usize>(call: Call) -> Result<Tensor<D>, NormError> {
    Ok(named(call).run()?.output)
}
