//! Layers in training, against Burn's own: gradients, running statistics, freezing, conversions.

use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{DType, Device, Gradients, Tensor};
use cubenorm::nn::{
    AdaLayerNormConfig, AddLayerNorm, AddRmsNorm, BatchNormConfig, GroupNormConfig,
    InstanceNormConfig, LayerNormConfig, MeanVarianceNormConfig, RmsNormConfig, from_burn,
};

use crate::{devices, difference, noise, supports, values};

/// Runs the backward pass with a gradient of random numbers.
fn backward<const D: usize>(output: Tensor<D>, device: &Device) -> Gradients {
    let weights = noise(output.dims(), 99, device);
    (output * weights).sum().backward()
}

fn randomized(param: &mut Param<Tensor<1>>, seed: u64, device: &Device) {
    let size = param.dims();
    let values = noise(size, seed, &device.clone().without_autodiff()) * 0.3 + 1.0;
    let values = Tensor::from_data(values.into_data(), device);
    *param = Param::from_tensor(values.require_grad());
}

fn grad(param: &Param<Tensor<1>>, gradients: &Gradients) -> Tensor<1> {
    param.val().grad(gradients).expect("it is tracked")
}

/// Runs a layer of Burn's and its conversion, and compares outputs and all gradients.
macro_rules! same_gradients {
    ($device_name:expr, $device:expr, $burns:expr, $shape:expr, |$layer:ident| [$($param:expr),*]) => {{
        let device = $device;
        let mut burns = $burns.init(device);
        let mut seed = 10;
        {
            let $layer = &mut burns;
            $( seed += 1; randomized($param, seed, device); )*
        }
        let ours = from_burn(burns.clone());
        let x = || noise($shape, 1, device).require_grad();
        let (x_burn, x_ours) = (x(), x());
        let (y_burn, y_ours) = (burns.forward(x_burn.clone()), ours.forward(x_ours.clone()));
        let name = $device_name;
        assert!(difference(y_ours.clone(), y_burn.clone()) < 1e-4, "{name}: output");
        let (g_burn, g_ours) = (backward(y_burn, device), backward(y_ours, device));
        let dx = |x: Tensor<_>, g| x.grad(g).expect("it is tracked");
        let error = difference(dx(x_ours, &g_ours), dx(x_burn, &g_burn));
        assert!(error < 2e-4, "{name}: dx is off by {error}");
        let of_burn = { let mut layer = burns; let $layer = &mut layer; [$( grad($param, &g_burn) ),*] };
        let of_ours = { let mut layer = ours; let $layer = &mut layer; [$( grad($param, &g_ours) ),*] };
        for (ours, burns) in of_ours.into_iter().zip(of_burn) {
            let error = difference(ours, burns);
            assert!(error < 1e-3, "{name}: a parameter's gradient is off by {error}");
        }
    }};
}

#[test]
fn layer_gradients_match_burn() {
    for (name, device) in devices() {
        let device = &device.autodiff();
        same_gradients!(
            name,
            device,
            nn::LayerNormConfig::new(48),
            [6, 5, 48],
            |layer| [&mut layer.gamma, layer.beta.as_mut().unwrap()]
        );
        same_gradients!(
            name,
            device,
            nn::RmsNormConfig::new(48),
            [6, 5, 48],
            |layer| [&mut layer.gamma]
        );
        same_gradients!(
            name,
            device,
            nn::InstanceNormConfig::new(4),
            [3, 4, 5, 6],
            |layer| [layer.gamma.as_mut().unwrap(), layer.beta.as_mut().unwrap()]
        );
        same_gradients!(
            name,
            device,
            nn::GroupNormConfig::new(2, 6),
            [3, 6, 5, 4],
            |layer| [layer.gamma.as_mut().unwrap(), layer.beta.as_mut().unwrap()]
        );
        same_gradients!(
            name,
            device,
            nn::BatchNormConfig::new(4),
            [5, 4, 3, 6],
            |layer| [&mut layer.gamma, &mut layer.beta]
        );
    }
}

#[test]
fn running_statistics_update_as_in_burn() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let config = nn::BatchNormConfig::new(3).with_momentum(0.3);
        let burns = config.init(&device);
        let ours = BatchNormConfig::new(3).with_momentum(0.3).init(&device);
        for step in 0..4 {
            let x = || noise([4, 3, 5], 20 + step, &device);
            burns.forward(x());
            ours.forward(x());
        }
        let error = difference(ours.running_mean.value(), burns.running_mean.value());
        assert!(error < 1e-5, "{name}: running mean is off by {error}");
        let error = difference(ours.running_var.value(), burns.running_var.value());
        assert!(error < 1e-5, "{name}: running variance is off by {error}");

        // Inference normalizes by the running statistics and keeps them.
        let (burns, ours) = (burns.valid(), ours.valid());
        let x = noise([4, 3, 5], 30, &device.without_autodiff());
        let before = values(ours.running_mean.value());
        let error = difference(ours.forward(x.clone()), burns.forward(x));
        assert!(error < 1e-5, "{name}: inference is off by {error}");
        assert_eq!(values(ours.running_mean.value()), before, "{name}");
    }
}

#[test]
fn empty_batches_keep_running_statistics() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let ours = BatchNormConfig::new(3).init(&device);
        ours.forward(noise([4, 3, 5, 5], 1, &device));
        let before = [
            values(ours.running_mean.value()),
            values(ours.running_var.value()),
        ];
        let empty = Tensor::<4>::zeros([0, 3, 5, 5], &device);
        assert_eq!(ours.forward(empty).dims(), [0, 3, 5, 5], "{name}");
        let after = [
            values(ours.running_mean.value()),
            values(ours.running_var.value()),
        ];
        assert_eq!(before, after, "{name}");
    }
}

/// Running statistics after steps with these batches, from 0 and 1, with momentum 0.5.
fn moved(batches: &[Tensor<3>]) -> [Tensor<1>; 2] {
    let device = batches[0].device().without_autodiff();
    let start = [Tensor::zeros([3], &device), Tensor::ones([3], &device)];
    batches.iter().fold(start, |[mean, variance], batch| {
        let x = batch.clone().without_autodiff();
        let [n, _, w] = x.dims();
        let rows = x.swap_dims(0, 1).reshape([3, n * w]);
        let of_batch = rows.clone().mean_dim(1);
        let spread = (rows - of_batch.clone()).powi_scalar(2).mean_dim(1);
        [
            (mean + of_batch.reshape([3])) * 0.5,
            (variance + spread.reshape([3])) * 0.5,
        ]
    })
}

#[test]
fn a_frozen_layer_uses_its_last_training_step() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let config = BatchNormConfig::new(3).with_momentum(0.5);
        let batches = [40, 41].map(|seed| noise([4, 3, 5], seed, &device) + 2.0);
        let x = noise([4, 3, 5], 42, &device);
        let [mean, variance] = moved(&batches);
        let plain = x.clone().without_autodiff();
        let expected = cubenorm::batch_norm(plain.clone(), None, None, mean, variance, 1e-5);

        let layer = config.init(&device);
        for batch in &batches {
            layer.forward(batch.clone());
        }
        // Without `valid()`: inference because the input has no autodiff.
        let error = difference(layer.forward(plain.clone()), expected.clone());
        assert!(error < 1e-4, "{name}: inference is off by {error}");

        let layer = config.init(&device);
        for batch in &batches {
            layer.forward(batch.clone());
        }
        let layer = layer.freeze();
        let error = difference(layer.forward(x).without_autodiff(), expected.clone());
        assert!(error < 1e-4, "{name}: frozen is off by {error}");

        let layer = config.init(&device);
        for batch in &batches {
            layer.forward(batch.clone());
        }
        layer.sync_running_statistics();
        let error = difference(layer.into_burn().forward(plain), expected);
        assert!(error < 1e-4, "{name}: Burn's is off by {error}");
    }
}

#[test]
fn a_frozen_layer_uses_steps_of_other_threads() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let layer = BatchNormConfig::new(3).with_momentum(0.5).init(&device);
        let batch = noise([4, 3, 5], 43, &device) + 2.0;
        let [mean, variance] = moved(std::slice::from_ref(&batch));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(layer.forward(batch)));
        });
        let layer = layer.freeze();
        let x = noise([4, 3, 5], 44, &device);
        let plain = x.clone().without_autodiff();
        let expected = cubenorm::batch_norm(plain, None, None, mean, variance, 1e-5);
        let error = difference(layer.forward(x).without_autodiff(), expected);
        assert!(error < 1e-4, "{name}: off by {error}");
    }
}

#[test]
fn a_frozen_batch_norm_keeps_its_statistics() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let ours = BatchNormConfig::new(3).init(&device).freeze();
        let burns = nn::BatchNormConfig::new(3).init(&device).freeze();
        let x = noise([4, 3, 5], 1, &device);
        let error = difference(ours.forward(x.clone()), burns.forward(x));
        assert!(error < 1e-5, "{name}: off by {error}");
        assert_eq!(values(ours.running_mean.value()), [0.0; 3], "{name}");
        assert_eq!(ours.to_string(), burns.to_string());
    }
}

#[test]
fn batch_norm_of_f16_and_bf16_has_f32_statistics() {
    for (name, device) in devices() {
        for dtype in [DType::F16, DType::BF16] {
            if !supports(name, &device, dtype) {
                println!("{name}: skipped {dtype:?}, which the device does not have");
                continue;
            }
            let tracked = device.clone().autodiff();
            let mut layer = BatchNormConfig::new(3).init(&tracked);
            for param in [&mut layer.gamma, &mut layer.beta] {
                *param = Param::from_tensor(param.val().cast(dtype).detach().require_grad());
            }
            // A variance above the range of f16.
            let x = (noise([8, 3, 5], 31, &tracked) * 900.0).cast(dtype);
            layer.forward(x.clone());

            let numbers = values(x.clone().cast(DType::F32));
            let channels: Vec<Vec<f64>> = (0..3)
                .map(|channel| {
                    let rows = numbers.chunks(5).skip(channel).step_by(3);
                    rows.flatten().copied().collect()
                })
                .collect();
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
            let moved: Vec<(f64, f64)> = channels
                .iter()
                .map(|numbers| {
                    let center = mean(numbers);
                    let squares: Vec<f64> = numbers.iter().map(|x| (x - center).powi(2)).collect();
                    (0.1 * center, 0.9 + 0.1 * mean(&squares))
                })
                .collect();
            assert!(
                moved.iter().any(|(_, variance)| *variance > 6553.5),
                "{moved:?}"
            );
            let means = values(layer.running_mean.value_sync());
            let variances = values(layer.running_var.value_sync());
            for ((mean, variance), (actual, deviation)) in
                moved.iter().zip(means.iter().zip(variances))
            {
                assert!(
                    (actual - mean).abs() < 1e-3,
                    "{name} {dtype:?}: {actual}, not {mean}"
                );
                let error = (deviation / variance - 1.0).abs();
                assert!(
                    error < 1e-5,
                    "{name} {dtype:?}: {deviation}, not {variance}"
                );
            }

            let x = Tensor::<3>::from_data(x.into_data(), (&device, dtype));
            let y = layer.valid().forward(x);
            assert_eq!(y.dtype(), dtype);
            let y = values(y.cast(DType::F32));
            for (i, (y, x)) in y.iter().zip(&numbers).enumerate() {
                let (mean, variance) = moved[i / 5 % 3];
                let expected = (x - mean) / (variance + 1e-5).sqrt();
                let is_close = (y - expected).abs() < 5e-3 * (1.0 + expected.abs());
                assert!(is_close, "{name} {dtype:?} at {i}: {y}, not {expected}");
            }
        }
    }
}

#[test]
fn defaults_and_display_are_burns() {
    let (_, device) = devices().remove(0);
    let (ours, burns) = (BatchNormConfig::new(6), nn::BatchNormConfig::new(6));
    assert_eq!(
        (ours.epsilon, ours.momentum),
        (burns.epsilon, burns.momentum)
    );
    assert_eq!(
        ours.init(&device).to_string(),
        burns.init(&device).to_string()
    );
    let (ours, burns) = (GroupNormConfig::new(2, 6), nn::GroupNormConfig::new(2, 6));
    assert_eq!((ours.epsilon, ours.affine), (burns.epsilon, burns.affine));
    assert_eq!(
        ours.init(&device).to_string(),
        burns.init(&device).to_string()
    );
}

#[test]
fn conversions_restore_the_layer() {
    let (_, device) = devices().remove(0);
    let layer = nn::LayerNormConfig::new(6)
        .with_epsilon(3e-7)
        .with_bias(false);
    let layer = layer.init(&device);
    let text = layer.to_string();
    let ours = from_burn(layer);
    assert_eq!(ours.to_string(), text);
    assert_eq!(ours.into_burn().to_string(), text);
    let layer = nn::BatchNormConfig::new(6)
        .with_momentum(0.25)
        .init(&device);
    let text = layer.to_string();
    assert_eq!(from_burn(layer).into_burn().to_string(), text);
    let layer = nn::GroupNormConfig::new(3, 6)
        .with_affine(false)
        .init(&device);
    let text = layer.to_string();
    assert_eq!(from_burn(layer).into_burn().to_string(), text);
}

#[test]
fn conversions_restore_all_numbers() {
    for (name, device) in devices() {
        let x = || noise([3, 6, 5], 1, &device);
        let random = |seed| Param::from_tensor(noise([6], seed, &device) * 0.3 + 1.0);
        let last = |norm: &nn::LayerNorm| norm.forward(x().swap_dims(1, 2));

        let mut layer = nn::LayerNormConfig::new(6).init(&device);
        (layer.gamma, layer.beta) = (random(2), Some(random(3)));
        let expected = last(&layer);
        let actual = last(&from_burn(layer).into_burn());
        assert!(difference(actual, expected) < 1e-5, "{name}: layer");

        let mut layer = nn::RmsNormConfig::new(6).init(&device);
        layer.gamma = random(2);
        let forward = |norm: &nn::RmsNorm| norm.forward(x().swap_dims(1, 2));
        let expected = forward(&layer);
        let actual = forward(&from_burn(layer).into_burn());
        assert!(difference(actual, expected) < 1e-5, "{name}: RMS");

        let mut layer = nn::GroupNormConfig::new(3, 6).init(&device);
        (layer.gamma, layer.beta) = (Some(random(2)), Some(random(3)));
        let expected = layer.forward(x());
        let actual = from_burn(layer).into_burn().forward(x());
        assert!(difference(actual, expected) < 1e-5, "{name}: group");

        let mut layer = nn::InstanceNormConfig::new(6).init(&device);
        (layer.gamma, layer.beta) = (Some(random(2)), Some(random(3)));
        let expected = layer.forward(x());
        let actual = from_burn(layer).into_burn().forward(x());
        assert!(difference(actual, expected) < 1e-5, "{name}: instance");

        let mut layer = nn::BatchNormConfig::new(6).init(&device);
        (layer.gamma, layer.beta) = (random(2), random(3));
        layer.running_mean.update(noise([6], 4, &device));
        layer.running_var.update(noise([6], 5, &device) + 3.0);
        let expected = layer.forward(x());
        let actual = from_burn(layer).into_burn().forward(x());
        assert!(difference(actual, expected) < 1e-5, "{name}: batch");
    }
}

#[test]
fn modulation_holds_scale_then_shift() {
    for (name, device) in devices() {
        let mut layer = AdaLayerNormConfig::new(6, 4).init(&device);
        let weight = noise([4, 12], 2, &device);
        layer.modulation.weight = Param::from_tensor(weight.clone());
        let (x, condition) = (noise([3, 5, 6], 1, &device), noise([3, 4], 3, &device));
        let modulated = condition.clone().matmul(weight);
        let (scale, shift) = (
            modulated.clone().slice([0..3, 0..6]),
            modulated.slice([0..3, 6..12]),
        );
        let expected = cubenorm::ada_layer_norm(x.clone(), scale, shift, layer.epsilon);
        let error = difference(layer.forward(x, condition), expected);
        assert!(error < 1e-5, "{name}: off by {error}");
    }
}

#[test]
fn mean_is_subtracted_without_a_variance() {
    for (name, device) in devices() {
        let x = noise([3, 5], 1, &device);
        let config = MeanVarianceNormConfig::new(vec![1]).with_normalize_variance(false);
        let centered = x.clone() - x.clone().mean_dim(1);
        let error = difference(config.init::<2>().forward(x), centered);
        assert!(error < 1e-5, "{name}: off by {error}");
    }
}

#[test]
fn records_of_batch_and_group_norm_load_both_ways() {
    use burn::store::ModuleRecord;
    fn saved(module: impl Module) -> ModuleRecord {
        let bytes = module.into_record().into_bytes().unwrap();
        ModuleRecord::from_bytes(bytes).unwrap()
    }
    for (name, device) in devices() {
        let x = noise([3, 4, 5], 1, &device);
        let mut burns = nn::BatchNormConfig::new(4).init(&device);
        burns.gamma = burns.gamma.map(|_| noise([4], 2, &device));
        burns.running_mean.update(noise([4], 3, &device));
        let expected = burns.forward(x.clone());
        let ours = BatchNormConfig::new(4)
            .init(&device)
            .load_record(saved(burns));
        let actual = ours.forward(x.clone());
        assert!(
            difference(actual, expected.clone()) < 1e-5,
            "{name}: batch, from Burn"
        );
        let back = nn::BatchNormConfig::new(4)
            .init(&device)
            .load_record(saved(ours));
        assert!(
            difference(back.forward(x), expected) < 1e-5,
            "{name}: batch, to Burn"
        );

        let x = noise([3, 6, 5], 4, &device);
        let mut burns = nn::GroupNormConfig::new(2, 6).init(&device);
        burns.gamma = burns
            .gamma
            .map(|gamma| gamma.map(|_| noise([6], 5, &device)));
        let expected = burns.forward(x.clone());
        let ours = GroupNormConfig::new(2, 6)
            .init(&device)
            .load_record(saved(burns));
        let actual = ours.forward(x.clone());
        assert!(
            difference(actual, expected.clone()) < 1e-5,
            "{name}: group, from Burn"
        );
        let back = nn::GroupNormConfig::new(2, 6)
            .init(&device)
            .load_record(saved(ours));
        assert!(
            difference(back.forward(x), expected) < 1e-5,
            "{name}: group, to Burn"
        );
    }
}

#[test]
fn fused_residual_and_modulation_gradients_match_parts() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let leaf = |seed| noise([4, 3, 24], seed, &device).require_grad();
        let compare =
            |what: &str, a: [Tensor<3>; 2], b: [Tensor<3>; 2], ga: Gradients, gb: Gradients| {
                for (a, b) in a.into_iter().zip(b) {
                    let error = difference(a.grad(&ga).unwrap(), b.grad(&gb).unwrap());
                    assert!(error < 2e-4, "{name}: {what} is off by {error}");
                }
            };

        let layer = LayerNormConfig::new(24).init(&device);
        let (x, residual) = (leaf(1), leaf(2));
        let (y, sum) = AddLayerNorm::from(layer.clone()).forward(x.clone(), residual.clone());
        let fused = backward(y + sum, &device);
        let (x2, residual2) = (leaf(1), leaf(2));
        let sum = x2.clone() + residual2.clone();
        let parts = backward(layer.forward(sum.clone()) + sum, &device);
        compare(
            "add layer norm",
            [x, residual],
            [x2, residual2],
            fused,
            parts,
        );

        let layer = RmsNormConfig::new(24).init(&device);
        let (x, residual) = (leaf(1), leaf(2));
        let (y, sum) = AddRmsNorm::from(layer.clone()).forward(x.clone(), residual.clone());
        let fused = backward(y + sum, &device);
        let (x2, residual2) = (leaf(1), leaf(2));
        let sum = x2.clone() + residual2.clone();
        let parts = backward(layer.forward(sum.clone()) + sum, &device);
        compare("add RMS norm", [x, residual], [x2, residual2], fused, parts);

        let modulate = |seed| noise([4, 24], seed, &device).require_grad();
        let (x, scale, shift) = (leaf(3), modulate(4), modulate(5));
        let y = cubenorm::ada_layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5);
        let fused = backward(y, &device);
        let (x2, scale2, shift2) = (leaf(3), modulate(4), modulate(5));
        let normalized = cubenorm::layer_norm(x2.clone(), None, None, 1e-5);
        let wide = |t: Tensor<2>| t.reshape([4, 1, 24]);
        let parts = normalized * (wide(scale2.clone()) + 1.0) + wide(shift2.clone());
        let parts = backward(parts, &device);
        let error = difference(x.grad(&fused).unwrap(), x2.grad(&parts).unwrap());
        assert!(error < 2e-4, "{name}: dx is off by {error}");
        for (a, b) in [(scale, scale2), (shift, shift2)] {
            let error = difference(a.grad(&fused).unwrap(), b.grad(&parts).unwrap());
            assert!(
                error < 2e-4,
                "{name}: a modulation's gradient is off by {error}"
            );
        }

        // A modulation of zeros is a plain layer norm.
        let plain = device.clone().without_autodiff();
        let ada = AdaLayerNormConfig::new(24, 5).init(&plain);
        let x = noise([4, 3, 24], 6, &plain);
        let y = ada.forward(x.clone(), noise([4, 5], 7, &plain));
        assert!(
            difference(y, cubenorm::layer_norm(x, None, None, 1e-5)) < 1e-6,
            "{name}"
        );
    }
}

#[test]
fn fused_activations_have_gradients() {
    use cubenorm::{Activation, MeanVarianceOptions};
    for (name, device) in devices() {
        let device = device.autodiff();
        for activation in [
            Activation::Tanh,
            Activation::Silu,
            Activation::LeakyRelu { alpha: 0.1 },
        ] {
            let leaf = || noise([6, 32], 1, &device).require_grad();
            let param = |seed| noise([1, 32], seed, &device).require_grad();
            let (x, scale, bias) = (leaf(), param(2), param(3));
            let options = MeanVarianceOptions::new([1]).with_activation(activation);
            let y = cubenorm::mean_variance_norm(x.clone(), scale.clone(), bias.clone(), &options);
            let fused = backward(y, &device);

            let (x2, scale2, bias2) = (leaf(), param(2), param(3));
            let options = MeanVarianceOptions::new([1]);
            let z =
                cubenorm::mean_variance_norm(x2.clone(), scale2.clone(), bias2.clone(), &options);
            let z = match activation {
                Activation::Tanh => burn::tensor::activation::tanh(z),
                Activation::Silu => burn::tensor::activation::silu(z),
                _ => burn::tensor::activation::leaky_relu(z, 0.1),
            };
            let parts = backward(z, &device);
            for (what, a, b) in [
                ("x", x, x2),
                ("scale", scale, scale2),
                ("bias", bias, bias2),
            ] {
                let error = difference(a.grad(&fused).unwrap(), b.grad(&parts).unwrap());
                assert!(
                    error < 5e-4,
                    "{name} {activation}: d{what} is off by {error}"
                );
            }
        }
    }
}

#[test]
fn untracked_tensors_get_no_gradient() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let x = noise([4, 16], 1, &device);
        let gamma = noise([16], 2, &device).require_grad();
        let beta = noise([16], 3, &device);
        let y = cubenorm::layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5);
        let gradients = backward(y, &device);
        assert!(gamma.grad(&gradients).is_some(), "{name}");
        assert!(
            x.grad(&gradients).is_none() && beta.grad(&gradients).is_none(),
            "{name}"
        );
    }
}

#[test]
fn mean_variance_norm_trains_parameters_of_any_shape() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let norm = MeanVarianceNormConfig::new(vec![0, 2]).init_affine([1, 3, 1], &device);
        let x = noise([4, 3, 5], 1, &device);
        let gradients = backward(norm.forward(x.clone()), &device);
        let scale = norm.scale.as_ref().unwrap().val();
        let batch = BatchNormConfig::new(3).init(&device);
        let expected = backward(batch.forward(x), &device);
        let ours = scale.grad(&gradients).unwrap().reshape([3]);
        let error = difference(ours, batch.gamma.val().grad(&expected).unwrap());
        assert!(error < 2e-4, "{name}: off by {error}");
    }
}

#[test]
fn instance_norm_converts_with_its_settings() {
    let (_, device) = devices().remove(0);
    let layer = nn::InstanceNormConfig::new(3)
        .with_epsilon(1e-3)
        .init(&device);
    let ours = from_burn(layer);
    let expected = InstanceNormConfig::new(3).with_epsilon(1e-3).init(&device);
    assert_eq!(ours.to_string(), expected.to_string());
}

/// A channel norm of `x`, gamma, beta, mean and variance: ours, or composed of Burn's operations.
type Channels = fn(Tensor<4>, [Tensor<1>; 4]) -> Tensor<4>;

/// A view of a tensor.
type Seen = fn(Tensor<4>) -> Tensor<4>;

#[test]
fn channel_norms_have_gradients_of_views_and_all_inputs() {
    fn formula(
        x: Tensor<4>,
        groups: [usize; 4],
        axes: [usize; 2],
        params: [Tensor<1>; 2],
    ) -> Tensor<4> {
        let shape = x.dims();
        let x = x.reshape(groups);
        let over = |x: Tensor<4>| axes.into_iter().fold(x, Tensor::mean_dim);
        let centered = x.clone() - over(x);
        let deviation = (over(centered.clone() * centered.clone()) + 1e-2).sqrt();
        let [gamma, beta] = params.map(|param| param.reshape([1, shape[1], 1, 1]));
        (centered / deviation).reshape(shape) * gamma + beta
    }
    let cases: [(&str, Channels, Channels); 4] = [
        (
            "group norm",
            |x, [gamma, beta, ..]| cubenorm::group_norm(x, gamma, beta, 2, 1e-2),
            |x, [gamma, beta, ..]| {
                let [n, c, h, w] = x.dims();
                formula(x, [n, 2, c / 2, h * w], [2, 3], [gamma, beta])
            },
        ),
        (
            "instance norm",
            |x, [gamma, beta, ..]| cubenorm::instance_norm(x, gamma, beta, 1e-2),
            |x, [gamma, beta, ..]| {
                let shape = x.dims();
                formula(x, shape, [2, 3], [gamma, beta])
            },
        ),
        (
            "batch norm in training",
            |x, [gamma, beta, ..]| cubenorm::batch_norm_train(x, gamma, beta, 1e-2).output,
            |x, [gamma, beta, ..]| {
                let [n, c, h, w] = x.dims();
                formula(x, [n, c, h * w, 1], [0, 2], [gamma, beta])
            },
        ),
        (
            "batch norm",
            |x, [gamma, beta, mean, variance]| {
                cubenorm::batch_norm(x, gamma, beta, mean, variance, 1e-2)
            },
            |x, params| {
                let channels = x.dims()[1];
                let [gamma, beta, mean, variance] =
                    params.map(|param| param.reshape([1, channels, 1, 1]));
                (x - mean) / (variance + 1e-2).sqrt() * gamma + beta
            },
        ),
    ];
    let views: [(&str, Seen); 3] = [
        ("whole", |x| x),
        ("channels last", |x| x.permute([0, 3, 1, 2])),
        ("a slice", |x| x.slice([1..3, 2..8, 0..5, 1..4])),
    ];
    for (name, device) in devices() {
        let device = device.autodiff();
        for ((norm, ours, parts), (view, see)) in cases
            .iter()
            .flat_map(|case| views.iter().map(move |view| (*case, *view)))
        {
            for tracks_statistics in [false, true] {
                let leaves = || {
                    let x = noise([4, 8, 6, 10], 1, &device).require_grad();
                    let seen = see(x.clone());
                    let channels = [seen.dims()[1]];
                    let [gamma, beta] =
                        [2, 3].map(|seed| noise(channels, seed, &device).require_grad());
                    let given = [
                        noise(channels, 4, &device),
                        noise(channels, 5, &device).powi_scalar(2),
                    ];
                    let [mean, variance] = match tracks_statistics {
                        true => given.map(|tensor| tensor.detach().require_grad()),
                        false => given,
                    };
                    (x, seen, [gamma, beta, mean, variance])
                };
                let run = |norm: Channels| {
                    let (x, seen, params) = leaves();
                    let y = norm(seen, params.clone());
                    let gradients = backward(y.clone(), &device);
                    let dx = x.grad(&gradients).expect("it is tracked");
                    (y, dx, params.map(|param| param.grad(&gradients)))
                };
                let (y, dx, params) = run(ours);
                let (expected, expected_dx, expected_params) = run(parts);
                let context =
                    format!("{name}: {norm} of {view}, statistics tracked: {tracks_statistics}");
                assert!(difference(y, expected) < 1e-4, "{context}");
                let error = difference(dx, expected_dx);
                assert!(error < 5e-4, "{context}: dx is off by {error}");
                for (i, (param, expected)) in params.into_iter().zip(expected_params).enumerate() {
                    assert_eq!(
                        param.is_some(),
                        expected.is_some(),
                        "{context}: parameter {i}"
                    );
                    if let (Some(param), Some(expected)) = (param, expected) {
                        let size = expected.clone().abs().max().into_scalar::<f32>() as f64;
                        let error = difference(param, expected) / size.max(1.0);
                        assert!(
                            error < 2e-4,
                            "{context}: the gradient of parameter {i} is off by {error}"
                        );
                    }
                }
            }
        }
    }
}
