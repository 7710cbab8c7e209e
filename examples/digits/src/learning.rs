//! Training of the network, and checks of the result.

use anyhow::Result;
use burn::module::Module;
use burn::optim::{SgdConfig, momentum::MomentumConfig};
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::training::{
    Check, Random, Run, Schedule, Trainer, cross_entropy, largest_difference, losses_agree,
};
use cubenorm_example_common::{Norms, read};

use crate::digits::{Batch, CLASSES, Digits, Picture};
use crate::members;
use crate::network::Network;
use crate::norms::Layer;

/// Peak learning rate.
const LEARNING_RATE: f64 = 0.1;
/// Pictures per step.
pub const BATCH: usize = 64;
/// Seed of the initial weights and of the order of pictures.
const SEED: u64 = 42;

/// Minimum accuracy on the test data.
pub const ACCURACY: f32 = 0.96;
/// Largest difference between the accuracies of two networks.
pub const ACCURACY_TOLERANCE: f32 = 0.005;
/// Largest difference of running statistics after the first epoch. They are of order one.
pub const STATISTICS_TOLERANCE: f32 = 1e-3;

/// Settings of a training.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Norm of the network.
    pub layer: Layer,
    /// Number of epochs.
    pub epochs: usize,
    /// Members that share each batch of the network with cubenorm's norms.
    pub devices: usize,
}

/// Result of a training.
#[derive(Debug, Clone)]
pub struct Learned {
    /// Measurements of the training.
    pub run: Run,
    /// Accuracy on the test data.
    pub accuracy: f32,
    /// Running statistics of all batch norms after the first epoch, if any.
    pub statistics: Vec<f32>,
}

/// Trains a network with each implementation of norms, from the same weights on the same batches.
///
/// Several [members] train the network of cubenorm's norms if the settings say so.
///
/// # Errors
///
/// If the device fails.
pub fn learn(
    digits: &Digits,
    settings: Settings,
    kinds: &[Norms],
    device: &Device,
) -> Result<Vec<Learned>> {
    let device = device.clone().autodiff();
    device.seed(SEED);
    let untrained = Network::new(settings.layer, &device);
    // Weights are initialized lazily: do it before the network is copied.
    untrained.forward(Batch::new(&digits.training[..1], &device).pixels);
    let is_alone = |norms: &&Norms| settings.devices == 1 || **norms == Norms::Burn;
    let trainers: Vec<_> = kinds
        .iter()
        .filter(is_alone)
        .map(|&norms| {
            let optimizer = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
            Trainer::new(
                norms,
                untrained.with_norms(norms),
                optimizer.init(),
                &device,
            )
        })
        .collect();

    let schedule = Schedule {
        epochs: settings.epochs,
        steps: digits.training.len() / BATCH,
        rate: LEARNING_RATE,
    };
    let mut statistics = vec![Vec::new(); trainers.len()];
    let upload = |epoch| {
        let batches = batches(&digits.training, epoch).into_iter();
        batches.map(|batch| Batch::new(&batch, &device)).collect()
    };
    let trainers = schedule.train(trainers, upload, loss, |epoch, trainers| {
        if epoch == 0 {
            statistics = trainers
                .iter()
                .map(|trainer| running_statistics(trainer.model()))
                .collect::<Result<_>>()?;
        }
        Ok(())
    })?;

    let batch = Batch::new(digits.training.iter().take(BATCH), &device);
    let mut learned = trainers
        .into_iter()
        .zip(statistics)
        .map(|(trainer, statistics)| {
            let accuracy = accuracy(trainer.model(), &digits.test, &device)?;
            let trainer = trainer.measure_memory(|network| loss(network, &batch))?;
            Ok(Learned {
                run: trainer.run().clone(),
                accuracy,
                statistics,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if kinds.iter().any(|norms| !is_alone(&norms)) {
        let batches = |epoch| batches(&digits.training, epoch);
        let trained = members::train(&untrained, settings.devices, schedule, batches, &device)?;
        learned.push(Learned {
            accuracy: accuracy(&trained.network, &digits.test, &device)?,
            run: trained.run,
            statistics: trained.statistics,
        });
    }
    Ok(learned)
}

/// Checks of trained networks. Accuracy is checked only after a complete training.
pub fn checks(learned: &[Learned], to_the_end: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    for Learned { run, accuracy, .. } in learned.iter().filter(|_| to_the_end) {
        checks.push(Check {
            text: format!(
                "accuracy with norms by {}: {:.2} %, at least {:.2} %",
                run.norms,
                100.0 * accuracy,
                100.0 * ACCURACY
            ),
            passed: *accuracy >= ACCURACY,
        });
    }
    if let [one, other] = learned {
        checks.push(losses_agree(&one.run, &other.run));
        if !one.statistics.is_empty() {
            checks.push(Check::at_most(
                "largest difference of running statistics after the first epoch",
                largest_difference(&one.statistics, &other.statistics),
                STATISTICS_TOLERANCE,
            ));
        }
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

/// Batches of pictures in an order that depends on the epoch only, without a partial batch.
pub fn batches(pictures: &[Picture], epoch: usize) -> Vec<Vec<Picture>> {
    let mut order: Vec<usize> = (0..pictures.len()).collect();
    Random::new(SEED + epoch as u64).shuffle(&mut order);
    order
        .chunks_exact(BATCH)
        .map(|chunk| chunk.iter().map(|&index| pictures[index].clone()).collect())
        .collect()
}

fn loss(network: &Network, batch: &Batch) -> Tensor<1> {
    cross_entropy(network.forward(batch.pixels.clone()), batch.digits.clone())
}

fn accuracy(network: &Network, pictures: &[Picture], device: &Device) -> Result<f32> {
    let network = network.valid();
    let forward = |pixels| network.forward(pixels);
    accuracy_of(forward, pictures, &device.clone().inner())
}

/// Fraction of the pictures that a network classifies correctly. `forward` returns the logits of all classes.
///
/// # Errors
///
/// If the device fails.
pub fn accuracy_of(
    forward: impl Fn(Tensor<4>) -> Tensor<2>,
    pictures: &[Picture],
    device: &Device,
) -> Result<f32> {
    let mut right = 0;
    for chunk in pictures.chunks(BATCH) {
        // Padded to the tuned batch size.
        let batch = Batch::new(chunk.iter().chain(pictures).take(BATCH), device);
        let logits = read(forward(batch.pixels))?;
        let told = logits.chunks_exact(CLASSES).map(largest);
        let told = told.zip(chunk);
        right += told
            .filter(|(told, picture)| *told == usize::from(picture.digit))
            .count();
    }
    Ok(right as f32 / pictures.len() as f32)
}

fn running_statistics(network: &Network) -> Result<Vec<f32>> {
    network.statistics().map_or(Ok(Vec::new()), read)
}

/// Index of the largest value.
fn largest(values: &[f32]) -> usize {
    let pairs = values.iter().enumerate();
    pairs
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map_or(0, |(index, _)| index)
}
