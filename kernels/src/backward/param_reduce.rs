//! Final reduction of parameter-gradient partials, in a fixed order.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, LoadMode, Vectorization};

use crate::memory::access::{Optional, col_offset, row_offset};

/// Parts that are summed before they are added to the total, which limits rounding errors.
const BLOCK: usize = 64;

/// Loads in flight.
const LOADS_IN_FLIGHT: usize = 4;

/// Sums `parts` vectors for each vector of outputs. Vectors run along x; `size` units along y
/// share the parts of a vector. The cube's y selects the output: sums of the first begin at
/// `offset`, sums of the second at `second_offset`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn param_reduce<A: Float, H: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    output: &mut Tensor<Vector<H, N>>,
    second: &mut Optional<H, N>,
    vectors: usize,
    parts: usize,
    offset: usize,
    second_offset: usize,
    rounds: usize,
    #[comptime] shape: ParamReduceShape,
    #[define(A)] _accumulation: ElemType,
    #[define(H)] _dtype: ElemType,
) {
    let vectorization = comptime!(Vectorization::Perpendicular);
    let size = comptime!(shape.size);
    let columns = comptime!(shape.columns);
    let access = comptime!(shape.access());
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let (cube, cubes) = (CUBE_POS_X as usize, CUBE_COUNT_X as usize);
    let is_first = CUBE_POS_Y == 0;
    let offset = select(is_first, offset, second_offset);
    for round in 0..rounds {
        let place = if comptime!(shape.blocked) {
            (cube * columns + x) * rounds + round
        } else {
            (round * cubes + cube) * columns + x
        };
        // The cube has barriers: a unit without a vector sums nothing, but stays in the loop.
        let mine = select(place < vectors, parts, 0usize.runtime());
        let element = min(place, vectors - 1) * N::value();
        let base = offset + row_offset::<A, N>(sums, element, access, vectorization);
        let mut sum = sum_parts::<A, N>(sums, base, y, mine, shape);
        if comptime!(size > 1) {
            sum = merge_units::<A, N>(sum, x, y, shape);
        }
        if place < vectors && y == 0 {
            let sum = Vector::<H, N>::cast_from(sum);
            if is_first {
                output[place] = sum;
            } else if comptime!(second.is_some()) {
                let second = second.as_mut().unwrap();
                second[place] = sum;
            }
        }
    }
}

/// Sums every `size`th part of an element from `first` on, block by block.
#[cube]
fn sum_parts<A: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    base: usize,
    first: usize,
    parts: usize,
    #[comptime] shape: ParamReduceShape,
) -> Vector<A, N> {
    let size = comptime!(shape.size);
    let access = comptime!(shape.access());
    let zero = Vector::<A, N>::new(A::new(0.0));
    let mut sum = zero;
    let mut part = first;
    while part < parts {
        let end = min(part + comptime!(BLOCK * size), parts);
        let mut block = zero;
        while part + comptime!((LOADS_IN_FLIGHT - 1) * size) < end {
            let mut several = Sequence::<Vector<A, N>>::new();
            #[unroll]
            for i in 0..LOADS_IN_FLIGHT {
                let at = part + comptime!(i * size);
                several.push(part_of::<A, N>(sums, base, at, access));
            }
            #[unroll]
            for i in 0..LOADS_IN_FLIGHT {
                block += *several.index(i);
            }
            part += comptime!(LOADS_IN_FLIGHT * size);
        }
        while part < end {
            block += part_of::<A, N>(sums, base, part, access);
            part += size;
        }
        sum += block;
    }
    sum
}

/// Sums a value over the units with the same x: a tree in shared memory. The unit with y 0 gets the
/// sum.
///
/// All units of a cube call this: it contains barriers.
#[cube]
fn merge_units<A: Float, N: Size>(
    mine: Vector<A, N>,
    x: usize,
    y: usize,
    #[comptime] shape: ParamReduceShape,
) -> Vector<A, N> {
    let (size, columns) = comptime!((shape.size, shape.columns));
    let mut partial = Shared::<[Vector<A, N>]>::new_slice(comptime!(size * columns));
    let mut sum = mine;
    partial[y * columns + x] = sum;
    #[unroll]
    for level in 0..comptime!(size.ilog2()) {
        let half = comptime!(size >> (level + 1));
        sync_cube();
        if y < half {
            sum += partial[(y + half) * columns + x];
            partial[y * columns + x] = sum;
        }
    }
    // Barrier before the next round overwrites the table.
    sync_cube();
    sum
}

/// Part of an element's sum. The parts of the element begin at `base`.
#[cube]
fn part_of<A: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    base: usize,
    part: usize,
    #[comptime] access: AccessBlueprint,
) -> Vector<A, N> {
    let at = col_offset::<A, N>(sums, part, access, comptime!(Vectorization::Perpendicular));
    sums[(base + at) / N::value()]
}

/// Comptime arguments of the reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ParamReduceShape {
    /// Units that share the parts of a vector: a power of two.
    pub(crate) size: usize,
    /// Adjacent vectors of a cube.
    pub(crate) columns: usize,
    /// True for a blocked arrangement (CPU): a unit takes consecutive vectors. False for a striped
    /// one: adjacent units take adjacent vectors.
    pub(crate) blocked: bool,
    /// Dimensions that an element's index is decoded over.
    pub(crate) element_dims: usize,
    /// Dimensions that a part's index is decoded over.
    pub(crate) part_dims: usize,
    /// Vector loads if elements are contiguous, else single elements.
    pub(crate) mode: LoadMode,
}

impl ParamReduceShape {
    /// Access to the partials: elements as rows, parts as columns.
    fn access(self) -> AccessBlueprint {
        AccessBlueprint {
            mode: self.mode,
            ..AccessBlueprint::of_numbers(self.element_dims, self.part_dims)
        }
    }
}
