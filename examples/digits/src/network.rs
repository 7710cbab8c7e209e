//! The network: a convolution, three residual blocks, and a linear layer over the average.
//!
//! The activation is SiLU because it is smooth. With ReLU, values within a roundoff of zero would
//! make trainings with different roundings diverge within a few steps.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::silu;
use burn::tensor::{Device, Tensor};
use cubenorm::distributed::Collective;
use cubenorm_example_common::Norms;

use crate::digits::CLASSES;
use crate::norms::{Layer, Norm};

/// Channels of all hidden layers.
///
/// Channels and resolution are constant, since CubeCL tunes each size of a convolution. On a CPU
/// Vulkan device that takes longer than the training.
const CHANNELS: usize = 16;
/// Number of residual blocks.
const BLOCKS: usize = 3;

/// A residual network for pictures of digits.
#[derive(Module, Debug)]
pub struct Network {
    stem: Conv2d,
    stem_norm: Norm,
    blocks: Vec<Block>,
    head: Linear,
}

/// A residual block of two convolutions, each with a norm.
#[derive(Module, Debug)]
struct Block {
    first: Conv2d,
    first_norm: Norm,
    second: Conv2d,
    second_norm: Norm,
}

impl Network {
    /// An untrained network with Burn's norms.
    pub fn new(layer: Layer, device: &Device) -> Self {
        Self {
            stem: conv(1, device),
            stem_norm: Norm::new(layer, CHANNELS, device),
            blocks: (0..BLOCKS).map(|_| Block::new(layer, device)).collect(),
            head: LinearConfig::new(CHANNELS, CLASSES).init(device),
        }
    }

    /// A copy with norms of this implementation, which shares no trainable state.
    pub fn with_norms(&self, norms: Norms) -> Self {
        // A clone would share the running statistics.
        let network = self.valid().train();
        match norms {
            Norms::Burn => network,
            Norms::Cubenorm => network.into_fused(),
        }
    }

    /// Replaces all norms by cubenorm's. Nothing else is needed to convert a model.
    fn into_fused(self) -> Self {
        self.map_norms(Norm::into_fused)
    }

    /// A copy for a member of a group, which shares no trainable state. Its batch norms have the statistics of all
    /// members.
    pub fn for_member(&self, collective: &Arc<dyn Collective>) -> Self {
        let network = self.with_norms(Norms::Cubenorm);
        network.map_norms(|norm| norm.into_sync(collective))
    }

    fn map_norms(self, convert: impl Fn(Norm) -> Norm) -> Self {
        let convert = &convert;
        let blocks = self.blocks.into_iter();
        Self {
            stem_norm: convert(self.stem_norm),
            blocks: blocks.map(|block| block.map_norms(convert)).collect(),
            ..self
        }
    }

    /// Logits of each picture.
    ///
    /// # Shapes
    ///
    /// - pixels: `[pictures, 1, height, width]`
    /// - output: `[pictures, CLASSES]`
    pub fn forward(&self, pixels: Tensor<4>) -> Tensor<2> {
        let stem = silu(self.stem_norm.forward(self.stem.forward(pixels)));
        let features = self
            .blocks
            .iter()
            .fold(stem, |input, block| block.forward(input));
        self.head
            .forward(features.mean_dims(&[2, 3]).flatten::<2>(1, 3))
    }

    /// Running means and variances of all batch norms, concatenated.
    pub fn statistics(&self) -> Option<Tensor<1>> {
        let blocks = self.blocks.iter();
        let norms = blocks.flat_map(|block| [&block.first_norm, &block.second_norm]);
        let statistics: Vec<_> = [&self.stem_norm]
            .into_iter()
            .chain(norms)
            .filter_map(Norm::statistics)
            .flatten()
            .collect();
        (!statistics.is_empty()).then(|| Tensor::cat(statistics, 0))
    }
}

impl Block {
    fn new(layer: Layer, device: &Device) -> Self {
        Self {
            first: conv(CHANNELS, device),
            first_norm: Norm::new(layer, CHANNELS, device),
            second: conv(CHANNELS, device),
            second_norm: Norm::new(layer, CHANNELS, device),
        }
    }

    fn map_norms(self, convert: impl Fn(Norm) -> Norm) -> Self {
        Self {
            first_norm: convert(self.first_norm),
            second_norm: convert(self.second_norm),
            ..self
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let inner = silu(self.first_norm.forward(self.first.forward(input.clone())));
        let output = self.second_norm.forward(self.second.forward(inner));
        silu(output + input)
    }
}

/// A 3x3 convolution that keeps the resolution. It has no bias, since a norm with a bias follows.
fn conv(channels: usize, device: &Device) -> Conv2d {
    Conv2dConfig::new([channels, CHANNELS], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}
