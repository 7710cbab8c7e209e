//! Load modes: the access pattern of a vector's lanes in each tensor.

use super::cpu_vulkan;
use crate::dtype::DType;
use crate::plan::blueprint::{AccessBlueprint, Addressing, LoadMode};
use crate::plan::hardware::Hardware;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;
use crate::problem::{Access, Dim};

/// The access of a tensor in the vectors of a workload.
pub(in crate::plan) fn access(access: &Access, work: &Workload) -> AccessBlueprint {
    let has_tail = work.has_column_tail();
    let is_next = |dim: &Dim| dim.stride == work.cols;
    let has_packed_rows = matches!(access.row.as_slice(), [dim] if is_next(dim));
    let has_unit_stride = access.col.last().is_some_and(|dim| dim.stride == 1);
    AccessBlueprint {
        row_dims: access.row.len(),
        col_dims: access.col.len(),
        mode: match mode(access, work.lanes, work.vector) {
            // The tail vector of a segment may be unaligned.
            LoadMode::Vector if work.has_tail => LoadMode::Unaligned,
            // No vector crosses into the next segment.
            LoadMode::Segments if has_tail => LoadMode::Broadcast,
            mode => mode,
        },
        addressing: match work.lanes {
            _ if has_tail => Addressing::Tail,
            Vectorization::Parallel if has_packed_rows => Addressing::PackedRows,
            Vectorization::Perpendicular if has_unit_stride => Addressing::UnitStride,
            _ => Addressing::Decoded,
        },
        nontemporal: false,
    }
}

/// Packs f16 elements in pairs on a CPU Vulkan driver. All tensors of one dtype must use whole
/// vectors, because a kernel has one type for them.
pub(in crate::plan) fn pack<const N: usize>(
    dtype: DType,
    work: &Workload,
    hardware: &Hardware,
    tensors: [Option<&mut AccessBlueprint>; N],
) {
    let mut tensors: Vec<_> = tensors.into_iter().flatten().collect();
    let are_vectors = tensors.iter().all(|access| access.mode == LoadMode::Vector);
    if cpu_vulkan::packs_half2(dtype, work.vector, hardware) && are_vectors {
        for access in &mut tensors {
            access.mode = LoadMode::PackedHalf2;
        }
    }
}

/// The load mode of vectors of `vector` lanes.
pub(super) fn mode(access: &Access, lanes: Vectorization, vector: usize) -> LoadMode {
    let Some((innermost, outer)) = lane_dims(access, lanes).split_last() else {
        return LoadMode::Broadcast;
    };
    let others = match lanes {
        Vectorization::Parallel => &access.row,
        Vectorization::Perpendicular => &access.col,
    };
    // A vector access is aligned if all other strides are multiples of its width.
    let is_aligned = outer
        .iter()
        .chain(others)
        .all(|dim| dim.stride % vector == 0);
    match innermost.stride {
        0 if is_of_segments(access, lanes, vector) => LoadMode::Segments,
        0 if is_of_rows(access, lanes, vector) => LoadMode::RowScalar,
        0 => LoadMode::Broadcast,
        1 if is_aligned => LoadMode::Vector,
        1 => LoadMode::Unaligned,
        _ => LoadMode::Gather,
    }
}

/// True if a tensor is constant along column segments that are longer than a vector, but not a
/// multiple of it.
pub(super) fn is_of_segments(access: &Access, lanes: Vectorization, vector: usize) -> bool {
    let innermost = access.col.last();
    let segments = innermost.filter(|dim| dim.stride == 0 && dim.size >= vector);
    lanes == Vectorization::Parallel && segments.is_some_and(|dim| dim.size % vector != 0)
}

/// True if a tensor is constant along rows, and repeats over a number of rows that vectors do not
/// divide.
pub(super) fn is_of_rows(access: &Access, lanes: Vectorization, vector: usize) -> bool {
    let innermost = access.row.last();
    let repeats = innermost.is_some_and(|dim| dim.stride == 0 && dim.size % vector != 0);
    lanes == Vectorization::Perpendicular && access.col.is_empty() && repeats
}

/// The dimensions that vectors run along.
pub(super) fn lane_dims(access: &Access, lanes: Vectorization) -> &[Dim] {
    match lanes {
        Vectorization::Parallel => &access.col,
        Vectorization::Perpendicular => &access.row,
    }
}
