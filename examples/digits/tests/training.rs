//! A short training with both implementations of norms, on the pure-Rust backend unless
//! `BURN_DEVICE` names another device.
#![cfg(feature = "flex")]

use std::env;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cubenorm_example_common::training::{
    AGREEING_STEPS, LOSS_TOLERANCE, largest_difference, losses_agree,
};
use cubenorm_example_common::{Norms, open};
use digits::digits::Digits;
use digits::fetch::{default_folder, fetch};
use digits::learning::{Learned, STATISTICS_TOLERANCE, Settings, checks, learn};
use digits::norms::Layer;

/// Threads share a device's random numbers for weights, so one training runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn both(layer: Layer) -> [Learned; 2] {
    both_on(layer, 1)
}

fn both_on(layer: Layer, devices: usize) -> [Learned; 2] {
    let name = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    let digits = Digits::read(&fetch(&default_folder()).unwrap()).unwrap();
    let settings = Settings {
        layer,
        epochs: 2,
        devices,
    };
    let _guard = alone();
    let kinds = [Norms::Burn, Norms::Cubenorm];
    let learned = learn(
        &digits,
        settings,
        &kinds,
        &open(Some(&name)).unwrap().device,
    );
    learned.unwrap().try_into().unwrap()
}

fn the_losses_fall_together(learned: &[Learned; 2]) {
    let [burn, cubenorm] = learned;
    let agree = losses_agree(&burn.run, &cubenorm.run);
    assert!(agree.passed, "{}", agree.text);
    for Learned { run, .. } in learned {
        assert!(run.losses.len() > AGREEING_STEPS);
        let (first, last) = (run.losses[0], run.last_losses(5));
        assert!(last < 0.95 * first, "{first} to {last}: {:?}", run.losses);
    }
    for check in checks(learned, false) {
        assert!(check.passed, "{}", check.text);
    }
}

#[test]
fn batch_norm_training_matches_burn() {
    let learned = both(Layer::Batch);
    the_losses_fall_together(&learned);

    let [burn, cubenorm] = &learned;
    let largest = largest_difference(&burn.statistics, &cubenorm.statistics);
    assert!(largest <= STATISTICS_TOLERANCE, "{largest}");
    // Mean and variance of 16 channels of 7 norms, which differ from their initial values.
    assert_eq!(burn.statistics.len(), 2 * 16 * 7);
    let start = [[0.0; 16], [1.0; 16]].concat().repeat(7);
    assert!(largest_difference(&burn.statistics, &start) > 0.1);
    // Inference with the running statistics works.
    assert!(burn.accuracy > 0.5 && cubenorm.accuracy > 0.5);
}

#[test]
fn group_norm_training_matches_burn() {
    the_losses_fall_together(&both(Layer::Group));
}

#[test]
fn instance_norm_training_matches_burn() {
    the_losses_fall_together(&both(Layer::Instance));
}

#[test]
fn layer_norm_training_matches_burn() {
    the_losses_fall_together(&both(Layer::Layer));
}

#[test]
fn trainings_of_both_norms_are_independent() {
    let name = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    let device = open(Some(&name)).unwrap().device;
    let digits = Digits::read(&fetch(&default_folder()).unwrap()).unwrap();
    let settings = Settings {
        layer: Layer::Batch,
        epochs: 1,
        devices: 1,
    };
    let _guard = alone();
    let alone = learn(&digits, settings, &[Norms::Cubenorm], &device).unwrap();
    let beside = learn(&digits, settings, &[Norms::Burn, Norms::Cubenorm], &device).unwrap();
    // Networks that share running statistics would differ here.
    let largest = largest_difference(&alone[0].statistics, &beside[1].statistics);
    assert!(largest <= STATISTICS_TOLERANCE, "{largest}");
    let largest = largest_difference(&alone[0].run.losses, &beside[1].run.losses);
    assert!(largest <= LOSS_TOLERANCE, "{largest}");
}

#[test]
fn three_members_train_as_one_device() {
    // 64 pictures in parts of 21, 21 and 22.
    let learned = both_on(Layer::Batch, 3);
    the_losses_fall_together(&learned);
    let [burn, cubenorm] = &learned;
    let largest = largest_difference(&burn.statistics, &cubenorm.statistics);
    assert!(largest <= STATISTICS_TOLERANCE, "{largest}");
}
