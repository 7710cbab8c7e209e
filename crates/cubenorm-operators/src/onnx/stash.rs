use cubenorm_core::DType;

use crate::OperatorError;

/// What `stash_type` names, of `TensorProto.DataType`.
const TYPES: [(i64, DType); 4] = [
    (1, DType::F32),
    (10, DType::F16),
    (11, DType::F64),
    (16, DType::BF16),
];

/// The dtype that a `stash_type` names, of those that the operator takes.
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

/// The dtype of the normalization that an operator comes to: the tensors' own where input and output
/// share it, and one that holds both otherwise; `f64` where that is the precision asked for.
pub(super) fn compute_dtype(input: DType, output: DType, stash: DType) -> DType {
    match [input, output, stash].contains(&DType::F64) {
        true => DType::F64,
        false if input == output => input,
        false => DType::F32,
    }
}
