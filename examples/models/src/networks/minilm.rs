//! The encoder of all-MiniLM-L6-v2, with random weights.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{Device, Int, Tensor};

use super::block::Block;
use super::{Instance, Step, tokens};
use crate::norms::{Kind, RowNorm};

/// Epsilon of BERT's norms.
const EPSILON: f64 = 1e-12;
/// Numbers of positions and of sentence types.
const POSITIONS: usize = 512;
const TYPES: usize = 2;

struct Size {
    layers: usize,
    d_model: usize,
    heads: usize,
    words: usize,
    sentences: usize,
    tokens: usize,
}

const FULL: Size = Size {
    layers: 6,
    d_model: 384,
    heads: 12,
    words: 30522,
    sentences: 16,
    tokens: 64,
};

const SMALL: Size = Size {
    layers: 2,
    d_model: 64,
    heads: 4,
    words: 256,
    sentences: 4,
    tokens: 16,
};

/// A BERT encoder with mean pooling. All sentences have the same length, so nothing is masked.
#[derive(Module, Debug)]
struct Encoder {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    norm: RowNorm,
    blocks: Vec<Block>,
}

impl Encoder {
    fn new(size: &Size, kind: Kind, device: &Device) -> Self {
        let table = |rows| EmbeddingConfig::new(rows, size.d_model).init(device);
        let norm = || RowNorm::layer(kind, size.d_model, EPSILON, device);
        let block = |_| Block::new(size.d_model, size.heads, norm, device);
        Self {
            words: table(size.words),
            positions: table(POSITIONS),
            types: table(TYPES),
            norm: norm(),
            blocks: (0..size.layers).map(block).collect(),
        }
    }

    /// Input: `[sentences, tokens]`; output: `[sentences, d_model]`, rows of length one.
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let words = self.words.forward(ids);
        let shape = words.dims();
        let positions = self.positions.weight.val().narrow(0, 0, shape[1]);
        let first_type = self.types.weight.val().narrow(0, 0, 1);
        let places = (positions + first_type).unsqueeze::<3>().expand(shape);
        let (first, _sum) = self.norm.forward_add(words, places);
        let hidden = self.blocks.iter();
        let hidden = hidden.fold(first, |hidden, block| block.forward_post(hidden));
        let pooled = hidden.mean_dim(1).squeeze_dim::<2>(1);
        let length = pooled.clone().square().sum_dim(1).sqrt();
        pooled / length
    }
}

pub(super) fn instance(small: bool, kind: Kind, device: &Device) -> Instance {
    let size = if small { &SMALL } else { &FULL };
    let encoder = Encoder::new(size, kind, device);
    let ids = tokens([size.sentences, size.tokens], size.words, device);
    Instance {
        step: Step::new(move || encoder.forward(ids.clone())),
        shape: format!(
            "{} x {}, {} x {} tokens, f32, inference",
            size.layers, size.d_model, size.sentences, size.tokens
        ),
        is_training: false,
        tolerance: super::F32_TOLERANCE,
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn full_size_is_minilm_without_pooler() {
        let pooler = (FULL.d_model + 1) * FULL.d_model;
        let encoder = Encoder::new(&FULL, Kind::Burn, &Device::flex());
        assert_eq!(encoder.num_params(), 22_713_216 - pooler);
    }
}
