//! Whole networks, timed with Burn's norms, with cubenorm's, and without norms.
//!
//! Each network is built three times from the same weights. Only the norms differ: `burn::nn`,
//! `cubenorm`, and the identity. On devices that record graphs, each is also recorded and replayed.
//!
//! | network | step | norms |
//! | --- | --- | --- |
//! | `minilm` | MiniLM's encoder, 6 x 384, 16 sentences of 64 tokens | 13 layer norms after residual additions |
//! | `gpt2` | training of GPT-2 small, 12 x 768, 8 x 512 tokens, AdamW | 25 layer norms, 24 after residual additions |
//! | `resnet` | training of ResNet-50, 32 pictures of 224 x 224, SGD | 53 batch norms |
//! | `unet` | residual block of Stable Diffusion's U-Net, 2 x 320 x 64 x 64, f16 if the device has it | 2 group norms with SiLU |
//! | `decode` | decode step, 12 x 768, one token, KV cache of 256 | 25 RMS norms, 24 after residual additions |
//!
//! Weights and inputs are random, element types are f32 except in `unet`, and nothing is dropped
//! out. The decode step always writes the last position of its cache, so every step has the same
//! shapes.
//!
//! # How the numbers are taken
//!
//! - Each network runs in a process of its own. On `cpu` another process runs it first, which tunes
//!   the kernels (see [`cubenorm_example_common::tuning`]).
//! - The outputs of the first three steps with Burn's norms and with cubenorm's are compared. The
//!   largest difference may be 5e-3 of the largest magnitude in f32, and 2e-2 in f16. The losses of
//!   the first three training steps may differ by 1e-2, because updates carry roundings on. Nothing
//!   is timed if they differ by more.
//! - Warm-up ends after three steps that are at most 5 % faster than the best one.
//! - Kinds take turns, a sample each per round. A sample lasts about 60 ms, at least one step and at
//!   most 24. Steps are queued, and the host waits for the device at the end of a sample.
//! - The median and half of the range of the middle 60 % are printed.
//! - The share of the norms is measured by subtraction: `1 - identity / kind`. Without norms the
//!   values are others, which can change the time of a GPU's matrix products a little. Fusion of
//!   neighbouring operations changes too. A fused residual addition counts for the norms.
//!   The table says `noise` if the middle 60 % of the samples with and without norms overlap.
//! - Memory is CubeCL's reservation after two steps of the network alone, less the reservation before
//!   it was built. Pools grow by pages, so it is an upper bound of the peak.
//!
//! # Captured steps
//!
//! [`graph::Graph`] records a step as [`burn::tensor::capture`] does. A captured inference has to
//! replay the eager output, within the tolerance. The losses of a replayed training step have to
//! follow the eager ones, within half of their decrease. A graph always reads the buffers that it was
//! recorded with, so the update has to be in place. AdamW's bias corrections are constants of the
//! recorded step.
//!
//! With Burn 0.22.1 on wgpu no training step passes. The losses of replays do not follow, and
//! cubenorm's batch norm refuses, because its running statistics would not change. A refusal is `-`
//! in the table, with its reason below.

pub mod graph;
pub mod measure;
pub mod networks;
pub mod norms;
pub mod report;
