//! Norms with a gate: those of state-space models and of linear attention.

use burn::tensor::Tensor;
use cubenorm_core::{Activation, NormError, ResidualPlace};

use super::{Call, expect_rank, expect_sizes, or_panic};
use crate::ops::{NormSpec, Reduction, View};

/// Options of [`gated_rms_norm`] and [`gated_layer_norm`].
///
/// # Example
///
/// ```
/// use cubenorm::{Activation, GateOptions};
///
/// // The norm of a Mamba-2 block whose heads are divided over 8 groups of 128 features.
/// let mamba = GateOptions::new().with_norm_before_gate(false).with_group_size(128);
/// // The norm of Qwen3-Next's linear attention.
/// let qwen = GateOptions::new().with_epsilon(1e-6);
/// // A gate of Kimi's linear attention.
/// let kimi = GateOptions::new().with_activation(Activation::Sigmoid);
/// # let _ = (mamba, qwen, kimi);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateOptions {
    epsilon: f64,
    activation: Activation,
    norm_before_gate: bool,
    group_size: Option<usize>,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl GateOptions {
    /// Epsilon 1e-5, SiLU, the norm before the gate, and the whole row as one group.
    pub const fn new() -> Self {
        Self {
            epsilon: 1e-5,
            activation: Activation::Silu,
            norm_before_gate: true,
            group_size: None,
        }
    }

    /// Sets epsilon, added to the variance inside the square root.
    pub const fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets the activation of the gate. In front of the norm it has no parameters.
    pub const fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Sets whether the normalized value is multiplied by the gate, or the input. Default: the normalized value.
    pub const fn with_norm_before_gate(mut self, norm_before_gate: bool) -> Self {
        self.norm_before_gate = norm_before_gate;
        self
    }

    /// Sets the number of features that are normalized together. Default: all of a row.
    pub fn with_group_size(mut self, group_size: impl Into<Option<usize>>) -> Self {
        self.group_size = group_size.into();
        self
    }
}

/// RMS norm with a gate, with statistics over the last axis or over groups of it:
///
/// ```text
/// y = x / sqrt(mean(x^2) + epsilon) * gamma * activation(gate)
/// ```
///
/// or, without [`norm_before_gate`](GateOptions::with_norm_before_gate),
///
/// ```text
/// s = x * activation(gate)
/// y = s / sqrt(mean(s^2) + epsilon) * gamma
/// ```
///
/// One kernel reads input and gate once and writes the result. In training it keeps these two, and one kernel more writes
/// the gradients of both. If a device binds fewer buffers than that kernel has, at most 10, Burn's operations multiply by
/// the gate.
///
/// Source: `RMSNormGated` of [Mamba-2](https://arxiv.org/abs/2405.21060), and the output norm of Gated DeltaNet and
/// Qwen3-Next.
///
/// # Shapes
///
/// - `input`, `gate`, result: `[..., d]`
/// - `gamma`: `[d]`; without it the factor is 1
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm). `gate` may have another dtype: any of `f16`, `bf16` and `f32` beside an input of
/// these.
///
/// # Panics
///
/// If [`try_gated_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{Activation, GateOptions};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[3.0, -3.0]], &device);
/// let gate = Tensor::<2>::from_floats([[2.0, -1.0]], &device);
/// let options = GateOptions::new().with_epsilon(0.0).with_activation(Activation::Relu);
/// let y = cubenorm::gated_rms_norm(x, gate, None, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [2.0, 0.0]);
/// # }
/// ```
pub fn gated_rms_norm<const D: usize>(
    input: Tensor<D>,
    gate: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &GateOptions,
) -> Tensor<D> {
    or_panic(try_gated_rms_norm(input, gate, gamma, options))
}

/// [`gated_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), [`NormError::Shape`] for a gate of another shape than the input or a row
/// that does not divide into groups, and [`NormError::Gate`] for an activation with parameters in front of the norm.
pub fn try_gated_rms_norm<const D: usize>(
    input: Tensor<D>,
    gate: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    options: &GateOptions,
) -> Result<Tensor<D>, NormError> {
    gated(
        input,
        gate,
        gamma.into(),
        None,
        options,
        Reduction::MeanSquare,
    )
}

/// Layer norm with a gate, with statistics over the last axis or over groups of it:
/// `y = ((x - mean) / sqrt(variance + epsilon) * gamma + beta) * activation(gate)`, or the norm of `x * activation(gate)`.
///
/// Source: `LayerNormGated` of [Mamba-2](https://arxiv.org/abs/2405.21060)'s and flash-linear-attention's code.
///
/// # Shapes
///
/// As [`gated_rms_norm`], and `beta`: `[d]`; without it nothing is added.
///
/// # Dtypes
///
/// As [`gated_rms_norm`].
///
/// # Panics
///
/// If [`try_gated_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{Activation, GateOptions};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
/// let gate = Tensor::<2>::from_floats([[2.0, 4.0]], &device);
/// let options = GateOptions::new().with_epsilon(0.0).with_activation(Activation::Identity);
/// let y = cubenorm::gated_layer_norm(x, gate, None, None, &options);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [-2.0, 4.0]);
/// # }
/// ```
pub fn gated_layer_norm<const D: usize>(
    input: Tensor<D>,
    gate: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &GateOptions,
) -> Tensor<D> {
    or_panic(try_gated_layer_norm(input, gate, gamma, beta, options))
}

/// [`gated_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_gated_rms_norm`].
pub fn try_gated_layer_norm<const D: usize>(
    input: Tensor<D>,
    gate: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    options: &GateOptions,
) -> Result<Tensor<D>, NormError> {
    let (gamma, beta) = (gamma.into(), beta.into());
    gated(input, gate, gamma, beta, options, Reduction::MeanVariance)
}

fn gated<const D: usize>(
    input: Tensor<D>,
    gate: Tensor<D>,
    gamma: Option<Tensor<1>>,
    beta: Option<Tensor<1>>,
    options: &GateOptions,
    reduction: Reduction,
) -> Result<Tensor<D>, NormError> {
    expect_rank(&input, 1, "[..., d]")?;
    let shape = input.dims();
    let features = shape[D - 1];
    expect_sizes(&gamma, &beta, features)?;
    if gate.dims() != shape {
        return Err(NormError::Shape {
            tensor: "gate",
            shape: gate.dims().to_vec(),
            expected: format!("the input's, {shape:?}"),
        });
    }
    let mut spec = match options.group_size {
        None => NormSpec::new([D - 1], reduction, options.epsilon),
        Some(size) => in_groups(&shape, size, reduction, options.epsilon)?,
    };
    spec.activation = options.activation;
    spec.residual_place = match options.norm_before_gate {
        true => ResidualPlace::OutputGate,
        false => ResidualPlace::InputGate,
    };
    let call = Call::new(input, spec).with_residual(gate);
    let mut call = call.with_params(gamma, beta).named_as_burn_does();
    call.names[2] = "gate";
    Ok(call.run()?.output)
}

/// The specification of a norm over groups of the last axis.
fn in_groups<const D: usize>(
    shape: &[usize; D],
    size: usize,
    reduction: Reduction,
    epsilon: f64,
) -> Result<NormSpec, NormError> {
    let features = shape[D - 1];
    if size == 0 || !features.is_multiple_of(size) {
        return Err(NormError::Shape {
            tensor: "input",
            shape: shape.to_vec(),
            expected: format!("[..., d] with d in groups of {size}"),
        });
    }
    let rows = super::elements("input", shape, &shape[..D - 1])?;
    Ok(NormSpec {
        view: Some(View {
            input: [rows, features / size, size].into(),
            params: [1, features / size, size].into(),
        }),
        ..NormSpec::new([2], reduction, epsilon)
    })
}
