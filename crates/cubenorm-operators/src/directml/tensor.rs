use std::fmt;

use cubenorm_core::{DType, Layout, MAX_RANK};
use serde::{Deserialize, Serialize};

use crate::OperatorError;

/// Maximum elements that a tensor spans, by DirectML's `DML_BUFFER_TENSOR_DESC`.
const MAX_ELEMENTS: u64 = u32::MAX as u64;

/// `DML_TENSOR_DATA_TYPE`: the types that these operators accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataType {
    /// IEEE 754 binary32.
    #[serde(rename = "FLOAT32", alias = "DML_TENSOR_DATA_TYPE_FLOAT32")]
    Float32,
    /// IEEE 754 binary16. Computed in binary32.
    #[serde(rename = "FLOAT16", alias = "DML_TENSOR_DATA_TYPE_FLOAT16")]
    Float16,
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "FLOAT32",
            Self::Float16 => "FLOAT16",
        })
    }
}

impl From<DataType> for DType {
    fn from(data_type: DataType) -> Self {
        match data_type {
            DataType::Float32 => Self::F32,
            DataType::Float16 => Self::F16,
        }
    }
}

/// `DML_BUFFER_TENSOR_DESC`: sizes and strides of a tensor in a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TensorDesc {
    /// Element type.
    pub data_type: DataType,
    /// Size of each dimension: 1 to 8 dimensions, none of size 0.
    pub sizes: Vec<u32>,
    /// Elements between neighbouring indices of each dimension; 0 repeats an element. `None` for a
    /// packed tensor: row-major, without gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strides: Option<Vec<u32>>,
    /// Minimum size of a buffer for this tensor. `None` for the size that follows from sizes and
    /// strides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tensor_size_in_bytes: Option<u64>,
}

impl TensorDesc {
    /// Describes a row-major tensor without gaps.
    pub fn packed(data_type: DataType, sizes: impl Into<Vec<u32>>) -> Self {
        Self {
            data_type,
            sizes: sizes.into(),
            strides: None,
            total_tensor_size_in_bytes: None,
        }
    }

    setters! {
        with_strides(strides: impl Into<Option<Vec<u32>>>),
        with_total_tensor_size_in_bytes(total_tensor_size_in_bytes: impl Into<Option<u64>>),
    }

    /// Converts the sizes to core's terms.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.sizes.iter().map(|&size| size as usize).collect()
    }

    /// Checks the rules for any tensor, and describes it in core's terms.
    pub(super) fn lower(
        &self,
        operator: &'static str,
        tensor: &'static str,
    ) -> Result<cubenorm_core::TensorDesc, OperatorError> {
        let rank = self.sizes.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return Err(OperatorError::Rank {
                operator,
                tensor,
                expected: format!("1 to {MAX_RANK}"),
                rank,
            });
        }
        if self.sizes.contains(&0) {
            return Err(OperatorError::Sizes {
                operator,
                tensor,
                expected: "none of them to be 0".into(),
                sizes: self.shape(),
            });
        }
        let layout = match &self.strides {
            None => Layout::contiguous(self.shape()),
            Some(strides) if strides.len() != rank => {
                return Err(OperatorError::StrideCount {
                    operator,
                    tensor,
                    expected: rank,
                    actual: strides.len(),
                });
            }
            Some(strides) => {
                let strides: Vec<usize> = strides.iter().map(|&stride| stride as usize).collect();
                Layout::strided(self.shape(), strides)
            }
        };
        let span = layout.checked_span().map(|span| span as u64);
        // With strides of 0 a tensor may have more elements than it spans.
        let countable = layout.checked_elements().is_some();
        let Some(span) = span.filter(|&span| countable && span <= MAX_ELEMENTS) else {
            return Err(OperatorError::TooLarge {
                operator,
                tensor,
                expected: MAX_ELEMENTS,
                sizes: self.shape(),
            });
        };
        let dtype = DType::from(self.data_type);
        let expected = span * dtype.size() as u64;
        match self.total_tensor_size_in_bytes {
            Some(actual) if actual < expected => Err(OperatorError::TotalTensorSize {
                operator,
                tensor,
                expected,
                actual,
            }),
            _ => Ok(cubenorm_core::TensorDesc::new(layout, dtype)),
        }
    }
}
