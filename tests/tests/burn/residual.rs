//! A residual in training: the sum added inside of the kernels, in both passes.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use cubenorm::NormOptions;
use cubenorm_tests::tensors::supports;

use crate::{devices, difference, noise, values};

/// Statistics of the norms under test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Norm {
    Layer,
    Rms,
}

/// Results of a norm with a residual.
type Both<const D: usize> = (Tensor<D>, Tensor<D>);

impl Norm {
    const ALL: [Self; 2] = [Self::Layer, Self::Rms];

    fn ours<const D: usize>(self, x: Tensor<D>, residual: Tensor<D>, gamma: Tensor<1>) -> Both<D> {
        match self {
            Self::Layer => cubenorm::add_layer_norm(x, residual, gamma, None, 1e-3),
            Self::Rms => cubenorm::add_rms_norm(x, residual, gamma, 1e-3),
        }
    }

    fn composed<const D: usize>(
        self,
        x: Tensor<D>,
        residual: Tensor<D>,
        gamma: Tensor<1>,
    ) -> Both<D> {
        let sum = x + residual;
        let centered = match self {
            Self::Layer => sum.clone() - sum.clone().mean_dim(D - 1),
            Self::Rms => sum.clone(),
        };
        let variance = centered.clone().square().mean_dim(D - 1);
        let y = centered / (variance + 1e-3).sqrt() * gamma.unsqueeze();
        (y, sum)
    }
}

/// A loss of both results.
type Loss = fn(Both<3>) -> Tensor<1>;

/// Losses of both results: each alone, both, and gradients of other layouts.
const LOSSES: [(&str, Loss); 6] = [
    ("y", |(y, _)| y.powf_scalar(3.0).sum()),
    ("sum", |(_, sum)| sum.powf_scalar(2.0).sum()),
    ("both", |(y, sum)| (y.square() * sum).sum()),
    ("sum twice", |(y, sum)| {
        (y * sum.clone().sin() + sum.square()).sum()
    }),
    ("expanded gradient", |(y, sum)| y.square().sum() + sum.sum()),
    ("transposed gradient", |(y, sum)| {
        let weights = noise([9, 4, 6], 9, &y.device());
        let moved = sum.permute([2, 0, 1]);
        (moved * weights).sum() + y.square().sum()
    }),
];

/// Input, residual and gamma. Autodiff tracks some.
fn tensors(device: &Device, tracked: [bool; 3]) -> (Tensor<3>, Tensor<3>, Tensor<1>) {
    let leaf = |seed, is_tracked| {
        let tensor = noise([4, 6, 9], seed, device);
        if is_tracked {
            tensor.require_grad()
        } else {
            tensor
        }
    };
    let gamma = noise([9], 3, device);
    let gamma = if tracked[2] {
        gamma.require_grad()
    } else {
        gamma
    };
    (leaf(1, tracked[0]), leaf(2, tracked[1]), gamma)
}

fn check(name: &str, device: &Device, tracked: [bool; 3]) {
    for norm in Norm::ALL {
        for (loss_name, loss) in LOSSES {
            let at = format!("{name} {norm:?} {loss_name} {tracked:?}");
            // A loss of the sum alone has no gradient of gamma.
            if tracked == [false, false, true] && loss_name == "sum" {
                continue;
            }
            let (x, residual, gamma) = tensors(device, tracked);
            let results = norm.ours(x.clone(), residual.clone(), gamma.clone());
            let actual = loss(results).backward();
            let grads = |x: &Tensor<3>, gamma: &Tensor<1>, of: &burn::tensor::Gradients| {
                (x.grad(of), gamma.grad(of))
            };
            let (dx, dgamma) = grads(&x, &gamma, &actual);
            let dresidual = residual.grad(&actual);

            let (x, residual, gamma) = tensors(device, tracked);
            let results = norm.composed(x.clone(), residual.clone(), gamma.clone());
            let expected = loss(results).backward();
            let pairs = [("dx", dx, &x), ("dresidual", dresidual, &residual)];
            for (what, actual, tensor) in pairs {
                let expected = tensor.grad(&expected);
                assert_eq!(actual.is_some(), expected.is_some(), "{at}: {what}");
                if let Some((actual, expected)) = actual.zip(expected) {
                    let off = difference(actual, expected);
                    assert!(off < 2e-4, "{at}: {what} is off by {off}");
                }
            }
            let expected = gamma.grad(&expected);
            assert_eq!(dgamma.is_some(), expected.is_some(), "{at}: dgamma");
            if let Some((actual, expected)) = dgamma.zip(expected) {
                let off = difference(actual, expected);
                assert!(off < 1e-3, "{at}: dgamma is off by {off}");
            }
        }
    }
}

#[test]
fn gradients_pass_through_both_results() {
    for (name, device) in devices() {
        let device = device.autodiff();
        for tracked in [
            [true, true, true],
            [true, false, true],
            [false, true, false],
            [false, false, true],
        ] {
            check(name, &device, tracked);
        }
    }
}

#[test]
fn a_loss_of_the_sum_leaves_a_made_gamma_alone() {
    for (name, device) in devices() {
        let (x, residual, gamma) = tensors(&device.autodiff(), [true; 3]);
        let made = gamma.clone() * 2.0;
        let (_, sum) = cubenorm::add_rms_norm(x.clone(), residual, made, 1e-5);
        let of = sum.sum().backward();
        let dx = x.grad(&of).expect("tracked");
        assert_eq!(values(dx.clone()), values(dx.ones_like()), "{name}");
        let dgamma = gamma.grad(&of).expect("it was made of gamma");
        assert!(values(dgamma).iter().all(|it| *it == 0.0), "{name}");
    }
}

#[test]
fn checkpointing_keeps_gradients_of_both_results() {
    for (name, device) in devices() {
        check(name, &device.autodiff().gradient_checkpointing(), [true; 3]);
    }
}

#[test]
fn blocks_of_norms_pass_the_sum_on() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let run = |norm: fn(Tensor<3>, Tensor<3>, Tensor<1>) -> Both<3>| {
            let (x, residual, gamma) = tensors(&device, [true; 3]);
            let (mut branch, mut stream) = (x.clone(), residual.clone());
            for _ in 0..4 {
                let (y, sum) = norm(branch, stream, gamma.clone());
                (branch, stream) = (y.tanh(), sum);
            }
            let of = (branch * stream).sum().backward();
            let grads = [x.grad(&of), residual.grad(&of)].map(|it| values(it.expect("tracked")));
            (grads, values(gamma.grad(&of).expect("tracked")))
        };
        let (actual, of_gamma) = run(|x, r, gamma| Norm::Rms.ours(x, r, gamma));
        let (expected, expected_of_gamma) = run(|x, r, gamma| Norm::Rms.composed(x, r, gamma));
        let pairs = actual.iter().flatten().zip(expected.iter().flatten());
        for (a, e) in pairs.chain(of_gamma.iter().zip(&expected_of_gamma)) {
            assert!(
                (a - e).abs() < 1e-3 * (1.0 + e.abs()),
                "{name}: {a}, not {e}"
            );
        }
    }
}

/// A narrow dtype, with its largest relative rounding error.
const NARROW: [(DType, f64); 2] = [(DType::F16, 1.0 / 2048.0), (DType::BF16, 1.0 / 256.0)];

#[test]
fn the_stream_keeps_its_own_dtype() {
    for (name, device) in devices() {
        for (dtype, unit) in NARROW {
            if !supports(name, &device, dtype) {
                println!("{name}: skipped, has no {dtype:?}");
                continue;
            }
            let device = device.clone().autodiff();
            for norm in Norm::ALL {
                let at = format!("{name} {dtype:?} {norm:?}");
                let (x, residual, gamma) = tensors(&device, [false, true, true]);
                let x = x.cast(dtype).detach().require_grad();
                let (y, sum) = norm.ours(x.clone(), residual.clone(), gamma.clone());
                assert_eq!((y.dtype(), sum.dtype()), (dtype, DType::F32), "{at}");
                let loss = |y: Tensor<3>, sum: Tensor<3>| {
                    (y.cast(DType::F32).square() * sum.clone()).sum() + sum.square().sum()
                };
                let wide = x.clone().cast(DType::F32).detach().require_grad();
                let (other, gamma2) = (residual.clone().detach().require_grad(), gamma.clone());
                let (expected_y, expected_sum) = norm.composed(wide.clone(), other.clone(), gamma2);
                assert!(
                    difference(sum.clone(), expected_sum.clone()) < 1e-6,
                    "{at}: sum"
                );
                let off = difference(y.clone().cast(DType::F32), expected_y.clone());
                assert!(off < 4.0 * unit, "{at}: y is off by {off}");

                let of = loss(y, sum).backward();
                let (dx, dresidual) = (x.grad(&of).unwrap(), residual.grad(&of).unwrap());
                assert_eq!((dx.dtype(), dresidual.dtype()), (dtype, DType::F32), "{at}");
                let of = loss(expected_y, expected_sum).backward();
                let expected = [wide.grad(&of).unwrap(), other.grad(&of).unwrap()];
                let largest = values(expected[0].clone()).into_iter().fold(1.0, f64::max);
                for (actual, expected) in [dx.cast(DType::F32), dresidual].into_iter().zip(expected)
                {
                    let off = difference(actual, expected);
                    assert!(
                        off < 8.0 * unit * largest,
                        "{at}: a gradient is off by {off}"
                    );
                }
            }
        }
    }
}

#[test]
fn results_take_another_dtype() {
    for (name, device) in devices() {
        for (dtype, unit) in NARROW {
            if !supports(name, &device, dtype) {
                continue;
            }
            let narrow: FloatDType = dtype.into();
            let device = device.clone().autodiff();
            let x = noise([6, 40], 1, &device).require_grad();
            let gamma = noise([40], 2, &device);
            let options = NormOptions::new().with_output_dtype(narrow);
            let y = cubenorm::rms_norm_with(x.clone(), gamma.clone(), &options);
            assert_eq!(y.dtype(), dtype, "{name}");
            let expected = cubenorm::rms_norm(x.clone(), gamma.clone(), 1e-5);
            let off = difference(y.clone().cast(DType::F32), expected.clone());
            assert!(off < 4.0 * unit, "{name} {dtype:?}: y is off by {off}");
            let weights = noise([6, 40], 3, &device);
            let of = (y.cast(DType::F32) * weights.clone()).sum().backward();
            let dx = x.grad(&of).expect("it is tracked");
            assert_eq!(dx.dtype(), DType::F32, "{name}");
            let of = (expected * weights).sum().backward();
            let off = difference(dx, x.grad(&of).expect("it is tracked"));
            assert!(off < 8.0 * unit, "{name} {dtype:?}: dx is off by {off}");

            // Wider than the input, and of a sum.
            let x = noise([6, 40], 1, &device).cast(dtype);
            let wide = NormOptions::new().with_output_dtype(FloatDType::F32);
            let y = cubenorm::layer_norm_with(x.clone(), None, None, &wide);
            assert_eq!(y.dtype(), DType::F32, "{name}");
            let expected = cubenorm::layer_norm(x.clone().cast(DType::F32), None, None, 1e-5);
            assert!(difference(y, expected) < 1e-4, "{name} {dtype:?}");
            let (y, sum) = cubenorm::add_layer_norm_with(x.clone(), x, None, None, &wide);
            assert_eq!((y.dtype(), sum.dtype()), (DType::F32, dtype), "{name}");
        }
    }
}

#[test]
fn dtypes_that_do_not_mix_are_errors() {
    for (name, device) in devices() {
        if !supports(name, &device, DType::F64) {
            continue;
        }
        let x = noise([2, 8], 1, &device);
        let residual = x.clone().cast(DType::F64);
        let error = cubenorm::try_add_rms_norm(x.clone(), residual, None, 1e-5).unwrap_err();
        let message =
            "residual has dtype f64: expected f16 or bf16 or f32, as the input has dtype f32";
        assert_eq!(error.to_string(), message, "{name}");
        let options = NormOptions::new().with_output_dtype(FloatDType::F64);
        let error = cubenorm::try_rms_norm_with(x, None, &options).unwrap_err();
        let message =
            "output has dtype f64: expected f16 or bf16 or f32, as the input has dtype f32";
        assert_eq!(error.to_string(), message, "{name}");
    }
}

#[test]
fn modulated_sums_agree_with_their_formula() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let shapes = [Some([4, 1, 9]), Some([4, 6, 1]), Some([4, 6, 9]), None];
        for (gate_shape, norm) in shapes.into_iter().zip(Norm::ALL.repeat(2)) {
            let at = format!("{name} {norm:?} {gate_shape:?}");
            let leaf = |shape, seed| noise(shape, seed, &device).require_grad();
            let (x, residual) = (leaf([4, 6, 9], 1), leaf([4, 6, 9], 2));
            let gate = gate_shape.map(|shape| leaf(shape, 3));
            let (scale, shift) = (leaf([4, 1, 9], 4), leaf([4, 1, 9], 5));
            let loss = |(y, sum): Both<3>| (y.square() * sum.clone().tanh() + sum.square()).sum();
            let ours = match norm {
                Norm::Layer => cubenorm::add_modulated_layer_norm::<3>,
                Norm::Rms => cubenorm::add_modulated_rms_norm::<3>,
            };
            let run = |x: &Tensor<3>| {
                ours(
                    x.clone(),
                    residual.clone(),
                    gate.clone(),
                    scale.clone(),
                    shift.clone(),
                    1e-3,
                )
            };
            let results = run(&x);
            let plain = run(&x.clone().detach());
            assert!(difference(results.0.clone(), plain.0) < 1e-5, "{at}");
            let actual = loss(results).backward();

            let branch = match &gate {
                Some(gate) => x.clone() * gate.clone(),
                None => x.clone(),
            };
            let ones = noise([9], 6, &device).ones_like();
            let (y, sum) = norm.composed(branch, residual.clone(), ones);
            let y = y * (scale.clone() + 1.0) + shift.clone();
            let expected = loss((y, sum)).backward();
            let mut tensors = vec![x, residual, scale, shift];
            tensors.extend(gate);
            for (which, tensor) in tensors.into_iter().enumerate() {
                let (a, e) = (
                    tensor.grad(&actual).unwrap(),
                    tensor.grad(&expected).unwrap(),
                );
                let largest = values(e.clone())
                    .into_iter()
                    .fold(1.0_f64, |a, b| a.max(b.abs()));
                let off = difference(a, e);
                assert!(
                    off < 5e-4 * largest,
                    "{at}: gradient {which} is off by {off}"
                );
            }
        }
    }
}

#[test]
fn a_zero_block_learns_its_gates() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let block = cubenorm::nn::AdaLayerNormZeroConfig::new(8, 3).init(&device);
        let (x, condition) = (noise([2, 5, 8], 1, &device), noise([2, 3], 2, &device));
        let (h, rest) = block.forward(x.clone(), condition.clone());
        let (h, sum) = rest.add(h.sin(), x.clone());
        let y = rest.end(h.cos(), sum);
        assert!(
            difference(y.clone(), x) < 1e-6,
            "{name}: it begins as the identity"
        );
        let of = y.square().sum().backward();
        let gradient = block
            .modulation
            .weight
            .val()
            .grad(&of)
            .expect("it is tracked");
        let parts: Vec<f64> = gradient
            .chunk(6, 1)
            .into_iter()
            .map(|it| values(it).into_iter().fold(0.0_f64, |a, b| a.max(b.abs())))
            .collect();
        // The gates have gradients from the first step on. The shifts and scales that they silence have none yet.
        let is_there: Vec<bool> = parts.iter().map(|it| *it > 1e-6).collect();
        assert_eq!(
            is_there,
            [false, false, true, false, false, true],
            "{name}: {parts:?}"
        );
        let other = noise([2, 4], 2, &device);
        let error = block
            .try_forward(noise([2, 5, 8], 1, &device), other)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "condition has shape [2, 4]: expected [2, 3]",
            "{name}"
        );
    }
}
