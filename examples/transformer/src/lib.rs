//! A pre-norm language model on bytes in Burn, that learns from this project's own source text. Its
//! RMS norms and the residuals before them run either as Burn has them or through cubenorm's fused
//! kernels, from the same weights and on the same batches.
//!
//! - [`text`]: what is learned from
//! - [`norms`]: the residual and the norm, the only place where the two differ
//! - [`model`]: the rest of the model
//! - [`learning`]: how it learns, and what has to come out

pub mod learning;
pub mod model;
pub mod norms;
pub mod text;
