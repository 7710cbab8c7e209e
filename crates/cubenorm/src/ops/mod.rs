//! The backend extension: one operation with a forward and a backward pass, on every backend of Burn.
//!
//! Most callers want the functions of this crate, which lower to these. A call is the kernels' description with tensors
//! in it.

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod node;
mod portable;
mod route;
mod spec;
mod tensors;
mod view;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

#[cfg(feature = "cube")]
pub(crate) use cube::in_shape;
pub(crate) use node::{Gradient, Passed, Retrieved, attach};
pub(crate) use portable::{provided_pairs, wider};
pub(crate) use route::{Route, Tracked};
pub(crate) use spec::dtype;
pub use spec::{Axes, BackwardSpec, Descs, HeadSpec, NormSpec, QuantizedSpec, Reduction};
pub use tensors::{
    BackwardOperands, Gradients, HeadOperands, Heads, Normalized, Operands, Optional,
    QuantizedOperands, QuantizedParts, Running, RunningOperands,
};
#[cfg(feature = "cube")]
use tensors::{
    gradients_meta, heads_meta, normalized_meta, quantized_meta, running_meta, statistics_meta,
};
pub use view::View;

/// Normalizations on a backend.
///
/// Arguments have to be valid. Call these through this crate's functions, or check them first with [`NormSpec::desc`] and
/// [`NormDesc::problem`](cubenorm_core::NormDesc::problem).
///
/// # Panics
///
/// Invalid arguments panic. With fusion they do so when the operation runs, which may be in another call.
#[backend_extension(
    Cube: cfg(feature = "cube"),
    Flex: cfg(feature = "flex"),
    Autodiff,
    Fusion: cfg(feature = "cube")
)]
pub trait NormBackend: Backend {
    /// `activation((input + residual - mean) * rstd * (offset + scale) + bias)`, or with
    /// [`ResidualPlace::Output`](cubenorm_core::ResidualPlace::Output)
    /// `activation((input - mean) * rstd * (offset + scale) + bias + residual)`: the formula is that of
    /// [`NormDesc`](cubenorm_core::NormDesc), see [`NormSpec`].
    #[fusion(meta = normalized_meta)]
    fn normalize(#[extension_type] operands: Operands<Self>, spec: NormSpec) -> Normalized<Self>;

    /// `(1 - momentum) * running + momentum * batch` of mean and variance.
    #[fusion(meta = running_meta)]
    fn update_running(
        #[extension_type] operands: RunningOperands<Self>,
        momentum: f64,
    ) -> Running<Self>;

    /// The statistics of each row alone, as in [`Normalized::statistics`]. The input is read once, and nothing of its size
    /// is written. The specification writes statistics and no output.
    #[fusion(meta = statistics_meta)]
    fn row_statistics(input: FloatTensor<Self>, spec: NormSpec) -> FloatTensor<Self>;

    /// Norms of query and key over the last axis, each with its own scale, and rotated if there is a table. CubeCL's
    /// backends run both in one launch where their plans allow it.
    #[fusion(meta = heads_meta)]
    fn normalize_heads(
        #[extension_type] operands: HeadOperands<Self>,
        spec: HeadSpec,
    ) -> Heads<Self>;

    /// A normalization over the last axis, rounded to codes of 8 bits, with the scale of each row unless it is given.
    #[fusion(meta = quantized_meta)]
    fn normalize_quantized(
        #[extension_type] operands: QuantizedOperands<Self>,
        spec: QuantizedSpec,
    ) -> QuantizedParts<Self>;

    /// Gradients of input, scale, bias and gate from the gradient of the output, see [`BackwardSpec`].
    #[fusion(meta = gradients_meta)]
    fn normalize_backward(
        #[extension_type] operands: BackwardOperands<Self>,
        spec: BackwardSpec,
    ) -> Gradients<Self>;
}
