use cubenorm_core::{Activation, DType, NormError, PlanError};

/// Reason why a normalization was not launched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The description is invalid.
    #[error(transparent)]
    Description(#[from] NormError),
    /// The description has no plan on this device.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The runtime does not support the dtype.
    #[error(
        "{runtime} has no {dtype}: use one of {available}, or a runtime that has it ({elsewhere})"
    )]
    DType {
        /// Name of the runtime.
        runtime: &'static str,
        /// Requested dtype.
        dtype: DType,
        /// Dtypes that the runtime supports.
        available: String,
        /// Runtimes that support the dtype.
        elsewhere: &'static str,
    },
    /// The runtime computes the activation with less precision than the dtype has.
    #[error(
        "{runtime} does not compute {activation} in {dtype}: use f32, or leave the activation out \
         and apply it yourself"
    )]
    Activation {
        /// Name of the runtime.
        runtime: &'static str,
        /// Requested activation.
        activation: Activation,
        /// Dtype of the input.
        dtype: DType,
    },
    /// The tensor is larger than the runtime can index.
    #[error("{runtime} indexes tensors with 32 bits: {elements} elements are too many")]
    AddressSpace {
        /// Name of the runtime.
        runtime: &'static str,
        /// Elements of the largest tensor.
        elements: usize,
    },
    /// A buffer starts where the runtime cannot load a vector.
    #[error(
        "{tensor} starts {offset} bytes into its buffer: expected a multiple of {alignment} on \
         {runtime}"
    )]
    Misaligned {
        /// Name of the runtime.
        runtime: &'static str,
        /// Name of the tensor.
        tensor: &'static str,
        /// First byte of the tensor.
        offset: u64,
        /// The device's alignment of buffers, in bytes.
        alignment: u64,
    },
    /// The description and the buffers disagree about the presence of a tensor.
    #[error(
        "the description and the buffers disagree about {tensor}: one has it, the other does not"
    )]
    Missing {
        /// Name of the tensor.
        tensor: &'static str,
    },
    /// An output overlaps an input.
    #[error(
        "{output} overlaps {tensor}, which is read after the first store: give {output} a buffer of \
         its own"
    )]
    Aliased {
        /// Name of the output.
        output: &'static str,
        /// Name of the input.
        tensor: &'static str,
    },
}

impl LaunchError {
    /// True if the device binds too few buffers to a kernel.
    pub const fn lacks_bindings(&self) -> bool {
        matches!(self, Self::Plan(PlanError::Bindings { .. }))
    }
}
