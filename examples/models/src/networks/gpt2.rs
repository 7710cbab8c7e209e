//! A training step of GPT-2, with random weights, without dropout.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Int, Tensor};
use cubenorm_example_common::training::cross_entropy;

use super::block::Block;
use super::{Instance, Step, tokens};
use crate::norms::{Kind, RowNorm};

const EPSILON: f64 = 1e-5;
const LEARNING_RATE: f64 = 1e-4;
/// Standard deviation of GPT-2's embeddings.
const DEVIATION: f64 = 0.02;

struct Size {
    layers: usize,
    d_model: usize,
    heads: usize,
    words: usize,
    batch: usize,
    tokens: usize,
}

const FULL: Size = Size {
    layers: 12,
    d_model: 768,
    heads: 12,
    words: 50257,
    batch: 8,
    tokens: 512,
};

const SMALL: Size = Size {
    layers: 2,
    d_model: 64,
    heads: 4,
    words: 256,
    batch: 4,
    tokens: 16,
};

/// GPT-2. The embedding is the head too.
#[derive(Module, Debug)]
struct Gpt2 {
    words: Embedding,
    positions: Embedding,
    first_norm: RowNorm,
    blocks: Vec<Block>,
}

impl Gpt2 {
    fn new(size: &Size, kind: Kind, device: &Device) -> Self {
        let initial = Initializer::Normal {
            mean: 0.0,
            std: DEVIATION,
        };
        let table = |rows| {
            EmbeddingConfig::new(rows, size.d_model)
                .with_initializer(initial.clone())
                .init(device)
        };
        let norm = || RowNorm::layer(kind, size.d_model, EPSILON, device);
        let block = |_| Block::new(size.d_model, size.heads, norm, device);
        Self {
            words: table(size.words),
            positions: table(size.tokens),
            first_norm: norm(),
            blocks: (0..size.layers).map(block).collect(),
        }
    }

    /// Input: `[batch, tokens]`; output: logits, `[batch * tokens, words]`.
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let words = self.words.forward(ids);
        let sum = words + self.positions.weight.val().unsqueeze::<3>();
        let first = (self.first_norm.forward(sum.clone()), sum);
        let blocks = self.blocks.iter();
        let (normalized, _sum) = blocks.fold(first, |stream, block| block.forward_pre(stream));
        let head = self.words.weight.val().transpose();
        normalized.flatten::<2>(0, 1).matmul(head)
    }
}

pub(super) fn instance(small: bool, kind: Kind, device: &Device) -> Instance {
    let size = if small { &SMALL } else { &FULL };
    let device = device.clone().autodiff();
    let model = Gpt2::new(size, kind, &device);
    let shape = [size.batch, size.tokens];
    let ids = tokens(shape, size.words, &device);
    let next = tokens(shape, size.words, &device).flatten::<1>(0, 1);
    Instance {
        step: Step::training(
            model,
            AdamWConfig::new().init(),
            LEARNING_RATE,
            move |model| cross_entropy(model.forward(ids.clone()), next.clone()),
        ),
        shape: format!(
            "{} x {}, {} x {} tokens, f32, AdamW",
            size.layers, size.d_model, size.batch, size.tokens
        ),
        is_training: true,
        tolerance: super::TRAINING_TOLERANCE,
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn full_size_is_gpt2_small() {
        // The published model has 1024 positions.
        let published = 124_439_808 - (1024 - FULL.tokens) * FULL.d_model;
        let model = Gpt2::new(&FULL, Kind::Burn, &Device::flex());
        assert_eq!(model.num_params(), published);
    }
}
