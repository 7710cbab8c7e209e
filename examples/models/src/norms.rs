//! The norms of the networks, each in three kinds.

use std::fmt;

use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::activation::silu;
use burn::tensor::{Device, Tensor};
use cubenorm::nn::{AddLayerNorm, AddRmsNorm, BatchNorm, GroupNorm, from_burn};
use cubenorm::{Activation, MeanVarianceOptions};
use serde::{Deserialize, Serialize};

/// Kind of a network's norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Burn's norms.
    Burn,
    /// cubenorm's norms.
    Cubenorm,
    /// No norms: the identity in their places.
    Identity,
}

impl Kind {
    /// All kinds, in the order of the measurements.
    pub const ALL: [Self; 3] = [Self::Burn, Self::Cubenorm, Self::Identity];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Burn => "burn",
            Self::Cubenorm => "cubenorm",
            Self::Identity => "identity",
        })
    }
}

/// A norm over the last axis, alone or after a residual addition. The identity has no parameters.
#[derive(Module, Debug)]
pub struct RowNorm {
    norm: Option<Rows>,
}

#[derive(Module, Debug)]
enum Rows {
    BurnLayer(nn::LayerNorm),
    BurnRms(nn::RmsNorm),
    Layer(AddLayerNorm),
    Rms(AddRmsNorm),
}

impl RowNorm {
    /// A layer norm over the last `d_model` elements.
    pub fn layer(kind: Kind, d_model: usize, epsilon: f64, device: &Device) -> Self {
        let norm = nn::LayerNormConfig::new(d_model).with_epsilon(epsilon);
        Self {
            norm: match kind {
                Kind::Burn => Some(Rows::BurnLayer(norm.init(device))),
                Kind::Cubenorm => Some(Rows::Layer(from_burn(norm.init(device)).into())),
                Kind::Identity => None,
            },
        }
    }

    /// An RMS norm over the last `d_model` elements.
    pub fn rms(kind: Kind, d_model: usize, epsilon: f64, device: &Device) -> Self {
        let norm = nn::RmsNormConfig::new(d_model).with_epsilon(epsilon);
        Self {
            norm: match kind {
                Kind::Burn => Some(Rows::BurnRms(norm.init(device))),
                Kind::Cubenorm => Some(Rows::Rms(from_burn(norm.init(device)).into())),
                Kind::Identity => None,
            },
        }
    }

    /// Normalizes `input`.
    ///
    /// # Shapes
    ///
    /// - input and output: `[..., d_model]`
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match &self.norm {
            Some(Rows::BurnLayer(norm)) => norm.forward(input),
            Some(Rows::BurnRms(norm)) => norm.forward(input),
            Some(Rows::Layer(fused)) => fused.norm.forward(input),
            Some(Rows::Rms(fused)) => fused.norm.forward(input),
            None => input,
        }
    }

    /// Normalizes `input + residual`. Also returns the sum.
    ///
    /// # Shapes
    ///
    /// - input, residual and outputs: `[..., d_model]`
    pub fn forward_add<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        match &self.norm {
            Some(Rows::Layer(fused)) => fused.forward(input, residual),
            Some(Rows::Rms(fused)) => fused.forward(input, residual),
            _ => {
                let sum = input + residual;
                (self.forward(sum.clone()), sum)
            }
        }
    }
}

/// A norm of feature maps. The identity has no parameters.
#[derive(Module, Debug)]
pub struct MapNorm {
    norm: Option<Maps>,
}

#[derive(Module, Debug)]
enum Maps {
    BurnBatch(nn::BatchNorm),
    BurnGroup(nn::GroupNorm),
    Batch(BatchNorm),
    Group(GroupNorm),
}

impl MapNorm {
    /// A batch norm.
    pub fn batch(kind: Kind, channels: usize, device: &Device) -> Self {
        let norm = nn::BatchNormConfig::new(channels);
        Self {
            norm: match kind {
                Kind::Burn => Some(Maps::BurnBatch(norm.init(device))),
                Kind::Cubenorm => Some(Maps::Batch(from_burn(norm.init(device)))),
                Kind::Identity => None,
            },
        }
    }

    /// A group norm.
    pub fn group(kind: Kind, groups: usize, channels: usize, device: &Device) -> Self {
        let norm = nn::GroupNormConfig::new(groups, channels);
        Self {
            norm: match kind {
                Kind::Burn => Some(Maps::BurnGroup(norm.init(device))),
                Kind::Cubenorm => Some(Maps::Group(from_burn(norm.init(device)))),
                Kind::Identity => None,
            },
        }
    }

    /// Normalizes.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch, channels, height, width]`
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match &self.norm {
            Some(Maps::BurnBatch(norm)) => norm.forward(input),
            Some(Maps::BurnGroup(norm)) => norm.forward(input),
            Some(Maps::Batch(norm)) => norm.forward(input),
            Some(Maps::Group(norm)) => norm.forward(input),
            None => input,
        }
    }

    /// SiLU of the normalized input. cubenorm's group norm has it in the same kernel.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch, channels, height, width]`
    pub fn forward_silu(&self, input: Tensor<4>) -> Tensor<4> {
        match &self.norm {
            Some(Maps::Group(norm)) => group_norm_silu(norm, input),
            _ => silu(self.forward(input)),
        }
    }
}

/// A group norm as a mean-variance norm over the channels and positions of a group, which takes an
/// activation.
fn group_norm_silu(norm: &GroupNorm, input: Tensor<4>) -> Tensor<4> {
    let shape = input.dims();
    let [batch, channels, height, width] = shape;
    let (groups, members) = (norm.num_groups, channels / norm.num_groups);
    let param = |param: &Option<Param<Tensor<1>>>| {
        let value = param.as_ref().map(Param::val);
        value.map(|value| value.reshape([1, groups, members, 1, 1]))
    };
    let options = MeanVarianceOptions::new([2, 3, 4])
        .with_epsilon(norm.epsilon)
        .with_activation(Activation::Silu);
    let grouped = input.reshape([batch, groups, members, height, width]);
    let (scale, bias) = (param(&norm.gamma), param(&norm.beta));
    cubenorm::mean_variance_norm(grouped, scale, bias, &options).reshape(shape)
}
