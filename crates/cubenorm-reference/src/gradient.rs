use cubenorm_core::{Activation, BackwardDesc, Epsilon, Layout, Statistics, TensorDesc};

use crate::activate;
use crate::index::{Index, Indices, address};

/// The tensors of a backward description, as flat buffers that its layouts index into.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackwardTensors<'a> {
    /// The normalized tensor.
    pub input: &'a [f64],
    /// The output's gradient.
    pub output_gradient: &'a [f64],
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<&'a [f64]>,
    /// The scale.
    pub scale: Option<&'a [f64]>,
    /// The bias.
    pub bias: Option<&'a [f64]>,
    /// The gradient of the sum, which is added to the input's.
    pub sum_gradient: Option<&'a [f64]>,
    /// The gate.
    pub gate: Option<&'a [f64]>,
}

/// All gradients, row-major, independent of the requested ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// The input's gradient.
    pub input: Vec<f64>,
    /// The scale's gradient, in its shape; empty without a scale.
    pub scale: Vec<f64>,
    /// The bias's gradient, in its shape; empty without a bias.
    pub bias: Vec<f64>,
    /// The gate's gradient, in the input's shape; empty without a gate.
    pub gate: Vec<f64>,
}

/// The derivative of an activation.
fn slope(activation: Activation, x: f64) -> f64 {
    let step = 1e-6 * x.abs().max(1.0);
    let rise = activate(activation, x + step) - activate(activation, x - step);
    match activation {
        Activation::Identity => 1.0,
        _ => rise / (2.0 * step),
    }
}

/// Computes the gradients of a [`BackwardDesc`] by its formulas, with derivatives of activations
/// from central differences.
///
/// # Panics
///
/// If the description is invalid or a buffer is missing or too short, as
/// [`forward`](crate::forward).
///
/// # Example
///
/// ```
/// use cubenorm_core::{DType, BackwardDesc, NormDesc, Statistics, TensorDesc};
/// use cubenorm_reference::{BackwardTensors, gradient};
///
/// let input = TensorDesc::contiguous([1, 2], DType::F64);
/// let desc = BackwardDesc::new(NormDesc::new(input, [1], Statistics::Mean));
/// let tensors = BackwardTensors {
///     input: &[1.0, 3.0],
///     output_gradient: &[1.0, 0.0],
///     saved: Some(&[2.0, 1.0]),
///     ..BackwardTensors::default()
/// };
/// assert_eq!(gradient(&desc, &tensors).input, [0.5, -0.5]);
/// ```
pub fn gradient(desc: &BackwardDesc, tensors: &BackwardTensors) -> Gradients {
    let norm = &desc.norm;
    let shape = norm.input.shape();
    let rank = shape.len();
    let at = |desc: &TensorDesc, buffer: &[f64], index: &[usize]| {
        buffer[address(&desc.layout, rank, index)]
    };
    let saved = |index: &[usize], which: usize| match (&desc.saved, tensors.saved) {
        (Some(desc), Some(buffer)) => {
            let index: Vec<usize> = index.iter().copied().chain([which]).collect();
            Some(buffer[address(&desc.layout, rank + 1, &index)])
        }
        _ => None,
    };
    let (subtracts, divides) = match norm.statistics {
        Statistics::MeanVariance | Statistics::Provided { .. } => (true, true),
        Statistics::Mean => (true, false),
        Statistics::MeanSquare | Statistics::L1Norm | Statistics::L2Norm => (false, true),
        Statistics::None => (false, false),
        Statistics::DynamicTanh { .. } => panic!("dynamic tanh has no backward description"),
    };

    // Each element's normalized value, reciprocal deviation, and gradient before and after the scale.
    struct Element {
        index: Index,
        row: usize,
        x: f64,
        /// The input, before the gate.
        input: f64,
        /// The activation of the gate, and its derivative.
        gate: Option<[f64; 2]>,
        /// The gradient of the late gate's activation.
        above_gate: f64,
        normalized: f64,
        rstd: f64,
        shallow: f64,
        deep: f64,
    }
    let kept: Vec<usize> = (0..rank)
        .map(|dim| match norm.axes.contains(&dim) {
            true => 1,
            false => shape[dim],
        })
        .collect();
    let rows = Layout::contiguous(kept.clone());
    let elements: Vec<Element> = Indices::new(shape)
        .map(|index| {
            let input = at(&norm.input, tensors.input, &index);
            let gate = match (&norm.residual, tensors.gate) {
                (Some(desc), Some(buffer)) if norm.residual_place.is_gate() => {
                    let gate = at(desc, buffer, &index);
                    Some([
                        activate(norm.activation, gate),
                        slope(norm.activation, gate),
                    ])
                }
                _ => None,
            };
            let [early, late] = match (gate, norm.residual_place.is_in_front()) {
                (Some([factor, _]), true) => [factor, 1.0],
                (Some([factor, _]), false) => [1.0, factor],
                (None, _) => [1.0, 1.0],
            };
            let x = input * early;
            let mean = saved(&index, 0).filter(|_| subtracts).unwrap_or(0.0);
            let rstd = saved(&index, 1).filter(|_| divides).unwrap_or(1.0);
            let normalized = (x - mean) * rstd;
            let param = |desc: &Option<TensorDesc>, buffer: Option<&[f64]>, absent: f64| match (
                desc, buffer,
            ) {
                (Some(desc), Some(buffer)) => at(desc, buffer, &index),
                _ => absent,
            };
            let scale = match norm.scale {
                Some(_) => norm.offset.value() + param(&norm.scale, tensors.scale, 0.0),
                None => 1.0,
            };
            let bias = param(&norm.bias, tensors.bias, 0.0);
            let argument = normalized * scale + bias;
            let above = at(&desc.output_gradient, tensors.output_gradient, &index);
            let shallow = match gate {
                Some(_) => above * late,
                None => above * slope(norm.activation, argument),
            };
            Element {
                row: address(&rows, rank, &index),
                index,
                x,
                input,
                gate,
                above_gate: above * argument,
                normalized,
                rstd,
                shallow,
                deep: shallow * scale,
            }
        })
        .collect();

    let count = rows.checked_elements().unwrap_or(0);
    let length = match count {
        0 => 0.0,
        count => (elements.len() / count) as f64,
    };
    let (mut sums, mut products) = (vec![0.0; count], vec![0.0; count]);
    for element in &elements {
        sums[element.row] += element.deep;
        products[element.row] += element.deep * element.normalized;
    }
    let of_norm = |element: &Element| {
        let (sum, product) = (sums[element.row], products[element.row]);
        let more = match norm.epsilon {
            Epsilon::InsideSqrt(_) => 1.0,
            // d deviation / dx, with deviation = 1 / rstd - epsilon.
            Epsilon::AddedToDeviation(epsilon) => match 1.0 - epsilon * element.rstd {
                rest if rest > 0.0 => 1.0 / rest,
                _ => 0.0,
            },
        };
        let along = element.normalized * product / length * more;
        match norm.statistics {
            Statistics::None | Statistics::DynamicTanh { .. } => element.deep,
            Statistics::Provided { .. } => element.rstd * element.deep,
            Statistics::Mean => element.deep - sum / length,
            Statistics::MeanVariance => element.rstd * (element.deep - sum / length - along),
            Statistics::MeanSquare => element.rstd * (element.deep - along),
            Statistics::L2Norm => element.rstd * (element.deep - element.normalized * product),
            Statistics::L1Norm => {
                let sign = match element.x {
                    0.0 => 0.0,
                    x => x.signum(),
                };
                element.rstd * (element.deep - sign * product)
            }
        }
    };
    let is_early = norm.residual_place.is_in_front();
    let input = elements.iter().map(|element| {
        let of_sum = match (&desc.sum_gradient, tensors.sum_gradient) {
            (Some(desc), Some(buffer)) => at(desc, buffer, &element.index),
            _ => 0.0,
        };
        let factor = match element.gate {
            Some([factor, _]) if is_early => factor,
            _ => 1.0,
        };
        of_norm(element) * factor + of_sum
    });
    let gate = elements.iter().filter_map(|element| {
        let [_, slope] = element.gate?;
        let of_product = match is_early {
            true => of_norm(element) * element.input,
            false => element.above_gate,
        };
        Some(of_product * slope)
    });
    let of_param = |param: &Option<TensorDesc>, part: &dyn Fn(&Element) -> f64| {
        let Some(param) = param else {
            return Vec::new();
        };
        let layout = Layout::contiguous(param.shape());
        let mut sums = vec![0.0; layout.checked_elements().unwrap_or(0)];
        for element in &elements {
            sums[address(&layout, rank, &element.index)] += part(element);
        }
        sums
    };
    Gradients {
        input: input.collect(),
        gate: gate.collect(),
        scale: of_param(&norm.scale, &|element| element.shallow * element.normalized),
        bias: of_param(&norm.bias, &|element| element.shallow),
    }
}
