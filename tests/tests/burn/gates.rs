//! Gated norms and the gradients of their gates, against Burn's own autodiff of the formula.

use burn::tensor::{DType, Device, Tensor, activation};
use cubenorm::nn::GatedRmsNormConfig;
use cubenorm::{Activation, GateOptions};

use crate::gradients::{assert_alike, with_gradients};
use crate::{devices, difference, noise, supports, values};

#[test]
fn gated_norms_agree_with_their_formulas() {
    let shape = [3, 5, 24];
    for (name, device) in devices() {
        for (activation, act) in [
            (
                Activation::Silu,
                activation::silu as fn(Tensor<3>) -> Tensor<3>,
            ),
            (Activation::Sigmoid, activation::sigmoid),
        ] {
            for (norm_before_gate, group_size) in [
                (true, None),
                (false, None),
                (true, Some(8)),
                (false, Some(8)),
            ] {
                let device = device.clone().autodiff();
                let leaf = |seed| noise(shape, seed, &device).require_grad();
                let gamma = || noise([24], 3, &device).require_grad();
                let weights = noise(shape, 4, &device);
                let size = group_size.unwrap_or(24);
                let norm = |x: Tensor<3>| {
                    let x = x.reshape([3, 5, 24 / size, size]);
                    let square = (x.clone() * x.clone()).mean_dim(3) + 1e-3;
                    (x / square.sqrt()).reshape(shape)
                };
                let (x, z, g) = (leaf(1), leaf(2), gamma());
                let scale = g.clone().reshape([1, 1, 24]);
                let y = match norm_before_gate {
                    true => norm(x.clone()) * scale * act(z.clone()),
                    false => norm(x.clone() * act(z.clone())) * scale,
                };
                let expected = with_gradients(y, &weights, &[("x", x), ("gate", z)], &g);

                let config = GatedRmsNormConfig::new(24)
                    .with_epsilon(1e-3)
                    .with_norm_before_gate(norm_before_gate)
                    .with_group_size(group_size)
                    .with_activation(activation);
                let mut layer = config.init(&device);
                let (x, z, g) = (leaf(1), leaf(2), gamma());
                layer.gamma = burn::module::Param::from_tensor(g.clone());
                let y = layer.forward(x.clone(), z.clone());
                let g = layer.gamma.val();
                let tensors = [("x", x.clone()), ("gate", z.clone())];
                let context = format!("{name} {activation:?} {norm_before_gate} {group_size:?}");
                assert_alike(
                    &context,
                    &with_gradients(y, &weights, &tensors, &g),
                    &expected,
                );

                // Without gradients all of it is one kernel.
                let options = GateOptions::new()
                    .with_epsilon(1e-3)
                    .with_norm_before_gate(norm_before_gate)
                    .with_group_size(group_size)
                    .with_activation(activation);
                let [x, z] = [x, z].map(Tensor::inner);
                let y = cubenorm::gated_rms_norm(x, z, g.inner(), &options);
                assert_alike(&context, &[("y alone", values(y))], &expected[..1]);
            }
        }
    }
}

#[test]
fn gated_layer_norm_agrees_with_its_formula() {
    for (name, device) in devices() {
        let (x, z) = (noise([6, 40], 1, &device), noise([6, 40], 2, &device));
        let (gamma, beta) = (noise([40], 3, &device), noise([40], 4, &device));
        for norm_before_gate in [true, false] {
            let gate = activation::silu(z.clone());
            let norm = |x| cubenorm::layer_norm(x, gamma.clone(), beta.clone(), 1e-3);
            let expected = match norm_before_gate {
                true => norm(x.clone()) * gate,
                false => norm(x.clone() * gate),
            };
            let options = GateOptions::new()
                .with_epsilon(1e-3)
                .with_norm_before_gate(norm_before_gate);
            let (gamma, beta) = (gamma.clone(), beta.clone());
            let actual = cubenorm::gated_layer_norm(x.clone(), z.clone(), gamma, beta, &options);
            let off = difference(actual, expected);
            assert!(off < 1e-5, "{name} {norm_before_gate} is off by {off}");
        }
    }
}

/// Input, gate, gamma and beta.
struct Operands {
    x: Tensor<2>,
    z: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
}

/// The layer norm over groups of a size, composed of Burn's operations.
fn composed(operands: Operands, norm_before_gate: bool, size: usize) -> Tensor<2> {
    let Operands { x, z, gamma, beta } = operands;
    let [rows, cols] = x.dims();
    let gate = activation::silu(z);
    let (x, last) = match norm_before_gate {
        true => (x, Some(gate)),
        false => (x * gate, None),
    };
    let groups = x.reshape([rows, cols / size, size]);
    let centered = groups.clone() - groups.mean_dim(2);
    let variance = (centered.clone() * centered.clone()).mean_dim(2) + 1e-3;
    let normalized = (centered / variance.sqrt()).reshape([rows, cols]);
    let y = normalized * gamma.unsqueeze() + beta.unsqueeze();
    match last {
        Some(gate) => y * gate,
        None => y,
    }
}

fn fused(operands: Operands, norm_before_gate: bool, size: usize) -> Tensor<2> {
    let Operands { x, z, gamma, beta } = operands;
    let options = GateOptions::new()
        .with_epsilon(1e-3)
        .with_norm_before_gate(norm_before_gate)
        .with_group_size(size);
    cubenorm::gated_layer_norm(x, z, gamma, beta, &options)
}

/// The output, and the gradient of each tracked tensor. The gate is transposed.
fn trained(
    norm: fn(Operands, bool, usize) -> Tensor<2>,
    case: (bool, usize),
    tracked: [bool; 3],
    device: &Device,
) -> Vec<Option<Vec<f64>>> {
    let device = &device.clone().autodiff();
    let tracks = |which: usize, tensor: Tensor<2>| match tracked[which] {
        true => tensor.require_grad(),
        false => tensor,
    };
    let x = tracks(0, noise([7, 40], 1, device));
    let z = tracks(1, noise([40, 7], 2, device));
    let [gamma, beta] = [3, 4].map(|seed| tracks(2, noise([1, 40], seed, device)));
    let operands = Operands {
        x: x.clone(),
        z: z.clone().transpose(),
        gamma: gamma.clone().reshape([40]),
        beta: beta.clone().reshape([40]),
    };
    let y = norm(operands, case.0, case.1);
    let mut all = vec![Some(values(y.clone()))];
    let gradients = (y * noise([7, 40], 5, device)).sum().backward();
    all.extend([x, z, gamma, beta].map(|tensor| tensor.grad(&gradients).map(values)));
    all
}

#[test]
fn gated_layer_norms_train_whatever_is_tracked() {
    let tracked = [
        [true, true, true],
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true, false, true],
    ];
    for (name, device) in devices() {
        for (norm_before_gate, size) in [(true, 40), (false, 40), (true, 8), (false, 8)] {
            for tracked in tracked {
                let case = (norm_before_gate, size);
                let actual = trained(fused, case, tracked, &device);
                let expected = trained(composed, case, tracked, &device);
                for (at, (actual, expected)) in actual.into_iter().zip(expected).enumerate() {
                    let context = format!("{name} {case:?} {tracked:?} at {at}");
                    assert_eq!(actual.is_some(), expected.is_some(), "{context}");
                    let pairs = actual.iter().flatten().zip(expected.iter().flatten());
                    let off = pairs.map(|(a, e)| (a - e).abs()).fold(0.0, f64::max);
                    assert!(off < 1e-4, "{context} is off by {off}");
                }
            }
        }
    }
}

#[test]
fn a_tensor_gates_itself() {
    for (name, device) in devices() {
        let device = device.autodiff();
        for norm_before_gate in [true, false] {
            let gradient = |norm: fn(Operands, bool, usize) -> Tensor<2>| {
                let x = noise([5, 40], 1, &device).require_grad();
                let operands = Operands {
                    x: x.clone(),
                    z: x.clone(),
                    gamma: noise([40], 3, &device),
                    beta: noise([40], 4, &device),
                };
                let y = norm(operands, norm_before_gate, 40) * noise([5, 40], 5, &device);
                x.grad(&y.sum().backward()).expect("it is tracked")
            };
            let off = difference(gradient(fused), gradient(composed));
            assert!(off < 1e-4, "{name} {norm_before_gate} is off by {off}");
        }
    }
}

/// Products of these numbers exceed f16, while the gradients do not.
#[test]
fn gradients_in_half_precision_are_rounded_once() {
    for (name, device) in devices() {
        if !supports(name, &device, DType::F16) {
            continue;
        }
        let device = device.autodiff();
        for (norm_before_gate, of_gate) in [
            (true, DType::F16),
            (false, DType::F16),
            (true, DType::F32),
            (false, DType::F32),
        ] {
            let large = |seed| (noise::<2>([4, 64], seed, &device) * 300.0).cast(DType::F16);
            let (x, z) = (large(1), large(2).cast(of_gate));
            let gradients = |dtypes: [DType; 2], norm: fn(Operands, bool, usize) -> Tensor<2>| {
                let x = x.clone().cast(dtypes[0]).require_grad();
                let z = z.clone().cast(dtypes[1]).require_grad();
                let operands = Operands {
                    x: x.clone(),
                    z: z.clone(),
                    gamma: Tensor::ones([64], (&device, dtypes[0])),
                    beta: Tensor::zeros([64], (&device, dtypes[0])),
                };
                let y = norm(operands, norm_before_gate, 64);
                let weights = noise([4, 64], 5, &device).cast(DType::F16);
                let y = y.cast(DType::F32) * weights.cast(DType::F32);
                let gradients = y.sum().backward();
                [x, z].map(|tensor| tensor.grad(&gradients).expect("it is tracked"))
            };
            let actual = gradients([DType::F16, of_gate], fused);
            assert_eq!(
                actual.each_ref().map(|it| it.dtype()),
                [DType::F16, of_gate]
            );
            let expected = gradients([DType::F32; 2], composed);
            for (at, (actual, expected)) in actual.into_iter().zip(expected).enumerate() {
                let (actual, expected) = (values(actual.cast(DType::F32)), values(expected));
                let largest = expected.iter().fold(0.0, |m: f64, e| m.max(e.abs()));
                for (actual, expected) in actual.iter().zip(expected) {
                    let off = (actual - expected).abs();
                    // Half a unit of the smallest numbers is 3e-8.
                    let allowed = expected.abs() / 2048.0 + largest * 1e-5 + 3e-8;
                    let context = format!("{name} {norm_before_gate} {of_gate:?} at {at}");
                    assert!(off <= allowed, "{context}: {actual}, not {expected}");
                }
            }
        }
    }
}
