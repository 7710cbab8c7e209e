//! What a launch is cut from.

use super::Merge;
use crate::DType;

/// What there is to do, as far as it decides how it is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub rows: usize,
    pub cols: usize,
    pub dtype: DType,
    /// Of scale and bias, and of statistics that are given.
    pub param_dtype: DType,
    /// What a row is held in between its passes.
    pub held: DType,
    /// Whether anything is reduced over a row.
    pub reduces: bool,
    /// How partial results become one.
    pub merge: Merge,
    /// Sums of each column that a team takes of its rows, so that few teams leave little to add up.
    pub column_sums: usize,
    /// Tensors of the input's size that are read.
    pub reads: usize,
    /// Rows that have their statistics in common.
    pub strands: usize,
    /// Whether scale or bias change along a row.
    pub params_by_step: bool,
}
