//! A pre-norm language model on bytes in Burn, trained on this project's own source text.
//!
//! Its RMS norms and residual additions run as Burn's operations or as cubenorm's fused kernels.
//! Both train from the same weights on the same batches.
//!
//! - [`text`]: the training and test text
//! - [`norms`]: the residual addition and its norm, the only difference
//! - [`model`]: the rest of the model
//! - [`learning`]: training and checks
//! - [`decode`]: continuation of a text, eagerly and by a recorded step

pub mod decode;
pub mod learning;
pub mod model;
pub mod norms;
pub mod text;
