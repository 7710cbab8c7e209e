//! Gradients against Burn's own autodiff of the decomposed formula, and against central
//! differences in f64.

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::{Activation, Epsilon, Lp, MeanVarianceOptions};

use crate::{activations, devices, difference, noise, values};

/// The formula, of operations that Burn differentiates.
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
fn gradients_agree_with_burns_autodiff_of_the_formula() {
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
fn a_parameters_gradient_has_its_dtype_whatever_the_input_is_computed_in() {
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
fn a_residual_and_its_sum_pass_gradients_on() {
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
fn lp_norms_and_given_statistics_pass_gradients_on() {
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

        // Of two shapes.
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
        // Drivers that have f64 need not have its exponentials; a CPU does.
        if !(["flex", "cpu"].contains(&name) && device.supports_dtype(DType::F64)) {
            println!("{name}: skipped, f64 is not computed to its last digits");
            continue;
        }
        for epsilon in [Epsilon::InsideSqrt(1e-2), Epsilon::AddedToDeviation(1e-2)] {
            let options = MeanVarianceOptions::new([1]).with_epsilon_placed(epsilon);
            check_central_differences(name, &device, &options);
        }
        for activation in activations() {
            // Refused there: what they are made of has no more digits than f32.
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
    // Burn's own sigmoid of f64, which differentiates a fused one, keeps f32's digits on `cpu`.
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
