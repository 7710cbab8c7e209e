//! The networks, at full and at small size.

mod block;
mod decode;
mod gpt2;
mod minilm;
mod resnet;
mod unet;

use std::fmt;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use clap::ValueEnum;
use cubenorm_example_common::training::Random;
use serde::{Deserialize, Serialize};

use crate::norms::Kind;

/// Largest relative difference of outputs in f32. Tensor cores round factors to 10 bits.
const F32_TOLERANCE: f64 = 5e-3;
/// The same in f16.
const F16_TOLERANCE: f64 = 2e-2;
/// Largest relative difference of the losses of the first steps. Updates carry the gradients'
/// roundings into the next step.
const TRAINING_TOLERANCE: f64 = 1e-2;

/// Seed of weights and inputs.
const SEED: u64 = 42;

/// A network to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Encoder of MiniLM, inference.
    Minilm,
    /// Training step of GPT-2 small.
    Gpt2,
    /// Training step of ResNet-50.
    Resnet,
    /// Residual block of Stable Diffusion's U-Net, inference.
    Unet,
    /// Decode step of a transformer with a KV cache, inference.
    Decode,
}

impl Network {
    /// All networks.
    pub const ALL: [Self; 5] = [
        Self::Minilm,
        Self::Gpt2,
        Self::Resnet,
        Self::Unet,
        Self::Decode,
    ];

    /// Builds the network with norms of this kind. Weights and inputs are the same for all kinds.
    ///
    /// Burn initializes weights in the first step, so take that before another network is built.
    pub fn build(self, small: bool, kind: Kind, device: &Device) -> Instance {
        device.seed(SEED);
        let instance = match self {
            Self::Minilm => minilm::instance,
            Self::Gpt2 => gpt2::instance,
            Self::Resnet => resnet::instance,
            Self::Unet => unet::instance,
            Self::Decode => decode::instance,
        };
        instance(small, kind, device)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Minilm => "minilm",
            Self::Gpt2 => "gpt2",
            Self::Resnet => "resnet",
            Self::Unet => "unet",
            Self::Decode => "decode",
        })
    }
}

/// A built network.
pub struct Instance {
    /// One pass, or one training step.
    pub step: Step,
    /// Sizes, element type and pass, for people.
    pub shape: String,
    /// True if a step changes the weights.
    pub is_training: bool,
    /// Largest difference between outputs, relative to the largest magnitude.
    pub tolerance: f64,
}

/// One pass of a network, or one training step.
pub struct Step(Box<dyn FnMut() -> Tensor<2>>);

impl Step {
    fn new(run: impl FnMut() -> Tensor<2> + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Forward pass, backward pass and update. The output is the loss before the update.
    fn training<M: Module + 'static>(
        model: M,
        mut optimizer: ModuleOptimizer,
        rate: f64,
        loss: impl Fn(&M) -> Tensor<1> + 'static,
    ) -> Self {
        let mut model = Some(model);
        Self::new(move || {
            let current = model.take().expect("an earlier step panicked");
            let loss = loss(&current);
            let gradients = GradientsParams::from_grads(loss.backward(), &current);
            model = Some(optimizer.step(rate, current, gradients));
            loss.inner().reshape([1, 1])
        })
    }

    /// Queues the step. The output must live until the device is idle: Burn's fusion skips
    /// operations of dropped tensors.
    pub fn run(&mut self) -> Tensor<2> {
        (self.0)()
    }
}

/// Normally distributed values.
fn noise<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Uniformly distributed token ids.
fn tokens([batch, length]: [usize; 2], words: usize, device: &Device) -> Tensor<2, Int> {
    classes(batch * length, words, device).reshape([batch, length])
}

/// Uniformly distributed labels.
fn classes(count: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let mut random = Random::new(SEED);
    let labels: Vec<i32> = (0..count).map(|_| random.below(classes) as i32).collect();
    Tensor::from_data(TensorData::new(labels, [count]), device)
}
