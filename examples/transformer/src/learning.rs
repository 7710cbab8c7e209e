//! How the model learns, and what has to come out.

use anyhow::{Result, anyhow};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::Norms;
use cubenorm_example_common::training::{Check, Random, Run, Trainer, losses_agree, rate};

use crate::model::{Model, Size};
use crate::text::{Batch, Text};

/// The largest learning rate.
const LEARNING_RATE: f64 = 3e-3;
/// Steps that are timed together.
pub const EPOCH: usize = 25;
/// Windows of text that each step learns from.
const WINDOWS: usize = 8;
/// Windows of text that the test takes.
const TEST_WINDOWS: usize = 32;
/// For the weights at first and the windows.
const SEED: u64 = 42;

/// The model that learns.
pub const SIZE: Size = Size {
    layers: 4,
    d_model: 64,
    heads: 4,
    context: 64,
};

/// The share of the first loss that a model has to lose, in a quick training too.
pub const SMALLEST_GAIN: f32 = 0.25;
/// How far the losses of two models may be apart in the test.
pub const TEST_TOLERANCE: f32 = 0.02;

/// A model that has learned.
#[derive(Debug, Clone)]
pub struct Learned {
    /// What was measured meanwhile.
    pub run: Run,
    /// The loss on text that it has never seen: nats for a byte.
    pub test_loss: f32,
}

/// Trains a model with each kind of norm: from the same weights, on the same batches, for `epochs`
/// of [`EPOCH`] steps.
///
/// The kinds take turns, so that a machine that slows down does so for all of them.
///
/// # Errors
///
/// When the device fails.
pub fn learn(text: &Text, epochs: usize, kinds: &[Norms], device: &Device) -> Result<Vec<Learned>> {
    let device = device.clone().autodiff();
    device.seed(SEED);
    let shape = [WINDOWS, SIZE.context];
    let untrained = Model::new(SIZE, &device);
    // Weights are drawn when they are first needed, which has to be before the model is copied.
    untrained.forward(Batch::spread(&text.training, shape, &device).bytes);
    let mut trainers: Vec<_> = kinds
        .iter()
        .map(|&norms| {
            let optimizer = AdamWConfig::new().init();
            Trainer::new(norms, untrained.with_norms(norms), optimizer, &device)
        })
        .collect();

    let total = epochs * EPOCH;
    let mut random = Random::new(SEED);
    for epoch in 0..epochs {
        let batches: Vec<_> = (0..EPOCH)
            .map(|_| Batch::random(&text.training, shape, &mut random, &device))
            .collect();
        let loss = |model: &Model, step: usize| loss(model, &batches[step % EPOCH]);
        let range = epoch * EPOCH..(epoch + 1) * EPOCH;
        trainers = trainers
            .into_iter()
            .map(|trainer| {
                trainer.epoch(range.clone(), |step| rate(LEARNING_RATE, step, total), loss)
            })
            .collect::<Result<_>>()?;
    }

    let batch = Batch::spread(&text.training, shape, &device);
    let test = Batch::spread(
        &text.test,
        [TEST_WINDOWS, SIZE.context],
        &device.clone().inner(),
    );
    trainers
        .into_iter()
        .map(|trainer| {
            let test_loss = loss(&trainer.model().valid(), &test)
                .try_into_scalar::<f32>()
                .map_err(|error| anyhow!("the device failed: {error:?}"))?;
            let trainer = trainer.measure_memory(|model| loss(model, &batch))?;
            Ok(Learned {
                run: trainer.run().clone(),
                test_loss,
            })
        })
        .collect()
}

/// What has to hold of the models that learned.
pub fn checks(learned: &[Learned]) -> Vec<Check> {
    let mut checks: Vec<_> = learned
        .iter()
        .map(|learned| {
            let first = learned.run.losses.first().copied().unwrap_or(f32::NAN);
            let what = format!("test loss with norms by {}", learned.run.norms);
            Check::at_most(&what, learned.test_loss, (1.0 - SMALLEST_GAIN) * first)
        })
        .collect();
    if let [one, other] = learned {
        checks.push(losses_agree(&one.run, &other.run));
        checks.push(Check::at_most(
            "difference of test losses",
            (one.test_loss - other.test_loss).abs(),
            TEST_TOLERANCE,
        ));
    }
    checks
}

/// `[1]`.
fn loss(model: &Model, batch: &Batch) -> Tensor<1> {
    let logits = model.forward(batch.bytes.clone());
    CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits, batch.next.clone())
}
