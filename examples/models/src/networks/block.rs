//! The transformer block of three of the networks.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Tensor};

use crate::norms::RowNorm;

/// Attention and a feed-forward network, each followed by a residual addition and a norm.
///
/// A pre-norm block is cut after the norm instead of before it, so that each addition meets the
/// norm that follows it. The operations are the same.
#[derive(Module, Debug)]
pub(super) struct Block {
    attention: Attention,
    attention_norm: RowNorm,
    expand: Linear,
    shrink: Linear,
    output_norm: RowNorm,
}

/// What a block passes on: the normalized sum, and the residual of the next addition.
pub(super) type Stream = (Tensor<3>, Tensor<3>);

impl Block {
    /// A block of this width, whose norms `norm` makes.
    pub(super) fn new(
        d_model: usize,
        heads: usize,
        norm: impl Fn() -> RowNorm,
        device: &Device,
    ) -> Self {
        Self {
            attention: Attention::new(d_model, heads, device),
            attention_norm: norm(),
            expand: linear(d_model, 4 * d_model, device),
            shrink: linear(4 * d_model, d_model, device),
            output_norm: norm(),
        }
    }

    /// A block of a post-norm encoder, as BERT's: normalized sums are the residuals.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch, tokens, d_model]`
    pub(super) fn forward_post(&self, input: Tensor<3>) -> Tensor<3> {
        let attended = self.attention.forward(input.clone(), false);
        let (hidden, _sum) = self.attention_norm.forward_add(attended, input);
        let output = self.feed_forward(hidden.clone());
        self.output_norm.forward_add(output, hidden).0
    }

    /// A block of a causal pre-norm decoder, as GPT-2's.
    ///
    /// # Shapes
    ///
    /// - tensors: `[batch, tokens, d_model]`
    pub(super) fn forward_pre(&self, (normalized, sum): Stream) -> Stream {
        let attended = self.attention.forward(normalized, true);
        self.after_attention(attended, sum)
    }

    /// [`forward_pre`](Self::forward_pre) of one token, whose key and value go into `cache`.
    pub(super) fn forward_cached(
        &self,
        (normalized, sum): Stream,
        cache: &mut Cache,
        position: usize,
    ) -> Stream {
        let attended = self.attention.forward_cached(normalized, cache, position);
        self.after_attention(attended, sum)
    }

    fn after_attention(&self, attended: Tensor<3>, sum: Tensor<3>) -> Stream {
        let (normalized, sum) = self.attention_norm.forward_add(attended, sum);
        let output = self.feed_forward(normalized);
        self.output_norm.forward_add(output, sum)
    }

    fn feed_forward(&self, input: Tensor<3>) -> Tensor<3> {
        self.shrink.forward(gelu(self.expand.forward(input)))
    }
}

/// Keys and values of the tokens of one block, `[batch, heads, tokens, d_model / heads]` each.
#[derive(Debug)]
pub(super) struct Cache {
    keys: Tensor<4>,
    values: Tensor<4>,
}

impl Cache {
    /// A cache with these contents.
    pub(super) fn new(keys: Tensor<4>, values: Tensor<4>) -> Self {
        Self { keys, values }
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
    fn new(d_model: usize, heads: usize, device: &Device) -> Self {
        let linear = || linear(d_model, d_model, device);
        Self {
            query: linear(),
            key: linear(),
            value: linear(),
            output: linear(),
            heads,
        }
    }

    /// Input and output: `[batch, tokens, d_model]`.
    fn forward(&self, input: Tensor<3>, is_causal: bool) -> Tensor<3> {
        let options = AttentionModuleOptions {
            is_causal,
            ..Default::default()
        };
        let [query, key, value] = self.project(input);
        self.merge(attention(query, key, value, None, None, options))
    }

    /// Input and output: `[batch, 1, d_model]`.
    fn forward_cached(&self, input: Tensor<3>, cache: &mut Cache, position: usize) -> Tensor<3> {
        let [query, key, value] = self.project(input);
        let [batch, heads, tokens, size] = key.dims();
        let place = [0..batch, 0..heads, position..position + tokens, 0..size];
        let Cache { keys, values } = cache;
        keys.inplace(|keys| keys.slice_assign(place.clone(), key));
        values.inplace(|values| values.slice_assign(place, value));
        let (key, value) = (keys.clone(), values.clone());
        self.merge(attention(query, key, value, None, None, Default::default()))
    }

    /// Query, key and value: `[batch, heads, tokens, d_model / heads]` each.
    fn project(&self, input: Tensor<3>) -> [Tensor<4>; 3] {
        let [batch, tokens, d_model] = input.dims();
        let shape = [batch, tokens, self.heads, d_model / self.heads];
        [&self.query, &self.key, &self.value].map(|linear| {
            let projected = linear.forward(input.clone());
            projected.reshape(shape).swap_dims(1, 2)
        })
    }

    fn merge(&self, context: Tensor<4>) -> Tensor<3> {
        let [batch, heads, tokens, size] = context.dims();
        let merged = context.swap_dims(1, 2);
        self.output
            .forward(merged.reshape([batch, tokens, heads * size]))
    }
}

fn linear(from: usize, to: usize, device: &Device) -> Linear {
    LinearConfig::new(from, to).init(device)
}
