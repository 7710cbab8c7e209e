//! Norms of tensors with a channel axis: batch norm and group norm.

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Tensor};
use cubenorm_core::{Activation, NormError, WrittenStatistics};

use super::device::CallDevice;
use super::{Call, WRITTEN, expect_rank, expect_size, expect_sizes, numbers, or_panic};
use crate::ops::{Axes, NormBackend, NormSpec, Reduction, Running, RunningOperands, View, wider};

/// Results of [`batch_norm_train`].
#[derive(Debug, Clone)]
pub struct BatchNormTrain<const D: usize> {
    /// The normalized tensor.
    pub output: Tensor<D>,
    /// The mean of each channel, `[channels]`, of the input's dtype, or of f32 for an input of f16 or bf16. It has no
    /// gradient.
    pub mean: Tensor<1>,
    /// The biased variance of each channel, of the same shape and dtype. It has no gradient.
    pub variance: Tensor<1>,
}

/// Dtype of the statistics of an input.
pub(super) fn statistics_dtype(input: DType) -> DType {
    wider(input).map_or(input, DType::from)
}

/// Number of channels, and the view that puts each parameter along the channel axis.
pub(super) fn channels<const D: usize>(input: &Tensor<D>) -> Result<(usize, View), NormError> {
    expect_rank(input, 2, "[batch, channels, ...]")?;
    let shape = input.dims();
    let channels = shape[1];
    let mut params = [1; D];
    params[1] = channels;
    let view = View {
        input: shape.into(),
        params: params.into(),
    };
    Ok((channels, view))
}

/// Number of elements of some dimensions of a tensor.
pub(super) fn elements(
    tensor: &'static str,
    shape: &[usize],
    dims: &[usize],
) -> Result<usize, NormError> {
    // A dimension of 0 makes the tensor empty, even if the other sizes overflow.
    let count = match dims.contains(&0) {
        true => Some(0),
        false => dims
            .iter()
            .try_fold(1usize, |all, &size| all.checked_mul(size)),
    };
    count.ok_or_else(|| NormError::TooLarge {
        tensor,
        shape: shape.to_vec(),
    })
}

/// All axes except the channel axis.
pub(super) fn batch_axes<const D: usize>() -> Axes {
    (0..D).filter(|&axis| axis != 1).collect()
}

/// Casts two parameters to one dtype, as a kernel reads them: the wider one, if both go with the input's dtype.
fn alike<const D: usize>(
    pair: [Tensor<1>; 2],
    names: [&'static str; 2],
    input: &Tensor<D>,
) -> Result<[Tensor<1>; 2], NormError> {
    let dtype = input.dtype();
    let wide = statistics_dtype(dtype);
    let [first, second] = pair.each_ref().map(Tensor::dtype);
    let goes = |other: DType| other == dtype || other == wide;
    if first == second || !goes(first) || !goes(second) {
        return Ok(pair);
    }
    // A cast is an operation too, so the device is checked before it.
    let mut device = CallDevice::of(&input.clone().into_dispatch())?;
    for (name, tensor) in names.into_iter().zip(&pair) {
        device.dtype(name, &tensor.clone().into_dispatch())?;
    }
    Ok(pair.map(|tensor| tensor.cast(wide)))
}

/// Normalizes each channel by provided statistics:
/// `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`.
///
/// Source: [Batch Normalization](https://arxiv.org/abs/1502.03167) at inference, as
/// `burn::nn::BatchNorm` computes it.
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`
/// - `gamma`, `beta`, `mean`, `variance`: `[channels]`
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), with one exception: the dtypes of `gamma`, `beta`, `mean` and `variance` are
/// independent. Each is the input's, or `f32` for an input of `f16` or `bf16`.
///
/// # Panics
///
/// If [`try_batch_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 10.0], [3.0, 30.0]], &device);
/// let mean = Tensor::from_floats([2.0, 20.0], &device);
/// let variance = Tensor::from_floats([1.0, 100.0], &device);
/// let y = cubenorm::batch_norm(x, None, None, mean, variance, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, -1.0, 1.0, 1.0]);
/// # }
/// ```
pub fn batch_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    mean: Tensor<1>,
    variance: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_batch_norm(input, gamma, beta, mean, variance, epsilon))
}

/// [`batch_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), and [`NormError::Shape`] for an input of rank below 2.
pub fn try_batch_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    mean: Tensor<1>,
    variance: Tensor<1>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    let (channels, view) = channels(&input)?;
    let (gamma, beta) = (gamma.into(), beta.into());
    for (name, tensor) in [
        ("gamma", gamma.as_ref()),
        ("beta", beta.as_ref()),
        ("mean", Some(&mean)),
        ("variance", Some(&variance)),
    ] {
        if let Some(tensor) = tensor {
            expect_size(name, tensor, channels)?;
        }
    }
    let (gamma, beta) = match (gamma, beta) {
        (Some(gamma), Some(beta)) => {
            let [gamma, beta] = alike([gamma, beta], ["gamma", "beta"], &input)?;
            (Some(gamma), Some(beta))
        }
        one => one,
    };
    let [mean, variance] = alike([mean, variance], ["mean", "variance"], &input)?;
    let spec = NormSpec {
        view: Some(view),
        ..NormSpec::new(batch_axes::<D>(), Reduction::Provided, epsilon)
    };
    let call = Call::new(input, spec)
        .with_params(gamma, beta)
        .with_provided(mean, variance);
    Ok(call.named_as_burn_does().run()?.output)
}

/// Normalizes each channel by its own mean and biased variance over the batch:
/// `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`.
///
/// Source: [Batch Normalization](https://arxiv.org/abs/1502.03167) in training, as
/// `burn::nn::BatchNorm` computes it.
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`
/// - `gamma`, `beta`, mean and variance: `[channels]`
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm). Mean and variance have the input's dtype, or `f32` for an input of `f16` or
/// `bf16`.
///
/// # Panics
///
/// If [`try_batch_norm_train`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 10.0], [3.0, 30.0]], &device);
/// let result = cubenorm::batch_norm_train(x, None, None, 0.0);
/// let variance = result.variance.into_data().try_to_vec::<f32>().unwrap();
/// assert_eq!(variance, [1.0, 100.0]);
/// # }
/// ```
pub fn batch_norm_train<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> BatchNormTrain<D> {
    or_panic(try_batch_norm_train(input, gamma, beta, epsilon))
}

/// [`batch_norm_train`] as a [`Result`].
///
/// # Errors
///
/// As [`try_batch_norm`].
pub fn try_batch_norm_train<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<BatchNormTrain<D>, NormError> {
    let dtype = statistics_dtype(input.dtype());
    let (output, statistics) = trained(input, gamma.into(), beta.into(), epsilon)?;
    let channels = output.dims()[1];
    let [mean, variance] = numbers(statistics, [0, 2], [channels]);
    Ok(BatchNormTrain {
        output,
        mean: mean.cast(dtype),
        variance: variance.cast(dtype),
    })
}

/// [`batch_norm_train`] of a batch that is not empty, with the running mean and variance after it, `[channels]` each.
pub(crate) fn try_batch_norm_running<const D: usize>(
    input: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    running: [Tensor<1>; 2],
    momentum: f64,
    epsilon: f64,
) -> Result<(Tensor<D>, [Tensor<1>; 2]), NormError> {
    let (output, statistics) = trained(input, Some(gamma), Some(beta), epsilon)?;
    let [mean, variance] = running.map(Tensor::into_dispatch);
    let operands = RunningOperands {
        statistics,
        mean,
        variance,
    };
    let Running { mean, variance } = Dispatch::update_running(operands, momentum);
    Ok((output, [mean, variance].map(Tensor::from_dispatch)))
}

/// A batch normalized by its own statistics, and these: mean, reciprocal deviation and variance of each channel.
fn trained<const D: usize>(
    input: Tensor<D>,
    gamma: Option<Tensor<1>>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> Result<(Tensor<D>, FloatTensor<Dispatch>), NormError> {
    let (channels, view) = channels(&input)?;
    expect_sizes(&gamma, &beta, channels)?;
    let spec = NormSpec {
        written_statistics: Some(WrittenStatistics::MeanRstdVariance),
        view: Some(view),
        ..NormSpec::new(batch_axes::<D>(), Reduction::MeanVariance, epsilon)
    };
    let call = Call::new(input, spec).with_params(gamma, beta);
    let outcome = call.named_as_burn_does().run()?;
    Ok((outcome.output, outcome.statistics.expect(WRITTEN)))
}

/// Normalizes groups of channels of each sample:
/// `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, with statistics over the channels of a
/// group and all axes after them, and one `gamma` and `beta` for each channel.
///
/// Source: [Group Normalization](https://arxiv.org/abs/1803.08494), as `burn::nn::GroupNorm` computes
/// it.
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`
/// - `gamma`, `beta`: `[channels]`; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm).
///
/// # Panics
///
/// If [`try_group_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 3.0, 10.0, 30.0]], &device);
/// let y = cubenorm::group_norm(x, None, None, 2, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0, -1.0, 1.0]);
/// # }
/// ```
pub fn group_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    num_groups: usize,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_group_norm(input, gamma, beta, num_groups, epsilon))
}

/// [`group_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_batch_norm`], and [`NormError::Shape`] if the channels do not divide into the groups.
pub fn try_group_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    num_groups: usize,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    let activation = Activation::Identity;
    try_group_norm_with(input, None, gamma, beta, num_groups, epsilon, activation)
}

/// [`group_norm`] with an optional residual in front and an activation behind it:
///
/// ```text
/// s = input + residual
/// y = activation((s - mean) / sqrt(variance + epsilon) * gamma + beta)
/// ```
///
/// Group norm, SiLU and the addition of a time embedding are most of what a U-Net of a diffusion model does beside its
/// convolutions. The kernel of the norm includes both, and the backward pass includes the activation. In training Burn adds
/// the residual.
///
/// Source: the residual blocks of [High-Resolution Image Synthesis with Latent Diffusion
/// Models](https://arxiv.org/abs/2112.10752).
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`
/// - `residual`: the input's, or `[batch, channels, 1, ...]`
/// - `gamma`, `beta`: `[channels]`; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm). `residual` may have another dtype: any of `f16`, `bf16` and `f32`
/// beside an input of these.
///
/// # Panics
///
/// If [`try_group_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::Activation;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<3>::from_floats([[[1.0, 2.0], [3.0, 4.0]]], &device);
/// let embedding = Tensor::<3>::from_floats([[[0.0], [1.0]]], &device);
/// let y = cubenorm::group_norm_with(x, embedding, None, None, 2, 0.0, Activation::Relu);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.0, 1.0, 0.0, 1.0]);
/// # }
/// ```
pub fn group_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: impl Into<Option<Tensor<D>>>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    num_groups: usize,
    epsilon: f64,
    activation: Activation,
) -> Tensor<D> {
    or_panic(try_group_norm_with(
        input, residual, gamma, beta, num_groups, epsilon, activation,
    ))
}

/// [`group_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_group_norm`], [`NormError::Shape`] for another shape of the residual, and
/// [`NormError::UnsupportedActivation`] if the device does not compute the activation to the digits of the dtype.
pub fn try_group_norm_with<const D: usize>(
    input: Tensor<D>,
    residual: impl Into<Option<Tensor<D>>>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    num_groups: usize,
    epsilon: f64,
    activation: Activation,
) -> Result<Tensor<D>, NormError> {
    let residual = residual.into();
    let (channels, _) = channels(&input)?;
    let (gamma, beta) = (gamma.into(), beta.into());
    let shape = input.dims();
    if num_groups == 0 || !channels.is_multiple_of(num_groups) {
        return Err(NormError::Shape {
            tensor: "input",
            shape: shape.to_vec(),
            expected: format!("[batch, channels, ...] with channels in {num_groups} equal groups"),
        });
    }
    let members = channels / num_groups;
    expect_sizes(&gamma, &beta, channels)?;
    let rest = elements("input", &shape, &shape[2..])?;
    let spec = NormSpec {
        view: Some(View {
            input: [shape[0], num_groups, members, rest].into(),
            params: [1, num_groups, members, 1].into(),
        }),
        activation,
        ..NormSpec::new([2, 3], Reduction::MeanVariance, epsilon)
    };
    let mut call = Call::new(input, spec).with_params(gamma, beta);
    if let Some(residual) = residual {
        let seen = residual.dims();
        let per_channel = seen[..2] == shape[..2] && seen[2..].iter().all(|&size| size == 1);
        if seen != shape && !per_channel {
            return Err(NormError::Shape {
                tensor: "residual",
                shape: seen.to_vec(),
                expected: format!("the input's, {shape:?}, or its first two sizes and ones"),
            });
        }
        call = call.with_residual(residual);
    }
    Ok(call.named_as_burn_does().run()?.output)
}
