//! Layers with the configs, field names, defaults and records of `burn::nn`.
//!
//! A record that one of them has saved loads into the other, in both directions: parameters carry
//! the same names and shapes.

mod instance;
mod layer;
mod rms;

pub use instance::{InstanceNorm, InstanceNormConfig};
pub use layer::{LayerNorm, LayerNormConfig};
pub use rms::{RmsNorm, RmsNormConfig};
