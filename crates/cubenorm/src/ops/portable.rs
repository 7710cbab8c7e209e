//! The operations composed of a backend's own, for backends without CubeCL and for gradients without a kernel.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, FloatDType, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, Shape, Slice};
#[cfg(feature = "flex")]
use burn::tensor::{TensorData, try_read_sync};
use cubenorm_core::{Activation, Epsilon, Offset, Rounding, WrittenStatistics};
#[cfg(feature = "flex")]
use cubenorm_core::{CODES_PER_WORD, RotatedPairs};

use super::spec::burn_dtype;
use super::view::shaped;
use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Optional, Reduction,
};
#[cfg(feature = "flex")]
use super::{
    HeadOperands, HeadSpec, Heads, QuantizedOperands, QuantizedParts, QuantizedSpec, Running,
    RunningOperands,
};

/// Mean over several axes, each kept with a size of 1.
pub(super) fn mean_over<B: Backend>(tensor: FloatTensor<B>, axes: &[usize]) -> FloatTensor<B> {
    axes.iter()
        .fold(tensor, |tensor, &axis| B::float_mean_dim(tensor, axis))
}

/// View of a parameter with the input's rank, so that the backend broadcasts it.
pub(super) fn param<B: Backend>(
    tensor: FloatTensor<B>,
    rank: usize,
    spec: &NormSpec,
) -> FloatTensor<B> {
    let tensor = spec.see_param::<B>(tensor);
    let shape = tensor.shape();
    if shape.num_dims() == rank {
        return tensor;
    }
    let mut dims = vec![1; rank - shape.num_dims()];
    dims.extend(shape.iter());
    B::float_reshape(tensor, Shape::from(dims))
}

/// Adds the offset to a scale of the accumulation dtype.
fn offset_scale<B: Backend>(scale: FloatTensor<B>, offset: Offset) -> FloatTensor<B> {
    match offset.is_zero() {
        true => scale,
        false => B::float_add_scalar(scale, offset.value().into()),
    }
}

/// Dtype of the statistics of a tensor, if it is not the tensor's own.
pub(crate) fn wider(dtype: DType) -> Option<FloatDType> {
    matches!(dtype, DType::F16 | DType::BF16).then_some(FloatDType::F32)
}

/// Casts a tensor to the accumulation dtype.
pub(super) fn widen<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match wider(tensor.dtype()) {
        Some(dtype) => B::float_cast(tensor, dtype),
        None => tensor,
    }
}

/// Casts a tensor, unless it has the dtype.
pub(super) fn cast_to<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    match tensor.dtype() == dtype {
        true => tensor,
        false => B::float_cast(tensor, dtype.into()),
    }
}

/// Sum over several axes, each kept with a size of 1.
fn sum_over<B: Backend>(tensor: FloatTensor<B>, axes: &[usize]) -> FloatTensor<B> {
    axes.iter()
        .fold(tensor, |tensor, &axis| B::float_sum_dim(tensor, axis))
}

/// Statistics of rows, broadcast over the reduced axes.
struct RowStatistics<B: Backend> {
    /// The input minus its mean, or the input if no mean is subtracted.
    centered: FloatTensor<B>,
    /// The mean.
    mean: Option<FloatTensor<B>>,
    /// The variance, or the mean of squares if no mean is subtracted.
    variance: Option<FloatTensor<B>>,
    /// The reciprocal deviation of `centered`.
    rstd: Option<FloatTensor<B>>,
    /// The power of two that `centered` is scaled by.
    factor: Option<FloatTensor<B>>,
}

/// `1 / sqrt(variance + epsilon)`, or `1 / (sqrt(variance) + epsilon)`.
fn reciprocal_deviation<B: Backend>(variance: FloatTensor<B>, epsilon: Epsilon) -> FloatTensor<B> {
    B::float_recip(match epsilon {
        Epsilon::InsideSqrt(epsilon) => {
            B::float_sqrt(B::float_add_scalar(variance, epsilon.into()))
        }
        Epsilon::AddedToDeviation(epsilon) => {
            B::float_add_scalar(B::float_sqrt(variance), epsilon.into())
        }
    })
}

/// Scales rows whose squares leave the range of their dtype, as BLAS's nrm2 does. Returns the scaled rows and their powers
/// of two, or no powers for an empty tensor.
fn in_range<B: Backend>(
    input: FloatTensor<B>,
    axes: &[usize],
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    if input.shape().num_elements() == 0 {
        return (input, None);
    }
    // Exponents of the bounds of magnitudes whose squares are in range, and of the factors beyond them.
    let (least, most, up, down) = match input.dtype() {
        DType::F64 => (-400, 400, 700, -700),
        _ => (-50, 40, 95, -80),
    };
    let power = |exponent: i32| 2f64.powi(exponent).into();
    let magnitude = B::float_abs(input.clone());
    let largest = axes
        .iter()
        .fold(magnitude, |tensor, &axis| B::float_max_dim(tensor, axis));
    let bools = get_or_init_device_settings::<B>(&input.device()).bool_dtype;
    let is_small = B::float_lower_elem(largest.clone(), power(least), bools);
    let is_large = B::float_greater_elem(largest.clone(), power(most), bools);
    let ones = B::float_ones(largest.shape(), &input.device(), input.dtype().into());
    let factor = B::float_mask_fill(ones, is_small, power(up));
    let factor = B::float_mask_fill(factor, is_large, power(down));
    (B::float_mul(input, factor.clone()), Some(factor))
}

/// The reciprocal norm of rows.
fn reciprocal_lp_norm<B: Backend>(
    input: FloatTensor<B>,
    reduction: Reduction,
    axes: &[usize],
) -> FloatTensor<B> {
    reciprocal_norm::<B>(match reduction {
        Reduction::L1Norm => sum_over::<B>(B::float_abs(input), axes),
        _ => {
            let squares = B::float_mul(input.clone(), input);
            B::float_sqrt(sum_over::<B>(squares, axes))
        }
    })
}

/// `1 / norm`, or 0 for a norm of 0.
fn reciprocal_norm<B: Backend>(norm: FloatTensor<B>) -> FloatTensor<B> {
    let settings = get_or_init_device_settings::<B>(&norm.device());
    let is_zero = B::float_equal_elem(norm.clone(), 0.0.into(), settings.bool_dtype);
    B::float_mask_fill(B::float_recip(norm), is_zero, 0.0.into())
}

fn statistics<B: Backend>(input: FloatTensor<B>, spec: &NormSpec) -> RowStatistics<B> {
    if let Reduction::L1Norm | Reduction::L2Norm = spec.reduction {
        let (scaled, factor) = in_range::<B>(input, &spec.axes);
        return RowStatistics {
            rstd: Some(reciprocal_lp_norm::<B>(
                scaled.clone(),
                spec.reduction,
                &spec.axes,
            )),
            centered: scaled,
            mean: None,
            variance: None,
            factor,
        };
    }
    let square = |tensor: FloatTensor<B>| B::float_mul(tensor.clone(), tensor);
    let (centered, mean) = match spec.reduction {
        Reduction::MeanVariance | Reduction::Mean => {
            let (centered, mean) = center::<B>(input, &spec.axes);
            (centered, Some(mean))
        }
        _ => (input, None),
    };
    let variance = match spec.reduction {
        Reduction::MeanVariance | Reduction::MeanSquare => {
            Some(mean_over::<B>(square(centered.clone()), &spec.axes))
        }
        _ => None,
    };
    let rstd = variance
        .clone()
        .map(|variance| reciprocal_deviation::<B>(variance, spec.epsilon));
    RowStatistics {
        centered,
        mean,
        variance,
        rstd,
        factor: None,
    }
}

/// A tensor minus its mean, and that mean.
///
/// The mean of the differences is subtracted too. With a large offset it is the rounding error of the first mean.
fn center<B: Backend>(input: FloatTensor<B>, axes: &[usize]) -> (FloatTensor<B>, FloatTensor<B>) {
    let mean = mean_over::<B>(input.clone(), axes);
    let rough = B::float_sub(input, mean.clone());
    let rest = mean_over::<B>(rough.clone(), axes);
    let bools = get_or_init_device_settings::<B>(&rest.device()).bool_dtype;
    // An infinite mean has no rounding error.
    let is_none = B::bool_or(
        B::float_is_nan(rest.clone(), bools),
        B::float_is_inf(rest.clone(), bools),
    );
    let rest = B::float_mask_fill(rest, is_none, 0.0.into());
    (B::float_sub(rough, rest.clone()), B::float_add(mean, rest))
}

/// Numbers per row as the last dimension of one tensor.
fn columns<B: Backend>(columns: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    let mut shape: Vec<usize> = columns[0].shape().iter().copied().collect();
    shape.push(1);
    let dim = shape.len() - 1;
    let column = |tensor| B::float_reshape(tensor, Shape::from(shape.clone()));
    B::float_cat(columns.into_iter().map(column).collect(), dim)
}

/// One of the numbers per row.
pub(super) fn of_pairs<B: Backend>(pairs: FloatTensor<B>, which: usize) -> FloatTensor<B> {
    let shape: Vec<usize> = pairs.shape().iter().copied().collect();
    let (_, kept) = shape.split_last().expect("pairs have a dimension of 2");
    let slices: Vec<Slice> = kept
        .iter()
        .map(|&size| Slice::from(0..size))
        .chain([Slice::from(which..which + 1)])
        .collect();
    B::float_reshape(B::float_slice(pairs, &slices), Shape::from(kept.to_vec()))
}

/// Pairs of provided means and reciprocal deviations, of the input's rank, in the form of written statistics.
pub(crate) fn provided_pairs<B: Backend>(
    mean: FloatTensor<B>,
    variance: FloatTensor<B>,
    epsilon: Epsilon,
) -> FloatTensor<B> {
    let mean = widen::<B>(mean);
    let rstd = reciprocal_deviation::<B>(widen::<B>(variance), epsilon);
    // Broadcasts both to one shape.
    let zeros = |tensor: &FloatTensor<B>| B::float_mul_scalar(tensor.clone(), 0.0.into());
    let (more_mean, more_rstd) = (zeros(&rstd), zeros(&mean));
    columns::<B>(vec![
        B::float_add(mean, more_mean),
        B::float_add(rstd, more_rstd),
    ])
}

/// [`NormBackend::normalize`](super::NormBackend::normalize) of a backend's own operations.
pub(super) fn normalize<B: Backend>(operands: Operands<B>, spec: &NormSpec) -> Normalized<B> {
    let (shape, dtype) = (operands.input.shape(), operands.input.dtype());
    let output_dtype = spec.output_dtype.map_or(dtype, burn_dtype);
    let input = spec.see::<B>(operands.input);
    let rank = input.shape().num_dims();
    let residual = operands.residual.into_option();
    let residual = residual.map(|tensor| widen::<B>(spec.see::<B>(tensor)));
    let [scale, bias, mean, variance] = [
        operands.scale,
        operands.bias,
        operands.mean,
        operands.variance,
    ]
    .map(|tensor| {
        let tensor = tensor.into_option();
        tensor.map(|tensor| widen::<B>(param::<B>(tensor, rank, spec)))
    });
    let has_gate = residual.is_some() && spec.residual_place.is_gate();
    let (first, last) = match spec.residual_place.is_in_front() {
        true => (residual, None),
        false => (None, residual),
    };
    let combine = |value, residual: Option<FloatTensor<B>>| match residual {
        Some(gate) if has_gate => gated::<B>(value, gate, spec.activation),
        Some(residual) => B::float_add(value, residual),
        None => value,
    };
    let sum = combine(widen::<B>(input), first);
    let rows = match (mean, variance) {
        (Some(mean), Some(variance)) => RowStatistics {
            centered: B::float_sub(sum.clone(), mean.clone()),
            mean: Some(mean),
            rstd: Some(reciprocal_deviation::<B>(variance, spec.epsilon)),
            variance: None,
            factor: None,
        },
        (None, Some(alpha)) => RowStatistics {
            centered: B::float_tanh(B::float_mul(sum.clone(), alpha)),
            mean: None,
            variance: None,
            rstd: None,
            factor: None,
        },
        _ => statistics::<B>(sum.clone(), spec),
    };
    let statistics = spec.written_statistics.map(|written| {
        let shape = |tensor: &FloatTensor<B>| B::float_mul_scalar(tensor.clone(), 0.0.into());
        let any = rows.mean.as_ref().or(rows.rstd.as_ref());
        let any = any.expect("a description writes no statistics that it does not compute");
        let zero = || shape(any);
        let mean = rows.mean.clone().unwrap_or_else(zero);
        let rstd = || match (rows.rstd.clone(), rows.factor.clone()) {
            (Some(rstd), Some(factor)) => B::float_mul(rstd, factor),
            (Some(rstd), None) => rstd,
            (None, _) => B::float_add_scalar(zero(), 1.0.into()),
        };
        let variance = || rows.variance.clone().unwrap_or_else(zero);
        columns::<B>(match written {
            WrittenStatistics::MeanRstd => vec![mean, rstd()],
            WrittenStatistics::MeanVariance => vec![mean, variance()],
            WrittenStatistics::MeanRstdVariance => vec![mean, rstd(), variance()],
            WrittenStatistics::Scale => unreachable!("a norm that is not quantised"),
        })
    });
    let mut value = rows.centered;
    if let Some(rstd) = rows.rstd {
        value = B::float_mul(value, rstd);
    }
    if spec.rounding == Rounding::BeforeScale {
        value = widen::<B>(cast_to::<B>(value, output_dtype));
    }
    if let Some(scale) = scale {
        value = B::float_mul(value, offset_scale::<B>(scale, spec.offset));
    }
    if let Some(bias) = bias {
        value = B::float_add(value, bias);
    }
    value = combine(value, last);
    if !has_gate {
        value = activate::<B>(value, spec.activation);
    }
    let result = |tensor, dtype| shaped::<B>(cast_to::<B>(tensor, dtype), &shape);
    Normalized {
        output: result(value, output_dtype),
        sum: spec.writes_sum.then(|| result(sum, dtype)).into(),
        statistics: statistics.into(),
    }
}

/// `value * activation(gate)` in the accumulation dtype, rounded to the value's.
pub(super) fn gated<B: Backend>(
    value: FloatTensor<B>,
    gate: FloatTensor<B>,
    activation: Activation,
) -> FloatTensor<B> {
    let dtype = value.dtype();
    let gate = activate::<B>(widen::<B>(gate), activation);
    cast_to::<B>(B::float_mul(widen::<B>(value), gate), dtype)
}

/// [`NormBackend::normalize_heads`](super::NormBackend::normalize_heads) of two norms and a backend's own operations.
#[cfg(feature = "flex")]
pub(super) fn normalize_heads<B: NormBackend>(
    operands: HeadOperands<B>,
    spec: &HeadSpec,
) -> Heads<B> {
    let table = operands.rotation.into_option();
    let one = |input: FloatTensor<B>, scale| {
        let dtype = input.dtype();
        let mut norm = spec.norm.clone();
        // Rounded once, after the rotation.
        let accumulation = super::dtype(dtype).map(|dtype| dtype.accumulation());
        norm.output_dtype = accumulation.filter(|_| table.is_some());
        let operands = Operands {
            scale,
            ..Operands::new(input)
        };
        let output = B::normalize(operands, norm).output;
        match &table {
            Some(table) => cast_to::<B>(rotated::<B>(output, table.clone(), spec.pairs), dtype),
            None => output,
        }
    };
    Heads {
        query: one(operands.query, operands.query_scale),
        key: one(operands.key, operands.key_scale),
    }
}

/// [`NormBackend::normalize_quantized`](super::NormBackend::normalize_quantized) of a norm and codes by the host, for
/// backends whose tensors are in its memory.
#[cfg(feature = "flex")]
pub(super) fn normalize_quantized<B: NormBackend>(
    operands: QuantizedOperands<B>,
    spec: &QuantizedSpec,
) -> QuantizedParts<B> {
    let device = operands.input.device();
    let (shape, dtype) = (operands.input.shape(), operands.input.dtype());
    let accumulation = super::dtype(dtype).map(|dtype| dtype.accumulation());
    let norm = NormSpec {
        output_dtype: accumulation,
        ..spec.norm.clone()
    };
    let normalized = B::normalize(
        Operands {
            residual: operands.residual,
            scale: operands.scale,
            bias: operands.bias,
            ..Operands::new(operands.input)
        },
        norm,
    );
    let in_memory = "a backend of the host reads its tensors at once";
    let read = |tensor: FloatTensor<B>| -> Vec<f64> {
        let data = try_read_sync(B::float_into_data(tensor));
        let data = data.expect(in_memory).expect(in_memory);
        data.iter::<f64>().collect()
    };
    let given = operands.codes_scale.into_option().map(read);
    let values = read(normalized.output);
    let rank = shape.num_dims();
    let (format, cols) = (spec.format, shape[rank - 1]);
    let (mut bytes, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
    for row in values.chunks(cols.max(1)) {
        let scale = match &given {
            Some(given) => given[0] as f32,
            None => format.scale(row.iter().map(|&value| value as f32)),
        };
        let factor = 1.0 / f64::from(scale);
        bytes.extend(row.iter().map(|value| format.code((value * factor) as f32)));
        scales.push(scale);
    }
    let (words, _) = bytes.as_chunks::<CODES_PER_WORD>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let with_last = |last: usize| -> Shape {
        let kept = (0..rank - 1).map(|dim| shape[dim]);
        kept.chain([last]).collect()
    };
    let words = TensorData::new(words, with_last(cols / CODES_PER_WORD));
    // Rows without elements have one too, as they have statistics.
    let rows: usize = with_last(1).iter().product();
    scales.resize(rows, f32::NAN);
    let scale = given.is_none().then(|| {
        let data = TensorData::new(scales, with_last(1));
        cast_to::<B>(
            B::float_from_data(data, &device),
            accumulation.map_or(DType::F32, burn_dtype),
        )
    });
    QuantizedParts {
        words: B::int_from_data(words, &device),
        scale: scale.into(),
        sum: normalized.sum,
    }
}

/// `x * cos + turned * sin` of the first elements of the last dimension, with the table of a
/// [rotation](cubenorm_core::Rotation).
#[cfg(feature = "flex")]
fn rotated<B: Backend>(
    x: FloatTensor<B>,
    table: FloatTensor<B>,
    pairs: RotatedPairs,
) -> FloatTensor<B> {
    let shape = x.shape();
    let last = shape.num_dims() - 1;
    let dim = table.shape()[last] / 2;
    let part = |x: FloatTensor<B>, range: std::ops::Range<usize>| {
        let shape = x.shape();
        let all = (0..last).map(|dim| Slice::from(0..shape[dim]));
        let slices: Vec<Slice> = all.chain([Slice::from(range)]).collect();
        B::float_slice(x, &slices)
    };
    let (cosines, sines) = (part(table.clone(), 0..dim), part(table, dim..2 * dim));
    let turning = part(x.clone(), 0..dim);
    let turned = match pairs {
        RotatedPairs::HalfSplit => {
            let first = part(turning.clone(), 0..dim / 2);
            let second = part(turning.clone(), dim / 2..dim);
            B::float_cat(vec![B::float_neg(second), first], last)
        }
        RotatedPairs::Interleaved => {
            let mut of_turning: Vec<usize> = shape.iter().copied().collect();
            of_turning[last] = dim;
            let mut of_pairs = of_turning.clone();
            of_pairs[last] = dim / 2;
            of_pairs.push(2);
            let pairs = B::float_reshape(turning.clone(), Shape::from(of_pairs.clone()));
            let lane = |which: usize| {
                let all = of_pairs[..=last].iter().map(|&size| Slice::from(0..size));
                let slices: Vec<Slice> = all.chain([Slice::from(which..which + 1)]).collect();
                B::float_slice(pairs.clone(), &slices)
            };
            let turned = B::float_cat(vec![B::float_neg(lane(1)), lane(0)], last + 1);
            B::float_reshape(turned, Shape::from(of_turning))
        }
    };
    let rotated = B::float_add(B::float_mul(turning, cosines), B::float_mul(turned, sines));
    match shape[last] == dim {
        true => rotated,
        false => B::float_cat(vec![rotated, part(x, dim..shape[last])], last),
    }
}

/// The table of the opposite rotation.
pub(super) fn turning_back<B: Backend>(table: FloatTensor<B>) -> FloatTensor<B> {
    let shape = table.shape();
    let last = shape.num_dims() - 1;
    let half = shape[last] / 2;
    let part = |range: std::ops::Range<usize>| {
        let all = (0..last).map(|dim| Slice::from(0..shape[dim]));
        let slices: Vec<Slice> = all.chain([Slice::from(range)]).collect();
        B::float_slice(table.clone(), &slices)
    };
    let sines = B::float_neg(part(half..2 * half));
    B::float_cat(vec![part(0..half), sines], last)
}

/// [`NormBackend::update_running`](super::NormBackend::update_running) of a backend's own operations.
#[cfg(feature = "flex")]
pub(super) fn update_running<B: Backend>(
    operands: RunningOperands<B>,
    momentum: f64,
) -> Running<B> {
    let update = |old: FloatTensor<B>, which: usize| {
        let (shape, dtype) = (old.shape(), old.dtype());
        let old = widen::<B>(old);
        let batch = of_pairs::<B>(operands.statistics.clone(), which);
        let batch = cast_to::<B>(B::float_reshape(batch, shape), old.dtype());
        let old = B::float_mul_scalar(old, (1.0 - momentum).into());
        let new = B::float_add(old, B::float_mul_scalar(batch, momentum.into()));
        cast_to::<B>(new, dtype)
    };
    Running {
        mean: update(operands.mean, 0),
        variance: update(operands.variance, 2),
    }
}

/// [`NormBackend::row_statistics`](super::NormBackend::row_statistics) of a backend's own operations.
#[cfg(feature = "flex")]
pub(super) fn row_statistics<B: Backend>(input: FloatTensor<B>, spec: &NormSpec) -> FloatTensor<B> {
    let outputs = normalize::<B>(Operands::new(input), spec);
    let statistics = outputs.statistics.into_option();
    statistics.expect("the specification writes statistics")
}

/// Sums a gradient over the dimensions that a tensor of this shape was broadcast over.
pub(super) fn sum_to<B: Backend>(grad: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
    let full = grad.shape();
    let missing = full.num_dims() - shape.num_dims();
    let summed = (0..full.num_dims())
        .filter(|&dim| full[dim] != 1 && (dim < missing || shape[dim - missing] == 1))
        .fold(grad, |grad, dim| B::float_sum_dim(grad, dim));
    B::float_reshape(summed, shape)
}

/// [`NormBackend::normalize_backward`](super::NormBackend::normalize_backward) of a backend's own
/// operations. [`BackwardDesc`](cubenorm_core::BackwardDesc) has the formulas.
#[cfg(feature = "flex")]
pub(super) fn normalize_backward<B: Backend>(
    operands: BackwardOperands<B>,
    spec: &BackwardSpec,
) -> Gradients<B> {
    let norm = &spec.norm;
    let (shape, dtype) = (operands.input.shape(), operands.input.dtype());
    let input = norm.see::<B>(operands.input);
    let rank = input.shape().num_dims();
    let like = |tensor: &Optional<B>| tensor.as_option().map(|t| (t.shape(), t.dtype()));
    let (scale_like, bias_like) = (like(&operands.scale), like(&operands.bias));
    let [scale, bias] = [operands.scale, operands.bias].map(|tensor| {
        let tensor = tensor.into_option();
        tensor.map(|tensor| widen::<B>(param::<B>(tensor, rank, norm)))
    });
    let scale = scale.map(|scale| offset_scale::<B>(scale, norm.offset));
    let input = widen::<B>(input);
    let dy = widen::<B>(norm.see::<B>(operands.output_gradient));
    let saved = operands.saved.into_option().map(widen::<B>);
    let number = |which: usize| saved.clone().map(|saved| of_pairs::<B>(saved, which));
    let numbers = saved.as_ref().map_or(0, |saved| saved.shape()[rank]);
    let provided = (numbers == 4).then(|| [2, 3].map(number));
    let subtracts = matches!(
        norm.reduction,
        Reduction::MeanVariance | Reduction::Mean | Reduction::Provided
    );
    let divides = !matches!(norm.reduction, Reduction::Mean | Reduction::None);
    let centered = match number(0).filter(|_| subtracts) {
        Some(mean) => B::float_sub(input.clone(), mean),
        None => input.clone(),
    };
    let (centered, rstd, factor) = match norm.reduction {
        // The saved norms may be out of range.
        Reduction::L1Norm | Reduction::L2Norm => {
            let (scaled, factor) = in_range::<B>(input.clone(), &norm.axes);
            let rstd = reciprocal_lp_norm::<B>(scaled.clone(), norm.reduction, &norm.axes);
            (scaled, Some(rstd), factor)
        }
        _ => (centered, number(1).filter(|_| divides), None),
    };
    let normalized = match rstd.clone() {
        Some(rstd) => B::float_mul(centered, rstd),
        None => centered,
    };
    let dz = match norm.activation {
        Activation::Identity => dy,
        activation => {
            let mut argument = normalized.clone();
            if let Some(scale) = scale.clone() {
                argument = B::float_mul(argument, scale);
            }
            if let Some(bias) = bias {
                argument = B::float_add(argument, bias);
            }
            B::float_mul(dy, slope::<B>(argument, activation))
        }
    };
    let of_param = |like: Option<(Shape, DType)>, gradient: &dyn Fn() -> FloatTensor<B>| {
        like.map(|(shape, dtype)| {
            let sum = sum_to::<B>(gradient(), norm.seen_param_shape(&shape));
            shaped::<B>(cast_to::<B>(sum, dtype), &shape)
        })
    };
    let dgamma = || B::float_mul(dz.clone(), normalized.clone());
    let dgamma = of_param(scale_like.filter(|_| spec.wants_scale), &dgamma);
    let dbeta = of_param(bias_like.filter(|_| spec.wants_bias), &|| dz.clone());
    let dx = spec.wants_input.then(|| {
        let wdy = match scale {
            Some(scale) => B::float_mul(dz.clone(), scale),
            None => dz.clone(),
        };
        let provided = provided.map(|means| means.map(|it| it.expect("four numbers are saved")));
        let gradient = input_gradient::<B>(wdy, input, normalized, rstd, provided, norm);
        let gradient = match factor {
            Some(factor) => B::float_mul(gradient, factor),
            None => gradient,
        };
        let gradient = match operands.sum_gradient {
            Optional::Some(more) => B::float_add(gradient, widen::<B>(norm.see::<B>(more))),
            Optional::None => gradient,
        };
        shaped::<B>(cast_to::<B>(gradient, dtype), &shape)
    });
    Gradients {
        input: dx.into(),
        scale: dgamma.into(),
        bias: dbeta.into(),
        gate: Optional::None,
    }
}

/// [`NormBackend::normalize_backward`](super::NormBackend::normalize_backward) with a gate, of one without and a
/// backend's own operations. Each gradient is rounded once.
#[cfg(any(feature = "cube", feature = "flex"))]
pub(super) fn normalize_backward_gated<B: NormBackend>(
    operands: BackwardOperands<B>,
    spec: &BackwardSpec,
) -> Gradients<B> {
    let activation = spec.norm.activation;
    let is_early = spec.norm.residual_place.is_in_front();
    let norm = NormSpec {
        output_dtype: None,
        ..spec.norm.without_gate()
    };
    let gate = operands.gate.into_option().expect("the gate is there");
    let (dtype, of_gate) = (operands.input.dtype(), gate.dtype());
    let [scale, bias] = [operands.scale, operands.bias].map(Optional::into_option);
    let of_params = [&scale, &bias].map(|param| param.as_ref().map(TensorMetadata::dtype));
    let [scale, bias] = [scale, bias].map(|param| param.map(widen::<B>));
    let (input, dy, gate) = (
        widen::<B>(operands.input),
        widen::<B>(operands.output_gradient),
        widen::<B>(gate),
    );
    let factor = activate::<B>(gate.clone(), activation);
    let times_gate = |value| B::float_mul(value, factor.clone());
    let (seen, above) = match is_early {
        true => (times_gate(input.clone()), dy.clone()),
        false => (input.clone(), times_gate(dy.clone())),
    };
    let gradients = B::normalize_backward(
        BackwardOperands {
            input: seen,
            output_gradient: above,
            saved: operands.saved,
            scale: scale.clone().into(),
            bias: bias.clone().into(),
            sum_gradient: Optional::None,
            gate: Optional::None,
        },
        BackwardSpec {
            norm: norm.clone(),
            wants_gate: false,
            ..spec.clone()
        },
    );
    let passed = gradients.input.into_option();
    let gate_gradient = passed.clone().filter(|_| spec.wants_gate).map(|passed| {
        let product = match is_early {
            true => B::float_mul(input, passed),
            false => {
                let operands = Operands {
                    scale: scale.into(),
                    bias: bias.into(),
                    ..Operands::new(input)
                };
                B::float_mul(B::normalize(operands, norm).output, dy)
            }
        };
        let gradient = B::float_mul(product, slope::<B>(gate, activation));
        cast_to::<B>(gradient, of_gate)
    });
    let input_gradient = passed.map(|passed| match is_early {
        true => times_gate(passed),
        false => passed,
    });
    let of_param = |gradient: Optional<B>, dtype: Option<DType>| {
        let gradient = gradient.into_option().zip(dtype);
        gradient.map(|(gradient, dtype)| cast_to::<B>(gradient, dtype))
    };
    Gradients {
        input: input_gradient.map(|dx| cast_to::<B>(dx, dtype)).into(),
        scale: of_param(gradients.scale, of_params[0]).into(),
        bias: of_param(gradients.bias, of_params[1]).into(),
        gate: gate_gradient.into(),
    }
}

/// Gradient of the input from the gradient of the normalized value. `provided` are the means of both sums over rows that
/// other devices share.
#[cfg(feature = "flex")]
fn input_gradient<B: Backend>(
    wdy: FloatTensor<B>,
    input: FloatTensor<B>,
    normalized: FloatTensor<B>,
    rstd: Option<FloatTensor<B>>,
    provided: Option<[FloatTensor<B>; 2]>,
    spec: &NormSpec,
) -> FloatTensor<B> {
    let axes = &spec.axes;
    let (sum, products) = match provided {
        Some([sum, products]) => (Some(sum), Some(products)),
        None => (None, None),
    };
    let mean_or = |provided: Option<FloatTensor<B>>, of: FloatTensor<B>| {
        provided.unwrap_or_else(|| mean_over::<B>(of, axes))
    };
    let Some(rstd) = rstd else {
        return match spec.reduction {
            Reduction::Mean => {
                let mean = mean_or(sum, wdy.clone());
                B::float_sub(wdy, mean)
            }
            _ => wdy,
        };
    };
    let of_step = B::float_mul(wdy.clone(), normalized.clone());
    let inner = match spec.reduction {
        Reduction::Provided => wdy,
        Reduction::L1Norm => {
            let sum = sum_over::<B>(of_step, axes);
            B::float_sub(wdy, B::float_mul(B::float_sign(input), sum))
        }
        Reduction::L2Norm => {
            let sum = sum_over::<B>(of_step, axes);
            B::float_sub(wdy, B::float_mul(normalized, sum))
        }
        _ => {
            let mut multiple = mean_or(products, of_step);
            if let Epsilon::AddedToDeviation(epsilon) = spec.epsilon {
                // Epsilon is constant, so the term grows by (deviation + epsilon) / deviation.
                let share = B::float_mul_scalar(rstd.clone(), (-epsilon).into());
                let share = B::float_add_scalar(share, 1.0.into());
                let settings = get_or_init_device_settings::<B>(&share.device());
                let none =
                    B::float_lower_equal_elem(share.clone(), 0.0.into(), settings.bool_dtype);
                let more = B::float_mask_fill(B::float_recip(share), none, 0.0.into());
                multiple = B::float_mul(multiple, more);
            }
            let rest = B::float_sub(wdy.clone(), B::float_mul(normalized, multiple));
            match spec.reduction {
                Reduction::MeanVariance => B::float_sub(rest, mean_or(sum, wdy)),
                _ => rest,
            }
        }
    };
    B::float_mul(inner, rstd)
}

/// Slope of an activation, by the formula of the kernels.
#[cfg(any(feature = "cube", feature = "flex"))]
fn slope<B: Backend>(x: FloatTensor<B>, activation: Activation) -> FloatTensor<B> {
    let scale = |x: FloatTensor<B>, by: f64| B::float_mul_scalar(x, by.into());
    let offset = |x: FloatTensor<B>, by: f64| B::float_add_scalar(x, by.into());
    let ones = |x: &FloatTensor<B>| offset(scale(x.clone(), 0.0), 1.0);
    let bools = get_or_init_device_settings::<B>(&x.device()).bool_dtype;
    // `values` if x > limit, else `otherwise`.
    let above = |x: &FloatTensor<B>, limit: f64, otherwise: FloatTensor<B>| {
        let mask = B::float_greater_elem(x.clone(), limit.into(), bools);
        B::float_mask_fill(otherwise, mask, 1.0.into())
    };
    // exp(min(x, 0))
    let decay = |x: FloatTensor<B>| B::float_exp(B::float_neg(B::relu(B::float_neg(x))));
    let sigmoid_slope =
        |x: FloatTensor<B>| B::float_mul(sigmoid::<B>(x.clone()), sigmoid::<B>(B::float_neg(x)));
    let tanh_slope = |x: FloatTensor<B>| scale(sigmoid_slope(scale(x, 2.0)), 4.0);
    let within = |y: FloatTensor<B>, slope: f64| {
        let inside = B::float_mask_fill(
            scale(ones(&y), slope),
            B::float_lower_equal_elem(y.clone(), 0.0.into(), bools),
            0.0.into(),
        );
        let over = B::float_greater_equal_elem(y, 1.0.into(), bools);
        B::float_mask_fill(inside, over, 0.0.into())
    };
    match activation {
        Activation::Identity => ones(&x),
        Activation::Relu => above(&x, 0.0, scale(x.clone(), 0.0)),
        Activation::LeakyRelu { alpha } => above(&x, 0.0, scale(ones(&x), alpha)),
        Activation::ThresholdedRelu { alpha } => above(&x, alpha, scale(x.clone(), 0.0)),
        Activation::Elu { alpha } => above(&x, 0.0, scale(decay(x.clone()), alpha)),
        Activation::Celu { alpha } => above(&x, 0.0, B::float_exp(scale(x.clone(), 1.0 / alpha))),
        Activation::ScaledElu { alpha, gamma } => {
            scale(above(&x, 0.0, scale(decay(x.clone()), alpha)), gamma)
        }
        Activation::Linear { alpha, .. } => scale(ones(&x), alpha),
        Activation::HardSigmoid { alpha, beta } => within(offset(scale(x, alpha), beta), alpha),
        Activation::Sigmoid => sigmoid_slope(x),
        Activation::Tanh => tanh_slope(x),
        Activation::ScaledTanh { alpha, beta } => scale(tanh_slope(scale(x, beta)), alpha * beta),
        Activation::Softplus { steepness } => sigmoid::<B>(scale(x, steepness)),
        Activation::ParametricSoftplus { alpha, beta } => {
            scale(sigmoid::<B>(scale(x, beta)), alpha * beta)
        }
        Activation::Softsign => {
            let denominator = offset(B::float_abs(x), 1.0);
            B::float_recip(B::float_mul(denominator.clone(), denominator))
        }
        Activation::Shrink { threshold, .. } => {
            let inside = above(&x, threshold, scale(x.clone(), 0.0));
            above(&B::float_neg(x), threshold, inside)
        }
        Activation::Gelu => {
            let erf = B::float_erf(scale(x.clone(), std::f64::consts::FRAC_1_SQRT_2));
            let square = B::float_mul(x.clone(), x.clone());
            let density = scale(
                B::float_exp(scale(square, -0.5)),
                1.0 / (2.0 * std::f64::consts::PI).sqrt(),
            );
            B::float_add(scale(offset(erf, 1.0), 0.5), B::float_mul(x, density))
        }
        Activation::GeluTanh => {
            // The slope is 0 or 1 long before this bound. Without it, the square of x overflows.
            let x = B::float_clamp(x, (-1e3).into(), 1e3.into());
            let square = B::float_mul(x.clone(), x.clone());
            let root = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
            let cubed = B::float_mul(square.clone(), x.clone());
            let inner = scale(B::float_add(x.clone(), scale(cubed, 0.044715)), root);
            let inner_slope = scale(offset(scale(square, 3.0 * 0.044715), 1.0), root);
            let bent = B::float_mul(x, B::float_mul(sigmoid_slope(inner.clone()), inner_slope));
            B::float_add(sigmoid::<B>(inner), bent)
        }
        Activation::Silu => {
            let bent = B::float_mul(x.clone(), sigmoid_slope(x.clone()));
            B::float_add(sigmoid::<B>(x), bent)
        }
        Activation::HardSwish => {
            let middle = offset(scale(x.clone(), 1.0 / 3.0), 0.5);
            let low = B::float_lower_equal_elem(x.clone(), (-3.0).into(), bools);
            let high = B::float_greater_equal_elem(x, 3.0.into(), bools);
            B::float_mask_fill(
                B::float_mask_fill(middle, low, 0.0.into()),
                high,
                1.0.into(),
            )
        }
        Activation::Mish => {
            let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
            let soft = B::float_add(B::relu(x.clone()), tail);
            let bent = B::float_mul(tanh_slope(soft.clone()), sigmoid::<B>(x.clone()));
            B::float_add(B::float_tanh(soft), B::float_mul(x, bent))
        }
    }
}

/// The logistic function. Burn's own computes f64 in f32.
fn sigmoid<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if x.dtype() != DType::F64 {
        return B::sigmoid(x);
    }
    // exp(min(x, 0) - ln(1 + exp(-|x|)))
    let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
    let negative = B::float_neg(B::relu(B::float_neg(x)));
    B::float_exp(B::float_sub(negative, tail))
}

/// An activation of a backend's own operations, differentiable if the backend is.
///
/// As in the kernels, a mask keeps large arguments out of exponentials.
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
            let scaled = scale(x.clone(), 1.0 / alpha);
            // The minimum may discard this value. Its gradient must still be finite.
            let scaled = match alpha > 0.0 {
                true => B::float_clamp_max(scaled, 80.0.into()),
                false => scaled,
            };
            let tail = scale(offset(B::float_exp(scaled), -1.0), alpha);
            B::float_add(relu(x), negative(tail))
        }
        Activation::ScaledElu { alpha, gamma } => {
            scale(B::float_add(relu(x.clone()), scale(decay(x), alpha)), gamma)
        }
        Activation::Linear { alpha, beta } => offset(scale(x, alpha), beta),
        Activation::HardSigmoid { alpha, beta } => saturate(offset(scale(x, alpha), beta)),
        Activation::Sigmoid => sigmoid::<B>(x),
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
            // The first branch wins: with a negative threshold both conditions hold.
            let above = B::float_greater_elem(x.clone(), threshold.into(), settings.bool_dtype);
            let below = B::float_mask_fill(outside(B::float_neg(x.clone())), above, 0.0.into());
            B::float_sub(outside(x), below)
        }
        Activation::Gelu => {
            let erf = B::float_erf(scale(x.clone(), std::f64::consts::FRAC_1_SQRT_2));
            B::float_mul(scale(x, 0.5), offset(erf, 1.0))
        }
        Activation::GeluTanh => {
            let cubed = B::float_mul(B::float_mul(x.clone(), x.clone()), x.clone());
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let inner = scale(B::float_add(x.clone(), scale(cubed, 0.044715)), 2.0 * root);
            B::float_mul(x, sigmoid::<B>(inner))
        }
        Activation::Silu => B::float_mul(x.clone(), sigmoid::<B>(x)),
        Activation::HardSwish => {
            B::float_mul(x.clone(), saturate(offset(scale(x, 1.0 / 6.0), 0.5)))
        }
        Activation::Mish => B::float_mul(x.clone(), B::float_tanh(softplus(x))),
    }
}
