use anyhow::Result;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Int, Tensor};

use super::trainer::Trainer;

/// Steps of the linear warm-up.
const WARM_UP: f64 = 20.0;

/// A training of several models.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Number of epochs.
    pub epochs: usize,
    /// Steps per epoch, which are timed together.
    pub steps: usize,
    /// Peak learning rate.
    pub rate: f64,
}

impl Schedule {
    /// Trains all models on the batches of each epoch, and calls `after` with the epoch's number.
    ///
    /// Epochs alternate between models, so that a throttling machine slows all of them down.
    ///
    /// # Errors
    ///
    /// If the device fails, or `after` does.
    pub fn train<M: Module, B>(
        self,
        mut trainers: Vec<Trainer<M>>,
        mut batches: impl FnMut(usize) -> Vec<B>,
        loss: impl Fn(&M, &B) -> Tensor<1>,
        mut after: impl FnMut(usize, &[Trainer<M>]) -> Result<()>,
    ) -> Result<Vec<Trainer<M>>> {
        for epoch in 0..self.epochs {
            let batches = batches(epoch);
            let loss = |model: &M, step: usize| loss(model, &batches[step % self.steps]);
            let range = epoch * self.steps..(epoch + 1) * self.steps;
            trainers = trainers
                .into_iter()
                .map(|it| it.epoch(range.clone(), |step| self.learning_rate(step), loss))
                .collect::<Result<_>>()?;
            after(epoch, &trainers)?;
        }
        Ok(trainers)
    }

    /// Learning rate of a step: linear warm-up over 20 steps, and linear decay to zero.
    pub fn learning_rate(&self, step: usize) -> f64 {
        rate(self.rate, step, self.epochs * self.steps)
    }
}

/// Cross-entropy loss, `[1]`.
///
/// # Shapes
///
/// - logits: `[items, classes]`
/// - classes: `[items]`
pub fn cross_entropy(logits: Tensor<2>, classes: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits, classes)
}

/// Learning rate of a step of `total`: linear warm-up over 20 steps, and linear decay to zero.
fn rate(largest: f64, step: usize, total: usize) -> f64 {
    let warm = (step + 1) as f64 / WARM_UP;
    let left = 1.0 - step as f64 / total as f64;
    largest * warm.min(1.0) * left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_warms_up_and_decays_to_zero() {
        let rates: Vec<_> = (0..=200).map(|step| rate(3e-3, step, 200)).collect();
        assert!(rates[..20].is_sorted());
        assert!(rates[20..].is_sorted_by(|a, b| a >= b));
        assert!(rates.iter().all(|rate| *rate <= 3e-3));
        assert_eq!(rates[200], 0.0);
    }
}
