//! Training of the network, and checks of the result.

use anyhow::Result;
use burn::module::Module;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::training::{
    Check, Random, Run, Schedule, Trainer, cross_entropy, losses_agree,
};
use cubenorm_example_common::{Norms, read};
use digits::digits::{Batch, CLASSES, Digits, Picture};

use crate::network::Network;

/// Peak learning rate.
const LEARNING_RATE: f64 = 1e-3;
/// Epsilon of AdamW. With its default, gradients as small as rounding errors take whole steps.
const ADAM_EPSILON: f32 = 1e-3;
/// Digits per step.
const BATCH: usize = 64;
/// Seed of the initial weights and of the order of digits.
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
    let upload = |epoch: usize| {
        let mut order: Vec<usize> = (0..digits.training.len()).collect();
        Random::new(SEED + epoch as u64).shuffle(&mut order);
        let pictures = |chunk: &[usize]| {
            let pictures = chunk.iter().map(|&index| &digits.training[index]);
            Batch::new(pictures, &device)
        };
        order.chunks_exact(BATCH).map(pictures).collect()
    };
    let trainers = schedule.train(trainers, upload, loss, |_, _| Ok(()))?;

    let batch = Batch::new(digits.training.iter().take(BATCH), &device);
    trainers
        .into_iter()
        .map(|trainer| {
            let accuracy = accuracy(trainer.model(), &digits.test, &device)?;
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

/// Fraction of the digits that the network classifies correctly.
fn accuracy(network: &Network, pictures: &[Picture], device: &Device) -> Result<f32> {
    let (network, device) = (network.valid(), device.clone().inner());
    let mut right = 0;
    for chunk in pictures.chunks(BATCH) {
        // Padded to the tuned batch size.
        let batch = Batch::new(chunk.iter().chain(pictures).take(BATCH), &device);
        let logits = read(network.forward(batch.pixels))?;
        for (logits, picture) in logits.chunks_exact(CLASSES).zip(chunk) {
            let pairs = logits.iter().enumerate();
            let told = pairs.max_by(|(_, a), (_, b)| a.total_cmp(b));
            right += usize::from(told.is_some_and(|(it, _)| it == usize::from(picture.digit)));
        }
    }
    Ok(right as f32 / pictures.len() as f32)
}
