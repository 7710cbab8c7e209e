//! Training of the network, and checks of the result.

use anyhow::Result;
use burn::module::Module;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::Norms;
use cubenorm_example_common::training::{
    Check, Run, Schedule, Trainer, cross_entropy, losses_agree,
};
use digits::digits::{Batch, Digits};
use digits::learning::{BATCH, accuracy_of, batches};

use crate::network::Network;

/// Peak learning rate.
const LEARNING_RATE: f64 = 1e-3;
/// Epsilon of AdamW. With its default, gradients as small as rounding errors take whole steps.
const ADAM_EPSILON: f32 = 1e-3;
/// Seed of the initial weights.
const SEED: u64 = 42;

/// Minimum accuracy on the test data.
pub const ACCURACY: f32 = 0.93;
/// Largest difference between the accuracies of two networks.
pub const ACCURACY_TOLERANCE: f32 = 0.02;

/// Result of a training.
#[derive(Debug, Clone)]
pub struct Learned {
    /// Measurements of the training.
    pub run: Run,
    /// Accuracy on the test data.
    pub accuracy: f32,
}

/// Trains a network with each implementation of norms, from the same weights on the same batches.
///
/// # Errors
///
/// If the device fails.
pub fn learn(
    digits: &Digits,
    epochs: usize,
    kinds: &[Norms],
    device: &Device,
) -> Result<Vec<Learned>> {
    let device = device.clone().autodiff();
    device.seed(SEED);
    let untrained = Network::new(&device);
    // Weights are initialized lazily: do it before the network is copied.
    untrained.forward(Batch::new(&digits.training[..1], &device).pixels);
    let trainers: Vec<_> = kinds
        .iter()
        .map(|&norms| {
            let optimizer = AdamWConfig::new().with_epsilon(ADAM_EPSILON).init();
            Trainer::new(norms, untrained.with_norms(norms), optimizer, &device)
        })
        .collect();

    let schedule = Schedule {
        epochs,
        steps: digits.training.len() / BATCH,
        rate: LEARNING_RATE,
    };
    let upload = |epoch| {
        let batches = batches(&digits.training, epoch).into_iter();
        batches.map(|batch| Batch::new(&batch, &device)).collect()
    };
    let trainers = schedule.train(trainers, upload, loss, |_, _| Ok(()))?;

    let batch = Batch::new(digits.training.iter().take(BATCH), &device);
    trainers
        .into_iter()
        .map(|trainer| {
            let network = trainer.model().valid();
            let forward = |pixels| network.forward(pixels);
            let accuracy = accuracy_of(forward, &digits.test, &device.clone().inner())?;
            let trainer = trainer.measure_memory(|network| loss(network, &batch))?;
            let run = trainer.run().clone();
            Ok(Learned { run, accuracy })
        })
        .collect()
}

/// Checks of trained networks. Accuracy is checked only after a complete training.
pub fn checks(learned: &[Learned], to_the_end: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    for Learned { run, accuracy } in learned.iter().filter(|_| to_the_end) {
        let what = format!("wrong on the test data with norms by {}", run.norms);
        checks.push(Check::at_most(&what, 1.0 - accuracy, 1.0 - ACCURACY));
    }
    if let [one, other] = learned {
        checks.push(losses_agree(&one.run, &other.run));
        if to_the_end {
            checks.push(Check::at_most(
                "difference of accuracies",
                (one.accuracy - other.accuracy).abs(),
                ACCURACY_TOLERANCE,
            ));
        }
    }
    checks
}

fn loss(network: &Network, batch: &Batch) -> Tensor<1> {
    cross_entropy(network.forward(batch.pixels.clone()), batch.digits.clone())
}
