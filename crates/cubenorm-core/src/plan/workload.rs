//! The problem as scheduling sees it, forward or backward.

use std::ops::RangeInclusive;

use super::accuracy::{BLOCK, LONGEST_COLUMN_SUM, MOST_BLOCKS};
use super::hardware::Hardware;
use super::knobs::Knobs;
use super::team::Vectorization;
use crate::dtype::DType;
use crate::statistics::Merge;

/// Columns of rows that fill registers beside a late tensor. Shorter rows are a plane's, longer ones were not measured.
const COLUMNS_WITH_LATE: RangeInclusive<usize> = 2048..=16_384;

/// The properties of a problem that determine its schedule, in vectors: row groups and steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
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
    /// Sums per column (dgamma, dbeta) that a team accumulates over its rows. Fewer teams leave
    /// fewer partial sums to reduce.
    pub column_sums: usize,
    /// Tensors of the input's size that are read.
    pub reads: usize,
    /// True if one of them is read when the row is written: a late residual or gate.
    pub reads_late: bool,
    /// Consecutive rows that share their statistics.
    pub segments: usize,
    /// True if elements of a row are rotated in pairs, so that vectors have no tail.
    pub rotates: bool,
    /// True if the output is quantised, so that rows are whole and vectors hold whole words of codes.
    pub quantizes: bool,
    /// True if scale or bias change along a row.
    pub params_by_step: bool,
    /// Choices fixed by the caller or by autotuning.
    pub knobs: Knobs,
    /// The axis that vectors run along.
    pub lanes: Vectorization,
    /// Lanes of a vector.
    pub vector: usize,
    /// Length of a contiguous column segment, or of a segment of adjacent rows if vectors run along
    /// rows.
    pub segment_len: usize,
    /// True if the length of a segment is not a multiple of the width: its tail vector ends with
    /// the segment.
    pub has_tail: bool,
    /// Row groups that the plan is for: rows, or vectors of rows.
    pub groups: usize,
    /// Row groups to distribute: the same, unless the knobs plan for another number.
    pub groups_of_launch: usize,
    /// Steps through a row: vectors of columns, or columns.
    pub steps: usize,
    /// Row groups in a core's tile of adjacent rows, if vectors run along the kept axis; else 1.
    pub tile: usize,
    /// Rows per unit, if each unit owns whole rows.
    pub rows_per_unit: usize,
    /// Cubes that cooperate on each row.
    pub cluster_size: u32,
}

impl Workload {
    /// Rows of one tensor that are reduced, one element per step.
    pub(super) fn new(rows: usize, cols: usize, dtype: DType, knobs: Knobs) -> Self {
        Self {
            rows,
            cols,
            dtype,
            param_dtype: dtype,
            staged: dtype,
            reduces: true,
            merge: Merge::Sum,
            column_sums: 0,
            reads: 1,
            reads_late: false,
            segments: 1,
            rotates: false,
            quantizes: false,
            params_by_step: false,
            knobs,
            lanes: Vectorization::Parallel,
            vector: 1,
            segment_len: cols,
            has_tail: false,
            groups: rows,
            groups_of_launch: rows,
            steps: cols,
            tile: 1,
            rows_per_unit: 1,
            cluster_size: 1,
        }
    }

    /// The same in vectors of `vector` lanes, with segments of `segment_len` elements along `lanes`.
    pub(super) fn in_vectors(
        mut self,
        lanes: Vectorization,
        vector: usize,
        segment_len: usize,
        has_tail: bool,
    ) -> Self {
        (self.lanes, self.vector, self.segment_len, self.has_tail) =
            (lanes, vector, segment_len, has_tail);
        let vectors_of = |elements: usize| match has_tail {
            true => elements / segment_len * self.vectors_of_segment(),
            false => elements / vector,
        };
        let planned = match self.knobs.planned_groups {
            Some(groups) => groups * self.segments,
            None => self.rows,
        };
        (self.groups, self.groups_of_launch, self.steps) = match lanes {
            Vectorization::Parallel => (planned, self.rows, vectors_of(self.cols)),
            Vectorization::Perpendicular => {
                (vectors_of(planned).max(1), vectors_of(self.rows), self.cols)
            }
        };
        self
    }

    /// True if the input is f16 or bf16.
    pub(super) fn is_half(&self) -> bool {
        self.dtype.is_half()
    }

    /// True if a row of f16/bf16 would fill the registers of a GPU: the late tensor is loaded before the row is reduced,
    /// and its converted values take registers too. Such a row is staged in shared memory, and the late tensor is loaded
    /// when the row is written. The cubes of a cluster have a multiprocessor each.
    /// 2,048 to 16,384 bf16 H200, gated RMS norm, registers -> shared memory: 1.02x to 1.40x faster.
    pub(super) fn fills_registers(&self, hardware: &Hardware) -> bool {
        let is_alone = hardware.is_gpu() && self.cluster_size == 1;
        is_alone && self.reads_late && self.is_half() && COLUMNS_WITH_LATE.contains(&self.cols)
    }

    /// Bytes of an element in the accumulation dtype.
    pub(super) fn accumulation(&self) -> usize {
        self.dtype.accumulation().size()
    }

    /// Bytes of a row of one tensor.
    pub(super) fn row_bytes(&self) -> usize {
        self.cols * self.dtype.size()
    }

    /// Elements in whole vectors.
    pub(super) fn elements(&self) -> usize {
        self.groups * self.steps * self.vector
    }

    /// Vectors of a segment.
    pub(super) fn vectors_of_segment(&self) -> usize {
        self.segment_len.div_ceil(self.vector)
    }

    /// True if column segments end with a tail vector.
    pub(super) fn has_column_tail(&self) -> bool {
        self.has_tail && self.lanes == Vectorization::Parallel
    }

    /// True if an odd number of adjacent rows leaves vectors of one lane.
    pub(super) fn is_single(&self) -> bool {
        let is_odd = !self.segment_len.is_multiple_of(2);
        self.lanes == Vectorization::Perpendicular && self.vector == 1 && is_odd
    }

    /// Maximum number of steps in one unit's sum.
    pub(super) fn longest_sum(&self) -> usize {
        let block = match self.has_column_tail() {
            true => self.vectors_of_segment().min(BLOCK),
            false => BLOCK,
        };
        MOST_BLOCKS * block
    }

    /// Minimum number of teams that keeps column sums within [`LONGEST_COLUMN_SUM`] rows.
    pub(super) fn least_teams(&self) -> usize {
        match self.column_sums > 0 {
            true => self.groups.div_ceil(LONGEST_COLUMN_SUM),
            false => 1,
        }
    }
}
