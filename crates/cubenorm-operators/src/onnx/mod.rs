//! ONNX's normalization operators, and those that ONNX Runtime adds.
//!
//! Attributes have the names and the meaning of the specification, tensors those of its formal
//! parameters. [`Operator::from_node`] makes an operator of a node of a graph;
//! [`Operator::lower`] takes the input tensors by position, `None` where an optional one is absent,
//! and which outputs are wanted, by position as well:
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
//! What holds for every operator:
//!
//! - Inputs may have any strides and may be empty; outputs are contiguous. An output that would hold
//!   statistics of no elements is refused.
//! - Tensors are `f16`, `bf16`, `f32` or `f64` in every version, which is what the latest take. Those
//!   that the specification gives one type have one type.
//! - Everything between input and output is computed in `f32`, or in `f64` for tensors of `f64`, and
//!   rounded once. Where a `stash_type` asks for less, more digits are kept than it asks for.
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

/// What most operators default to.
const DEFAULT_EPSILON: f32 = 1e-5;

/// What ONNX Runtime's operators with a skip connection default to.
const DEFAULT_SKIP_EPSILON: f32 = 1e-12;
