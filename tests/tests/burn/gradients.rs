//! Gradients against Burn's own autodiff of the decomposed formula, and against central
//! differences in f64.

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::nn::GroupNormConfig;
use cubenorm::{Activation, Epsilon, Lp, MeanVarianceOptions};

use crate::{activations, devices, difference, noise, values};

/// The formula, composed of operations that Burn differentiates.
fn decomposed(
    x: Tensor<3>,
    scale: Tensor<3>,
    bias: Tensor<3>,
    axes: &[usize],
    uses: [bool; 2],
    epsilon: f64,
) -> Tensor<3> {
    let mean = |tensor: Tensor<3>| axes.iter().fold(tensor, |t, &axis| t.mean_dim(axis));
    let centered = match uses[0] {
        true => x.clone() - mean(x),
        false => x,
    };
    let normalized = match uses[1] {
        true => {
            let variance = mean(centered.clone() * centered.clone());
            centered / (variance + epsilon).sqrt()
        }
        false => centered,
    };
    normalized * scale + bias
}

#[test]
fn gradients_agree_with_burn_autodiff() {
    let cases: [(&[usize], [usize; 3], [usize; 3]); 4] = [
        (&[2], [1, 1, 12], [1, 1, 12]),
        (&[0, 2], [1, 5, 1], [1, 5, 1]),
        (&[1], [4, 1, 12], [1, 5, 1]),
        (&[0, 1, 2], [1, 1, 1], [4, 5, 12]),
    ];
    for (name, device) in devices() {
        let device = device.autodiff();
        for (axes, scale_shape, bias_shape) in cases {
            for uses in [[true, true], [false, true], [true, false]] {
                let leaf = |shape, seed| noise(shape, seed, &device).require_grad();
                let weights = noise([4, 5, 12], 4, &device);
                let (x, scale, bias) = (
                    leaf([4, 5, 12], 1),
                    leaf(scale_shape, 2),
                    leaf(bias_shape, 3),
                );
                let expected = decomposed(x.clone(), scale.clone(), bias.clone(), axes, uses, 1e-3);
                let expected = (expected * weights.clone()).sum().backward();

                let options = MeanVarianceOptions::new(axes)
                    .with_mean(uses[0])
                    .with_variance(uses[1])
                    .with_epsilon(1e-3);
                let y =
                    cubenorm::mean_variance_norm(x.clone(), scale.clone(), bias.clone(), &options);
                let actual = (y * weights).sum().backward();
                for (param, tensor) in [("x", x), ("scale", scale), ("bias", bias)] {
                    let (a, e) = (tensor.grad(&actual), tensor.grad(&expected));
                    let error = difference(a.unwrap(), e.unwrap());
                    assert!(
                        error < 2e-4,
                        "{name} {axes:?} {uses:?}: d{param} is off by {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn parameter_gradients_have_the_parameters_dtype() {
    for (name, device) in devices() {
        if !device.supports_dtype(DType::Flex32) {
            println!("{name}: skipped, has no Flex32");
            continue;
        }
        let device = device.autodiff();
        let gamma = || noise([24], 3, &device).require_grad();
        let x = noise([4, 24], 1, &device);
        let back = |x: Tensor<2>, gamma: &Tensor<1>| {
            let y = cubenorm::rms_norm(x, gamma.clone(), 1e-3);
            let y = y.cast(DType::F32);
            (y.clone() * y).sum().backward()
        };
        let (plain, relaxed) = (gamma(), gamma());
        let expected = plain.grad(&back(x.clone(), &plain)).unwrap();
        let actual = relaxed
            .grad(&back(x.cast(DType::Flex32), &relaxed))
            .unwrap();
        assert_eq!(actual.dtype(), DType::F32, "{name}");
        let error = difference(actual, expected);
        assert!(error < 1e-2, "{name}: dgamma is off by {error}");
    }
}

#[test]
fn residual_and_sum_have_gradients() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let leaf = |seed| noise([4, 24], seed, &device).require_grad();
        let (x, residual, gamma) = (leaf(1), leaf(2), noise([24], 3, &device).require_grad());
        let (y, sum) = cubenorm::add_rms_norm(x.clone(), residual.clone(), gamma.clone(), 1e-3);
        let actual = (y * 0.5 + sum.powf_scalar(2.0)).sum().backward();

        let plain = x.clone() + residual.clone();
        let rms = (plain.clone() * plain.clone()).mean_dim(1) + 1e-3;
        let y = plain.clone() / rms.sqrt() * gamma.clone().unsqueeze();
        let expected = (y * 0.5 + plain.powf_scalar(2.0)).sum().backward();
        for (param, tensor) in [("x", x), ("residual", residual)] {
            let error = difference(
                tensor.grad(&actual).unwrap(),
                tensor.grad(&expected).unwrap(),
            );
            assert!(error < 1e-4, "{name}: d{param} is off by {error}");
        }
        let error = difference(gamma.grad(&actual).unwrap(), gamma.grad(&expected).unwrap());
        assert!(error < 1e-4, "{name}: dgamma is off by {error}");
    }
}

#[test]
fn lp_norms_and_provided_statistics_have_gradients() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let leaf = |shape: [usize; 3], seed| noise(shape, seed, &device).require_grad();
        let weights = noise([3, 4, 5], 9, &device);
        let back = |y: Tensor<3>| (y * weights.clone()).sum().backward();
        for p in [Lp::L1, Lp::L2] {
            let x = leaf([3, 4, 5], 1);
            let actual = back(cubenorm::lp_norm(x.clone(), p, 1));
            let norm = match p {
                Lp::L1 => x.clone().abs().sum_dim(1),
                Lp::L2 => x.clone().powf_scalar(2.0).sum_dim(1).sqrt(),
            };
            let expected = back(x.clone() / norm);
            let error = difference(x.grad(&actual).unwrap(), x.grad(&expected).unwrap());
            assert!(error < 1e-4, "{name}: {p:?} is off by {error}");
        }

        // Two shapes.
        let variance = noise([3, 1, 5], 3, &device).abs().require_grad();
        let [x, mean, scale] =
            [([3, 4, 5], 1), ([1, 4, 1], 2), ([1, 1, 5], 4)].map(|(shape, seed)| leaf(shape, seed));
        let actual = back(cubenorm::broadcast_batch_norm(
            x.clone(),
            mean.clone(),
            variance.clone(),
            scale.clone(),
            None,
            1e-1,
            Activation::Identity,
        ));
        let expected = (x.clone() - mean.clone()) / (variance.clone() + 1e-1).sqrt();
        let expected = back(expected * scale.clone());
        for (what, leaf) in [
            ("x", x),
            ("mean", mean),
            ("variance", variance),
            ("scale", scale),
        ] {
            let [actual, expected] = [&actual, &expected].map(|all| leaf.grad(all).unwrap());
            assert_eq!(actual.dims(), leaf.dims(), "{name}: d{what}");
            let error = difference(actual, expected);
            assert!(error < 2e-4, "{name}: d{what} is off by {error}");
        }
    }
}

#[test]
fn gradients_agree_with_central_differences_in_f64() {
    for (name, device) in devices() {
        // Drivers with f64 may lack its exponentials. A CPU has them.
        if !(["flex", "cpu"].contains(&name) && device.supports_dtype(DType::F64)) {
            println!("{name}: skipped, f64 is not computed to its last digits");
            continue;
        }
        for epsilon in [Epsilon::InsideSqrt(1e-2), Epsilon::AddedToDeviation(1e-2)] {
            let options = MeanVarianceOptions::new([1]).with_epsilon_placed(epsilon);
            check_central_differences(name, &device, &options);
        }
        for activation in activations() {
            // Refused there: their parts have no more precision than f32.
            let is_gelu = matches!(activation, Activation::Gelu | Activation::GeluTanh);
            if name == "cpu" && is_gelu {
                continue;
            }
            let options = MeanVarianceOptions::new([1])
                .with_epsilon_placed(Epsilon::InsideSqrt(1e-2))
                .with_activation(activation);
            check_central_differences(name, &device, &options);
        }
    }
}

/// Each partial derivative of a weighted sum of the output, by moving one element at a time.
fn check_central_differences(name: &str, device: &Device, options: &MeanVarianceOptions) {
    let shapes = [[3, 6], [1, 6], [3, 1]];
    // Burn's sigmoid of f64, which differentiates a fused one, has the precision of f32 on `cpu`.
    let tolerance = if name == "cpu" { 1e-6 } else { 1e-7 };
    let start: Vec<Vec<f64>> = (0..3)
        .map(|i| values(noise(shapes[i], 20 + i as u64, device)))
        .collect();
    let weights = values(noise([3, 6], 30, device));
    let tensor = |values: &[f64], shape: [usize; 2], device: &Device| {
        let data = TensorData::new(values.to_vec(), shape);
        Tensor::<2>::from_data(data, (device, DType::F64))
    };
    let loss = |inputs: &[Vec<f64>]| {
        let [x, scale, bias] = [0, 1, 2].map(|i| tensor(&inputs[i], shapes[i], device));
        let y = cubenorm::mean_variance_norm(x, scale, bias, options);
        let products = values(y).into_iter().zip(&weights).map(|(y, w)| y * w);
        products.sum::<f64>()
    };

    let tracked = device.clone().autodiff();
    let leaves = [0, 1, 2].map(|i| tensor(&start[i], shapes[i], &tracked).require_grad());
    let [x, scale, bias] = leaves.clone();
    let y = cubenorm::mean_variance_norm(x, scale, bias, options);
    let grads = (y * tensor(&weights, [3, 6], &tracked)).sum().backward();
    for (i, leaf) in leaves.iter().enumerate() {
        let actual = values(leaf.grad(&grads).unwrap());
        for (position, actual) in actual.into_iter().enumerate() {
            let step = 1e-5;
            let moved = |by: f64| {
                let mut inputs = start.clone();
                inputs[i][position] += by;
                loss(&inputs)
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            assert!(
                (actual - expected).abs() < tolerance * (1.0 + expected.abs()),
                "{name} {options:?}: input {i} at {position} has {actual}, expected {expected}"
            );
        }
    }
}

#[test]
fn composed_lp_norms_cover_the_range_of_f32() {
    for (name, device) in devices() {
        if name != "flex" {
            continue;
        }
        let device = device.autodiff();
        for size in [3e-45f32, 1e-40, 1e-30, 1e-20, 1.0, 1e15, 1e20, 1e38] {
            let shares = [2.0f32, -1.0, 0.0, 2.0];
            let numbers = shares.map(|share| share * size);
            // Numbers this small are rounded themselves.
            let numbers64 = numbers.map(f64::from);
            let x = Tensor::<2>::from_floats([numbers], &device).require_grad();
            for (p, norm) in [
                (Lp::L1, numbers64.iter().map(|x| x.abs()).sum::<f64>()),
                (Lp::L2, numbers64.iter().map(|x| x * x).sum::<f64>().sqrt()),
            ] {
                let y = cubenorm::lp_norm(x.clone(), p, 1);
                for (actual, x) in values(y.clone()).iter().zip(numbers64) {
                    let error = (actual - x / norm).abs();
                    assert!(error < 1e-6, "{p:?} of {size:e}: {actual}, off by {error}");
                }
                // dy = (1, 0, 0, 0)
                let gradients = y.slice([0..1, 0..1]).sum().backward();
                let dx = values(x.grad(&gradients).expect("it is tracked"));
                let y0 = numbers64[0] / norm;
                for (i, dx) in dx.into_iter().enumerate() {
                    let slope = match p {
                        Lp::L1 if numbers64[i] == 0.0 => 0.0,
                        Lp::L1 => numbers64[i].signum(),
                        Lp::L2 => numbers64[i] / norm,
                    };
                    let expected = (f64::from(u8::from(i == 0)) - slope * y0) / norm;
                    let is_in_range = (1e-37..1e37).contains(&(1.0 / norm));
                    let error = (dx - expected).abs() * norm;
                    assert!(
                        !is_in_range || error < 1e-5,
                        "{p:?} of {size:e}: dx[{i}] is {dx}, not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn composed_gelu_tanh_has_a_slope_for_large_numbers() {
    for (name, device) in devices() {
        if name != "flex" {
            continue;
        }
        let device = device.autodiff();
        let x = Tensor::<2>::ones([1, 4], &device);
        let scale = Tensor::<2>::from_floats([[1e30, -1e30, 2.0, -2.0]], &device).require_grad();
        let options = MeanVarianceOptions::new([1])
            .with_mean(false)
            .with_variance(false)
            .with_activation(Activation::GeluTanh);
        let y = cubenorm::mean_variance_norm(x, scale.clone(), None, &options);
        let gradients = y.sum().backward();
        let slopes = values(scale.grad(&gradients).expect("it is tracked"));
        for (slope, expected) in slopes.into_iter().zip([1.0, 0.0, 1.0861, -0.0861]) {
            assert!((slope - expected).abs() < 1e-3, "{slope}, not {expected}");
        }
    }
}

/// `y` and the gradients of `tensors`, by name, of the weighted sum of `y`.
pub(crate) fn with_gradients<const D: usize>(
    y: Tensor<D>,
    weights: &Tensor<D>,
    tensors: &[(&'static str, Tensor<D>)],
    gamma: &Tensor<1>,
) -> Vec<(&'static str, Vec<f64>)> {
    let mut all = vec![("y", values(y.clone()))];
    let gradients = (y * weights.clone()).sum().backward();
    for (name, tensor) in tensors {
        let gradient = tensor.grad(&gradients).expect("it is tracked");
        all.push((name, values(gradient)));
    }
    let gradient = gamma.grad(&gradients).expect("it is tracked");
    all.push(("gamma", values(gradient)));
    all
}

pub(crate) fn assert_alike(
    context: &str,
    actual: &[(&str, Vec<f64>)],
    expected: &[(&str, Vec<f64>)],
) {
    for ((name, actual), (_, expected)) in actual.iter().zip(expected) {
        let pairs = actual.iter().zip(expected);
        let off = pairs.map(|(a, e)| (a - e).abs()).fold(0.0, f64::max);
        assert!(off < 1e-4, "{context}: {name} is off by {off}");
    }
}

#[test]
fn group_norm_takes_a_residual_and_an_activation() {
    let shape = [2, 6, 3, 5];
    for (name, device) in devices() {
        for residual_shape in [Some(shape), Some([2, 6, 1, 1]), None] {
            let device = device.clone().autodiff();
            let leaf = |shape, seed| noise(shape, seed, &device).require_grad();
            let gamma = || noise([6], 3, &device).require_grad();
            let beta = || noise([6], 5, &device);
            let weights = noise(shape, 4, &device);
            let x = leaf(shape, 1);
            let residual = residual_shape.map(|shape| leaf(shape, 2));
            let g = gamma();
            let sum = match residual.clone() {
                Some(residual) => x.clone() + residual,
                None => x.clone(),
            };
            let groups = sum.reshape([2, 3, 30]);
            let centered = groups.clone() - groups.mean_dim(2);
            let variance = (centered.clone() * centered.clone()).mean_dim(2) + 1e-3;
            let normalized = (centered / variance.sqrt()).reshape(shape);
            let y = normalized * g.clone().reshape([1, 6, 1, 1]) + beta().reshape([1, 6, 1, 1]);
            let y = burn::tensor::activation::silu(y);
            let tensors = |x: Tensor<4>, residual: Option<Tensor<4>>| {
                let mut tensors = vec![("x", x)];
                tensors.extend(residual.map(|residual| ("residual", residual)));
                tensors
            };
            let expected = with_gradients(y, &weights, &tensors(x, residual), &g);

            let mut layer = GroupNormConfig::new(3, 6).with_epsilon(1e-3).init(&device);
            layer.gamma = Some(burn::module::Param::from_tensor(gamma()));
            layer.beta = Some(burn::module::Param::from_tensor(beta()));
            let x = leaf(shape, 1);
            let residual = residual_shape.map(|shape| leaf(shape, 2));
            let y = layer.forward_with(x.clone(), residual.clone(), Activation::Silu);
            let g = layer.gamma.as_ref().unwrap().val();
            let of = tensors(x.clone(), residual.clone());
            let context = format!("{name} {residual_shape:?}");
            assert_alike(&context, &with_gradients(y, &weights, &of, &g), &expected);

            let y = cubenorm::group_norm_with(
                x.inner(),
                residual.map(Tensor::inner),
                g.inner(),
                beta().inner(),
                3,
                1e-3,
                Activation::Silu,
            );
            assert_alike(&context, &[("y alone", values(y))], &expected[..1]);
        }
    }
}
