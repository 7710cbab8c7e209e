//! Training of the model, and checks of the result.

use anyhow::{Result, anyhow};
use burn::module::Module;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::Norms;
use cubenorm_example_common::training::{
    Check, Random, Run, Schedule, Trainer, cross_entropy, losses_agree,
};

use crate::model::{Model, Size};
use crate::text::{Batch, Text};

/// Peak learning rate.
const LEARNING_RATE: f64 = 3e-3;
/// Steps per epoch, which are timed together.
pub const EPOCH: usize = 25;
/// Windows of text per step.
const WINDOWS: usize = 8;
/// Windows of text in the test.
const TEST_WINDOWS: usize = 32;
/// Seed of the initial weights and of the windows.
const SEED: u64 = 42;

/// Size of the trained model.
pub const SIZE: Size = Size {
    layers: 4,
    d_model: 64,
    heads: 4,
    context: 64,
};

/// Smallest relative decrease of the loss, also in a quick training.
pub const SMALLEST_GAIN: f32 = 0.25;
/// Largest difference between the test losses of two models.
pub const TEST_TOLERANCE: f32 = 0.02;

/// Result of a training.
#[derive(Debug, Clone)]
pub struct Learned {
    /// Measurements of the training.
    pub run: Run,
    /// Loss on the test text, in nats per byte.
    pub test_loss: f32,
    /// The trained model, for inference.
    pub model: Model,
}

/// Trains a model with each implementation of norms for `epochs` of [`EPOCH`] steps.
///
/// They start from the same weights and use the same batches.
///
/// # Errors
///
/// If the device fails.
pub fn learn(text: &Text, epochs: usize, kinds: &[Norms], device: &Device) -> Result<Vec<Learned>> {
    let device = device.clone().autodiff();
    device.seed(SEED);
    let shape = [WINDOWS, SIZE.context];
    let untrained = Model::new(SIZE, &device);
    // Weights are initialized lazily: do it before the model is copied.
    untrained.forward(Batch::spread(&text.training, shape, &device).bytes);
    let trainers: Vec<_> = kinds
        .iter()
        .map(|&norms| {
            let optimizer = AdamWConfig::new().init();
            Trainer::new(norms, untrained.with_norms(norms), optimizer, &device)
        })
        .collect();

    let schedule = Schedule {
        epochs,
        steps: EPOCH,
        rate: LEARNING_RATE,
    };
    let mut random = Random::new(SEED);
    let batches = |_| {
        (0..EPOCH)
            .map(|_| Batch::random(&text.training, shape, &mut random, &device))
            .collect()
    };
    let trainers = schedule.train(trainers, batches, loss, |_, _| Ok(()))?;

    let batch = Batch::spread(&text.training, shape, &device);
    let test = Batch::spread(
        &text.test,
        [TEST_WINDOWS, SIZE.context],
        &device.clone().inner(),
    );
    trainers
        .into_iter()
        .map(|trainer| {
            let model = trainer.model().valid();
            let test_loss = loss(&model, &test)
                .try_into_scalar::<f32>()
                .map_err(|error| anyhow!("the device failed: {error:?}"))?;
            let trainer = trainer.measure_memory(|model| loss(model, &batch))?;
            Ok(Learned {
                run: trainer.run().clone(),
                test_loss,
                model,
            })
        })
        .collect()
}

/// Checks of trained models.
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

fn loss(model: &Model, batch: &Batch) -> Tensor<1> {
    cross_entropy(model.forward(batch.bytes.clone()), batch.next.clone())
}
