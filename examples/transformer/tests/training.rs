//! A short training with both implementations of norms, on the pure-Rust backend unless
//! `BURN_DEVICE` names another device.
#![cfg(feature = "flex")]

use std::env;

use cubenorm_example_common::training::AGREEING_STEPS;
use cubenorm_example_common::{Norms, open};
use transformer::learning::{SIZE, checks, learn};
use transformer::text::Text;

#[test]
fn both_norms_train_alike() {
    let name = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    let text = Text::read(None, SIZE.context).unwrap();
    let device = open(Some(&name)).unwrap().device;
    let kinds = [Norms::Burn, Norms::Cubenorm];
    let learned = learn(&text, 2, &kinds, &device).unwrap();
    assert!(learned[0].run.losses.len() > AGREEING_STEPS);
    // Losses agree step by step, and the test loss decreases by a fourth.
    let checks = checks(&learned);
    assert!(checks.len() >= 4);
    for check in checks {
        assert!(check.passed, "{}", check.text);
    }
}
