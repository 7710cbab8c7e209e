//! Style transfer in Burn: the fast-neural-style network "candy", whose 15 instance normalizations
//! run as plain Burn operations or as cubenorm's fused kernels.
//!
//! - [`norms`]: both implementations of the norms
//! - [`network`]: the layers
//! - [`weights`]: reading of the weights
//! - [`picture`]: conversion between pictures and tensors
//! - [`check`]: comparison with stored results

pub mod check;
pub mod network;
pub mod norms;
pub mod picture;
pub mod weights;
