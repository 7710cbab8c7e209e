//! Normalization operators of DirectML and ONNX, in the terms of their specifications.
//!
//! Each operator is a struct with the specification's fields or attributes. Its `lower` validates
//! it and returns a [`Program`]: tensors by name, role and layout, and steps over them. This crate
//! has no device, and no operator has a code path of its own. Every step is a
//! [`NormDesc`](cubenorm_core::NormDesc), a [`BackwardDesc`](cubenorm_core::BackwardDesc) or a
//! small [`LerpDesc`](cubenorm_core::LerpDesc).
//!
//! # Operators
//!
//! DirectML, in [`directml`]:
//!
//! | operator | normalizes by | over |
//! | --- | --- | --- |
//! | [`MEAN_VARIANCE_NORMALIZATION`](directml::MeanVarianceNormalization) | mean, optionally variance | `{C, H, W}` or `{H, W}` |
//! | [`MEAN_VARIANCE_NORMALIZATION1`](directml::MeanVarianceNormalization1) | mean, optionally variance | `Axes` |
//! | [`MEAN_VARIANCE_NORMALIZATION2`](directml::MeanVarianceNormalization2) | mean and variance, both optional | `Axes` |
//! | [`BATCH_NORMALIZATION`](directml::BatchNormalization) | provided means and variances | nothing |
//! | [`BATCH_NORMALIZATION_TRAINING`](directml::BatchNormalizationTraining) | mean and variance, also outputs | dimensions where `ScaleTensor` has size 1 |
//! | [`BATCH_NORMALIZATION_GRAD`](directml::BatchNormalizationGrad) | backward, statistics as constants | sums: dimensions where `ScaleTensor` has size 1 |
//! | [`BATCH_NORMALIZATION_TRAINING_GRAD`](directml::BatchNormalizationTrainingGrad) | backward, statistics of the input | sums: dimensions where `ScaleTensor` has size 1; means: the same for `MeanTensor` |
//!
//! ONNX and ONNX Runtime, in [`onnx`]:
//!
//! | operator | versions | normalizes by | over |
//! | --- | --- | --- | --- |
//! | [`BatchNormalization`](onnx::BatchNormalization) | 7, 9, 14, 15 | provided or the batch's mean and variance | all but the channels |
//! | [`GroupNormalization`](onnx::GroupNormalization) | 18, 21 | mean and variance | a group's channels and the following dimensions |
//! | [`InstanceNormalization`](onnx::InstanceNormalization) | 6, 22 | mean and variance | dimensions after the channels |
//! | [`LayerNormalization`](onnx::LayerNormalization) | 17 | mean and variance, optional outputs | `axis` and the following dimensions |
//! | [`LpNormalization`](onnx::LpNormalization) | 1, 22 | sum of magnitudes, or root of the sum of squares | `axis` |
//! | [`MeanVarianceNormalization`](onnx::MeanVarianceNormalization) | 9, 13 | mean and variance | `axes` |
//! | [`RMSNormalization`](onnx::RmsNormalization) | 23 | mean of squares | `axis` and the following dimensions |
//! | [`SimplifiedLayerNormalization`](onnx::SimplifiedLayerNormalization) | ONNX Runtime, 1 | mean of squares, optional output | `axis` and the following dimensions |
//! | [`SkipLayerNormalization`](onnx::SkipLayerNormalization) | ONNX Runtime, 1 | mean and variance of a sum, all optional outputs | the last dimension |
//! | [`SkipSimplifiedLayerNormalization`](onnx::SkipSimplifiedLayerNormalization) | ONNX Runtime, 1 | mean of squares of a sum, both optional outputs | the last dimension |
//!
//! [`Program::gradient`] is the backward pass of operators that are one normalization without a
//! residual.
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
pub use program::{Gradient, Lerp, Normalize, Program, ProgramTensor, Role, Slot, Step};
