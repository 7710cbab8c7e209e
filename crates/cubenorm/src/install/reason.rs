//! Reasons that a part of a graph runs as Burn runs it.

/// A reason that operations that look like a norm are left to Burn.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclineReason {
    /// A result inside the norm is read after it, or autodiff keeps it for the backward pass.
    #[error("the result of {operation} is read outside the norm: expected no other reader")]
    IntermediateRead {
        /// The operation.
        operation: String,
    },
    /// The tensor that is subtracted is not the mean of the tensor.
    #[error("the subtracted tensor is not the mean of the tensor that is normalized")]
    OtherMean,
    /// The variance is that of another tensor.
    #[error("the variance is of another tensor than the one that is normalized")]
    OtherVariance,
    /// The deviation is that of the centred tensor, which is not what it divides.
    #[error("the deviation is about the mean, but no mean is subtracted from what it divides")]
    NotCentered,
    /// The deviation is about 0, but a mean is subtracted.
    #[error("a mean is subtracted, but the deviation is not about the mean")]
    VarianceNotCentered,
    /// Mean and variance reduce different axes.
    #[error("mean and variance reduce different axes")]
    OtherAxes,
    /// A statistic broadcasts along other axes than it is reduced over.
    #[error("a statistic broadcasts along other axes than it is reduced over")]
    OtherBroadcast,
    /// The squares of a centred tensor are summed and not divided by their number.
    #[error("the sum of the squares about the mean is not divided by their number")]
    NoDivisor,
    /// What is reduced is not the square of a tensor.
    #[error("the deviation is the root of a mean that is not one of squares")]
    NotSquares,
    /// The divisor is a mean and an epsilon, without a root.
    #[error("the divisor is a mean and an epsilon: expected the square root of a variance")]
    NoRoot,
    /// There is no epsilon, so a constant row divides rounding errors by each other.
    #[error("the variance has no epsilon: expected one, inside the square root or behind it")]
    NoEpsilon,
    /// The epsilon is an element of a tensor, as in graphs that PaddlePaddle exports. Its value is on the device.
    #[error("the epsilon is a tensor: expected a number")]
    EpsilonTensor,
    /// There are two.
    #[error("the variance has two epsilons: expected one")]
    TwoEpsilons,
    /// The variance or the deviation is clamped. The kernels add epsilon.
    #[error("the deviation is clamped: expected an epsilon that is added")]
    Clamped,
    /// A number has another value than the formula's.
    #[error("a number is {actual}: expected {expected}")]
    Number {
        /// The number.
        actual: f64,
        /// The formula's.
        expected: f64,
    },
    /// A sum is divided by another number than that of its elements, as an unbiased variance is.
    #[error("a sum over {elements} elements is multiplied by {actual}: expected 1/{elements}")]
    Divisor {
        /// The number.
        actual: f64,
        /// Elements of the sum.
        elements: usize,
    },
    /// The output has another dtype than the input.
    #[error("the input has dtype {input} and the output {output}: expected one dtype")]
    DType {
        /// Dtype of the input.
        input: String,
        /// Dtype of the output.
        output: String,
    },
    /// Reshapes that no view of the tensor has in common.
    #[error("shapes {first:?} and {second:?} of the tensor have no view in common")]
    Reshape {
        /// One shape.
        first: Vec<usize>,
        /// Another shape.
        second: Vec<usize>,
    },
    /// An operation amid the norm needs the norm's result, and the norm needs the operation's.
    #[error("an operation in between reads the norm and is read by it")]
    Interleaved,
    /// Burn fuses more elementwise operations with the norm than the kernels do, which costs more than the norm saves.
    #[error(
        "{passes} elementwise passes around the norm are fused by Burn: expected at most {most}"
    )]
    Surrounded {
        /// Passes of their own.
        passes: usize,
        /// Passes that the fused norm makes up for.
        most: usize,
    },
    /// The tensor is small, so that a launch costs more than its work.
    #[error("the input has {elements} elements: expected {least} or more")]
    Small {
        /// Elements of the input.
        elements: usize,
        /// The least number on this device.
        least: usize,
    },
    /// The kernels or the device refuse it.
    #[error("{0}")]
    Refused(String),
}
