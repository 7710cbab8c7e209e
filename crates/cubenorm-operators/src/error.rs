use cubenorm_core::NormError;

/// Error of lowering an operator. Every variant names the operator and the tensor or attribute, as
/// spelled in its specification, with the expected and the actual value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The resulting description is invalid.
    #[error(transparent)]
    Norm(#[from] NormError),
    /// The domain has no operator of this name.
    #[error("unknown operator {op_type} in domain {domain:?}")]
    UnknownOperator {
        /// The domain.
        domain: String,
        /// The operator's name.
        op_type: String,
    },
    /// The operator does not exist yet in this opset.
    #[error("{operator}: opset {opset} is in force: expected {since} or later")]
    Opset {
        /// The operator.
        operator: &'static str,
        /// The opset in force.
        opset: i64,
        /// First opset that has the operator.
        since: i64,
    },
    /// The operator does not have the attribute.
    #[error("{operator}: unknown attribute {attribute}: expected one of {expected}")]
    UnknownAttribute {
        /// The operator.
        operator: &'static str,
        /// The attribute.
        attribute: String,
        /// Its attributes.
        expected: String,
    },
    /// A required attribute is missing.
    #[error("{operator}: attribute {attribute} is required, but not given")]
    MissingAttribute {
        /// The operator.
        operator: &'static str,
        /// The attribute.
        attribute: &'static str,
    },
    /// The type or value of an attribute is invalid.
    #[error("{operator}: {attribute} is {actual}: expected {expected}")]
    Attribute {
        /// The operator.
        operator: &'static str,
        /// The attribute or field.
        attribute: &'static str,
        /// Accepted values, in words.
        expected: String,
        /// Value given.
        actual: String,
    },
    /// A required tensor is missing.
    #[error("{operator}: {tensor} is required, but not given")]
    MissingTensor {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
    },
    /// There are too many inputs or outputs.
    #[error("{operator}: {actual} {kind} are given: expected at most {expected}")]
    TooMany {
        /// The operator.
        operator: &'static str,
        /// `inputs` or `outputs`.
        kind: &'static str,
        /// Number that the operator has.
        expected: usize,
        /// Number given.
        actual: usize,
    },
    /// The operator's result is not wanted, but it is always written.
    #[error("{operator}: {tensor} is not wanted: expected it always")]
    NotWanted {
        /// The operator.
        operator: &'static str,
        /// Name of the result.
        tensor: &'static str,
    },
    /// A wanted output cannot be written.
    #[error("{operator}: {tensor} cannot be written: {reason}")]
    NothingToWrite {
        /// The operator.
        operator: &'static str,
        /// The output.
        tensor: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The program has no known backward pass.
    #[error("the operator has no gradient: {reason}")]
    NoGradient {
        /// The reason.
        reason: &'static str,
    },
    /// The rank of a tensor is invalid.
    #[error("{operator}: {tensor} has rank {rank}: expected {expected}")]
    Rank {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Accepted values, in words.
        expected: String,
        /// Its rank.
        rank: usize,
    },
    /// The sizes of a tensor do not match another's.
    #[error("{operator}: {tensor} has sizes {sizes:?}: expected {expected}")]
    Sizes {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Accepted values, in words.
        expected: String,
        /// Its sizes.
        sizes: Vec<usize>,
    },
    /// The data type of a tensor does not match another's.
    #[error("{operator}: {tensor} has data type {actual}: expected {expected}")]
    DataType {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Accepted values, in words.
        expected: String,
        /// Its data type.
        actual: String,
    },
    /// The numbers of strides and sizes differ.
    #[error("{operator}: {tensor} has {actual} strides: expected {expected}, one for each size")]
    StrideCount {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Its number of sizes.
        expected: usize,
        /// Its number of strides.
        actual: usize,
    },
    /// Two elements of an output share an address.
    #[error(
        "{operator}: {tensor} has sizes {sizes:?} and strides {strides:?}: expected an output in \
         which no two elements share an address"
    )]
    Overlap {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Its sizes.
        sizes: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<usize>,
    },
    /// A tensor spans more elements than allowed.
    #[error(
        "{operator}: {tensor} has sizes {sizes:?}: expected to reach over at most {expected} elements"
    )]
    TooLarge {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// The limit.
        expected: u64,
        /// Its sizes.
        sizes: Vec<usize>,
    },
    /// A tensor is declared smaller than its span.
    #[error(
        "{operator}: {tensor} has TotalTensorSizeInBytes {actual}: expected at least {expected}"
    )]
    TotalTensorSize {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Bytes that it spans.
        expected: u64,
        /// Bytes declared.
        actual: u64,
    },
    /// Strides do not allow merging two dimensions of a tensor.
    #[error("{operator}: {tensor} has strides {strides:?}: expected {expected}")]
    Strides {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// Accepted values, in words.
        expected: String,
        /// Its strides, in elements.
        strides: Vec<usize>,
    },
}
