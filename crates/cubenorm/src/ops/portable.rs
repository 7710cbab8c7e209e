//! The same operations composed of a backend's own: what backends without CubeCL run, and what
//! gradients are made of.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, FloatDType, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, Shape};
use cubenorm_core::{Activation, Epsilon};

use super::{NormSpec, Reduction};

/// A row's numbers, broadcast over the reduced axes.
pub(super) struct RowStatistics<B: Backend> {
    /// `input - mean`, or the input where no mean is taken off.
    pub centered: FloatTensor<B>,
    /// The reciprocal deviation, or `None` where it is not divided by.
    pub rstd: Option<FloatTensor<B>>,
}

/// Mean over several axes, each kept with a size of 1.
pub(super) fn mean_over<B: Backend>(tensor: FloatTensor<B>, axes: &[usize]) -> FloatTensor<B> {
    axes.iter()
        .fold(tensor, |tensor, &axis| B::float_mean_dim(tensor, axis))
}

/// A parameter with the input's rank, so that the backend broadcasts it.
pub(super) fn with_rank<B: Backend>(tensor: FloatTensor<B>, rank: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    if shape.num_dims() == rank {
        return tensor;
    }
    let mut dims = vec![1; rank - shape.num_dims()];
    dims.extend(shape.iter());
    B::float_reshape(tensor, Shape::from(dims))
}

/// The dtype that statistics are computed in, where it is not the tensor's own.
fn wider(dtype: DType) -> Option<FloatDType> {
    matches!(dtype, DType::F16 | DType::BF16).then_some(FloatDType::F32)
}

/// A tensor in the dtype that everything is computed in.
pub(super) fn widen<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match wider(tensor.dtype()) {
        Some(dtype) => B::float_cast(tensor, dtype),
        None => tensor,
    }
}

/// A tensor in a dtype, which it may have already.
pub(super) fn cast_to<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    match tensor.dtype() == dtype {
        true => tensor,
        false => B::float_cast(tensor, dtype.into()),
    }
}

pub(super) fn statistics<B: Backend>(input: FloatTensor<B>, spec: &NormSpec) -> RowStatistics<B> {
    let centered = match spec.reduction {
        Reduction::MeanSquare | Reduction::None => input,
        Reduction::MeanVariance | Reduction::Mean => {
            let mean = mean_over::<B>(input.clone(), &spec.axes);
            B::float_sub(input, mean)
        }
    };
    let rstd = match spec.reduction {
        Reduction::Mean | Reduction::None => None,
        Reduction::MeanVariance | Reduction::MeanSquare => {
            let squares = B::float_mul(centered.clone(), centered.clone());
            let variance = mean_over::<B>(squares, &spec.axes);
            let deviation = match spec.epsilon {
                Epsilon::InsideSqrt(epsilon) => {
                    B::float_sqrt(B::float_add_scalar(variance, epsilon.into()))
                }
                Epsilon::AddedToDeviation(epsilon) => {
                    B::float_add_scalar(B::float_sqrt(variance), epsilon.into())
                }
            };
            Some(B::float_recip(deviation))
        }
    };
    RowStatistics { centered, rstd }
}

/// [`NormBackend::normalize`](super::NormBackend::normalize) of a backend's own operations.
#[cfg(feature = "flex")]
pub(super) fn normalize<B: Backend>(
    input: FloatTensor<B>,
    scale: Option<FloatTensor<B>>,
    bias: Option<FloatTensor<B>>,
    spec: &NormSpec,
) -> FloatTensor<B> {
    let dtype = input.dtype();
    let rank = input.shape().num_dims();
    let param = |tensor: FloatTensor<B>| widen::<B>(with_rank::<B>(tensor, rank));
    let RowStatistics { centered, rstd } = statistics::<B>(widen::<B>(input), spec);
    let mut value = match rstd {
        Some(rstd) => B::float_mul(centered, rstd),
        None => centered,
    };
    if let Some(scale) = scale {
        value = B::float_mul(value, param(scale));
    }
    if let Some(bias) = bias {
        value = B::float_add(value, param(bias));
    }
    cast_to::<B>(activate::<B>(value, spec.activation), dtype)
}

/// An activation of a backend's own operations, differentiable where the backend is.
///
/// As in the kernels no exponential is taken of a large number: where it would be, it is masked
/// before.
pub(super) fn activate<B: Backend>(x: FloatTensor<B>, activation: Activation) -> FloatTensor<B> {
    let scale = |x: FloatTensor<B>, by: f64| B::float_mul_scalar(x, by.into());
    let offset = |x: FloatTensor<B>, by: f64| B::float_add_scalar(x, by.into());
    let relu = |x: FloatTensor<B>| B::relu(x);
    // min(x, 0), and exp of it less 1.
    let negative = |x: FloatTensor<B>| B::float_neg(B::relu(B::float_neg(x)));
    let decay = |x: FloatTensor<B>| offset(B::float_exp(negative(x)), -1.0);
    let saturate = |x: FloatTensor<B>| B::float_clamp(x, 0.0.into(), 1.0.into());
    // ln(1 + exp(x)) = max(x, 0) + ln(1 + exp(-|x|))
    let softplus = |x: FloatTensor<B>| {
        let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
        B::float_add(B::relu(x), tail)
    };
    match activation {
        Activation::Identity => x,
        Activation::Relu => relu(x),
        Activation::LeakyRelu { alpha } => B::float_add(relu(x.clone()), scale(negative(x), alpha)),
        Activation::ThresholdedRelu { alpha } => {
            let settings = get_or_init_device_settings::<B>(&x.device());
            let below = B::float_lower_equal_elem(x.clone(), alpha.into(), settings.bool_dtype);
            B::float_mask_fill(x, below, 0.0.into())
        }
        Activation::Elu { alpha } => B::float_add(relu(x.clone()), scale(decay(x), alpha)),
        Activation::Celu { alpha } => {
            let scaled = B::float_clamp_max(scale(x.clone(), 1.0 / alpha), 80.0.into());
            let tail = scale(offset(B::float_exp(scaled), -1.0), alpha);
            B::float_add(relu(x), negative(tail))
        }
        Activation::ScaledElu { alpha, gamma } => {
            scale(B::float_add(relu(x.clone()), scale(decay(x), alpha)), gamma)
        }
        Activation::Linear { alpha, beta } => offset(scale(x, alpha), beta),
        Activation::HardSigmoid { alpha, beta } => saturate(offset(scale(x, alpha), beta)),
        Activation::Sigmoid => B::sigmoid(x),
        Activation::Tanh => B::float_tanh(x),
        Activation::ScaledTanh { alpha, beta } => scale(B::float_tanh(scale(x, beta)), alpha),
        Activation::Softplus { steepness } => scale(softplus(scale(x, steepness)), 1.0 / steepness),
        Activation::ParametricSoftplus { alpha, beta } => scale(softplus(scale(x, beta)), alpha),
        Activation::Softsign => {
            let denominator = offset(B::float_abs(x.clone()), 1.0);
            B::float_div(x, denominator)
        }
        Activation::Shrink { bias, threshold } => {
            let settings = get_or_init_device_settings::<B>(&x.device());
            let outside = |x: FloatTensor<B>| {
                let inside =
                    B::float_lower_equal_elem(x.clone(), threshold.into(), settings.bool_dtype);
                B::float_mask_fill(offset(x, -bias), inside, 0.0.into())
            };
            B::float_sub(outside(x.clone()), outside(B::float_neg(x)))
        }
        Activation::Gelu => {
            let erf = B::float_erf(scale(x.clone(), std::f64::consts::FRAC_1_SQRT_2));
            B::float_mul(scale(x, 0.5), offset(erf, 1.0))
        }
        Activation::GeluTanh => {
            let cubed = B::float_mul(B::float_mul(x.clone(), x.clone()), x.clone());
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let inner = scale(B::float_add(x.clone(), scale(cubed, 0.044715)), 2.0 * root);
            B::float_mul(x, B::sigmoid(inner))
        }
        Activation::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
        Activation::HardSwish => {
            B::float_mul(x.clone(), saturate(offset(scale(x, 1.0 / 6.0), 0.5)))
        }
        Activation::Mish => B::float_mul(x.clone(), B::float_tanh(softplus(x))),
    }
}
