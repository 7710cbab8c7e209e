//! The functions of the library, with gradients by Burn's autodiff and the plans that the library chooses.

use burn::tensor::{DType, Tensor, TensorData};
use cubenorm::{Activation, Epsilon, Lp, MeanVarianceOptions, NormOptions};
use cubenorm_core::{NormDesc, Statistics, TensorDesc};
use wasm_bindgen::prelude::*;

use super::bound::Bounds;
use super::data::Data;
use super::{Report, Title, compare};
use crate::device::{Opened, read};

const EPSILON: f64 = 1e-5;

/// The cases by name, with the shapes of their inputs.
const CASES: [(&str, &[usize]); 21] = [
    ("layer_norm", &[33, 768]),
    ("layer_norm, long rows", &[3, 40_000]),
    ("layer_norm, no parameters", &[129, 100]),
    ("rms_norm", &[33, 768]),
    ("add_layer_norm", &[4, 24, 384]),
    ("add_rms_norm", &[4, 24, 384]),
    ("rms_norm_with, offset 1", &[33, 768]),
    ("ada_layer_norm", &[4, 16, 256]),
    ("modulated_layer_norm, tokens", &[4, 16, 256]),
    ("modulated_rms_norm, samples", &[4, 16, 256]),
    ("group_norm, 8 groups", &[2, 32, 15, 17]),
    ("instance_norm", &[2, 8, 31, 33]),
    ("batch_norm", &[4, 16, 14, 14]),
    ("batch_norm_train", &[4, 16, 14, 14]),
    ("mean_variance_norm, GELU", &[6, 20, 50]),
    ("mean_variance_norm, first axis", &[300, 64]),
    ("mean_variance_norm, mean only", &[40, 130]),
    ("mean_variance_norm_with_statistics", &[5, 7, 64]),
    ("broadcast_batch_norm, SiLU", &[4, 16, 50]),
    ("lp_norm, L1", &[64, 200]),
    ("lp_norm, L2", &[64, 200]),
];

pub(super) fn titles() -> impl Iterator<Item = Title> {
    CASES.iter().map(|(name, shape)| Title {
        group: "norms",
        name: (*name).to_owned(),
        shape: format!("{shape:?}"),
    })
}

pub(super) async fn run(case: usize, opened: &Opened) -> Result<Report, JsError> {
    let Some(&(name, shape)) = CASES.get(case) else {
        return Err(JsError::new(&format!("there is no case {case}")));
    };
    let mean_variance = |axes: &[usize]| desc(shape, axes, Statistics::MeanVariance);
    let over = |axes: &[usize]| MeanVarianceOptions::new(axes.to_vec()).with_epsilon(EPSILON);
    // Both norms over the last axis, and their forms with a residual.
    let last = shape.len() - 1;
    let rows = affine(mean_variance(&[last]), &[shape[last]]);
    let squares = {
        let desc = desc(shape, &[last], Statistics::MeanSquare);
        desc.with_scale(param(&[shape[last]]))
    };
    let residual = || TensorDesc::contiguous(shape, cubenorm_core::DType::F32);
    match name {
        "layer_norm" | "layer_norm, long rows" => {
            both::<2>(opened, rows, |x, p| {
                cubenorm::layer_norm(x, p.scale, p.bias, EPSILON)
            })
            .await
        }
        "layer_norm, no parameters" => {
            let call = |x, _: Params<2>| cubenorm::layer_norm(x, None, None, EPSILON);
            both::<2>(opened, mean_variance(&[last]), call).await
        }
        "rms_norm" => {
            both::<2>(opened, squares, |x, p| {
                cubenorm::rms_norm(x, p.scale, EPSILON)
            })
            .await
        }
        "add_layer_norm" => {
            let call = |x, p: Params<3>| {
                cubenorm::add_layer_norm(x, p.residual(), p.scale, p.bias, EPSILON).0
            };
            both::<3>(opened, rows.with_residual(residual()), call).await
        }
        "add_rms_norm" => {
            let call =
                |x, p: Params<3>| cubenorm::add_rms_norm(x, p.residual(), p.scale, EPSILON).0;
            both::<3>(opened, squares.with_residual(residual()), call).await
        }
        "ada_layer_norm" => {
            let sizes = [shape[0], 1, shape[2]];
            let call = |x, p: Params<3>| {
                let [scale, shift] =
                    [p.scale, p.bias].map(|it| it.expect(DESCRIBED).reshape([sizes[0], sizes[2]]));
                // The function adds the 1 that the reference has in its scale.
                cubenorm::ada_layer_norm(x, scale - 1.0, shift, EPSILON)
            };
            both::<3>(opened, affine(mean_variance(&[2]), &sizes), call).await
        }
        "rms_norm_with, offset 1" => {
            let options = NormOptions::new().with_epsilon(EPSILON).with_offset(1.0);
            let call = |x, p: Params<2>| {
                cubenorm::rms_norm_with(x, p.scale.map(|scale| scale - 1.0), &options)
            };
            both::<2>(opened, squares, call).await
        }
        "modulated_layer_norm, tokens" => {
            let sizes = [shape[0], shape[1], shape[2]];
            let call = |x, p: Params<3>| {
                let [scale, shift] = p.affine(sizes);
                cubenorm::modulated_layer_norm(x, scale.map(|it| it - 1.0), shift, EPSILON)
            };
            both::<3>(opened, affine(mean_variance(&[2]), &sizes), call).await
        }
        "modulated_rms_norm, samples" => {
            let sizes = [shape[0], 1, shape[2]];
            let call = |x, p: Params<3>| {
                let [scale, shift] = p.affine(sizes);
                cubenorm::modulated_rms_norm(x, scale.map(|it| it - 1.0), shift, EPSILON)
            };
            let desc = desc(shape, &[2], Statistics::MeanSquare);
            both::<3>(opened, affine(desc, &sizes), call).await
        }
        "group_norm, 8 groups" => {
            let groups = 8;
            let split = [shape[0], groups, shape[1] / groups, shape[2], shape[3]];
            let desc = desc(&split, &[2, 3, 4], Statistics::MeanVariance);
            let desc = affine(desc, &[groups, shape[1] / groups, 1, 1]);
            let dims: [usize; 4] = [shape[0], shape[1], shape[2], shape[3]];
            let call = |x: Tensor<4>, p: Params<4>| {
                cubenorm::group_norm(x, p.scale, p.bias, groups, EPSILON)
            };
            shaped(opened, desc, dims, call).await
        }
        "instance_norm" => {
            let desc = affine(mean_variance(&[2, 3]), &[shape[1], 1, 1]);
            let call = |x, p: Params<4>| cubenorm::instance_norm(x, p.scale, p.bias, EPSILON);
            both::<4>(opened, desc, call).await
        }
        "batch_norm" => {
            let statistics = provided(&[shape[1], 1, 1]);
            let desc = affine(desc(shape, &[0, 2, 3], statistics), &[shape[1], 1, 1]);
            let call = |x, p: Params<4>| {
                let [mean, variance] = p.provided();
                cubenorm::batch_norm(x, p.scale, p.bias, mean, variance, EPSILON)
            };
            both::<4>(opened, desc, call).await
        }
        "batch_norm_train" => {
            let desc = affine(mean_variance(&[0, 2, 3]), &[shape[1], 1, 1]);
            let call =
                |x, p: Params<4>| cubenorm::batch_norm_train(x, p.scale, p.bias, EPSILON).output;
            both::<4>(opened, desc, call).await
        }
        "mean_variance_norm, GELU" => {
            let desc = affine(mean_variance(&[1, 2]), &[1, shape[2]]);
            let options = over(&[1, 2]).with_activation(Activation::Gelu);
            let call = |x, p: Params<3>| {
                let [scale, bias] = p.affine([1, 1, shape[2]]);
                cubenorm::mean_variance_norm(x, scale, bias, &options)
            };
            both::<3>(opened, desc.with_activation(Activation::Gelu), call).await
        }
        "mean_variance_norm, first axis" => {
            let desc = affine(mean_variance(&[0]), &[1, shape[1]]);
            let call = |x, p: Params<2>| {
                let [scale, bias] = p.affine([1, shape[1]]);
                cubenorm::mean_variance_norm(x, scale, bias, &over(&[0]))
            };
            both::<2>(opened, desc, call).await
        }
        "mean_variance_norm, mean only" => {
            let options = over(&[1]).with_variance(false);
            let call = |x, _: Params<2>| cubenorm::mean_variance_norm(x, None, None, &options);
            both::<2>(opened, desc(shape, &[1], Statistics::Mean), call).await
        }
        "mean_variance_norm_with_statistics" => {
            let options = over(&[0, 2]);
            let call = |x, _: Params<3>| {
                cubenorm::mean_variance_norm_with_statistics(x, None, None, &options).output
            };
            both::<3>(opened, mean_variance(&[0, 2]), call).await
        }
        "broadcast_batch_norm, SiLU" => {
            let desc = affine(
                desc(shape, &[0, 2], provided(&[shape[1], 1])),
                &[shape[1], 1],
            );
            let call = |x, p: Params<3>| {
                let [mean, variance] = p.provided().map(|it| it.reshape([1, shape[1], 1]));
                let [scale, bias] = p.affine([1, shape[1], 1]);
                let silu = Activation::Silu;
                cubenorm::broadcast_batch_norm(x, mean, variance, scale, bias, EPSILON, silu)
            };
            both::<3>(opened, desc.with_activation(Activation::Silu), call).await
        }
        _ => {
            let (statistics, p) = match name {
                "lp_norm, L1" => (Statistics::L1Norm, Lp::L1),
                _ => (Statistics::L2Norm, Lp::L2),
            };
            let call = |x, _: Params<2>| cubenorm::lp_norm(x, p, 1);
            both::<2>(opened, desc(shape, &[1], statistics), call).await
        }
    }
}

const DESCRIBED: &str = "the case describes it";

fn desc(shape: &[usize], axes: &[usize], statistics: Statistics) -> NormDesc {
    NormDesc::new(param(shape), axes, statistics).with_epsilon(Epsilon::InsideSqrt(EPSILON))
}

fn param(shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(shape, cubenorm_core::DType::F32)
}

fn affine(desc: NormDesc, shape: &[usize]) -> NormDesc {
    desc.with_scale(param(shape)).with_bias(param(shape))
}

fn provided(shape: &[usize]) -> Statistics {
    Statistics::Provided {
        mean: param(shape),
        variance: param(shape),
    }
}

/// Tensors of a call next to its input. Parameters are vectors.
struct Params<const D: usize> {
    residual: Option<Tensor<D>>,
    scale: Option<Tensor<1>>,
    bias: Option<Tensor<1>>,
    mean: Option<Tensor<1>>,
    variance: Option<Tensor<1>>,
}

impl<const D: usize> Params<D> {
    fn residual(&self) -> Tensor<D> {
        self.residual.clone().expect(DESCRIBED)
    }

    /// Provided mean and variance.
    fn provided(&self) -> [Tensor<1>; 2] {
        [&self.mean, &self.variance].map(|it| it.clone().expect(DESCRIBED))
    }

    /// Scale and bias in a shape that broadcasts.
    fn affine<const R: usize>(&self, shape: [usize; R]) -> [Option<Tensor<R>>; 2] {
        [&self.scale, &self.bias].map(|it| it.clone().map(|it| it.reshape(shape)))
    }
}

/// Runs both passes on an input in the shape of its description.
async fn both<const D: usize>(
    opened: &Opened,
    desc: NormDesc,
    call: impl Fn(Tensor<D>, Params<D>) -> Tensor<D>,
) -> Result<Report, JsError> {
    let shape = desc
        .input
        .shape()
        .try_into()
        .expect("a case has the rank of its call");
    shaped(opened, desc, shape, call).await
}

/// [`both`] on an input of another shape, with the same elements.
async fn shaped<const D: usize>(
    opened: &Opened,
    desc: NormDesc,
    shape: [usize; D],
    call: impl Fn(Tensor<D>, Params<D>) -> Tensor<D>,
) -> Result<Report, JsError> {
    let data = Data::new(desc);
    let device = opened.device.clone().autodiff();
    let floats = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
    let whole = |values: &[f64]| {
        let data = TensorData::new(floats(values), shape);
        Tensor::<D>::from_data(data, (&device, DType::F32))
    };
    let vector = |values: &Option<Vec<f64>>| {
        let values = floats(values.as_deref()?);
        let length = [values.len()];
        let data = TensorData::new(values, length);
        Some(Tensor::<1>::from_data(data, (&device, DType::F32)))
    };
    let input = whole(&data.input).require_grad();
    let scale = vector(&data.scale).map(Tensor::require_grad);
    let bias = vector(&data.bias).map(Tensor::require_grad);
    let params = Params {
        residual: data.residual.as_deref().map(whole),
        scale: scale.clone(),
        bias: bias.clone(),
        mean: vector(&data.mean),
        variance: vector(&data.variance),
    };
    let output = call(input.clone(), params);
    // The product's gradient is dy: Burn starts with ones.
    let gradients = (output.clone() * whole(&data.output_gradient)).backward();

    let expected = data.expected();
    let bounds = Bounds::new(&data.desc, &expected);
    let actual = widened(read(output).await?);
    let forward = compare(&actual, &expected.output, |at| {
        (bounds.output)(expected.output[at])
    })?;
    let (reference, _) = data.gradients(&expected);
    let missing = || JsError::new("the input has no gradient");
    let actual = input.grad(&gradients).ok_or_else(missing)?;
    let actual = widened(read(actual).await?);
    let mut backward = compare(&actual, &reference.input, |_| bounds.input)?;
    for (param, expected) in [(scale, &reference.scale), (bias, &reference.bias)] {
        if let Some(actual) = param.and_then(|param| param.grad(&gradients)) {
            let actual = widened(read(actual).await?);
            backward = backward.and(compare(&actual, expected, |_| bounds.params)?);
        }
    }
    Ok(Report {
        forward: Some(forward),
        backward: Some(backward),
        left_out: None,
    })
}

fn widened(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}
