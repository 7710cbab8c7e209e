//! Results against Burn's own layers, for inputs of all layouts.

use burn::nn;
use burn::tensor::{DType, Tensor};
use cubenorm::nn::{GroupNormConfig, InstanceNormConfig, LayerNormConfig, RmsNormConfig};
use cubenorm::{Activation, Lp, MeanVarianceOptions};

use crate::{activations, devices, difference, noise, supports, values};

#[test]
fn layers_agree_with_burn() {
    for (name, device) in devices() {
        let x = noise([3, 5, 96], 1, &device);
        let ours = LayerNormConfig::new(96).init(&device).forward(x.clone());
        let burns = nn::LayerNormConfig::new(96)
            .init(&device)
            .forward(x.clone());
        assert!(difference(ours, burns) < 1e-5, "{name}: layer norm");

        let ours = LayerNormConfig::new(96).with_bias(false).init(&device);
        let burns = nn::LayerNormConfig::new(96).with_bias(false).init(&device);
        let (ours, burns) = (ours.forward(x.clone()), burns.forward(x.clone()));
        assert!(
            difference(ours, burns) < 1e-5,
            "{name}: layer norm without bias"
        );

        let ours = RmsNormConfig::new(96).init(&device).forward(x.clone());
        let burns = nn::RmsNormConfig::new(96).init(&device).forward(x);
        assert!(difference(ours, burns) < 1e-5, "{name}: RMS norm");

        let x = noise([2, 6, 7, 9], 2, &device);
        for affine in [true, false] {
            let ours = InstanceNormConfig::new(6).with_affine(affine).init(&device);
            let burns = nn::InstanceNormConfig::new(6)
                .with_affine(affine)
                .init(&device);
            let (ours, burns) = (ours.forward(x.clone()), burns.forward(x.clone()));
            assert!(difference(ours, burns) < 1e-5, "{name}: instance norm");
        }
    }
}

#[test]
fn defaults_and_display_are_burns() {
    let (_, device) = devices().remove(0);
    let ours = LayerNormConfig::new(6);
    let burns = nn::LayerNormConfig::new(6);
    assert_eq!((ours.epsilon, ours.bias), (burns.epsilon, burns.bias));
    assert_eq!(
        ours.init(&device).to_string(),
        burns.init(&device).to_string()
    );
    assert_eq!(
        RmsNormConfig::new(6).init(&device).to_string(),
        nn::RmsNormConfig::new(6).init(&device).to_string()
    );
    assert_eq!(
        InstanceNormConfig::new(6).init(&device).to_string(),
        nn::InstanceNormConfig::new(6).init(&device).to_string()
    );
}

#[test]
fn residual_is_added_first_and_the_sum_returned() {
    for (name, device) in devices() {
        let (x, residual) = (noise([4, 33], 3, &device), noise([4, 33], 4, &device));
        let (gamma, beta) = (noise([33], 5, &device), noise([33], 6, &device));
        let sum = x.clone() + residual.clone();
        let expected = cubenorm::layer_norm(sum.clone(), gamma.clone(), beta.clone(), 1e-5);
        let (y, s) =
            cubenorm::add_layer_norm(x.clone(), residual.clone(), gamma.clone(), beta, 1e-5);
        assert!(difference(y, expected) < 1e-5, "{name}");
        assert!(difference(s, sum.clone()) < 1e-6, "{name}");
        let expected = cubenorm::rms_norm(sum.clone(), gamma.clone(), 1e-5);
        let (y, s) = cubenorm::add_rms_norm(x, residual, gamma, 1e-5);
        assert!(difference(y, expected) < 1e-5, "{name}");
        assert!(difference(s, sum) < 1e-6, "{name}");
    }
}

#[test]
fn views_give_the_results_of_copies() {
    for (name, device) in devices() {
        let x = noise([6, 8, 16], 7, &device);
        let views = [
            x.clone().swap_dims(0, 2),
            x.clone().permute([1, 0, 2]),
            x.clone().slice([1..5, 2..8, 4..12]),
            x.clone().slice([0..6, 0..1, 0..16]).expand([6, 8, 16]),
        ];
        for (i, view) in views.into_iter().enumerate() {
            for axes in [vec![2], vec![0], vec![0, 1]] {
                let options = MeanVarianceOptions::new(axes.clone());
                let copy = Tensor::<3>::from_data(view.clone().into_data(), &device);
                let expected = cubenorm::mean_variance_norm(copy, None, None, &options);
                let actual = cubenorm::mean_variance_norm(view.clone(), None, None, &options);
                assert!(
                    difference(actual, expected) < 1e-5,
                    "{name}: view {i} over {axes:?}"
                );
            }
        }
    }
}

#[test]
fn neighbouring_operations_stay_right_under_fusion() {
    for (name, device) in devices() {
        let x = noise([8, 64], 8, &device);
        let before = x.clone() * 2.0 + 1.0;
        let y = cubenorm::layer_norm(before, None, None, 1e-5).exp() - 0.5;
        let plain = Tensor::<2>::from_data((x * 2.0 + 1.0).into_data(), &device);
        let norm = cubenorm::layer_norm(plain, None, None, 1e-5);
        let expected = Tensor::<2>::from_data(norm.into_data(), &device).exp() - 0.5;
        assert!(difference(y, expected) < 1e-4, "{name}");
    }
}

#[test]
fn f16_and_bf16_take_parameters_of_either_dtype() {
    for (name, device) in devices() {
        for dtype in [DType::F16, DType::BF16] {
            if !supports(name, &device, dtype) {
                println!("{name}: skipped {dtype:?}, which the device does not have");
                continue;
            }
            let x = noise([4, 64], 9, &device);
            let gamma = noise([64], 10, &device);
            let half = x.cast(dtype);
            let exact = half.clone().cast(DType::F32);
            let expected = cubenorm::layer_norm(
                exact,
                gamma.clone().cast(dtype).cast(DType::F32),
                None,
                1e-5,
            );
            for gamma in [
                gamma.clone().cast(dtype),
                gamma.clone().cast(dtype).cast(DType::F32),
            ] {
                let y = cubenorm::layer_norm(half.clone(), gamma, None, 1e-5);
                assert_eq!(y.dtype(), dtype);
                let error = difference(y.cast(DType::F32), expected.clone());
                assert!(error < 0.05, "{name} {dtype:?}: {error}");
            }
        }
    }
}

#[test]
fn fused_activations_agree_on_all_devices() {
    for (name, device) in devices() {
        let x = noise([3, 4, 10], 11, &device);
        let plain = MeanVarianceOptions::new([1, 2]);
        let normalized = values(cubenorm::mean_variance_norm(x.clone(), None, None, &plain));
        // If both of its conditions hold, the first wins.
        let both = Activation::Shrink {
            bias: 0.0,
            threshold: -0.5,
        };
        for activation in activations().chain([both]) {
            let options = plain.clone().with_activation(activation);
            let actual = values(cubenorm::mean_variance_norm(
                x.clone(),
                None,
                None,
                &options,
            ));
            for (x, y) in normalized.iter().zip(actual) {
                let expected = cubenorm_reference::activate(activation, *x);
                assert!(
                    (y - expected).abs() < 1e-5,
                    "{name} {activation}: {y} for {expected}"
                );
            }
        }
    }
}

#[test]
fn empty_tensors_stay_empty() {
    for (name, device) in devices() {
        let y = cubenorm::layer_norm(Tensor::<2>::zeros([0, 8], &device), None, None, 1e-5);
        assert_eq!(y.dims(), [0, 8], "{name}");
    }
}

#[test]
fn statistics_keep_reduced_axes() {
    for (name, device) in devices() {
        let x = noise([3, 4, 5, 6], 40, &device);
        let scale = noise([4, 1, 6], 41, &device).unsqueeze::<4>();
        let options = MeanVarianceOptions::new([1, 3]).with_epsilon(1e-3);
        let result =
            cubenorm::mean_variance_norm_with_statistics(x.clone(), scale.clone(), None, &options);
        assert_eq!(result.mean.dims(), [3, 1, 5, 1]);
        let mean = x.clone().mean_dims(&[1, 3]);
        let centered = x - mean.clone();
        let variance = centered.clone().powf_scalar(2.0).mean_dims(&[1, 3]);
        let rstd = (variance + 1e-3).sqrt().recip();
        assert!(difference(result.mean, mean) < 1e-5, "{name}: mean");
        assert!(difference(result.rstd, rstd.clone()) < 1e-4, "{name}: rstd");
        let error = difference(result.output, centered * rstd * scale);
        assert!(error < 1e-4, "{name}: output is off by {error}");
    }
}

#[test]
fn provided_statistics_and_lp_norms_match_formulas() {
    for (name, device) in devices() {
        let x = || noise([3, 4, 5], 50, &device);
        let (mean, variance) = (
            noise([1, 4, 1], 51, &device),
            noise([3, 1, 5], 52, &device).abs(),
        );
        let scale = noise([1, 1, 5], 53, &device);
        let y = cubenorm::broadcast_batch_norm(
            x(),
            mean.clone(),
            variance.clone(),
            scale.clone(),
            None,
            1e-2,
            Activation::Identity,
        );
        let expected = (x() - mean) / (variance + 1e-2).sqrt() * scale;
        assert!(difference(y, expected) < 1e-4, "{name}: batch norm");

        let y = cubenorm::lp_norm(x(), Lp::L2, 1);
        let expected = x() / x().powf_scalar(2.0).sum_dim(1).sqrt();
        assert!(difference(y, expected) < 1e-5, "{name}: L2");
        let y = cubenorm::lp_norm(x(), Lp::L1, 2);
        let expected = x() / x().abs().sum_dim(2);
        assert!(difference(y, expected) < 1e-5, "{name}: L1");
    }
}

#[test]
fn batch_norm_takes_parameters_of_independent_dtypes() {
    for (name, device) in devices() {
        if !supports(name, &device, DType::F16) {
            println!("{name}: skipped f16, which the device does not have");
            continue;
        }
        let half = |seed| noise::<1>([6], seed, &device).cast(DType::F16);
        let given = [half(61), half(62), half(63), half(64).abs()];
        let x = noise([2, 6, 5], 60, &device).cast(DType::F16);
        let normalized = |are_wide: usize| {
            let [gamma, beta, mean, variance] = std::array::from_fn(|i| match are_wide & 1 << i {
                0 => given[i].clone(),
                _ => given[i].clone().cast(DType::F32),
            });
            let y = cubenorm::batch_norm(x.clone(), gamma, beta, mean, variance, 1e-3);
            assert_eq!(y.dtype(), DType::F16, "{name}");
            y.cast(DType::F32)
        };
        let [gamma, beta, mean, variance] = given
            .each_ref()
            .map(|tensor| tensor.clone().cast(DType::F32).reshape([1, 6, 1]));
        let centered = x.clone().cast(DType::F32) - mean;
        let expected = centered / (variance + 1e-3).sqrt() * gamma + beta;
        for are_wide in 0..1 << given.len() {
            let error = difference(normalized(are_wide), expected.clone());
            assert!(error < 1e-2, "{name}: {are_wide:04b} is off by {error}");
        }
    }
}

#[test]
fn channels_last_agrees_with_burn() {
    for (name, device) in devices() {
        let x = noise([2, 9, 7, 12], 3, &device).permute([0, 3, 1, 2]);
        let ours = GroupNormConfig::new(4, 12).init(&device).forward(x.clone());
        let burns = nn::GroupNormConfig::new(4, 12).init(&device);
        let burns = burns.forward(x.clone());
        assert!(difference(ours, burns) < 1e-5, "{name}: group norm");

        let ours = InstanceNormConfig::new(12).init(&device);
        let burns = nn::InstanceNormConfig::new(12).init(&device);
        let (ours, burns) = (ours.forward(x.clone()), burns.forward(x));
        assert!(difference(ours, burns) < 1e-5, "{name}: instance norm");
    }
}

#[test]
fn inputs_that_are_still_needed_keep_their_values() {
    for (name, device) in devices() {
        let x = noise([32, 96], 17, &device);
        let before = values(x.clone());
        // The first is the only one to have its input.
        let only = || noise([32, 96], 17, &device);
        let expected = values(cubenorm::rms_norm(x.clone(), None, 1e-5));
        let results = [
            cubenorm::rms_norm(only(), None, 1e-5),
            cubenorm::rms_norm(x.clone(), None, 1e-5),
            cubenorm::rms_norm(only() * 1.0, None, 1e-5),
            cubenorm::rms_norm(x.clone().slice([0..32, 0..96]), None, 1e-5),
        ];
        for result in results {
            assert_eq!(values(result), expected, "{name}");
        }
        assert_eq!(values(x), before, "{name}");
    }
}
