//! Layers with the configs, field names, defaults and records of `burn::nn`.
//!
//! A record of either layer loads into the other: parameters have the same names and shapes. [`from_burn`] converts an
//! existing layer.
//!
//! # Three ways to fused norms
//!
//! | way | for | training |
//! | --- | --- | --- |
//! | [`install`](crate::install()) | models that are not yours to change: `burn::nn::transformer`, generated code, other crates | as Burn |
//! | these layers | your own models: another import, and the same records | fused forward and backward |
//! | the [functions](crate) | a norm without a layer, or with a residual or statistics as results | fused forward and backward |
//!
//! The layers and functions are one operation whatever is around them. `install` has to recognise a norm first, so
//! [`install_report`](crate::install_report) tells which ones it did. The ways go together: an installed fuser leaves the
//! layers and functions alone.

mod ada;
mod ada_zero;
mod add;
mod batch;
mod convert;
mod dynamic_tanh;
mod gated;
mod group;
mod instance;
mod layer;
mod mean_variance;
mod normalization;
mod rms;
mod sync_batch;

use burn::module::Content;
use burn::nn::Initializer;
use burn::tensor::Tensor;
use cubenorm_core::{NormError, Rounding};

use crate::functional::expect_rank;

pub use ada::{AdaLayerNorm, AdaLayerNormConfig};
pub use ada_zero::{AdaLayerNormZero, AdaLayerNormZeroConfig, BlockModulation};
pub use add::{AddLayerNorm, AddRmsNorm};
pub use batch::{BatchNorm, BatchNormConfig};
pub use convert::{BurnNorm, from_burn};
pub use dynamic_tanh::{DynamicTanh, DynamicTanhConfig};
pub use gated::{GatedRmsNorm, GatedRmsNormConfig};
pub use group::{GroupNorm, GroupNormConfig};
pub use instance::{InstanceNorm, InstanceNormConfig};
pub use layer::{LayerNorm, LayerNormConfig};
pub use mean_variance::{MeanVarianceNorm, MeanVarianceNormConfig};
pub use normalization::{Normalization, NormalizationConfig};
pub use rms::{RmsNorm, RmsNormConfig};
pub use sync_batch::SyncBatchNorm;

/// Initializer of a weight that is 1 with its offset.
fn initial_gamma(offset: f64) -> Initializer {
    match offset {
        0.0 => Initializer::Ones,
        offset => Initializer::Constant {
            value: 1.0 - offset,
        },
    }
}

/// Adds offset and rounding to the display of a layer that has them.
fn show_weight(content: Content, offset: f64, rounding: Rounding) -> Content {
    let content = match offset {
        0.0 => content,
        offset => content.add("offset", &offset),
    };
    match rounding {
        Rounding::None => content,
        rounding => content.add_debug_attribute("rounding", &rounding),
    }
}

/// Checks rank and channel axis of an input, as the layers of `burn::nn` do.
fn expect_channels<const D: usize>(input: &Tensor<D>, channels: usize) -> Result<(), NormError> {
    let form = format!("[batch, {channels}, ...]");
    expect_rank(input, 2, &form)?;
    let shape = input.dims();
    match shape[1] == channels {
        true => Ok(()),
        false => Err(NormError::Shape {
            tensor: "input",
            shape: shape.to_vec(),
            expected: form,
        }),
    }
}
