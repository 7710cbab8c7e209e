//! Reference normalizations in plain f64 on the host, computed by their formulas.
//!
//! This crate shares no code with the kernels: no canonical problem, coalescing, plan or merged
//! statistics. It finds each element by its index and computes each statistic in two passes over
//! the row. It is slow by design.

mod activation;
mod dtype;
mod gradient;
mod index;
pub mod operators;
mod quantize;

use cubenorm_core::{
    Epsilon, Layout, NormDesc, ResidualPlace, RotatedPairs, Rotation, Rounding, Statistics,
};

pub use activation::activate;
pub use dtype::{decode, encode, round};
pub use gradient::{BackwardTensors, Gradients, gradient};
use index::{Index, Indices, address};
pub use quantize::{decoded, encoded, scale as row_scale};

/// The tensors of a description, as flat buffers that their layouts index into.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tensors<'a> {
    /// The tensor to normalize.
    pub input: &'a [f64],
    /// The residual.
    pub residual: Option<&'a [f64]>,
    /// The scale.
    pub scale: Option<&'a [f64]>,
    /// The bias.
    pub bias: Option<&'a [f64]>,
    /// Provided means.
    pub mean: Option<&'a [f64]>,
    /// Provided variances, or the `alpha` of dynamic tanh.
    pub variance: Option<&'a [f64]>,
    /// The table of the rotation.
    pub rotation: Option<&'a [f64]>,
}

/// The results of a normalization. Tensors are row-major, independent of the input's layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// The result, in the input's shape.
    pub output: Vec<f64>,
    /// `input + residual`, in the input's shape; the input alone if the residual is added last.
    pub sum: Vec<f64>,
    /// The mean of each element's row; 0 if no mean is subtracted.
    pub mean: Vec<f64>,
    /// The reciprocal deviation of each element's row; 1 if there is no division by it.
    pub rstd: Vec<f64>,
    /// The variance of each element's row, or the mean of squares if no mean is subtracted.
    pub variance: Vec<f64>,
}

/// Computes a description.
///
/// `output = activation(round((sum - mean) * rstd) * (offset + scale) + bias)` with `sum = input + residual`, or with
/// the residual added last, depending on the description. A rotation turns the value before the activation.
///
/// # Panics
///
/// If the description is invalid or a buffer is missing or too short: this is a reference for tests
/// and benchmarks.
///
/// # Example
///
/// ```
/// use cubenorm_core::{DType, Epsilon, NormDesc, Statistics, TensorDesc};
/// use cubenorm_reference::{Tensors, forward};
///
/// let input = TensorDesc::contiguous([1, 2], DType::F64);
/// let desc = NormDesc::new(input, [1], Statistics::MeanVariance)
///     .with_epsilon(Epsilon::InsideSqrt(0.0));
/// let tensors = Tensors { input: &[1.0, 3.0], ..Tensors::default() };
/// assert_eq!(forward(&desc, &tensors).output, [-1.0, 1.0]);
/// ```
pub fn forward(desc: &NormDesc, tensors: &Tensors) -> Forward {
    let shape = desc.input.shape();
    let at = |name: &str, layout: &Layout, buffer: Option<&[f64]>, index: &[usize]| {
        let buffer = buffer.unwrap_or_else(|| panic!("{name} is described but not given"));
        buffer[address(layout, shape.len(), index)]
    };
    let residual = |index: &[usize]| {
        let residual = desc.residual.as_ref();
        residual.map_or(0.0, |t| at("residual", &t.layout, tensors.residual, index))
    };
    let gate = |index: &[usize]| activate(desc.activation, residual(index));
    let sum: Vec<f64> = Indices::new(shape)
        .map(|index| {
            let value = at("input", &desc.input.layout, Some(tensors.input), &index);
            match desc.residual_place {
                ResidualPlace::Input => value + residual(&index),
                ResidualPlace::InputGate if desc.residual.is_some() => value * gate(&index),
                _ => value,
            }
        })
        .collect();

    // Rows by the index of their kept axes, with reduced axes at 0.
    let row_shape: Vec<usize> = (0..shape.len())
        .map(|dim| {
            if desc.axes.contains(&dim) {
                1
            } else {
                shape[dim]
            }
        })
        .collect();
    let row_layout = Layout::contiguous(row_shape.clone());
    let row_of = |index: &[usize]| address(&row_layout, shape.len(), index);
    let rows: usize = row_shape.iter().product();
    let length = match rows {
        0 => 0.0,
        rows => (sum.len() / rows) as f64,
    };
    let row_index: Vec<usize> = Indices::new(shape).map(|index| row_of(&index)).collect();
    let pairs = || row_index.iter().copied().zip(sum.iter().copied());

    let centers = match desc.statistics {
        Statistics::MeanVariance | Statistics::Mean => {
            let rough = row_means(rows, length, pairs());
            // A second pass corrects the rounding of the mean. A row of equal elements has
            // deviations of exactly 0, for any divisor.
            let deviations = pairs().map(|(row, value)| (row, value - rough[row]));
            let rest = row_means(rows, length, deviations);
            rough
                .iter()
                .zip(rest)
                .map(|(&mean, rest)| if mean.is_finite() { mean + rest } else { mean })
                .collect()
        }
        _ => vec![0.0; rows],
    };
    let squares = pairs().map(|(row, value)| (row, (value - centers[row]).powi(2)));
    let variances = row_means(rows, length, squares);
    let magnitudes = match desc.statistics {
        Statistics::L1Norm => {
            row_means(rows, length, pairs().map(|(row, value)| (row, value.abs())))
        }
        _ => Vec::new(),
    };
    let reciprocal_or_zero = |norm: f64| if norm == 0.0 { 0.0 } else { 1.0 / norm };
    let reciprocal = |variance: f64| match desc.epsilon {
        Epsilon::InsideSqrt(epsilon) => 1.0 / (variance + epsilon).sqrt(),
        Epsilon::AddedToDeviation(epsilon) => 1.0 / (variance.sqrt() + epsilon),
    };

    let mut result = Forward {
        output: Vec::with_capacity(sum.len()),
        mean: Vec::with_capacity(sum.len()),
        rstd: Vec::with_capacity(sum.len()),
        variance: Vec::with_capacity(sum.len()),
        sum,
    };
    for (position, index) in Indices::new(shape).enumerate() {
        let row = row_index[position];
        let (mean, rstd) = match &desc.statistics {
            Statistics::MeanVariance | Statistics::MeanSquare => {
                (centers[row], reciprocal(variances[row]))
            }
            Statistics::Mean | Statistics::None => (centers[row], 1.0),
            Statistics::DynamicTanh { alpha } => {
                (0.0, at("alpha", &alpha.layout, tensors.variance, &index))
            }
            Statistics::L1Norm => (0.0, reciprocal_or_zero(magnitudes[row] * length)),
            Statistics::L2Norm => (0.0, reciprocal_or_zero((variances[row] * length).sqrt())),
            Statistics::Provided { mean, variance } => (
                at("mean", &mean.layout, tensors.mean, &index),
                reciprocal(at("variance", &variance.layout, tensors.variance, &index)),
            ),
        };
        let scale = desc.scale.as_ref();
        let scale = scale.map_or(1.0, |t| {
            desc.offset.value() + at("scale", &t.layout, tensors.scale, &index)
        });
        let bias = desc.bias.as_ref();
        let bias = bias.map_or(0.0, |t| at("bias", &t.layout, tensors.bias, &index));
        let last = match desc.residual_place {
            ResidualPlace::Output => residual(&index),
            _ => 0.0,
        };
        let normalized = match desc.statistics {
            Statistics::DynamicTanh { .. } => (result.sum[position] * rstd).tanh(),
            _ => (result.sum[position] - mean) * rstd,
        };
        let normalized = match desc.rounding {
            Rounding::None => normalized,
            Rounding::BeforeScale => round(desc.output_dtype(), normalized),
        };
        let value = normalized * scale + bias + last;
        result.output.push(match desc.residual_place {
            place if !place.is_gate() || desc.residual.is_none() => {
                activate(desc.activation, value)
            }
            ResidualPlace::OutputGate => value * gate(&index),
            _ => value,
        });
        result.mean.push(mean);
        result.rstd.push(rstd);
        result.variance.push(variances[row]);
    }
    if let Some(rotation) = &desc.rotation {
        let table = |which: usize, index: &[usize]| {
            let mut index = index.to_vec();
            index[shape.len() - 1] += which * rotation.dim();
            at(
                "rotation table",
                &rotation.table.layout,
                tensors.rotation,
                &index,
            )
        };
        result.output = rotated(&result.output, shape, rotation, &table);
    }
    result
}

/// The mean of each row's values, divided by `length`.
fn row_means(rows: usize, length: f64, values: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut totals = vec![Sum::default(); rows];
    values.for_each(|(row, value)| totals[row].add(value));
    totals.iter().map(|sum| sum.total() / length).collect()
}

/// Rotates the last dimension of row-major values.
fn rotated(
    values: &[f64],
    shape: &[usize],
    rotation: &Rotation,
    table: &dyn Fn(usize, &[usize]) -> f64,
) -> Vec<f64> {
    let dim = rotation.dim();
    let turn = |(position, index): (usize, Index)| {
        let column = index[shape.len() - 1];
        if column >= dim {
            return values[position];
        }
        let (partner, is_first) = match rotation.pairs {
            RotatedPairs::HalfSplit => ((column + dim / 2) % dim, column < dim / 2),
            RotatedPairs::Interleaved => (column ^ 1, column % 2 == 0),
        };
        let other = values[position - column + partner];
        let turned = if is_first { -other } else { other };
        values[position] * table(0, &index) + turned * table(1, &index)
    };
    Indices::new(shape).enumerate().map(turn).collect()
}

/// A compensated sum (Neumaier, 1974), which makes the reference accurate to the last digit of f64.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    sum: f64,
    rest: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let next = self.sum + value;
        let (large, small) = match self.sum.abs() >= value.abs() {
            true => (self.sum, value),
            false => (value, self.sum),
        };
        self.rest += (large - next) + small;
        self.sum = next;
    }

    fn total(self) -> f64 {
        // An infinite sum has no finite remainder.
        match self.rest.is_finite() {
            true => self.sum + self.rest,
            false => self.sum,
        }
    }
}
