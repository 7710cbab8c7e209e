//! Adds up partial sums: the last stage of a parameter's gradient, always in the same order.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Lanes, LoadMode};

use crate::operand::{col_offset, row_offset};
use crate::types::One;

/// Parts that are summed up apart before they are added to the rest, so that many keep their digits.
const BLOCK: usize = 64;

/// For each of `elements` outputs, the sum of `parts` numbers. Elements lie along x; the units along y,
/// `members` of them, share the parts of one.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fold<A: Float, H: Float>(
    sums: &Tensor<Vector<A, One>>,
    output: &mut Tensor<Vector<H, One>>,
    elements: usize,
    parts: usize,
    offset: usize,
    rounds: usize,
    #[comptime] members: usize,
    #[comptime] columns: usize,
    #[comptime] element_dims: usize,
    #[comptime] part_dims: usize,
    #[define(A)] _accumulation: ElemType,
    #[define(H)] _dtype: ElemType,
) {
    let lanes = comptime!(Lanes::Columns);
    let of_element = comptime!(AccessBlueprint {
        row_dims: element_dims,
        col_dims: part_dims,
        mode: LoadMode::Gather,
    });
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    for round in 0..rounds {
        let element = (round * CUBE_COUNT + CUBE_POS) * columns + x;
        // Units of a cube wait for each other: one without an element sums up nothing and comes along.
        let mine = select(element < elements, parts, 0usize.runtime());
        let base =
            offset + row_offset::<A, One>(sums, min(element, elements - 1), of_element, lanes);
        let mut sum = A::new(0.0);
        let mut part = y;
        while part < mine {
            let end = min(part + comptime!(BLOCK * members), mine);
            let mut block = A::new(0.0);
            while part < end {
                let at = col_offset::<A, One>(sums, part, of_element, lanes);
                block += sums[base + at].extract(0usize);
                part += members;
            }
            sum += block;
        }
        if comptime!(members > 1) {
            let mut partial = Shared::<[A]>::new_slice(comptime!(members * columns));
            partial[y * columns + x] = sum;
            sync_cube();
            sum = A::new(0.0);
            #[unroll]
            for other in 0..members {
                sum += partial[other * columns + x];
            }
            // The next round must not write what a unit has yet to read.
            sync_cube();
        }
        if element < elements && y == 0 {
            output[element] = Vector::new(H::cast_from(sum));
        }
    }
}
