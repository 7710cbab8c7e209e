//! DirectML's normalization operators, by the structs of `directml.h` without their `DML_` prefix.
//!
//! Fields have the names and the meaning of the specification; their order is its, too. Serialized,
//! they are spelled as there (`InputTensor`, `FusedActivation`), so that
//!
//! ```json
//! { "Type": "MEAN_VARIANCE_NORMALIZATION1", "Desc": { "InputTensor": { "DataType": "FLOAT32", "Sizes": [2, 3] } } }
//! ```
//!
//! is how an [`Operator`] begins. `AxisCount` and `DimensionCount` are the lengths of their arrays.
//!
//! What holds for every operator, and is checked by its `lower`:
//!
//! - Tensors have 1 to 8 dimensions, none of size 0, one stride for each where strides are given,
//!   and reach over at most 2<sup>32</sup> - 1 elements. `TotalTensorSizeInBytes`, where it is
//!   given, covers what they reach over.
//! - All tensors of one operator have one data type and one number of dimensions.
//! - Each size of a parameter (scale, bias, mean, variance) is 1, for a parameter that is repeated
//!   along that dimension, or the input's.
//! - Inputs may have any strides, 0 included; outputs may not write an element twice.
//! - `Epsilon` is finite and not negative.

mod activation;
mod batch_normalization;
mod batch_normalization_grad;
mod batch_normalization_training;
mod lowering;
mod mean_variance_normalization;
mod mean_variance_normalization1;
mod mean_variance_normalization2;
mod operator;
mod tensor;

pub use activation::FusedActivation;
pub use batch_normalization::BatchNormalization;
pub use batch_normalization_grad::{BatchNormalizationGrad, BatchNormalizationTrainingGrad};
pub use batch_normalization_training::BatchNormalizationTraining;
pub use mean_variance_normalization::MeanVarianceNormalization;
pub use mean_variance_normalization1::MeanVarianceNormalization1;
pub use mean_variance_normalization2::MeanVarianceNormalization2;
pub use operator::Operator;
pub use tensor::{DataType, TensorDesc};

/// What the specification recommends.
const DEFAULT_EPSILON: f32 = 1e-5;
