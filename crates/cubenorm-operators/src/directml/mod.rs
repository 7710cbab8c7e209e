//! DirectML's normalization operators: the structs of `directml.h` without their `DML_` prefix.
//!
//! Fields have the specification's names, meaning and order. Serialized, they keep its spelling
//! (`InputTensor`, `FusedActivation`), so that
//!
//! ```json
//! { "Type": "MEAN_VARIANCE_NORMALIZATION1", "Desc": { "InputTensor": { "DataType": "FLOAT32", "Sizes": [2, 3] } } }
//! ```
//!
//! is the start of an [`Operator`]. `AxisCount` and `DimensionCount` are the lengths of their
//! arrays.
//!
//! Rules for every operator, checked by its `lower`:
//!
//! | subject | rule |
//! | --- | --- |
//! | dimensions | 1 to 8, none of size 0; one stride for each if strides are given |
//! | span of a tensor | at most 2<sup>32</sup> - 1 elements, within `TotalTensorSizeInBytes` if that is given |
//! | tensors of one operator | one data type, one number of dimensions |
//! | sizes of a parameter (scale, bias, mean, variance) | each the input's, or 1 to repeat it |
//! | strides | inputs: any, 0 included; outputs: no element is written twice |
//! | `Epsilon` | finite and not negative |

/// Methods of a description that set a field each.
macro_rules! setters {
    ($($method:ident($field:ident: $type:ty)),+ $(,)?) => { $(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        pub fn $method(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )+ };
}

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

/// Epsilon that the specification recommends.
const DEFAULT_EPSILON: f32 = 1e-5;
