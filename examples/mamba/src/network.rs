//! The network: a digit as a sequence of pixels, and blocks of Mamba-2.

use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::activation::softplus;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::Norms;
use digits::digits::{CLASSES, SIDE};

use crate::norms::{GatedNorm, InputNorm};

/// Pixels of a token, adjacent in a row.
const PIXELS: usize = 4;
/// Tokens of a digit.
const LENGTH: usize = SIDE * SIDE / PIXELS;
/// Size of an embedding.
const D_MODEL: usize = 64;
/// Size inside a block.
const D_INNER: usize = 2 * D_MODEL;
/// Size of a state.
const STATE: usize = 16;
/// Heads of a block.
const HEADS: usize = 4;
/// Groups of the gated norm.
const GROUPS: usize = 2;
/// Blocks.
const BLOCKS: usize = 2;
/// Range of the initial logarithms of the decays' rates.
const RATES: (f64, f64) = (0.0, 2.0);
/// Logarithm of the share of tokens that come later.
const LATER: f64 = -1e4;

/// A classifier of handwritten digits.
#[derive(Module, Debug)]
pub struct Network {
    embedding: Linear,
    positions: Param<Tensor<2>>,
    blocks: Vec<Block>,
    last_norm: InputNorm,
    head: Linear,
}

/// A block of Mamba-2, without its short convolution.
#[derive(Module, Debug)]
struct Block {
    norm: InputNorm,
    /// To gate, values, keys, queries, and a step of each head.
    expand: Linear,
    step_bias: Param<Tensor<1>>,
    log_rate: Param<Tensor<1>>,
    skip: Param<Tensor<1>>,
    gated_norm: GatedNorm,
    shrink: Linear,
}

impl Network {
    /// An untrained network with Burn's norms.
    pub fn new(device: &Device) -> Self {
        let positions = Initializer::Normal {
            mean: 0.0,
            std: 1.0,
        };
        Self {
            embedding: LinearConfig::new(PIXELS, D_MODEL).init(device),
            positions: positions.init([LENGTH, D_MODEL], device),
            blocks: (0..BLOCKS).map(|_| Block::new(device)).collect(),
            last_norm: InputNorm::new(D_MODEL, device),
            head: LinearConfig::new(D_MODEL, CLASSES).init(device),
        }
    }

    /// A copy of the network with norms of this implementation.
    pub fn with_norms(&self, norms: Norms) -> Self {
        let network = self.clone();
        match norms {
            Norms::Burn => network,
            Norms::Cubenorm => Self {
                blocks: network.blocks.into_iter().map(Block::into_fused).collect(),
                last_norm: network.last_norm.into_fused(),
                ..network
            },
        }
    }

    /// Logits of the classes.
    ///
    /// # Shapes
    ///
    /// - pixels: `[batch, 1, SIDE, SIDE]`
    /// - output: `[batch, CLASSES]`
    pub fn forward(&self, pixels: Tensor<4>) -> Tensor<2> {
        let [batch, ..] = pixels.dims();
        let tokens = self
            .embedding
            .forward(pixels.reshape([batch, LENGTH, PIXELS]));
        let tokens = tokens + self.positions.val().unsqueeze::<3>();
        let tokens = self
            .blocks
            .iter()
            .fold(tokens, |tokens, block| block.forward(tokens));
        let mean = self.last_norm.forward(tokens).mean_dim(1);
        self.head.forward(mean.squeeze_dim::<2>(1))
    }
}

impl Block {
    fn new(device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let (min, max) = RATES;
        Self {
            norm: InputNorm::new(D_MODEL, device),
            expand: linear(D_MODEL, 2 * D_INNER + 2 * STATE + HEADS),
            step_bias: Initializer::Zeros.init([HEADS], device),
            log_rate: Initializer::Uniform { min, max }.init([HEADS], device),
            skip: Initializer::Ones.init([HEADS], device),
            gated_norm: GatedNorm::new(D_INNER, GROUPS, device),
            shrink: linear(D_INNER, D_MODEL),
        }
    }

    fn into_fused(self) -> Self {
        Self {
            norm: self.norm.into_fused(),
            gated_norm: self.gated_norm.into_fused(),
            ..self
        }
    }

    /// Input and output: `[batch, length, D_MODEL]`.
    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let [batch, length, _] = input.dims();
        let expanded = self.expand.forward(self.norm.forward(input.clone()));
        let part = |start, size| expanded.clone().narrow(2, start, size);
        let (gate, values) = (part(0, D_INNER), part(D_INNER, D_INNER));
        let (keys, queries) = (part(2 * D_INNER, STATE), part(2 * D_INNER + STATE, STATE));
        let steps = part(2 * D_INNER + 2 * STATE, HEADS) + self.step_bias.val().unsqueeze();
        let steps = softplus(steps, 1.0).swap_dims(1, 2);

        let rates = self.log_rate.val().exp().reshape([1, HEADS, 1]);
        let decays = decays(-(steps.clone() * rates), length);
        let scores = queries.matmul(keys.swap_dims(1, 2)).unsqueeze_dim::<4>(1) * decays;
        let values = values.reshape([batch, length, HEADS, D_INNER / HEADS]);
        let values = values.swap_dims(1, 2);
        let skipped = values.clone() * self.skip.val().reshape([1, HEADS, 1, 1]);
        let scanned = scores.matmul(values * steps.unsqueeze_dim(3)) + skipped;
        let scanned = scanned.swap_dims(1, 2).reshape([batch, length, D_INNER]);
        input + self.shrink.forward(self.gated_norm.forward(scanned, gate))
    }
}

/// The share of each earlier token that is left at each token: `exp` of the sum of logarithms in between, and 0 for later tokens.
///
/// # Shapes
///
/// - logarithms: `[batch, HEADS, length]`
/// - output: `[batch, HEADS, length, length]`
fn decays(logarithms: Tensor<3>, length: usize) -> Tensor<4> {
    let ones = Tensor::<2>::ones([length, length], &logarithms.device());
    let later = ones.clone().triu(1) * LATER;
    let sums = logarithms.matmul(ones.triu(0).unsqueeze::<3>());
    let between = sums.clone().unsqueeze_dim::<4>(3) - sums.unsqueeze_dim::<4>(2);
    (between + later.unsqueeze::<4>()).exp()
}
