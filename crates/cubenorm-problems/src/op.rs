use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

/// The operator under test.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    /// Mean and variance over the last axis; scale and bias of that axis.
    LayerNorm,
    /// Mean square over the last axis; scale of that axis.
    RmsNorm,
    /// Mean and variance over all axes but axis 1; scale and bias per channel, axis 1. The forward
    /// pass alone is inference, with running statistics of 0 and 1; the others train.
    BatchNorm,
    /// Mean and variance over the channels of a group and all axes after them; scale and bias per
    /// channel, axis 1.
    GroupNorm,
    /// Mean and variance over all axes but the first two; scale and bias per channel, axis 1.
    InstanceNorm,
    /// [`RmsNorm`](Self::RmsNorm) whose scale is stored as its difference from 1, as Gemma's.
    OffsetRmsNorm,
    /// [`RmsNorm`](Self::RmsNorm) of the sum of two tensors; the sum is a result too.
    AddRmsNorm,
    /// [`RmsNorm`](Self::RmsNorm), multiplied by the SiLU of a gate: Mamba-2's.
    GatedRmsNorm,
    /// Mean and variance over the last axis; scale and bias of that axis for each sample, axis 0. The scale is stored as
    /// its difference from 1: DiT's modulation.
    ModulatedLayerNorm,
    /// [`GroupNorm`](Self::GroupNorm), then SiLU: a U-Net's.
    SiluGroupNorm,
    /// [`RmsNorm`](Self::RmsNorm) of each head of query and key, which has a quarter of the heads, axis -2. The forward
    /// pass alone.
    QkNorm,
    /// [`RmsNorm`](Self::RmsNorm), rounded to int8 with a scale per row. The forward pass alone.
    QuantizedRmsNorm,
    /// `scale * tanh(alpha * x) + bias`, with scale and bias of the last axis and alpha [`ALPHA`].
    DynamicTanh,
}

/// The alpha of [`Op::DynamicTanh`].
pub const ALPHA: f64 = 0.5;

impl Op {
    /// The norm in it, without what precedes and follows. Scale and bias are along the axis of that norm's.
    pub fn norm(self) -> Self {
        match self {
            Self::OffsetRmsNorm
            | Self::AddRmsNorm
            | Self::GatedRmsNorm
            | Self::QkNorm
            | Self::QuantizedRmsNorm => Self::RmsNorm,
            Self::ModulatedLayerNorm => Self::LayerNorm,
            Self::SiluGroupNorm => Self::GroupNorm,
            Self::LayerNorm
            | Self::RmsNorm
            | Self::BatchNorm
            | Self::GroupNorm
            | Self::InstanceNorm
            | Self::DynamicTanh => self,
        }
    }

    /// True for the norms that other libraries have under a name of their own.
    pub fn is_classic(self) -> bool {
        self.norm() == self && self != Self::DynamicTanh
    }

    /// True if it has a bias.
    pub fn has_bias(self) -> bool {
        self.norm() != Self::RmsNorm
    }

    /// The number that is added to the scale.
    pub fn offset(self) -> f64 {
        match self {
            Self::OffsetRmsNorm | Self::ModulatedLayerNorm => 1.0,
            _ => 0.0,
        }
    }

    /// False if it is measured forward only.
    pub fn trains(self) -> bool {
        !matches!(self, Self::QkNorm | Self::QuantizedRmsNorm)
    }

    /// Least number of dimensions.
    pub(crate) fn least_rank(self) -> usize {
        match self {
            Self::ModulatedLayerNorm => 3,
            Self::QkNorm => 2,
            _ => match self.norm() {
                Self::BatchNorm | Self::GroupNorm => 2,
                Self::InstanceNorm => 3,
                _ => 1,
            },
        }
    }
}
