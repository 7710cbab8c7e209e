//! Reasons that a description is invalid.

use crate::activation::Activation;
use crate::dtype::DType;
use crate::quantization::CodeFormat;

/// The highest rank a tensor may have.
pub const MAX_RANK: usize = 8;

/// A reason that a description cannot be computed. Every variant names the tensor, the expected
/// value and the actual one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NormError {
    /// A tensor has no dimension or more than [`MAX_RANK`].
    #[error("{tensor} has rank {rank}: expected a rank from 1 to {MAX_RANK}")]
    Rank {
        /// The tensor.
        tensor: &'static str,
        /// Its rank.
        rank: usize,
    },
    /// A tensor has more or fewer strides than dimensions.
    #[error("{tensor} has {strides} strides for {rank} dimensions: expected one for each")]
    StrideCount {
        /// The tensor.
        tensor: &'static str,
        /// Its number of dimensions.
        rank: usize,
        /// Its number of strides.
        strides: usize,
    },
    /// The elements, or the memory they span, exceed a `usize`.
    #[error("{tensor} with shape {shape:?} has more elements than this machine can address")]
    TooLarge {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A buffer is smaller than the span of its description.
    #[error(
        "{tensor} with shape {shape:?} and strides {strides:?} spans {expected} elements, \
         but its buffer holds {actual}"
    )]
    BufferTooSmall {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<usize>,
        /// Elements that the description spans.
        expected: usize,
        /// Elements that the buffer holds.
        actual: usize,
    },
    /// An axis is not a dimension of the input.
    #[error("axis {axis} is out of range: the input has rank {rank}, so axes go from 0 to {}", rank - 1)]
    AxisOutOfRange {
        /// The axis.
        axis: usize,
        /// The input's rank.
        rank: usize,
    },
    /// An axis is listed twice.
    #[error("axis {axis} is listed more than once in {axes:?}")]
    AxisRepeated {
        /// The axis.
        axis: usize,
        /// All axes, as given.
        axes: Vec<usize>,
    },
    /// A tensor does not broadcast to the input's shape.
    #[error(
        "{tensor} with shape {shape:?} does not broadcast to the input's shape {input:?}: \
         each of its dimensions, aligned at the last, must be 1 or the input's"
    )]
    Broadcast {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The input's shape.
        input: Vec<usize>,
    },
    /// A written tensor does not have the input's shape.
    #[error("{tensor} has shape {shape:?}: expected the input's, {input:?}")]
    OutputShape {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The input's shape.
        input: Vec<usize>,
    },
    /// Two elements of a written tensor share an address.
    #[error("{tensor} with shape {shape:?} and strides {strides:?} writes some elements twice")]
    OutputOverlaps {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<usize>,
    },
    /// The strides of a tensor are not those of another one.
    #[error("{tensor} has strides {strides:?}: expected {expected}")]
    Layout {
        /// The tensor.
        tensor: &'static str,
        /// Its strides, in elements.
        strides: Vec<usize>,
        /// The expected strides, in words.
        expected: String,
    },
    /// A tensor's dtype does not match the input's.
    #[error("{tensor} has dtype {actual}: expected {expected}, as the input has dtype {input}")]
    MixedDTypes {
        /// The tensor.
        tensor: &'static str,
        /// The accepted dtypes.
        expected: String,
        /// The actual dtype.
        actual: DType,
        /// The input's dtype.
        input: DType,
    },
    /// Tensors of one call are on different devices.
    #[error("{tensor} is on device {actual}: expected {expected}, where the input is")]
    MixedDevices {
        /// The tensor.
        tensor: &'static str,
        /// The input's device.
        expected: String,
        /// The tensor's device.
        actual: String,
    },
    /// The device lacks the tensor's dtype, or cubenorm does not normalize it there.
    #[error("{tensor} has dtype {dtype}, which {device} does not normalize: {instead}")]
    UnsupportedDType {
        /// The tensor.
        tensor: &'static str,
        /// Its dtype.
        dtype: String,
        /// The device.
        device: String,
        /// The alternative, in words.
        instead: &'static str,
    },
    /// The device does not compute the activation to the precision of the input's dtype.
    #[error("{device} does not compute {activation:?} to the digits of {dtype}: {instead}")]
    UnsupportedActivation {
        /// The activation.
        activation: Activation,
        /// The input's dtype.
        dtype: DType,
        /// The device.
        device: String,
        /// The alternative, in words.
        instead: &'static str,
    },
    /// Epsilon is negative, infinite or not a number.
    #[error("epsilon is {epsilon}: expected a finite number that is not negative")]
    Epsilon {
        /// The actual value.
        epsilon: f64,
    },
    /// The offset of the scale is infinite or not a number.
    #[error("offset is {offset}: expected a finite number")]
    Offset {
        /// The actual value.
        offset: f64,
    },
    /// The activation of a gate in front of the norm has parameters.
    #[error(
        "the gate's activation is {activation:?}: expected one without parameters, such as Silu"
    )]
    Gate {
        /// The activation.
        activation: Activation,
    },
    /// A rotation goes with other parts of the description that it cannot go with.
    #[error("a rotation turns the last dimension of a row: {reason}")]
    Rotation {
        /// The reason, and what was expected.
        reason: &'static str,
    },
    /// Quantised output goes with other parts of the description that it cannot go with.
    #[error("quantised output has a scale per row: {reason}")]
    Quantization {
        /// The reason, and what was expected.
        reason: &'static str,
    },
    /// Codes have no quantised tensor of Burn.
    #[error("codes of {format:?} have no quantised tensor of Burn: expected Int8")]
    QuantizedTensor {
        /// The format of the codes.
        format: CodeFormat,
    },
    /// The momentum of a running value is outside its range.
    #[error("momentum is {momentum}: expected a number from 0 to 1")]
    Momentum {
        /// The actual value.
        momentum: f64,
    },
    /// The operation cannot be part of a recorded graph.
    #[error("{operation} cannot be recorded: {reason}")]
    Recorded {
        /// The operation.
        operation: &'static str,
        /// The reason, and the alternative, in words.
        reason: &'static str,
    },
    /// The description requests a result that is not computed.
    #[error("{tensor} cannot be written: {reason}")]
    NothingToWrite {
        /// The tensor.
        tensor: &'static str,
        /// The reason that the result does not exist.
        reason: &'static str,
    },
    /// A dimension differs from the size that the operator requires.
    #[error("{tensor} has shape {shape:?}: expected {expected}")]
    Shape {
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The expected shape, in words.
        expected: String,
    },
    /// Burn is built with the tensor's backend, but this crate is not.
    #[error("{tensor} is on device {device}, whose backend cubenorm is built without: {instead}")]
    UnsupportedBackend {
        /// The tensor.
        tensor: &'static str,
        /// Its device.
        device: String,
        /// The alternative, in words.
        instead: &'static str,
    },
    /// Tensors of one call have different gradient checkpointing strategies.
    #[error("{tensor} has gradient checkpointing {actual}: expected {expected}, as {like} has")]
    MixedCheckpointing {
        /// The tensor.
        tensor: &'static str,
        /// Its strategy.
        actual: String,
        /// The strategy that was expected.
        expected: String,
        /// The tensor with that strategy.
        like: &'static str,
    },
    /// A pass of the call exceeds a limit of the device.
    #[error("{device} cannot run the {pass} pass of this call: {limit}")]
    DeviceLimit {
        /// The device.
        device: String,
        /// `forward` or `backward`.
        pass: &'static str,
        /// The limit, and the alternative, in words.
        limit: String,
    },
}
