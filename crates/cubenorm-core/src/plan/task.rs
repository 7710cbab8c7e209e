//! The input of scheduling.

use super::Merge;
use crate::DType;

/// The properties of a problem that determine its schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub rows: usize,
    pub cols: usize,
    pub dtype: DType,
    /// Of scale, bias and provided statistics.
    pub param_dtype: DType,
    /// Dtype of a staged row.
    pub staged: DType,
    /// True if anything is reduced over a row.
    pub reduces: bool,
    /// The combination of partial statistics.
    pub merge: Merge,
    /// Column sums that a team accumulates over its rows. Fewer teams leave fewer partial sums to
    /// reduce.
    pub column_sums: usize,
    /// Tensors of the input's size that are read.
    pub reads: usize,
    /// Consecutive rows that share their statistics.
    pub segments: usize,
    /// True if scale or bias change along a row.
    pub params_by_step: bool,
}
