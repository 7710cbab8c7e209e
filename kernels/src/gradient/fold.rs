//! Adds up partial sums: the last stage of a parameter's gradient, always in the same order.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Lanes, LoadMode};

use crate::operand::{col_offset, row_offset};
use crate::types::One;

/// Parts that are summed up apart before they are added to the rest, so that many keep their digits.
const BLOCK: usize = 64;

/// For each of `elements` outputs, the sum of `parts` numbers that lie `part_stride` apart.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fold<A: Float, H: Float>(
    sums: &Tensor<Vector<A, One>>,
    output: &mut Tensor<Vector<H, One>>,
    elements: usize,
    parts: usize,
    offset: usize,
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
    let mut element = ABSOLUTE_POS;
    while element < elements {
        let base = offset + row_offset::<A, One>(sums, element, of_element, lanes);
        let mut sum = A::new(0.0);
        let mut done = 0usize;
        while done < parts {
            let end = min(done + BLOCK, parts);
            let mut block = A::new(0.0);
            for part in done..end {
                let at = col_offset::<A, One>(sums, part, of_element, lanes);
                block += sums[base + at].extract(0usize);
            }
            sum += block;
            done = end;
        }
        output[element] = Vector::new(H::cast_from(sum));
        element += CUBE_COUNT * (CUBE_DIM as usize);
    }
}
