use cubenorm_core::{Activation, DType, NormError, PlanError};

/// Why a normalization was not launched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The description is wrong.
    #[error(transparent)]
    Description(#[from] NormError),
    /// The description cannot be planned on this device.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The runtime does not have the dtype.
    #[error(
        "{runtime} has no {dtype}: use one of {available}, or a runtime that has it ({elsewhere})"
    )]
    DType {
        /// The runtime's name.
        runtime: &'static str,
        /// What was asked for.
        dtype: DType,
        /// What it has.
        available: String,
        /// Who has it.
        elsewhere: &'static str,
    },
    /// The runtime computes the activation to fewer digits than the dtype has.
    #[error(
        "{runtime} does not compute {activation} in {dtype}: use f32, or leave the activation out \
         and apply it yourself"
    )]
    Activation {
        /// The runtime's name.
        runtime: &'static str,
        /// What was asked for.
        activation: Activation,
        /// In which dtype.
        dtype: DType,
    },
    /// The tensor is larger than the runtime can index.
    #[error("{runtime} indexes tensors with 32 bits: {elements} elements are too many")]
    AddressSpace {
        /// The runtime's name.
        runtime: &'static str,
        /// Elements of the largest tensor.
        elements: usize,
    },
    /// A description has a tensor that comes without a buffer, or the other way round.
    #[error(
        "the description and the buffers disagree about {tensor}: one has it, the other does not"
    )]
    Missing {
        /// The tensor.
        tensor: &'static str,
    },
    /// What is written would lie in the memory of what is read.
    #[error(
        "the {output} lies in the memory of the {tensor}, which is read again after the first of it is \
         written: give it a buffer of its own"
    )]
    Aliased {
        /// The tensor that is written.
        output: &'static str,
        /// The tensor that is read.
        tensor: &'static str,
    },
}
