//! ONNX's normalization operators, and ONNX Runtime's additions.
//!
//! Attributes and tensors have the names and meaning of the specification. [`Operator::from_node`]
//! converts a node of a graph. [`Operator::lower`] takes the input tensors by position, `None` if
//! an optional one is absent, and the wanted outputs by position:
//!
//! ```
//! use cubenorm_core::{DType, TensorDesc};
//! use cubenorm_operators::onnx::{AttributeValue, Operator};
//!
//! let attributes = [("axis".to_owned(), AttributeValue::Int(1))].into();
//! let operator = Operator::from_node("", "LayerNormalization", 17, &attributes)?;
//! let f32 = |shape: &[usize]| Some(TensorDesc::contiguous(shape, DType::F32));
//! let inputs = [f32(&[2, 3, 4]), f32(&[3, 4]), None];
//! let program = operator.lower(&inputs, &[true, true, false])?;
//! let mean = program.output_at(1).expect("it is wanted");
//! assert_eq!(program.tensor(mean).desc.shape(), [2, 1, 1]);
//! # Ok::<(), cubenorm_operators::OperatorError>(())
//! ```
//!
//! Rules for every operator:
//!
//! - Inputs may have any strides and may be empty. Outputs are contiguous. An output of statistics
//!   over no elements is refused.
//! - Tensors are `f16`, `bf16`, `f32` or `f64` in every version, as in the latest one. Tensors that
//!   share a type in the specification share a dtype.
//! - Computations are in `f32`, or in `f64` for tensors of `f64`, and rounded once. A `stash_type`
//!   of lower precision does not lower it.
//! - `epsilon` is finite and not negative.

mod attribute;
mod batch_normalization;
mod group_normalization;
mod instance_normalization;
mod layer_normalization;
mod lp_normalization;
mod mean_variance_normalization;
mod node;
mod operator;
mod rms_normalization;
mod simplified_layer_normalization;
mod skip;
mod skip_layer_normalization;
mod skip_simplified_layer_normalization;
mod stash;
mod trailing;

pub use attribute::AttributeValue;
pub use batch_normalization::{BatchNormalization, BatchNormalizationVersion};
pub use group_normalization::{GroupNormalization, GroupNormalizationVersion};
pub use instance_normalization::InstanceNormalization;
pub use layer_normalization::LayerNormalization;
pub use lp_normalization::LpNormalization;
pub use mean_variance_normalization::MeanVarianceNormalization;
pub use operator::Operator;
pub use rms_normalization::RmsNormalization;
pub use simplified_layer_normalization::SimplifiedLayerNormalization;
pub use skip_layer_normalization::SkipLayerNormalization;
pub use skip_simplified_layer_normalization::SkipSimplifiedLayerNormalization;

/// Default epsilon of most operators.
const DEFAULT_EPSILON: f32 = 1e-5;

/// Default epsilon of ONNX Runtime's operators with a skip connection.
const DEFAULT_SKIP_EPSILON: f32 = 1e-12;
