//! The network: a BERT encoder with mean pooling.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::module::attention;
use burn::tensor::{Bool, Device, Tensor};
use serde::Deserialize;

use crate::norms::ResidualNorm;
use crate::tokens::Batch;
use cubenorm_example_common::Norms;

/// Sizes of the network, with the names of `config.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct MiniLmConfig {
    /// Size of a token vector and of the embeddings.
    pub hidden_size: usize,
    /// Number of encoder layers.
    pub num_hidden_layers: usize,
    /// Heads per attention layer.
    pub num_attention_heads: usize,
    /// Hidden size of the feed-forward networks.
    pub intermediate_size: usize,
    /// Maximum number of tokens of a sentence.
    pub max_position_embeddings: usize,
    /// Number of sentence types; a single sentence is of type 0.
    pub type_vocab_size: usize,
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// Epsilon of the norms, inside the square root.
    pub layer_norm_eps: f64,
}

/// A sentence encoder: BERT, its output averaged over the tokens.
#[derive(Module, Debug)]
pub struct MiniLm {
    embeddings: Embeddings,
    layers: Vec<EncoderLayer>,
}

impl MiniLmConfig {
    /// Builds the network; its weights are random until they are loaded.
    pub fn init(&self, device: &Device) -> MiniLm {
        MiniLm {
            embeddings: Embeddings::new(self, device),
            layers: (0..self.num_hidden_layers)
                .map(|_| EncoderLayer::new(self, device))
                .collect(),
        }
    }

    /// Norms per forward pass: one in the embeddings, two in each layer.
    pub fn norm_count(&self) -> usize {
        1 + 2 * self.num_hidden_layers
    }
}

impl MiniLm {
    /// Embeds a batch of sentences as vectors of length one.
    ///
    /// # Shapes
    ///
    /// - output: `[sentences, hidden]`
    pub fn embed(&self, batch: &Batch, norms: Norms) -> Tensor<2> {
        let hidden = self.encode(batch, norms);
        normalize(mean_pool(hidden, batch.mask.clone()))
    }

    /// Runs the encoder.
    ///
    /// # Shapes
    ///
    /// - output: `[sentences, tokens, hidden]`
    fn encode(&self, batch: &Batch, norms: Norms) -> Tensor<3> {
        let hidden = self.embeddings.forward(batch, norms);
        let padding = batch.mask.clone().equal_elem(0.0);
        self.layers.iter().fold(hidden, |hidden, layer| {
            layer.forward(hidden, padding.clone(), norms)
        })
    }

    /// Norm of the embeddings, for separate measurements.
    pub fn first_norm(&self) -> &ResidualNorm {
        &self.embeddings.norm
    }
}

/// Normalized sum of word, position and type vectors.
#[derive(Module, Debug)]
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    norm: ResidualNorm,
}

impl Embeddings {
    fn new(config: &MiniLmConfig, device: &Device) -> Self {
        let table = |rows| EmbeddingConfig::new(rows, config.hidden_size).init(device);
        Self {
            word_embeddings: table(config.vocab_size),
            position_embeddings: table(config.max_position_embeddings),
            token_type_embeddings: table(config.type_vocab_size),
            norm: ResidualNorm::new(config.hidden_size, config.layer_norm_eps, device),
        }
    }

    /// Output: `[sentences, tokens, hidden]`.
    fn forward(&self, batch: &Batch, norms: Norms) -> Tensor<3> {
        let words = self.word_embeddings.forward(batch.ids.clone());
        let shape = words.dims();
        let [_, tokens, _] = shape;

        // Positions 0.. and type 0 are the same for all sentences: computed once and expanded.
        let positions = self.position_embeddings.weight.val().narrow(0, 0, tokens);
        let first_type = self.token_type_embeddings.weight.val().narrow(0, 0, 1);
        let places = (positions + first_type).unsqueeze::<3>().expand(shape);

        self.norm.forward(words, places, norms)
    }
}

/// One layer: attention and a feed-forward network, each added to its input and normalized.
#[derive(Module, Debug)]
struct EncoderLayer {
    attention: Attention,
    attention_norm: ResidualNorm,
    intermediate: Linear,
    output: Linear,
    output_norm: ResidualNorm,
}

impl EncoderLayer {
    fn new(config: &MiniLmConfig, device: &Device) -> Self {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let norm = || ResidualNorm::new(hidden, config.layer_norm_eps, device);
        Self {
            attention: Attention::new(config, device),
            attention_norm: norm(),
            intermediate: LinearConfig::new(hidden, intermediate).init(device),
            output: LinearConfig::new(intermediate, hidden).init(device),
            output_norm: norm(),
        }
    }

    /// Input and output: `[sentences, tokens, hidden]`; padding: `[sentences, tokens]`.
    fn forward(&self, hidden: Tensor<3>, padding: Tensor<2, Bool>, norms: Norms) -> Tensor<3> {
        let attended = self.attention.forward(hidden.clone(), padding);
        let hidden = self.attention_norm.forward(attended, hidden, norms);

        let expanded = gelu(self.intermediate.forward(hidden.clone()));
        let output = self.output.forward(expanded);
        self.output_norm.forward(output, hidden, norms)
    }
}

/// Multi-head self-attention.
#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
}

impl Attention {
    fn new(config: &MiniLmConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let linear = || LinearConfig::new(hidden, hidden).init(device);
        Self {
            query: linear(),
            key: linear(),
            value: linear(),
            output: linear(),
            heads: config.num_attention_heads,
        }
    }

    /// Input and output: `[sentences, tokens, hidden]`; padding: `[sentences, tokens]`, true for
    /// masked tokens.
    fn forward(&self, input: Tensor<3>, padding: Tensor<2, Bool>) -> Tensor<3> {
        let [sentences, tokens, hidden] = input.dims();
        let split = |projected: Tensor<3>| {
            projected
                .reshape([sentences, tokens, self.heads, hidden / self.heads])
                .swap_dims(1, 2)
        };
        let query = split(self.query.forward(input.clone()));
        let key = split(self.key.forward(input.clone()));
        let value = split(self.value.forward(input));
        let mask = padding
            .reshape([sentences, 1, 1, tokens])
            .expand([sentences, self.heads, tokens, tokens]);

        let context = attention(query, key, value, Some(mask), None, Default::default());
        let merged = context.swap_dims(1, 2).reshape([sentences, tokens, hidden]);
        self.output.forward(merged)
    }
}

/// Mean of the token vectors without padding.
///
/// # Shapes
///
/// - hidden: `[sentences, tokens, hidden]`
/// - mask: `[sentences, tokens]`, one for a token and zero for padding
/// - output: `[sentences, hidden]`
pub fn mean_pool(hidden: Tensor<3>, mask: Tensor<2>) -> Tensor<2> {
    let count = mask.clone().sum_dim(1);
    let sum = (hidden * mask.unsqueeze_dim::<3>(2)).sum_dim(1);
    sum.squeeze_dim::<2>(1) / count
}

/// Scales every row to length one.
///
/// # Shapes
///
/// - input and output: `[rows, columns]`
pub fn normalize(rows: Tensor<2>) -> Tensor<2> {
    let length = rows.clone().square().sum_dim(1).sqrt();
    rows / length
}
