//! Conversions between the layers of `burn::nn` and of this crate, with parameters and running statistics.

use burn::module::Param;
use burn::nn;
use burn::tensor::{Device, Tensor};
use cubenorm_core::Rounding;

use super::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Normalization, RmsNorm};

/// A norm of `burn::nn` that has a counterpart here.
pub trait BurnNorm {
    /// The counterpart.
    type Fused;

    /// The same layer, fused.
    fn into_fused(self) -> Self::Fused;
}

/// Converts a norm of `burn::nn`, such as one of a trained model, with its parameters, statistics and settings. Each layer
/// of this crate has an `into_burn` for the opposite direction.
///
/// # Example
///
/// ```
/// use burn::tensor::Device;
///
/// # #[cfg(feature = "flex")] {
/// let trained = burn::nn::LayerNormConfig::new(8).init(&Device::flex());
/// let fused: cubenorm::nn::LayerNorm = cubenorm::nn::from_burn(trained);
/// let back: burn::nn::LayerNorm = fused.into_burn();
/// # let _ = back;
/// # }
/// ```
pub fn from_burn<N: BurnNorm>(norm: N) -> N::Fused {
    norm.into_fused()
}

fn device_of(param: &Param<Tensor<1>>) -> Device {
    param.val().device()
}

fn size_of(param: &Param<Tensor<1>>) -> usize {
    let [size] = param.shape().dims();
    size
}

/// A weight that includes its offset.
fn with_offset(gamma: Param<Tensor<1>>, offset: f64) -> Param<Tensor<1>> {
    match offset {
        0.0 => gamma,
        offset => gamma.map(|gamma| gamma + offset),
    }
}

/// Epsilon of a layer norm of Burn's, from its display: the field is private.
fn shown_epsilon(layer: &nn::LayerNorm) -> f64 {
    let text = format!("{layer}");
    text.split("epsilon: ")
        .nth(1)
        .and_then(|rest| {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-+".contains(c)));
            rest[..end.unwrap_or(rest.len())].parse().ok()
        })
        .expect("a layer norm of Burn 0.22 shows its epsilon")
}

impl BurnNorm for nn::LayerNorm {
    type Fused = LayerNorm;

    fn into_fused(self) -> LayerNorm {
        LayerNorm {
            epsilon: shown_epsilon(&self),
            gamma: self.gamma,
            beta: self.beta,
            offset: 0.0,
            rounding: Rounding::None,
        }
    }
}

impl LayerNorm {
    /// The same layer of `burn::nn`. Its `gamma` includes the offset, and it has no rounding.
    pub fn into_burn(self) -> nn::LayerNorm {
        let mut norm = nn::LayerNormConfig::new(size_of(&self.gamma))
            .with_epsilon(self.epsilon)
            .with_bias(self.beta.is_some())
            .init(&device_of(&self.gamma));
        norm.gamma = with_offset(self.gamma, self.offset);
        norm.beta = self.beta;
        norm
    }
}

impl BurnNorm for nn::RmsNorm {
    type Fused = RmsNorm;

    fn into_fused(self) -> RmsNorm {
        RmsNorm {
            gamma: self.gamma,
            epsilon: self.epsilon,
            offset: 0.0,
            rounding: Rounding::None,
        }
    }
}

impl RmsNorm {
    /// The same layer of `burn::nn`. Its `gamma` includes the offset, and it has no rounding.
    pub fn into_burn(self) -> nn::RmsNorm {
        nn::RmsNorm {
            gamma: with_offset(self.gamma, self.offset),
            epsilon: self.epsilon,
        }
    }
}

impl BurnNorm for nn::InstanceNorm {
    type Fused = InstanceNorm;

    fn into_fused(self) -> InstanceNorm {
        InstanceNorm {
            gamma: self.gamma,
            beta: self.beta,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl InstanceNorm {
    /// The same layer of `burn::nn`.
    pub fn into_burn(self) -> nn::InstanceNorm {
        nn::InstanceNorm {
            gamma: self.gamma,
            beta: self.beta,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl BurnNorm for nn::GroupNorm {
    type Fused = GroupNorm;

    fn into_fused(self) -> GroupNorm {
        GroupNorm {
            gamma: self.gamma,
            beta: self.beta,
            num_groups: self.num_groups,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl GroupNorm {
    /// The same layer of `burn::nn`.
    pub fn into_burn(self) -> nn::GroupNorm {
        nn::GroupNorm {
            gamma: self.gamma,
            beta: self.beta,
            num_groups: self.num_groups,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl BurnNorm for nn::BatchNorm {
    type Fused = BatchNorm;

    fn into_fused(self) -> BatchNorm {
        BatchNorm {
            gamma: self.gamma,
            beta: self.beta,
            training: self.training,
            running_mean: self.running_mean,
            running_var: self.running_var,
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl BatchNorm {
    /// The same layer of `burn::nn`, with its pending updates of the running statistics.
    pub fn into_burn(self) -> nn::BatchNorm {
        nn::BatchNorm {
            gamma: self.gamma,
            beta: self.beta,
            training: self.training,
            running_mean: self.running_mean,
            running_var: self.running_var,
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl BurnNorm for nn::norm::Normalization {
    type Fused = Normalization;

    fn into_fused(self) -> Normalization {
        match self {
            Self::Identity(norm) => Normalization::Identity(norm),
            Self::Batch(norm) => Normalization::Batch(norm.into_fused()),
            Self::Group(norm) => Normalization::Group(norm.into_fused()),
            Self::Instance(norm) => Normalization::Instance(norm.into_fused()),
            Self::Layer(norm) => Normalization::Layer(norm.into_fused()),
            Self::Rms(norm) => Normalization::Rms(norm.into_fused()),
            _ => unreachable!("Burn 0.22 has no other variant"),
        }
    }
}

impl Normalization {
    /// The same layer of `burn::nn`.
    pub fn into_burn(self) -> nn::norm::Normalization {
        match self {
            Self::Identity(norm) => nn::norm::Normalization::Identity(norm),
            Self::Batch(norm) => nn::norm::Normalization::Batch(norm.into_burn()),
            Self::Group(norm) => nn::norm::Normalization::Group(norm.into_burn()),
            Self::Instance(norm) => nn::norm::Normalization::Instance(norm.into_burn()),
            Self::Layer(norm) => nn::norm::Normalization::Layer(norm.into_burn()),
            Self::Rms(norm) => nn::norm::Normalization::Rms(norm.into_burn()),
        }
    }
}
