//! Adds up partial sums: the last stage of a parameter's gradient, always in the same order.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Lanes, LoadMode};

use crate::operand::{col_offset, row_offset};

/// Parts that are summed up apart before they are added to the rest, so that many keep their digits.
const BLOCK: usize = 64;

/// For each vector of outputs, the sum of `parts` vectors. Vectors lie along x; the units along y,
/// `members` of them, share the parts of one.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fold<A: Float, H: Float, N: Size>(
    sums: &Tensor<Vector<A, N>>,
    output: &mut Tensor<Vector<H, N>>,
    vectors: usize,
    parts: usize,
    offset: usize,
    rounds: usize,
    #[comptime] shape: FoldShape,
    #[define(A)] _accumulation: ElemType,
    #[define(H)] _dtype: ElemType,
) {
    let lanes = comptime!(Lanes::Rows);
    let members = comptime!(shape.members);
    let columns = comptime!(shape.columns);
    let of_element = comptime!(AccessBlueprint {
        row_dims: shape.element_dims,
        col_dims: shape.part_dims,
        mode: shape.mode,
        ragged: false,
    });
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    for round in 0..rounds {
        let place = if comptime!(shape.in_blocks) {
            (CUBE_POS * columns + x) * rounds + round
        } else {
            (round * CUBE_COUNT + CUBE_POS) * columns + x
        };
        // Units of a cube wait for each other: one without a vector sums up nothing and comes along.
        let mine = select(place < vectors, parts, 0usize.runtime());
        let element = min(place, vectors - 1) * N::value();
        let base = offset + row_offset::<A, N>(sums, element, of_element, lanes);
        let zero = Vector::<A, N>::new(A::new(0.0));
        let mut sum = zero;
        let mut part = y;
        while part < mine {
            let end = min(part + comptime!(BLOCK * members), mine);
            let mut block = zero;
            while part < end {
                let at = col_offset::<A, N>(sums, part, of_element, lanes);
                block += sums[(base + at) / N::value()];
                part += members;
            }
            sum += block;
        }
        if comptime!(members > 1) {
            let mut partial = Shared::<[Vector<A, N>]>::new_slice(comptime!(members * columns));
            partial[y * columns + x] = sum;
            sync_cube();
            sum = zero;
            #[unroll]
            for other in 0..members {
                sum += partial[other * columns + x];
            }
            // The next round must not write what a unit has yet to read.
            sync_cube();
        }
        if place < vectors && y == 0 {
            output[place] = Vector::<H, N>::cast_from(sum);
        }
    }
}

/// What the sums are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FoldShape {
    /// Units that share the parts of a vector.
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
