//! Norms in the form of operator specifications: any axes, parameters of any shape that broadcasts, statistics that are
//! provided or returned.

use burn::tensor::Tensor;
use cubenorm_core::{Activation, NormError, WrittenStatistics};

use super::{Call, MeanVarianceOptions, WRITTEN, numbers, or_panic};
use crate::ops::{NormSpec, Reduction};

/// Results of [`mean_variance_norm_with_statistics`].
#[derive(Debug, Clone)]
pub struct NormWithStatistics<const D: usize> {
    /// The normalized tensor.
    pub output: Tensor<D>,
    /// The mean of each row, or 0 if no mean is subtracted. Reduced axes have size 1. It has no gradient.
    pub mean: Tensor<D>,
    /// The reciprocal deviation of each row, epsilon included, or 1 if nothing is divided by it. It has no gradient.
    pub rstd: Tensor<D>,
}

/// [`mean_variance_norm`](crate::mean_variance_norm) that also returns its statistics: ONNX's `LayerNormalization` over
/// any axes, with the outputs `Mean` and `InvStdDev`.
///
/// Source: [ONNX LayerNormalization](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html).
///
/// # Shapes
///
/// - `input`, output: any
/// - `scale`, `bias`: broadcast to it
/// - mean and rstd: the input's, with size 1 along the axes
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), with `scale` and `bias` for `gamma` and `beta`. Mean and rstd are in `f32`,
/// in `f64` for `f64`.
///
/// # Panics
///
/// If [`try_mean_variance_norm_with_statistics`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::MeanVarianceOptions;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 5.0]], &device);
/// let options = MeanVarianceOptions::new([1]).with_epsilon(0.0);
/// let result = cubenorm::mean_variance_norm_with_statistics(x, None, None, &options);
/// assert_eq!(result.mean.into_scalar::<f32>(), 3.0);
/// assert_eq!(result.rstd.into_scalar::<f32>(), 0.5);
/// # }
/// ```
pub fn mean_variance_norm_with_statistics<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    options: &MeanVarianceOptions,
) -> NormWithStatistics<D> {
    or_panic(try_mean_variance_norm_with_statistics(
        input, scale, bias, options,
    ))
}

/// [`mean_variance_norm_with_statistics`] as a [`Result`].
///
/// # Errors
///
/// As [`try_mean_variance_norm`](crate::try_mean_variance_norm), and [`NormError::NothingToWrite`] if neither mean nor
/// variance is reduced.
pub fn try_mean_variance_norm_with_statistics<const D: usize>(
    input: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    options: &MeanVarianceOptions,
) -> Result<NormWithStatistics<D>, NormError> {
    let spec = NormSpec {
        written_statistics: Some(WrittenStatistics::MeanRstd),
        ..options.spec()
    };
    let mut kept = input.dims();
    for &axis in spec.axes.iter().filter(|&&axis| axis < D) {
        kept[axis] = 1;
    }
    let call = Call::new(input, spec).with_params(scale.into(), bias.into());
    let outcome = call.run()?;
    let [mean, rstd] = numbers(outcome.statistics.expect(WRITTEN), [0, 1], kept);
    Ok(NormWithStatistics {
        output: outcome.output,
        mean,
        rstd,
    })
}

/// Normalizes by provided statistics, as DirectML's `BATCH_NORMALIZATION`, whose tensors broadcast in any
/// dimension: `y = activation((x - mean) / sqrt(variance + epsilon) * scale + bias)`.
///
/// Source: [DML_BATCH_NORMALIZATION_OPERATOR_DESC](https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_batch_normalization_operator_desc).
/// [`batch_norm`](crate::batch_norm) is the form with one number for each channel.
///
/// # Shapes
///
/// - `input`, result: any
/// - `mean`, `variance`, `scale`, `bias`: broadcast to it
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), with `mean`, `variance`, `scale` and `bias` for `gamma` and `beta`: all four
/// have the same dtype.
///
/// # Panics
///
/// If [`try_broadcast_batch_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::Activation;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 10.0], [3.0, 30.0]], &device);
/// let mean = Tensor::from_floats([[1.0], [5.0]], &device);
/// let variance = Tensor::from_floats([[9.0, 1.0]], &device);
/// let y = cubenorm::broadcast_batch_norm(x, mean, variance, None, None, 0.0, Activation::Relu);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.0, 9.0, 0.0, 25.0]);
/// # }
/// ```
pub fn broadcast_batch_norm<const D: usize>(
    input: Tensor<D>,
    mean: Tensor<D>,
    variance: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
    activation: Activation,
) -> Tensor<D> {
    or_panic(try_broadcast_batch_norm(
        input, mean, variance, scale, bias, epsilon, activation,
    ))
}

/// [`broadcast_batch_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_mean_variance_norm`](crate::try_mean_variance_norm).
pub fn try_broadcast_batch_norm<const D: usize>(
    input: Tensor<D>,
    mean: Tensor<D>,
    variance: Tensor<D>,
    scale: impl Into<Option<Tensor<D>>>,
    bias: impl Into<Option<Tensor<D>>>,
    epsilon: f64,
    activation: Activation,
) -> Result<Tensor<D>, NormError> {
    let spec = NormSpec {
        activation,
        ..NormSpec::new([0; 0], Reduction::Provided, epsilon)
    };
    let call = Call::new(input, spec)
        .with_params(scale.into(), bias.into())
        .with_provided(mean, variance);
    Ok(call.run()?.output)
}

/// Norm that [`lp_norm`] divides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lp {
    /// The sum of magnitudes.
    L1,
    /// The root of the sum of squares.
    L2,
}

/// Divides by a norm along an axis: `y = x / |x|`, or zeros for a row of zeros.
///
/// Source: [ONNX LpNormalization](https://onnx.ai/onnx/operators/onnx__LpNormalization.html).
///
/// # Shapes
///
/// - `input`, result: any
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), without parameters.
///
/// # Panics
///
/// If [`try_lp_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::Lp;
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, -3.0], [0.0, 0.0]], &device);
/// let y = cubenorm::lp_norm(x, Lp::L1, 1);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.25, -0.75, 0.0, 0.0]);
/// # }
/// ```
pub fn lp_norm<const D: usize>(input: Tensor<D>, p: Lp, axis: usize) -> Tensor<D> {
    or_panic(try_lp_norm(input, p, axis))
}

/// [`lp_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_mean_variance_norm`](crate::try_mean_variance_norm).
pub fn try_lp_norm<const D: usize>(
    input: Tensor<D>,
    p: Lp,
    axis: usize,
) -> Result<Tensor<D>, NormError> {
    let reduction = match p {
        Lp::L1 => Reduction::L1Norm,
        Lp::L2 => Reduction::L2Norm,
    };
    let call = Call::new(input, NormSpec::new([axis], reduction, 0.0));
    Ok(call.run()?.output)
}
