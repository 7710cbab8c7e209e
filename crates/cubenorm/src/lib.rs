//! Fused normalization for [Burn](https://burn.dev): layer, RMS, batch, group, instance and general
//! mean-variance norm, with a fused backward pass. One source serves CUDA, ROCm, Metal, Vulkan, WebGPU and CPU.
//!
//! Rows that fit in registers or shared memory are read once and written once by a single kernel. Longer rows are read
//! twice, in one to three launches.
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
//! - The functions of this page take tensors. Each comes in two forms. `name` panics on bad input, as Burn does.
//!   `try_name` returns the [`NormError`], before anything is registered with the device.
//!
//! On CubeCL's runtimes a normalization is one to three launches, which Burn's fusion registers lazily as one
//! operation. On other backends (`flex`), and if provided statistics need a gradient, it is composed of Burn's own
//! operations. Gradients are exact on all backends. Gradients of gradients are not tracked.

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

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
