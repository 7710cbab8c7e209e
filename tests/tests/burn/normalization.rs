//! `Normalization`: every variant against Burn's, by config, record and conversion.

use burn::module::Module;
use burn::nn;
use burn::store::ModuleRecord;
use burn::tensor::Device;
use cubenorm::nn::{
    BatchNormConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig, Normalization,
    NormalizationConfig, RmsNormConfig, from_burn,
};
use cubenorm::{NormError, Rounding};

use crate::{devices, difference, noise};

/// Configs of 12 features, of either library.
fn configs() -> Vec<(NormalizationConfig, nn::norm::NormalizationConfig)> {
    let ours: [NormalizationConfig; 6] = [
        NormalizationConfig::Identity,
        BatchNormConfig::new(0).with_epsilon(1e-3).into(),
        GroupNormConfig::new(3, 0).into(),
        InstanceNormConfig::new(0).into(),
        LayerNormConfig::new(0).with_bias(false).into(),
        RmsNormConfig::new(0).into(),
    ];
    let burns: [nn::norm::NormalizationConfig; 6] = [
        nn::norm::NormalizationConfig::Identity,
        nn::BatchNormConfig::new(0).with_epsilon(1e-3).into(),
        nn::GroupNormConfig::new(3, 0).into(),
        nn::InstanceNormConfig::new(0).into(),
        nn::LayerNormConfig::new(0).with_bias(false).into(),
        nn::RmsNormConfig::new(0).into(),
    ];
    let pairs = ours.into_iter().zip(burns);
    pairs
        .map(|(ours, burns)| (ours.with_num_features(12), burns.with_num_features(12)))
        .collect()
}

fn saved(module: impl Module) -> ModuleRecord {
    let bytes = module.into_record().into_bytes().unwrap();
    ModuleRecord::from_bytes(bytes).unwrap()
}

/// A layer of Burn's whose parameters are not the initial ones.
fn randomized(config: &nn::norm::NormalizationConfig, device: &Device) -> nn::norm::Normalization {
    let random = |seed| noise([12], seed, device);
    let mut norm = config.init(device);
    match &mut norm {
        nn::norm::Normalization::Batch(norm) => norm.gamma = norm.gamma.clone().map(|_| random(2)),
        nn::norm::Normalization::Group(norm) => {
            norm.gamma = norm.gamma.take().map(|gamma| gamma.map(|_| random(3)));
        }
        nn::norm::Normalization::Layer(norm) => norm.gamma = norm.gamma.clone().map(|_| random(4)),
        nn::norm::Normalization::Rms(norm) => norm.gamma = norm.gamma.clone().map(|_| random(5)),
        _ => {}
    }
    norm
}

#[test]
fn every_variant_computes_what_burn_does() {
    for (name, device) in devices() {
        for (ours, burns) in configs() {
            let at = format!("{name} {ours:?}");
            let x = noise([2, 12, 12], 1, &device);
            let theirs = randomized(&burns, &device);
            let expected = theirs.forward(x.clone());
            let loaded = ours.init(&device).load_record(saved(theirs.clone()));
            let converted: Normalization = from_burn(theirs);
            for norm in [loaded, converted] {
                let features = match norm {
                    Normalization::Identity(_) => 0,
                    _ => 12,
                };
                assert_eq!(norm.num_features(), features, "{at}");
                assert_eq!(norm.num_features(), ours.num_features(), "{at}");
                let actual = norm.try_forward(x.clone()).unwrap();
                assert!(difference(actual, expected.clone()) < 1e-5, "{at}");
                let back = norm.into_burn();
                assert!(
                    difference(back.forward(x.clone()), expected.clone()) < 1e-5,
                    "{at}"
                );
            }
        }
    }
}

#[test]
fn configs_are_saved_as_burn_saves_them() {
    use burn::config::{Config, config_to_json};
    for (ours, burns) in configs() {
        let json = config_to_json(&burns);
        let loaded = NormalizationConfig::load_binary(json.as_bytes()).unwrap();
        assert_eq!(loaded.num_features(), ours.num_features(), "{json}");
        assert_eq!(config_to_json(&loaded), config_to_json(&ours));
    }
}

#[test]
fn bad_input_of_a_variant_is_a_typed_error() {
    for (name, device) in devices() {
        for (config, _) in configs() {
            let norm = config.init(&device);
            if matches!(norm, Normalization::Identity(_)) {
                continue;
            }
            let refused = norm.try_forward(noise([2, 5, 5], 1, &device));
            assert!(
                matches!(refused, Err(NormError::Shape { .. })),
                "{name} {config:?}"
            );
        }
    }
}

#[test]
fn a_weight_with_an_offset_starts_at_one() {
    for (name, device) in devices() {
        let x = || noise([3, 24], 1, &device);
        let expected = RmsNormConfig::new(24).init(&device).forward(x());
        let norm = RmsNormConfig::new(24).with_offset(1.0).init(&device);
        assert!(
            difference(norm.forward(x()), expected.clone()) < 1e-6,
            "{name}"
        );
        // Records keep the weight as it is, and Burn's layer has the sum.
        let plain = RmsNormConfig::new(24).init(&device);
        let plain = plain.load_record(saved(norm.clone()));
        assert_eq!(crate::values(plain.gamma.val()), [0.0; 24], "{name}");
        let burns = norm.into_burn().forward(x());
        assert!(difference(burns, expected) < 1e-6, "{name}");

        let expected = LayerNormConfig::new(24).init(&device).forward(x());
        let config = LayerNormConfig::new(24)
            .with_offset(1.0)
            .with_rounding(Rounding::BeforeScale);
        let norm = config.init(&device);
        assert!(
            difference(norm.forward(x()), expected.clone()) < 1e-6,
            "{name}"
        );
        let burns = norm.into_burn().forward(x());
        assert!(difference(burns, expected) < 1e-6, "{name}");
    }
}

#[test]
fn layers_show_an_offset_and_a_rounding() {
    for (_, device) in devices() {
        let plain = RmsNormConfig::new(6).init(&device).to_string();
        assert!(!plain.contains("offset"), "{plain}");
        let config = RmsNormConfig::new(6)
            .with_offset(1.0)
            .with_rounding(Rounding::BeforeScale);
        let shown = config.init(&device).to_string();
        assert!(shown.contains("offset: 1"), "{shown}");
        assert!(shown.contains("rounding: BeforeScale"), "{shown}");
    }
}

#[test]
fn residuals_have_an_offset_too() {
    for (name, device) in devices() {
        let config = RmsNormConfig::new(24).with_offset(0.5);
        let norm = config.init(&device);
        let (x, residual) = (noise([3, 24], 1, &device), noise([3, 24], 2, &device));
        let (y, sum) = norm.try_forward_add(x.clone(), residual.clone()).unwrap();
        let expected = norm.forward(x.clone() + residual.clone());
        assert!(difference(y, expected) < 1e-5, "{name}");
        assert!(difference(sum, x + residual) < 1e-6, "{name}");
    }
}

#[test]
fn an_infinite_offset_is_a_typed_error() {
    for (name, device) in devices() {
        let options = cubenorm::NormOptions::new().with_offset(f64::INFINITY);
        let x = noise([3, 24], 1, &device);
        let gamma = noise([24], 2, &device);
        let refused = cubenorm::try_rms_norm_with(x, gamma, &options);
        let error = refused.expect_err("it is refused").to_string();
        assert_eq!(error, "offset is inf: expected a finite number", "{name}");
    }
}
