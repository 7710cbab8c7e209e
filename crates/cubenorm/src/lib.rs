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
//! - [`install`](install()) runs the norms of unmodified Burn models fused, by one line in `main`.
//! - [`nn`] has layers with the configs, field names, defaults and records of `burn::nn`.
//! - The functions of this page take tensors. Each comes in two forms. `name` panics on bad input, as Burn does.
//!   `try_name` returns the [`NormError`], before anything is registered with the device.
//!
//! On CubeCL's runtimes a normalization is one to three launches, which Burn's fusion registers lazily as one
//! operation. On other backends (`flex`), and if provided statistics need a gradient, it is composed of Burn's own
//! operations. Gradients are exact on all backends. Gradients of gradients are not tracked.

//!
//! # Graph capture
//!
//! [`burn::tensor::capture`] records every function and layer, forward and backward. On CUDA and ROCm a replay is one
//! launch of a graph, and wgpu replays recorded dispatches. On other devices Burn runs the closure again.
//!
//! ```no_run
//! use std::cell::RefCell;
//!
//! use burn::tensor::{Device, Distribution, Tensor, capture};
//!
//! let device = Device::default();
//! let norm = cubenorm::nn::LayerNormConfig::new(768).init(&device);
//! let next = || Tensor::<2>::random([8, 768], Distribution::Default, &device);
//! let x = RefCell::new(next());
//! // Tunes the plan: nothing is measured while a graph is captured.
//! norm.forward(x.borrow().clone());
//! let mut graph = capture(&device, || norm.forward(x.borrow().clone()));
//! // A graph reads the buffers that it was recorded with, so the next input is written into the same buffer.
//! x.borrow_mut().inplace(|x| x.slice_assign([0..8, 0..768], next()));
//! // SAFETY: `x`, `norm` and `graph` are alive, and no other thread uses them.
//! let y = unsafe { graph.replay() };
//! ```
//!
//! - While a graph is captured, from its warm-up on, nothing is measured: a call runs the tuned plan if it is known, else
//!   the analytic plan. Call once before, or [`warm_up`].
//! - All work is launches and allocations of the device. While a graph is captured, no call writes from the host.
//! - No other thread may use the device while a graph is captured. CUDA then records no graph, and Burn runs the closure
//!   again at each replay: `is_hardware` tells.
//! - Tested: functions and layers, both passes, on CUDA and wgpu. ROCm has not been tried.
//! - [`nn::BatchNorm`] in training returns [`NormError::Recorded`] from its `try_forward`, because a replay would not
//!   update its running statistics. [`batch_norm_train`] is recorded, and so is a frozen layer.

pub mod distributed;
mod functional;
mod install;
mod invariance;
pub mod nn;
pub mod ops;
mod tuning;

pub use cubenorm_core::{Activation, CodeFormat, Epsilon, NormError, RotatedPairs, Rounding};
pub use functional::{
    BatchNormTrain, Codes, GateOptions, HeadNormOptions, Lp, MeanVarianceOptions, NormOptions,
    NormWithStatistics, Positions, Quantized, Rope, ShardedNorm, SyncBatchNormTrain,
    ada_layer_norm, add_layer_norm, add_layer_norm_with, add_modulated_layer_norm,
    add_modulated_rms_norm, add_quantized_layer_norm, add_quantized_rms_norm, add_rms_norm,
    add_rms_norm_with, batch_norm, batch_norm_train, broadcast_batch_norm, dynamic_tanh,
    gated_layer_norm, gated_rms_norm, group_norm, group_norm_with, instance_norm, layer_norm,
    layer_norm_with, lp_norm, mean_variance_norm, mean_variance_norm_with_statistics,
    modulated_layer_norm, modulated_rms_norm, norm_sharded, qk_norm, qk_norm_rope, qk_norm_with,
    quantized_layer_norm, quantized_rms_norm, rms_norm, rms_norm_with, sync_batch_norm_train,
    try_ada_layer_norm, try_add_layer_norm, try_add_layer_norm_with, try_add_modulated_layer_norm,
    try_add_modulated_rms_norm, try_add_quantized_layer_norm, try_add_quantized_rms_norm,
    try_add_rms_norm, try_add_rms_norm_with, try_batch_norm, try_batch_norm_train,
    try_broadcast_batch_norm, try_dynamic_tanh, try_gated_layer_norm, try_gated_rms_norm,
    try_group_norm, try_group_norm_with, try_instance_norm, try_layer_norm, try_layer_norm_with,
    try_lp_norm, try_mean_variance_norm, try_mean_variance_norm_with_statistics,
    try_modulated_layer_norm, try_modulated_rms_norm, try_norm_sharded, try_qk_norm,
    try_qk_norm_rope, try_qk_norm_with, try_quantized_layer_norm, try_quantized_rms_norm,
    try_rms_norm, try_rms_norm_with, try_sync_batch_norm_train,
};
pub use install::{
    DeclineReason, DeclinedNorm, InstallError, InstallReport, InstallState, MatchedNorm, install,
    install_report, uninstall,
};
pub use invariance::{is_batch_invariant, set_batch_invariant, with_batch_invariant};
pub use tuning::{Tuning, set_tuning, tuning, warm_up, warm_up_async};

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
