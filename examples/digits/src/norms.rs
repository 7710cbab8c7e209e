//! The norm layers.

use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::nn;
use burn::tensor::{Device, Tensor};
use clap::ValueEnum;
use cubenorm::distributed::Collective;
use cubenorm::nn as fused;
use cubenorm::nn::from_burn;

/// Groups of the group norms.
const GROUPS: usize = 4;

/// Norm of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// Batch norm; with running statistics at inference.
    Batch,
    /// Group norm.
    Group,
    /// Instance norm.
    Instance,
    /// Layer norm over the channels of each spatial position.
    Layer,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Batch => "batch",
            Self::Group => "group",
            Self::Instance => "instance",
            Self::Layer => "layer",
        })
    }
}

/// A norm of Burn or of cubenorm.
#[derive(Module, Debug)]
pub enum Norm {
    /// Burn's batch norm.
    BurnBatch(nn::BatchNorm),
    /// Burn's group norm.
    BurnGroup(nn::GroupNorm),
    /// Burn's instance norm.
    BurnInstance(nn::InstanceNorm),
    /// Burn's layer norm.
    BurnLayer(nn::LayerNorm),
    /// cubenorm's batch norm.
    Batch(fused::BatchNorm),
    /// cubenorm's group norm.
    Group(fused::GroupNorm),
    /// cubenorm's instance norm.
    Instance(fused::InstanceNorm),
    /// cubenorm's layer norm.
    Layer(fused::LayerNorm),
    /// cubenorm's batch norm over several members.
    SyncBatch(fused::SyncBatchNorm),
}

impl Norm {
    /// A new norm of Burn.
    pub fn new(layer: Layer, channels: usize, device: &Device) -> Self {
        match layer {
            Layer::Batch => Self::BurnBatch(nn::BatchNormConfig::new(channels).init(device)),
            Layer::Group => {
                Self::BurnGroup(nn::GroupNormConfig::new(GROUPS, channels).init(device))
            }
            Layer::Instance => {
                Self::BurnInstance(nn::InstanceNormConfig::new(channels).init(device))
            }
            Layer::Layer => Self::BurnLayer(nn::LayerNormConfig::new(channels).init(device)),
        }
    }

    /// Converts the norm to cubenorm.
    pub fn into_fused(self) -> Self {
        match self {
            Self::BurnBatch(norm) => Self::Batch(from_burn(norm)),
            Self::BurnGroup(norm) => Self::Group(from_burn(norm)),
            Self::BurnInstance(norm) => Self::Instance(from_burn(norm)),
            Self::BurnLayer(norm) => Self::Layer(from_burn(norm)),
            fused => fused,
        }
    }

    /// Converts a batch norm to cubenorm, with the statistics of all members. Other norms have no statistics of a batch.
    pub fn into_sync(self, collective: &Arc<dyn Collective>) -> Self {
        match self.into_fused() {
            Self::Batch(norm) => Self::SyncBatch(fused::SyncBatchNorm::from_batch_norm(
                norm,
                collective.clone(),
            )),
            fused => fused,
        }
    }

    /// Normalizes.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch, channels, height, width]`
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match self {
            Self::BurnBatch(norm) => norm.forward(input),
            Self::BurnGroup(norm) => norm.forward(input),
            Self::BurnInstance(norm) => norm.forward(input),
            Self::BurnLayer(norm) => with_channels_last(input, |input| norm.forward(input)),
            Self::Batch(norm) => norm.forward(input),
            Self::Group(norm) => norm.forward(input),
            Self::Instance(norm) => norm.forward(input),
            Self::Layer(norm) => with_channels_last(input, |input| norm.forward(input)),
            Self::SyncBatch(norm) => norm.forward(input),
        }
    }

    /// Running mean and variance of a batch norm, `[channels]` each.
    pub fn statistics(&self) -> Option<[Tensor<1>; 2]> {
        let [mean, variance] = match self {
            Self::BurnBatch(norm) => [&norm.running_mean, &norm.running_var],
            Self::Batch(norm) => [&norm.running_mean, &norm.running_var],
            Self::SyncBatch(norm) => [&norm.running_mean, &norm.running_var],
            _ => return None,
        };
        Some([mean.value_sync(), variance.value_sync()])
    }
}

/// Permutes to channels-last around a norm, since layer norms reduce the last axis.
fn with_channels_last(input: Tensor<4>, norm: impl FnOnce(Tensor<4>) -> Tensor<4>) -> Tensor<4> {
    norm(input.permute([0, 2, 3, 1])).permute([0, 3, 1, 2])
}
