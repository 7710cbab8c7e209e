//! Style transfer in Burn: the fast-neural-style network "candy", whose 15 instance normalizations
//! run either through plain Burn operations or through cubenorm's fused kernels.
//!
//! - [`norms`]: the two ways to normalize, the only place where they differ
//! - [`network`]: the layers
//! - [`weights`] and [`npy`]: what fills them
//! - [`picture`]: pixels to tensors and back
//! - [`check`]: the comparison with stored results

pub mod check;
pub mod network;
pub mod norms;
pub mod npy;
pub mod picture;
pub mod weights;
