use cubenorm_core::DType;

use crate::OperatorError;

/// Dtypes of `stash_type`, by their numbers in `TensorProto.DataType`.
const TYPES: [(i64, DType); 4] = [
    (1, DType::F32),
    (10, DType::F16),
    (11, DType::F64),
    (16, DType::BF16),
];

/// Dtype of a `stash_type`, if the operator accepts it.
pub(super) fn stash_dtype(
    operator: &'static str,
    stash_type: i64,
    taken: &[DType],
) -> Result<DType, OperatorError> {
    let types = TYPES.iter().filter(|(_, dtype)| taken.contains(dtype));
    let found = types.clone().find(|&&(number, _)| number == stash_type);
    found.map(|&(_, dtype)| dtype).ok_or_else(|| {
        let names: Vec<String> = types
            .map(|(number, dtype)| format!("{number} ({dtype})"))
            .collect();
        OperatorError::Attribute {
            operator,
            attribute: "stash_type",
            expected: names.join(" or "),
            actual: stash_type.to_string(),
        }
    })
}

/// Dtype of the resulting normalization: the tensors' own if input and output share it, otherwise
/// one that holds both; `f64` if that precision is requested.
pub(super) fn compute_dtype(input: DType, output: DType, stash: DType) -> DType {
    match [input, output, stash].contains(&DType::F64) {
        true => DType::F64,
        false if input == output => input,
        false => DType::F32,
    }
}
