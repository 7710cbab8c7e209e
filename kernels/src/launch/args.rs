//! Launch arguments from buffers and sizes.

use cubecl::ir::{AddressType, ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};
use cubenorm_core::{
    Access, AccessBlueprint, Activation, CODES_PER_WORD, DType, Epsilon, Grid, LoadMode, Team,
    TensorDesc, Vectorization,
};

use super::memory::bound;
use super::{LaunchError, elem_type};
use crate::epilogue::ScalarsLaunch;
use crate::schedule::partition::PartitionLaunch;

/// Checks that a buffer holds the span of a description.
pub(crate) fn check_buffer(
    tensor: &'static str,
    desc: &TensorDesc,
    handle: &Handle,
) -> Result<(), LaunchError> {
    check_buffer_from(tensor, desc, 0, handle)
}

/// [`check_buffer`] of a description that starts `offset` elements into the buffer.
pub(crate) fn check_buffer_from(
    tensor: &'static str,
    desc: &TensorDesc,
    offset: usize,
    handle: &Handle,
) -> Result<(), LaunchError> {
    let elements = handle.size_in_used() as usize / desc.dtype.size();
    Ok(desc.fits(tensor, elements.saturating_sub(offset))?)
}

/// Checks that an output overlaps no input. Reports the first overlap in the order of `read`.
pub(crate) fn check_apart<'a>(
    output: &'static str,
    written: &Handle,
    read: impl IntoIterator<Item = (&'static str, Option<&'a Handle>)>,
) -> Result<(), LaunchError> {
    let range = |handle: &Handle| {
        let start = handle.offset_start.unwrap_or(0);
        start..start + handle.size_in_used()
    };
    let is_shared = |other: &Handle| {
        let (mine, theirs) = (range(written), range(other));
        std::ptr::eq(written.memory.descriptor(), other.memory.descriptor())
            && mine.start < theirs.end
            && theirs.start < mine.end
    };
    match read
        .into_iter()
        .find(|(_, handle)| handle.is_some_and(is_shared))
    {
        Some((tensor, _)) => Err(LaunchError::Aliased { output, tensor }),
        None => Ok(()),
    }
}

/// A tensor that a launch binds: name, buffer and dtype.
pub(crate) type BoundTensor<'a> = (&'static str, Option<&'a Handle>, DType);

/// Address type for all bound buffers and for a workspace of `workspace` elements.
///
/// A buffer must start at a multiple of the device's alignment, because kernels load whole vectors.
pub(crate) fn address_type<'a>(
    client: &Client,
    bound: impl IntoIterator<Item = BoundTensor<'a>>,
    workspace: usize,
) -> Result<AddressType, LaunchError> {
    let alignment = client.properties().memory.alignment;
    let mut elements = workspace;
    for (tensor, handle, dtype) in bound {
        let Some(handle) = handle else { continue };
        let offset = handle.offset_start.unwrap_or(0);
        if !offset.is_multiple_of(alignment) {
            return Err(LaunchError::Misaligned {
                runtime: client.name(),
                tensor,
                offset,
                alignment,
            });
        }
        elements = elements.max(handle.size_in_used() as usize / dtype.size());
    }
    let address = AddressType::from_len(elements);
    match client.properties().supports_address(address) {
        true => Ok(address),
        false => Err(LaunchError::AddressSpace {
            runtime: client.name(),
            elements,
        }),
    }
}

/// Cubes of a launch.
pub(crate) fn cube_count(grid: &Grid) -> CubeCount {
    CubeCount::Static(grid.cube_count, 1, 1)
}

/// Units of a cube.
pub(crate) fn cube_dim(grid: &Grid) -> CubeDim {
    let [x, y, z] = grid.cube_dim;
    CubeDim::new_3d(x, y, z)
}

/// Partition of rows with `cols` columns.
pub(crate) fn partition(grid: &Grid, cols: usize) -> PartitionLaunch {
    PartitionLaunch::new(
        grid.groups,
        grid.steps,
        grid.splits,
        grid.steps_per_split,
        grid.groups_per_team,
        grid.segment_steps,
        grid.overlap,
        grid.segments,
        cols,
        cols,
    )
}

/// Rows that one vector of the workspace covers.
pub(crate) fn lanes_of_rows(team: &Team) -> usize {
    match team.lanes() {
        Vectorization::Perpendicular => team.vector,
        Vectorization::Parallel => 1,
    }
}

/// [`lanes_of_rows`] of the workspace that the second launch reads: 1 if segments were combined.
pub(crate) fn left_lanes(team: &Team) -> usize {
    match team.is_segmented() {
        true => 1,
        false => lanes_of_rows(team),
    }
}

/// Elements of one access to a tensor.
pub(crate) fn width(team: &Team, access: Option<AccessBlueprint>) -> usize {
    match access.map(|access| access.mode) {
        Some(LoadMode::Vector) => team.vector,
        Some(LoadMode::PackedHalf2) => team.vector / 2,
        Some(LoadMode::PackedByte4) => team.vector / CODES_PER_WORD,
        _ => 1,
    }
}

/// Element type of a tensor in a kernel: u32 for packed f16 pairs and codes.
pub(crate) fn memory_type(dtype: DType, access: Option<AccessBlueprint>) -> ElemType {
    match access.map(|access| access.mode) {
        Some(LoadMode::PackedHalf2 | LoadMode::PackedByte4) => ElemType::UInt(UIntKind::U32),
        _ => elem_type(dtype),
    }
}

/// Scalars that are run-time arguments, in the accumulation type.
pub(crate) fn scalars(dtype: DType, epsilon: Epsilon, activation: Activation) -> ScalarsLaunch {
    let dtype = elem_type(dtype.accumulation());
    let [alpha, beta] = activation.parameters();
    ScalarsLaunch::new(
        InputScalar::new(epsilon.value(), dtype),
        InputScalar::new(alpha, dtype),
        InputScalar::new(beta, dtype),
    )
}

/// Kernel argument of a tensor, with the dimensions of its row and column index.
///
/// The caller has checked that the layout spans no more than the buffer.
pub(crate) fn arg(handle: &Handle, access: &Access) -> TensorArg {
    let dims = || access.row.iter().chain(&access.col);
    let (shape, strides): (Shape, Strides) = match dims().next() {
        Some(_) => (
            dims().map(|dim| dim.size).collect(),
            dims().map(|dim| dim.stride).collect(),
        ),
        // A tensor with no dimensions still has one element.
        None => (Shape::from([1]), Strides::from([1])),
    };
    // SAFETY: Kernels form addresses from this metadata only, and the caller has checked its span
    // against the buffer.
    unsafe { TensorArg::from_raw_parts(bound(handle), strides, shape) }
}

/// [`arg`] of an optional tensor.
pub(crate) fn optional_arg(handle: Option<&Handle>, access: Option<&Access>) -> Option<TensorArg> {
    Some(arg(handle?, access?))
}

/// Kernel argument of a contiguous buffer of `elements` elements.
pub(crate) fn flat_arg(handle: &Handle, elements: usize) -> TensorArg {
    // SAFETY: The caller has allocated that many elements.
    unsafe { TensorArg::from_raw_parts(bound(handle), Strides::from([1]), Shape::from([elements])) }
}
