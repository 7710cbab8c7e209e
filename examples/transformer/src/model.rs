//! The model: a pre-norm transformer that predicts the next byte.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor};
use cubenorm_example_common::Norms;

use crate::norms::{HeadNorm, ResidualNorm};

/// Vocabulary size: tokens are bytes.
pub const BYTES: usize = 256;
/// Standard deviation of the initial embeddings. With the default of 1, the first losses would be a
/// multiple of the uniform distribution's.
const EMBEDDING_DEVIATION: f64 = 0.02;

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Number of layers.
    pub layers: usize,
    /// Size of an embedding.
    pub d_model: usize,
    /// Heads per attention layer; a divisor of `d_model`.
    pub heads: usize,
    /// Context length in bytes.
    pub context: usize,
}

/// A language model on bytes.
#[derive(Module, Debug)]
pub struct Model {
    bytes: Embedding,
    first_norm: ResidualNorm,
    layers: Vec<Layer>,
    head: Linear,
}

/// Attention and a feed-forward network, each followed by a residual addition and a norm.
///
/// The norm before the next sublayer of a pre-norm transformer is fused with the residual addition
/// of this one.
#[derive(Module, Debug)]
struct Layer {
    attention: Attention,
    attention_norm: ResidualNorm,
    expand: Linear,
    shrink: Linear,
    output_norm: ResidualNorm,
}

/// Causal self-attention with norms of query and key, and rotary position embedding.
#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    head_norm: HeadNorm,
    heads: usize,
}

impl Model {
    /// An untrained model with Burn's norms.
    pub fn new(size: Size, device: &Device) -> Self {
        Self {
            bytes: EmbeddingConfig::new(BYTES, size.d_model)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: EMBEDDING_DEVIATION,
                })
                .init(device),
            first_norm: ResidualNorm::new(size.d_model, device),
            layers: (0..size.layers).map(|_| Layer::new(size, device)).collect(),
            head: LinearConfig::new(size.d_model, BYTES)
                .with_bias(false)
                .init(device),
        }
    }

    /// A copy of the model with norms of this implementation.
    pub fn with_norms(&self, norms: Norms) -> Self {
        match norms {
            Norms::Burn => self.clone(),
            Norms::Cubenorm => self.clone().into_fused(),
        }
    }

    /// Replaces all norms by cubenorm's. Nothing else is needed to convert a model.
    fn into_fused(self) -> Self {
        Self {
            first_norm: self.first_norm.into_fused(),
            layers: self.layers.into_iter().map(Layer::into_fused).collect(),
            ..self
        }
    }

    /// Logits of the next byte.
    ///
    /// # Shapes
    ///
    /// - bytes: `[windows, length]`, the length at most the context
    /// - output: `[windows * length, BYTES]`
    pub fn forward(&self, bytes: Tensor<2, Int>) -> Tensor<2> {
        let sum = self.bytes.forward(bytes);
        let first = (self.first_norm.forward(sum.clone()), sum);
        let (normalized, _sum) = self.layers.iter().fold(first, |(normalized, sum), layer| {
            layer.forward(normalized, sum)
        });
        self.head.forward(normalized.flatten::<2>(0, 1))
    }
}

impl Layer {
    fn new(size: Size, device: &Device) -> Self {
        let d_model = size.d_model;
        let norm = || ResidualNorm::new(d_model, device);
        Self {
            attention: Attention::new(size, device),
            attention_norm: norm(),
            expand: linear(d_model, 4 * d_model, device),
            shrink: linear(4 * d_model, d_model, device),
            output_norm: norm(),
        }
    }

    fn into_fused(self) -> Self {
        Self {
            attention: self.attention.into_fused(),
            attention_norm: self.attention_norm.into_fused(),
            output_norm: self.output_norm.into_fused(),
            ..self
        }
    }

    /// Inputs and outputs: normalized sum and sum, `[windows, length, d_model]` each.
    fn forward(&self, normalized: Tensor<3>, sum: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        let attended = self.attention.forward(normalized);
        let (normalized, sum) = self.attention_norm.forward_add(attended, sum);
        let output = self.shrink.forward(gelu(self.expand.forward(normalized)));
        self.output_norm.forward_add(output, sum)
    }
}

impl Attention {
    fn new(size: Size, device: &Device) -> Self {
        Self {
            query: linear(size.d_model, size.d_model, device),
            key: linear(size.d_model, size.d_model, device),
            value: linear(size.d_model, size.d_model, device),
            output: linear(size.d_model, size.d_model, device),
            head_norm: HeadNorm::new(size.d_model / size.heads, size.context, device),
            heads: size.heads,
        }
    }

    fn into_fused(self) -> Self {
        Self {
            head_norm: self.head_norm.into_fused(),
            ..self
        }
    }

    /// Input and output: `[windows, length, d_model]`.
    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let [windows, length, d_model] = input.dims();
        let part = |projection: &Linear| {
            projection.forward(input.clone()).reshape([
                windows,
                length,
                self.heads,
                d_model / self.heads,
            ])
        };
        let (query, key) = self.head_norm.forward(part(&self.query), part(&self.key));
        let [query, key, value] = [query, key, part(&self.value)].map(|it| it.swap_dims(1, 2));
        let causal = AttentionModuleOptions {
            is_causal: true,
            ..Default::default()
        };
        let context = attention(query, key, value, None, None, causal);
        let merged = context.swap_dims(1, 2).reshape([windows, length, d_model]);
        self.output.forward(merged)
    }
}

/// A linear layer without bias, as usual with RMS norms.
fn linear(from: usize, to: usize, device: &Device) -> Linear {
    LinearConfig::new(from, to).with_bias(false).init(device)
}
