//! Entry points of the backward kernels: one launch, or two if rows are split.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, RowBuffering, Staging};
use cubenorm_cpu_hints::wait_for_stores;

use crate::backward::element::{BackwardSource, TypedBackwardSource};
use crate::backward::io::{BackwardResults, Bound, TypedResults};
use crate::backward::param_partials::write_staged;
use crate::backward::row::{publish_round, read_row};
use crate::backward::rows::{Buffers, backward_items, reduce_item};
use crate::backward::stage::{StagedColumns, TypedStagedRow, stage_scale};
use crate::backward::tile::{backward_tile, reduce_tile};
use crate::epilogue::Scalars;
use crate::memory::access::Optional;
use crate::reduce::cluster::Words;
use crate::reduce::partials::Partials;
use crate::reduce::split::Workspace;
use crate::schedule::partition::Partition;
use crate::types::{One, Typed, Types};

/// Backward kernel. A team reduces a row, or merges the parts that [`partial_sums`] has written,
/// and writes the requested gradients.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn gradient<
    F: Float,
    R: Float,
    O: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Dy: Size,
    Scale: Size,
    Bias: Size,
    Gate: Size,
    Output: Size,
    W: Size,
>(
    source: &BackwardSource<F, R, O, P, A, Input, Dy, Scale, Bias, Gate, Output>,
    results: &mut BackwardResults<F, O, Output, A, N>,
    parts: &Optional<A, W>,
    words: &Words,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: BackwardBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(R)] _output_dtype: ElemType,
    #[define(O)] _gate_dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    backward_share::<Typed<(F, R, O, P, A, A, N), (Input, Dy, Scale, Bias, Gate, One, Output)>, W>(
        source, results, parts, words, &partition, &scalars, blueprint,
    );
}

/// Backward pass of all work items of a team.
#[cube]
fn backward_share<T: Types, W: Size>(
    source: &TypedBackwardSource<T>,
    results: &mut TypedResults<T>,
    parts: &Optional<T::A, W>,
    words: &Words,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let scale = stage_scale::<T>(source, partition, blueprint);
    let mut columns = StagedColumns::<T::A, T::N>::zeros(blueprint);
    let buffers_row = comptime!(!blueprint.row.reloads());
    let mut row = TypedStagedRow::<T>::new(buffers_row, blueprint);
    let mut next = TypedStagedRow::<T>::new(blueprint.row.is_ahead(), blueprint);
    let first = 0usize.runtime();
    if comptime!(blueprint.row == RowBuffering::Prefetch) {
        read_row::<T>(source, &mut next, first, partition, blueprint);
    } else if comptime!(blueprint.row.is_double()) {
        read_row::<T>(source, &mut row, first, partition, blueprint);
    }
    if comptime!(blueprint.publishes_ahead()) {
        read_row::<T>(source, &mut next, 1usize.runtime(), partition, blueprint);
        publish_round::<T>(
            source, &row, words, &scale, first, partition, scalars, blueprint,
        );
    }
    let partials = Partials::<T::A, W>::new(parts, words);
    let mut bound = Bound::<T>::new(source, results, scalars);
    let mut round = 0usize;
    while round < partition.items_per_team {
        let mut buffers = Buffers::<T>::new(&mut row, &mut next, &scale, &mut columns);
        if comptime!(blueprint.team.is_tile()) {
            backward_tile::<T, W>(&mut bound, parts, round, partition, blueprint);
        } else {
            backward_items::<T, W>(
                &mut bound,
                &partials,
                &mut buffers,
                round,
                partition,
                blueprint,
            );
        }
        round += comptime!(blueprint.rows_per_unit);
        if comptime!(blueprint.row.is_double()) {
            let mut buffers = Buffers::<T>::new(&mut next, &mut row, &scale, &mut columns);
            backward_items::<T, W>(
                &mut bound,
                &partials,
                &mut buffers,
                round,
                partition,
                blueprint,
            );
            round += comptime!(blueprint.rows_per_unit);
        }
    }
    if comptime!(blueprint.staged_columns != Staging::Reload) {
        write_staged::<T>(bound.results, &columns, partition, blueprint);
    }
    let nontemporal = comptime!(blueprint.input_gradient.is_some_and(|it| it.nontemporal));
    wait_for_stores(nontemporal);
}

/// First launch of a split row. Writes the sums of each part to the workspace.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn partial_sums<
    F: Float,
    R: Float,
    O: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Dy: Size,
    Scale: Size,
    Bias: Size,
    Gate: Size,
    W: Size,
>(
    source: &BackwardSource<F, R, O, P, A, Input, Dy, Scale, Bias, Gate, One>,
    workspace: &mut Tensor<Vector<A, W>>,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: BackwardBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(R)] _output_dtype: ElemType,
    #[define(O)] _gate_dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    reduce_share::<Typed<(F, R, O, P, A, A, N), (Input, Dy, Scale, Bias, Gate, One, One)>, W>(
        source, workspace, &partition, &scalars, blueprint,
    );
}

/// Reduces all work items of a team.
#[cube]
fn reduce_share<T: Types, W: Size>(
    source: &TypedBackwardSource<T>,
    workspace: &mut Workspace<T::A, W>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.is_tile()) {
            reduce_tile::<T, W>(source, workspace, round, partition, scalars, blueprint);
        } else {
            reduce_item::<T, W>(source, workspace, round, partition, scalars, blueprint);
        }
        round += comptime!(blueprint.rows_per_unit);
    }
}
