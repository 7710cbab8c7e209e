//! Segments of a row, each processed as a row of its own whose steps are contiguous.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint, Residual};

use crate::memory::access::{is_contiguous, offset_by, optional_offset, step_offset};
use crate::memory::input::{SourceRow, TypedSource};
use crate::types::Types;

/// Blueprint of a segment, relative to the segment's start.
pub(crate) fn segment_blueprint(blueprint: Blueprint) -> Blueprint {
    Blueprint {
        input: segment_access(blueprint.input),
        residual: blueprint.residual.map(|residual| Residual {
            access: segment_access(residual.access),
            ..residual
        }),
        output: segment_access(blueprint.output),
        ..blueprint
    }
}

/// Access to one tensor within a segment.
pub(crate) fn segment_access(access: AccessBlueprint) -> AccessBlueprint {
    AccessBlueprint {
        col_dims: usize::from(is_contiguous(access)),
        ..access.without_tail()
    }
}

/// Position of the segment that begins with a step.
#[cube]
pub(crate) fn segment_start<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let (input, residual) = comptime!((blueprint.input, blueprint.residual()));
    row.offset_by(
        step_offset::<T::F, T::Input, T::N>(&source.input, step, input, vectorization),
        optional_offset::<T::R, T::Residual, T::N>(&source.residual, step, residual, vectorization),
    )
}

/// Position of a row, advanced by a number of elements.
#[cube]
pub(crate) fn further_row<T: Types>(
    row: &SourceRow<T::A, T::N>,
    elements: usize,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let residual = offset_by(0usize, elements, blueprint.residual());
    row.offset_by(elements, residual)
}
