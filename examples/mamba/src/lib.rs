//! A small [Mamba-2](https://arxiv.org/abs/2405.21060) in Burn, trained on handwritten digits as sequences of pixels.
//!
//! Its norms are composed of Burn's operations or run on cubenorm's kernels. Both train from the same weights on the same
//! batches.
//!
//! - [`norms`]: the gated norm and the norm in front of a block, the only difference
//! - [`network`]: the rest of the network
//! - [`learning`]: training and checks

pub mod learning;
pub mod network;
pub mod norms;
