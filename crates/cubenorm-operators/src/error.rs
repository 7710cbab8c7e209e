use cubenorm_core::NormError;

/// Why an operator cannot be lowered. Every variant names the operator and the tensor or attribute,
/// as its specification spells them, what was expected and what came.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The description that an operator came to is refused.
    #[error(transparent)]
    Norm(#[from] NormError),
    /// No operator of this name is known in the domain.
    #[error("unknown operator {op_type} in domain {domain:?}")]
    UnknownOperator {
        /// The domain.
        domain: String,
        /// The operator's name.
        op_type: String,
    },
    /// The operator does not exist yet in the opset in force.
    #[error("{operator}: opset {opset} is in force: expected {since} or later")]
    Opset {
        /// The operator.
        operator: &'static str,
        /// The opset in force.
        opset: i64,
        /// The first one that has the operator.
        since: i64,
    },
    /// An attribute that the operator does not have.
    #[error("{operator}: unknown attribute {attribute}: expected one of {expected}")]
    UnknownAttribute {
        /// The operator.
        operator: &'static str,
        /// The attribute.
        attribute: String,
        /// Those that it has.
        expected: String,
    },
    /// An attribute without a default is not given.
    #[error("{operator}: attribute {attribute} is required, but not given")]
    MissingAttribute {
        /// The operator.
        operator: &'static str,
        /// The attribute.
        attribute: &'static str,
    },
    /// An attribute has a type or a value that the operator does not take.
    #[error("{operator}: {attribute} is {actual}: expected {expected}")]
    Attribute {
        /// The operator.
        operator: &'static str,
        /// The attribute or field.
        attribute: &'static str,
        /// What would have been taken, in words.
        expected: String,
        /// What came.
        actual: String,
    },
    /// A tensor that the operator needs is not given.
    #[error("{operator}: {tensor} is required, but not given")]
    MissingTensor {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
    },
    /// More inputs or outputs than the operator has.
    #[error("{operator}: {actual} {kind} are given: expected at most {expected}")]
    TooMany {
        /// The operator.
        operator: &'static str,
        /// `inputs` or `outputs`.
        kind: &'static str,
        /// How many it has.
        expected: usize,
        /// How many came.
        actual: usize,
    },
    /// The operator's result is not asked for.
    #[error("{operator}: {tensor} is not asked for: expected it always to be")]
    NotWanted {
        /// The operator.
        operator: &'static str,
        /// The result.
        tensor: &'static str,
    },
    /// An output is asked for that there is none of.
    #[error("{operator}: {tensor} cannot be written: {reason}")]
    NothingToWrite {
        /// The operator.
        operator: &'static str,
        /// The output.
        tensor: &'static str,
        /// Why there is none.
        reason: &'static str,
    },
    /// A program whose way back is not known.
    #[error("the operator has no gradient: {reason}")]
    NoGradient {
        /// What the program is or does that keeps it from having one.
        reason: &'static str,
    },
    /// A tensor has too few or too many dimensions.
    #[error("{operator}: {tensor} has rank {rank}: expected {expected}")]
    Rank {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// What would have been taken, in words.
        expected: String,
        /// Its rank.
        rank: usize,
    },
    /// A tensor has sizes that do not go with another's.
    #[error("{operator}: {tensor} has sizes {sizes:?}: expected {expected}")]
    Sizes {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// What would have been taken, in words.
        expected: String,
        /// Its sizes.
        sizes: Vec<usize>,
    },
    /// A tensor has a data type that does not go with another's.
    #[error("{operator}: {tensor} has data type {actual}: expected {expected}")]
    DataType {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// What would have been taken, in words.
        expected: String,
        /// Its data type.
        actual: String,
    },
    /// A tensor has more or fewer strides than sizes.
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
    /// A tensor reaches over more elements than its kind may.
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
    /// A tensor is declared smaller than its sizes and strides reach.
    #[error(
        "{operator}: {tensor} has TotalTensorSizeInBytes {actual}: expected at least {expected}"
    )]
    TotalTensorSize {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// The bytes that it reaches over.
        expected: u64,
        /// The bytes declared.
        actual: u64,
    },
    /// A tensor's strides do not let two of its dimensions be seen as one.
    #[error("{operator}: {tensor} has strides {strides:?}: expected {expected}")]
    Strides {
        /// The operator.
        operator: &'static str,
        /// The tensor.
        tensor: &'static str,
        /// What would have been taken, in words.
        expected: String,
        /// Its strides, in elements.
        strides: Vec<usize>,
    },
}
