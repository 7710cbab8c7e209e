//! The operators of DirectML and ONNX as specified, element by element.
//!
//! This module uses no [`NormDesc`](cubenorm_core::NormDesc) and no
//! [`Program`](cubenorm_operators::Program), so it can verify lowered operators. [`directml`] and
//! [`onnx`] map inputs to outputs by formal position, each in row-major order. The requested
//! outputs of an ONNX operator matter only for BatchNormalization 7 and 9, which train if there is
//! more than one.
//!
//! Formulas are generic over [`Number`]. `f64` yields the operator's result. A number type with
//! error bounds yields the accuracy of a device's arithmetic.
//!
//! Like all of this crate, these functions panic if an operator cannot be lowered.

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
