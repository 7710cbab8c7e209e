//! Runs of columns, each of which is gone through as a row of its own, in which a step lies where its number says.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint};

use crate::operand::{further, is_contiguous, optional_offset, step_offset};
use crate::source::{SourceRow, TypedSource};
use crate::types::Types;

/// How a run is read and written, from where it begins.
pub(crate) fn of_run(blueprint: Blueprint) -> Blueprint {
    Blueprint {
        input: as_run(blueprint.input),
        residual: blueprint.residual.map(as_run),
        output: as_run(blueprint.output),
        ..blueprint
    }
}

/// How one of its tensors is.
pub(crate) fn as_run(access: AccessBlueprint) -> AccessBlueprint {
    AccessBlueprint {
        col_dims: usize::from(is_contiguous(access)),
        ragged: false,
        ..access
    }
}

/// A row from the run on that begins with a step.
#[cube]
pub(crate) fn run_start<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let lanes = comptime!(blueprint.team.lanes);
    let (input, residual) = comptime!((blueprint.input, blueprint.residual));
    row.further(
        step_offset::<T::F, T::Input, T::N>(&source.input, step, input, lanes),
        optional_offset::<T::F, T::Residual, T::N>(&source.residual, step, residual, lanes),
    )
}

/// A row from so many elements on.
#[cube]
pub(crate) fn further_row<T: Types>(
    row: &SourceRow<T::A, T::N>,
    elements: usize,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let residual = further(0usize, elements, blueprint.residual);
    row.further(elements, residual)
}
