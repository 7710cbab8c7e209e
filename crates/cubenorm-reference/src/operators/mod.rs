//! The operators of DirectML and ONNX as their specifications write them, element by element.
//!
//! Nothing here goes through a [`NormDesc`](cubenorm_core::NormDesc) or a
//! [`Program`](cubenorm_operators::Program): what an operator lowers to is held against this.
//! [`directml`] and [`onnx`] take an operator's inputs by formal position and give its outputs by
//! formal position, each in row-major order. Which outputs of an ONNX operator are wanted has no say,
//! but for versions 7 and 9 of BatchNormalization, which train where more than one is.
//!
//! Formulas are over any [`Number`]: over `f64` they give what an operator comes to; over a number that
//! knows how far off it may be, they say what a device's arithmetic leaves of it.
//!
//! Like everything in this crate, these panic where an operator is not one that lowers.

mod activation;
mod directml;
mod number;
mod onnx;
mod rows;
mod tensor;

pub use activation::activate;
pub use directml::directml;
pub use number::{Moments, Number};
pub use onnx::onnx;
pub use tensor::Tensor;
