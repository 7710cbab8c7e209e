//! Adds up partial sums: the last stage of a parameter's gradient, always in the same order.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Lanes, LoadMode};

use crate::operand::{Optional, col_offset, row_offset};

/// Parts that are summed up apart before they are added to the rest, so that many keep their digits.
const BLOCK: usize = 64;

/// Loads that are under way at once.
const UNDER_WAY: usize = 4;

/// For each vector of outputs, the sum of `parts` vectors. Vectors lie along x; the units along y,
/// `members` of them, share the parts of one. Cubes along y have an output each, whose sums begin at `offset` and at
/// `second_offset`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fold<A: Float, H: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    output: &mut Tensor<Vector<H, N>>,
    second: &mut Optional<H, N>,
    vectors: usize,
    parts: usize,
    offset: usize,
    second_offset: usize,
    rounds: usize,
    #[comptime] shape: FoldShape,
    #[define(A)] _accumulation: ElemType,
    #[define(H)] _dtype: ElemType,
) {
    let lanes = comptime!(Lanes::Rows);
    let members = comptime!(shape.members);
    let columns = comptime!(shape.columns);
    let access = comptime!(shape.access());
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let (cube, cubes) = (CUBE_POS_X as usize, CUBE_COUNT_X as usize);
    let is_first = CUBE_POS_Y == 0;
    let offset = select(is_first, offset, second_offset);
    for round in 0..rounds {
        let place = if comptime!(shape.in_blocks) {
            (cube * columns + x) * rounds + round
        } else {
            (round * cubes + cube) * columns + x
        };
        // Units of a cube wait for each other: one without a vector sums up nothing and comes along.
        let mine = select(place < vectors, parts, 0usize.runtime());
        let element = min(place, vectors - 1) * N::value();
        let base = offset + row_offset::<A, N>(sums, element, access, lanes);
        let zero = Vector::<A, N>::new(A::new(0.0));
        let mut sum = zero;
        let mut part = y;
        while part < mine {
            let end = min(part + comptime!(BLOCK * members), mine);
            let mut block = zero;
            while part + comptime!((UNDER_WAY - 1) * members) < end {
                let mut several = Sequence::<Vector<A, N>>::new();
                #[unroll]
                for i in 0..UNDER_WAY {
                    let at = part + comptime!(i * members);
                    several.push(part_of::<A, N>(sums, base, at, access));
                }
                #[unroll]
                for i in 0..UNDER_WAY {
                    block += *several.index(i);
                }
                part += comptime!(UNDER_WAY * members);
            }
            while part < end {
                block += part_of::<A, N>(sums, base, part, access);
                part += members;
            }
            sum += block;
        }
        if comptime!(members > 1) {
            let mut partial = Shared::<[Vector<A, N>]>::new_slice(comptime!(members * columns));
            partial[y * columns + x] = sum;
            #[unroll]
            for level in 0..comptime!(members.ilog2()) {
                let half = comptime!(members >> (level + 1));
                sync_cube();
                if y < half {
                    sum += partial[(y + half) * columns + x];
                    partial[y * columns + x] = sum;
                }
            }
            // The next round must not write what a unit has yet to read.
            sync_cube();
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

/// A part of an element's sum, whose parts lie from `base` on.
#[cube]
fn part_of<A: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    base: usize,
    part: usize,
    #[comptime] access: AccessBlueprint,
) -> Vector<A, N> {
    let at = col_offset::<A, N>(sums, part, access, comptime!(Lanes::Rows));
    sums[(base + at) / N::value()]
}

/// What the sums are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FoldShape {
    /// Units that share the parts of a vector: a power of two.
    pub(crate) members: usize,
    /// Vectors side by side in a cube.
    pub(crate) columns: usize,
    /// Whether a unit takes its vectors one after another, as a core of a CPU likes; else neighbouring
    /// units take neighbouring vectors.
    pub(crate) in_blocks: bool,
    /// Dimensions that an element is found over.
    pub(crate) element_dims: usize,
    /// Dimensions that its parts are found over.
    pub(crate) part_dims: usize,
    /// Whether elements lie side by side, so that vectors of them are loaded.
    pub(crate) mode: LoadMode,
}

impl FoldShape {
    /// An element's parts are the columns of its row.
    fn access(self) -> AccessBlueprint {
        AccessBlueprint {
            mode: self.mode,
            ..AccessBlueprint::of_numbers(self.element_dims, self.part_dims)
        }
    }
}
