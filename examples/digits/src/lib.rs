//! A small residual network that learns handwritten digits in Burn, its norms run either by
//! `burn::nn` or by `cubenorm::nn`, from the same weights and on the same batches.
//!
//! - [`fetch`]: the digits, from the Python package index, and [`digits`]: what they hold
//! - [`norms`]: the layers that normalize, the only place where the two differ
//! - [`network`]: the rest of the network
//! - [`learning`]: how it learns, and what has to come out

pub mod digits;
pub mod fetch;
pub mod learning;
pub mod network;
pub mod norms;
