mod call;
mod channels;
#[cfg(feature = "cube")]
mod checked;
mod device;
mod dynamic_tanh;
mod gated;
mod general;
mod heads;
mod modulated;
mod options;
mod quantized;
mod sync;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::{Shape, Tensor};
use cubenorm_core::{Activation, Epsilon, NormError};

use crate::ops::{Axes, NormSpec, Reduction, dtype};
pub(crate) use call::{Call, Outcome};
pub(crate) use channels::try_batch_norm_running;
pub use channels::{
    BatchNormTrain, batch_norm, batch_norm_train, group_norm, group_norm_with, try_batch_norm,
    try_batch_norm_train, try_group_norm, try_group_norm_with,
};
use channels::{channels, elements};
pub(crate) use device::is_capturing;

pub use gated::{
    GateOptions, gated_layer_norm, gated_rms_norm, try_gated_layer_norm, try_gated_rms_norm,
};
pub use general::{
    Lp, NormWithStatistics, broadcast_batch_norm, lp_norm, mean_variance_norm_with_statistics,
    try_broadcast_batch_norm, try_lp_norm, try_mean_variance_norm_with_statistics,
};
pub use heads::{
    HeadNormOptions, Positions, Rope, qk_norm, qk_norm_rope, qk_norm_with, try_qk_norm,
    try_qk_norm_rope, try_qk_norm_with,
};
pub use modulated::{
    ada_layer_norm, add_modulated_layer_norm, add_modulated_rms_norm, modulated_layer_norm,
    modulated_rms_norm, try_ada_layer_norm, try_add_modulated_layer_norm,
    try_add_modulated_rms_norm, try_modulated_layer_norm, try_modulated_rms_norm,
};
pub use quantized::{
    Codes, Quantized, add_quantized_layer_norm, add_quantized_rms_norm, quantized_layer_norm,
    quantized_rms_norm, try_add_quantized_layer_norm, try_add_quantized_rms_norm,
    try_quantized_layer_norm, try_quantized_rms_norm,
};
pub use sync::{
    ShardedNorm, SyncBatchNormTrain, norm_sharded, sync_batch_norm_train, try_norm_sharded,
    try_sync_batch_norm_train,
};

pub use dynamic_tanh::{dynamic_tanh, try_dynamic_tanh};
pub use options::{
    NormOptions, add_layer_norm_with, add_rms_norm_with, layer_norm_with, rms_norm_with,
    try_add_layer_norm_with, try_add_rms_norm_with, try_layer_norm_with, try_rms_norm_with,
};

/// Why an output is there.
const WRITTEN: &str = "every backend writes the outputs that the specification names";

/// Options of [`mean_variance_norm`].
///
/// # Example
///
/// ```
/// use cubenorm::{Activation, MeanVarianceOptions};
///
/// // Instance norm of NCHW with a fused activation.
/// let options = MeanVarianceOptions::new([2, 3])
///     .with_epsilon(1e-5)
///     .with_activation(Activation::Relu);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MeanVarianceOptions {
    axes: Axes,
    normalize_mean: bool,
    normalize_variance: bool,
    epsilon: Epsilon,
    activation: Activation,
}

impl MeanVarianceOptions {
    /// Mean and variance over these axes, epsilon 1e-5 inside the square root, no activation.
    pub fn new(axes: impl Into<Axes>) -> Self {
        Self {
            axes: axes.into(),
            normalize_mean: true,
            normalize_variance: true,
            epsilon: Epsilon::InsideSqrt(1e-5),
            activation: Activation::Identity,
        }
    }

    /// Sets epsilon, added to the variance inside the square root.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        self.with_epsilon_placed(Epsilon::InsideSqrt(epsilon))
    }

    /// Sets epsilon and its place in the formula.
    pub fn with_epsilon_placed(mut self, epsilon: Epsilon) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets whether the mean is subtracted. Without it the variance is the mean square, as in RMS norm.
    /// Default: true.
    pub fn with_mean(mut self, normalize_mean: bool) -> Self {
        self.normalize_mean = normalize_mean;
        self
    }

    /// Sets whether the difference is divided by the deviation. Default: true.
    pub fn with_variance(mut self, normalize_variance: bool) -> Self {
        self.normalize_variance = normalize_variance;
        self
    }

    /// Sets the activation of the result.
    pub fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    fn spec(&self) -> NormSpec {
        let reduction = match (self.normalize_mean, self.normalize_variance) {
            (true, true) => Reduction::MeanVariance,
            (false, true) => Reduction::MeanSquare,
            (true, false) => Reduction::Mean,
            (false, false) => Reduction::None,
        };
        NormSpec {
            epsilon: self.epsilon,
            activation: self.activation,
            ..NormSpec::new(self.axes.clone(), reduction, self.epsilon.value())
        }
    }
}

/// Normalizes over the last axis: `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, with
/// the biased variance.
///
/// Source: [Layer Normalization](https://arxiv.org/abs/1607.06450), as `burn::nn::LayerNorm` and
/// PyTorch compute it.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `gamma`, `beta`: `[d]`; without them 1 and 0
///
/// # Dtypes
///
/// `f16`, `bf16`, `f32` and `f64`, if the device has them. `gamma` and `beta` have the same dtype: the input's, or `f32`
/// for an input of `f16` or `bf16`. Statistics are accumulated in `f32`, in `f64` for `f64`. The result has the input's
/// dtype. If the squares of a row sum up to more than the accumulation dtype holds (3.4e38 for `f32`), the row of the
/// result is not valid.
///
/// # Panics
///
/// If [`try_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
/// let y = cubenorm::layer_norm(x, None, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
/// # }
/// ```
pub fn layer_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_layer_norm(input, gamma, beta, epsilon))
}

/// [`layer_norm`] as a [`Result`].
///
/// # Errors
///
/// [`NormError`], before anything is registered with the device:
///
/// - a parameter is not `[d]`, or epsilon is negative or not finite
/// - dtypes do not go together, or the device does not have them
/// - the tensors are on different devices, or their gradient checkpointing differs
/// - this crate is built without the device's backend
/// - the device's limits do not allow the forward pass, or the backward pass of tracked tensors
pub fn try_layer_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    try_layer_norm_with(
        input,
        gamma,
        beta,
        &NormOptions::new().with_epsilon(epsilon),
    )
}

/// Normalizes over the last axis by the root mean square: `y = x / sqrt(mean(x^2) + epsilon) *
/// gamma`.
///
/// Source: [Root Mean Square Layer Normalization](https://arxiv.org/abs/1910.07467), as
/// `burn::nn::RmsNorm` computes it. The product with `gamma` is rounded once, from the
/// accumulation dtype.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `gamma`: `[d]`; without it 1
///
/// # Dtypes
///
/// As [`layer_norm`].
///
/// # Panics
///
/// If [`try_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[3.0, -3.0]], &device);
/// let y = cubenorm::rms_norm(x, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
/// # }
/// ```
pub fn rms_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_rms_norm(input, gamma, epsilon))
}

/// [`rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`].
pub fn try_rms_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    try_rms_norm_with(input, gamma, &NormOptions::new().with_epsilon(epsilon))
}

/// [`layer_norm`] of `input + residual`, and that sum, as between the parts of a transformer block.
///
/// One kernel adds, normalizes and writes both results. It normalizes the sum before rounding it to its dtype. In training
/// the backward kernel adds the gradient of the sum to the norm's.
///
/// # Shapes
///
/// - `input`, `residual`, both results: `[..., d]`
/// - `gamma`, `beta`: `[d]`; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`]. `residual` may have another dtype, such as `f32` for an input of `bf16`. The sum has the
/// residual's dtype, and the normalized result has the input's.
///
/// # Panics
///
/// If [`try_add_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 1.0]], &device);
/// let residual = Tensor::<2>::from_floats([[0.0, 2.0]], &device);
/// let (y, sum) = cubenorm::add_layer_norm(x, residual, None, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0]);
/// # }
/// ```
pub fn add_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_layer_norm(input, residual, gamma, beta, epsilon))
}

/// [`add_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`], and [`NormError::Shape`] if the residual's shape is not the input's.
pub fn try_add_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let options = NormOptions::new().with_epsilon(epsilon);
    try_add_layer_norm_with(input, residual, gamma, beta, &options)
}

/// [`rms_norm`] of `input + residual`, and that sum. The addition runs as in [`add_layer_norm`].
///
/// # Shapes
///
/// As [`add_layer_norm`], without `beta`.
///
/// # Dtypes
///
/// As [`add_layer_norm`].
///
/// # Panics
///
/// If [`try_add_rms_norm`] returns an error, with that message.
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
/// let (y, sum) = cubenorm::add_rms_norm(x, residual, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [3.0, -3.0]);
/// # }
/// ```
pub fn add_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_add_rms_norm(input, residual, gamma, epsilon))
}

/// [`add_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_add_layer_norm`].
pub fn try_add_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let options = NormOptions::new().with_epsilon(epsilon);
    try_add_rms_norm_with(input, residual, gamma, &options)
}

/// Normalizes each channel of each sample: [`layer_norm`]'s formula over all axes from the third,
/// with one `gamma` and `beta` for each channel.
///
/// Source: [Instance Normalization](https://arxiv.org/abs/1607.08022), as `burn::nn::InstanceNorm`
/// computes it.
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`
/// - `gamma`, `beta`: `[channels]`; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`].
///
/// # Panics
///
/// If [`try_instance_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<3>::from_floats([[[1.0, 3.0], [10.0, 30.0]]], &device);
/// let y = cubenorm::instance_norm(x, None, None, 0.0);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0, -1.0, 1.0]);
/// # }
/// ```
pub fn instance_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Tensor<D> {
    or_panic(try_instance_norm(input, gamma, beta, epsilon))
}

/// [`instance_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`], and [`NormError::Shape`] for an input without channels.
pub fn try_instance_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<Tensor<D>, NormError> {
    let (channels, view) = channels(&input)?;
    let (gamma, beta) = (gamma.into(), beta.into());
    expect_sizes(&gamma, &beta, channels)?;
    let spec = NormSpec {
        view: Some(view),
        ..MeanVarianceOptions::new((2..D).collect::<Axes>())
            .with_epsilon(epsilon)
            .spec()
    };
    let call = Call::new(input, spec).with_params(gamma, beta);
    Ok(call.named_as_burn_does().run()?.output)
}

/// Normalizes over any axes, as DirectML's mean-variance operators do:
///
/// ```text
/// y = activation((x - mean) / sqrt(variance + epsilon) * scale + bias)
/// ```
///
/// # Shapes
///
/// - `input`, result: any
/// - `scale`, `bias`: each dimension 1 or the input's
///
/// # Dtypes
///
/// As [`layer_norm`], with `scale` and `bias` for `gamma` and `beta`.
///
/// # Panics
///
/// If [`try_mean_variance_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{Activation, MeanVarianceOptions};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0], [3.0]], &device);
/// let options = MeanVarianceOptions::new([0])
///     .with_epsilon(0.0)
///     .with_activation(Activation::Relu);
/// let y = cubenorm::mean_variance_norm(x, None, None, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.0, 1.0]);
/// # }
/// ```
pub fn mean_variance_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    options: &MeanVarianceOptions,
) -> Tensor<D> {
    or_panic(try_mean_variance_norm(input, scale, bias, options))
}

/// [`mean_variance_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`], and [`NormError`] for an axis that is out of range or repeated, or a scale or bias that does
/// not broadcast.
pub fn try_mean_variance_norm<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    options: &MeanVarianceOptions,
) -> Result<Tensor<D>, NormError> {
    let call = Call::new(input, options.spec()).with_params(scale.into(), bias.into());
    Ok(call.run()?.output)
}

/// Both numbers of the statistics of a checked call, as tensors of this shape.
fn numbers<const D: usize>(
    statistics: FloatTensor<Dispatch>,
    columns: [usize; 2],
    shape: [usize; D],
) -> [Tensor<D>; 2] {
    // The check of the call has counted the rows.
    let rows = shape.iter().product();
    let count = statistics.shape().last().copied().unwrap_or(0);
    let statistics = Dispatch::float_reshape(statistics, Shape::from(vec![rows, count]));
    let statistics = Tensor::<2>::from_dispatch(statistics);
    columns.map(|which| {
        let column = statistics.clone().slice([0..rows, which..which + 1]);
        // `Tensor::reshape` takes a size of 0 for the size that is there.
        let column = Dispatch::float_reshape(column.into_dispatch(), Shape::from(shape.to_vec()));
        Tensor::from_dispatch(column)
    })
}

/// Panics with the message of an error, as Burn does at the call.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T, NormError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn expect_size(tensor: &'static str, param: &Tensor<1>, size: usize) -> Result<(), NormError> {
    let shape = param.dims();
    match shape == [size] {
        true => Ok(()),
        false => Err(NormError::Shape {
            tensor,
            shape: shape.to_vec(),
            expected: format!("[{size}], a number for each of the input's {size} features"),
        }),
    }
}

fn expect_sizes(
    gamma: &Option<Tensor<1>>,
    beta: &Option<Tensor<1>>,
    size: usize,
) -> Result<(), NormError> {
    let present = |(name, tensor): (_, &Option<Tensor<1>>)| match tensor {
        Some(tensor) => expect_size(name, tensor, size),
        None => Ok(()),
    };
    [("gamma", gamma), ("beta", beta)]
        .into_iter()
        .try_for_each(present)
}

/// Checks the rank of an input, which an error names. `form` is its shape in words.
pub(crate) fn expect_rank<const D: usize>(
    input: &Tensor<D>,
    least: usize,
    form: &str,
) -> Result<(), NormError> {
    match D >= least {
        true => Ok(()),
        false => Err(NormError::Shape {
            tensor: "input",
            shape: input.dims().to_vec(),
            expected: format!("rank {least} or more, as {form}, but its rank is {D}"),
        }),
    }
}

fn last_axis_spec<const D: usize>(
    input: &Tensor<D>,
    gamma: &Option<Tensor<1>>,
    beta: &Option<Tensor<1>>,
    options: &NormOptions,
    reduction: Reduction,
) -> Result<NormSpec, NormError> {
    expect_rank(input, 1, "[..., d]")?;
    expect_sizes(gamma, beta, input.dims()[D - 1])?;
    Ok(options.spec(D - 1, reduction))
}

fn last_axis<const D: usize>(
    input: Tensor<D>,
    gamma: Option<Tensor<1>>,
    beta: Option<Tensor<1>>,
    options: &NormOptions,
    reduction: Reduction,
) -> Result<Tensor<D>, NormError> {
    let spec = last_axis_spec(&input, &gamma, &beta, options, reduction)?;
    let call = Call::new(input, spec).with_params(gamma, beta);
    Ok(call.named_as_burn_does().run()?.output)
}

fn add_last_axis<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: Option<Tensor<1>>,
    beta: Option<Tensor<1>>,
    options: &NormOptions,
    reduction: Reduction,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let spec = last_axis_spec(&input, &gamma, &beta, options, reduction)?;
    expect_residual(&input, &residual)?;
    let call = of_sum(input, residual, spec).with_params(gamma, beta);
    with_sum(call.named_as_burn_does())
}

/// Runs a norm of a sum, and returns both.
fn with_sum<const D: usize>(mut call: Call) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    call.spec.writes_sum = true;
    let Outcome { output, sum, .. } = call.run()?;
    Ok((output, sum.expect(WRITTEN)))
}

/// Checks that a residual has the input's shape.
fn expect_residual<const D: usize>(
    input: &Tensor<D>,
    residual: &Tensor<D>,
) -> Result<(), NormError> {
    match residual.dims() == input.dims() {
        true => Ok(()),
        false => Err(NormError::Shape {
            tensor: "residual",
            shape: residual.dims().to_vec(),
            expected: format!("the input's, {:?}", input.dims()),
        }),
    }
}

/// A norm of `input + residual`. Its result has the input's dtype, the sum the residual's.
fn of_sum<const D: usize>(input: Tensor<D>, residual: Tensor<D>, spec: NormSpec) -> Call {
    let (of_input, of_residual) = (dtype(input.dtype()), dtype(residual.dtype()));
    let is_mixed = of_input
        .zip(of_residual)
        .is_some_and(|(input, residual)| input != residual && input.mixes_with(residual));
    if !is_mixed {
        return Call::new(input, spec).with_residual(residual);
    }
    // The kernels write the sum in the dtype of their input.
    let mut call = Call::new(residual, spec).with_residual(input);
    call.spec.output_dtype = call.spec.output_dtype.or(of_input);
    call
}
