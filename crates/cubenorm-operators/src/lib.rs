//! The normalization operators of DirectML and ONNX, in their specifications' own terms.
//!
//! Each operator is a struct with the specification's fields or attributes. Its `lower` checks it and
//! says what to compute, as a [`Program`]: tensors by name, role and layout, and steps over them.
//! Nothing here has a device in it, and no operator a code path of its own: every step is a
//! [`NormDesc`](cubenorm_core::NormDesc), a [`GradientDesc`](cubenorm_core::GradientDesc) or a small
//! [`BlendDesc`](cubenorm_core::BlendDesc).
//!
//! # Operators
//!
//! DirectML, in [`directml`]:
//!
//! | operator | normalizes by | over |
//! | --- | --- | --- |
//! | [`MEAN_VARIANCE_NORMALIZATION`](directml::MeanVarianceNormalization) | mean, and variance by choice | `{C, H, W}` or `{H, W}` |
//! | [`MEAN_VARIANCE_NORMALIZATION1`](directml::MeanVarianceNormalization1) | mean, and variance by choice | `Axes` |
//! | [`MEAN_VARIANCE_NORMALIZATION2`](directml::MeanVarianceNormalization2) | mean and variance, each by choice | `Axes` |
//! | [`BATCH_NORMALIZATION`](directml::BatchNormalization) | given means and variances | nothing |
//! | [`BATCH_NORMALIZATION_TRAINING`](directml::BatchNormalizationTraining) | mean and variance, written too | where `ScaleTensor` has size 1 |
//! | [`BATCH_NORMALIZATION_GRAD`](directml::BatchNormalizationGrad) | the way back: given means and variances, as constants | sums where `ScaleTensor` has size 1 |
//! | [`BATCH_NORMALIZATION_TRAINING_GRAD`](directml::BatchNormalizationTrainingGrad) | the way back: given means and variances, those of the input | sums where `ScaleTensor` has size 1, means where `MeanTensor` has |
//!
//! ONNX and ONNX Runtime, in [`onnx`]:
//!
//! | operator | versions | normalizes by | over |
//! | --- | --- | --- | --- |
//! | [`BatchNormalization`](onnx::BatchNormalization) | 7, 9, 14, 15 | given or the batch's mean and variance | all but the channels |
//! | [`GroupNormalization`](onnx::GroupNormalization) | 18, 21 | mean and variance | a group's channels and what follows |
//! | [`InstanceNormalization`](onnx::InstanceNormalization) | 6, 22 | mean and variance | what follows the channels |
//! | [`LayerNormalization`](onnx::LayerNormalization) | 17 | mean and variance, written by choice | `axis` and what follows |
//! | [`LpNormalization`](onnx::LpNormalization) | 1, 22 | sum of magnitudes, or root of the sum of squares | `axis` |
//! | [`MeanVarianceNormalization`](onnx::MeanVarianceNormalization) | 9, 13 | mean and variance | `axes` |
//! | [`RMSNormalization`](onnx::RmsNormalization) | 23 | mean of squares | `axis` and what follows |
//! | [`SimplifiedLayerNormalization`](onnx::SimplifiedLayerNormalization) | ONNX Runtime, 1 | mean of squares, written by choice | `axis` and what follows |
//! | [`SkipLayerNormalization`](onnx::SkipLayerNormalization) | ONNX Runtime, 1 | mean and variance of a sum, all written by choice | the last dimension |
//! | [`SkipSimplifiedLayerNormalization`](onnx::SkipSimplifiedLayerNormalization) | ONNX Runtime, 1 | mean of squares of a sum, both written by choice | the last dimension |
//!
//! [`Program::gradient`] is the way back through those that are one normalization and add no residual.
//!
//! # Example
//!
//! ```
//! use cubenorm_operators::directml::{DataType, FusedActivation, MeanVarianceNormalization1, TensorDesc};
//! use cubenorm_operators::{Role, Step};
//!
//! // Instance normalization with a scale for each channel, then a rectifier.
//! let tensor = TensorDesc::packed(DataType::Float32, [2, 3, 4, 5]);
//! let scale = TensorDesc::packed(DataType::Float32, [1, 3, 1, 1]);
//! let program = MeanVarianceNormalization1::new(tensor.clone(), tensor, [2, 3])
//!     .with_scale_tensor(scale)
//!     .with_fused_activation(FusedActivation::Relu)
//!     .lower()?;
//!
//! let tensors: Vec<_> = program.tensors.iter().map(|t| (t.name, t.role)).collect();
//! assert_eq!(
//!     tensors,
//!     [
//!         ("InputTensor", Role::Input),
//!         ("ScaleTensor", Role::Input),
//!         ("OutputTensor", Role::Output),
//!     ]
//! );
//! let [Step::Normalize(normalize)] = program.steps.as_slice() else {
//!     panic!("it is one normalization");
//! };
//! assert_eq!(normalize.desc.axes, [2, 3]);
//! # Ok::<(), cubenorm_operators::OperatorError>(())
//! ```

mod builder;
pub mod directml;
mod error;
mod gradient;
pub mod onnx;
mod program;

pub use error::OperatorError;
pub use program::{Blend, Gradient, Normalize, Program, ProgramTensor, Role, Slot, Step};
