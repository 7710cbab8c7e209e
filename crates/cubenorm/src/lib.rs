//! Fused normalization for [Burn](https://burn.dev): layer, RMS, batch, group, instance and general
//! mean-variance norm, with a fused way back, from one source for CUDA, ROCm, Metal, Vulkan, WebGPU and
//! CPU. Where a row is held in registers or shared memory, or nothing is reduced, one kernel reads the
//! input once and writes the output once. Other rows are read twice, in one launch to three.
//!
//! ```no_run
//! use burn::tensor::{Device, Distribution, Tensor};
//! use cubenorm::nn::LayerNormConfig; // instead of burn::nn::LayerNormConfig
//!
//! let device = Device::default();
//! let norm = LayerNormConfig::new(768).init(&device);
//! let x = Tensor::<3>::random([8, 128, 768], Distribution::Default, &device);
//! let y = norm.forward(x);
//! ```
//!
//! - [`nn`] has layers with the configs, field names, defaults and records of `burn::nn`.
//! - The functions of this page take tensors. Each comes as `name`, which panics on bad input as
//!   Burn does, and as `try_name`, which returns the [`NormError`].
//!
//! On CubeCL's runtimes a normalization is one to three launches, which Burn's fusion registers lazily
//! as one operation. On the others (`flex`), and where gradients are passed back to given statistics,
//! it is composed of Burn's own operations. Gradients are exact on all of them; gradients of gradients
//! are not tracked.

mod functional;
pub mod nn;
pub mod ops;
mod tuning;

pub use cubenorm_core::{Activation, Epsilon, NormError};
pub use functional::{
    BatchNormTrain, Lp, MeanVarianceOptions, NormWithStatistics, ada_layer_norm, add_layer_norm,
    add_rms_norm, batch_norm, batch_norm_train, broadcast_batch_norm, group_norm, instance_norm,
    layer_norm, lp_norm, mean_variance_norm, mean_variance_norm_with_statistics, rms_norm,
    try_ada_layer_norm, try_add_layer_norm, try_add_rms_norm, try_batch_norm, try_batch_norm_train,
    try_broadcast_batch_norm, try_group_norm, try_instance_norm, try_layer_norm, try_lp_norm,
    try_mean_variance_norm, try_mean_variance_norm_with_statistics, try_rms_norm,
};
pub use tuning::{Tuning, set_tuning, tuning, warm_up};
