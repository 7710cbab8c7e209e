//! A decode step of a transformer with a KV cache, with random weights.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{Device, Int, Tensor};

use super::block::{Block, Cache};
use super::{Instance, Step, noise, tokens};
use crate::norms::{Kind, RowNorm};

const EPSILON: f64 = 1e-5;

struct Size {
    layers: usize,
    d_model: usize,
    heads: usize,
    words: usize,
    /// Tokens of the cache. The step is that of the last one.
    context: usize,
}

const FULL: Size = Size {
    layers: 12,
    d_model: 768,
    heads: 12,
    words: 50257,
    context: 256,
};

const SMALL: Size = Size {
    layers: 2,
    d_model: 64,
    heads: 4,
    words: 256,
    context: 16,
};

/// A pre-norm decoder with RMS norms. The embedding is the head too.
#[derive(Module, Debug)]
struct Decoder {
    words: Embedding,
    first_norm: RowNorm,
    blocks: Vec<Block>,
}

impl Decoder {
    fn new(size: &Size, kind: Kind, device: &Device) -> Self {
        let norm = || RowNorm::rms(kind, size.d_model, EPSILON, device);
        let block = |_| Block::new(size.d_model, size.heads, norm, device);
        Self {
            words: EmbeddingConfig::new(size.words, size.d_model).init(device),
            first_norm: norm(),
            blocks: (0..size.layers).map(block).collect(),
        }
    }

    /// Input: `[1, 1]`; output: logits, `[1, words]`.
    fn forward(&self, id: Tensor<2, Int>, caches: &mut [Cache], position: usize) -> Tensor<2> {
        let sum = self.words.forward(id);
        let mut stream = (self.first_norm.forward(sum.clone()), sum);
        for (block, cache) in self.blocks.iter().zip(caches) {
            stream = block.forward_cached(stream, cache, position);
        }
        let (normalized, _sum) = stream;
        let head = self.words.weight.val().transpose();
        normalized.flatten::<2>(0, 1).matmul(head)
    }
}

pub(super) fn instance(small: bool, kind: Kind, device: &Device) -> Instance {
    let size = if small { &SMALL } else { &FULL };
    let decoder = Decoder::new(size, kind, device);
    let id = tokens([1, 1], size.words, device);
    let filled = || {
        let shape = [1, size.heads, size.context, size.d_model / size.heads];
        Cache::new(noise(shape, device), noise(shape, device))
    };
    let mut caches: Vec<_> = (0..size.layers).map(|_| filled()).collect();
    let position = size.context - 1;
    Instance {
        step: Step::new(move || decoder.forward(id.clone(), &mut caches, position)),
        shape: format!(
            "{} x {}, 1 x 1 token, cache of {}, f32, inference",
            size.layers, size.d_model, size.context
        ),
        is_training: false,
        tolerance: super::F32_TOLERANCE,
    }
}
