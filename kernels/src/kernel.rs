//! The kernels of a normalization: in one launch, or in two where rows are split.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;
use cubenorm_stores::wait_for_stores;

use crate::accumulate::TypedSource;
use crate::epilogue::{Affine, TypedAffine};
use crate::forward::{Results, Scalars, TypedResults, normalize_items, reduce_item};
use crate::operand::Optional;
use crate::side_by_side::{normalize_side_by_side, reduce_side_by_side};
use crate::source::Source;
use crate::strategy::split::Partition;
use crate::strategy::strands::{JoinShape, join_rows};
use crate::types::{Typed, Types};

/// Normalizes. Each team reduces a row, then normalizes it; of a row that is split it merges what
/// [`reduce_parts`] has left of all parts, then normalizes one. Where strands are joined, `parts` is what is left of
/// that.
///
/// Where those launches are one, all units of which run at once, they wait for each other in between; `left` is the workspace
/// then, and `joined` what is left of strands.
///
/// Runs too where statistics are given and nothing is reduced.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn normalize<
    F: Float,
    P: Float,
    G: Float,
    A: Float,
    N: Size,
    Input: Size,
    Residual: Size,
    Scale: Size,
    Bias: Size,
    Mean: Size,
    Variance: Size,
    Output: Size,
    W: Size,
>(
    source: &Source<F, Input, Residual>,
    affine: &Affine<P, G, Scale, Bias, Mean, Variance>,
    results: &mut Results<F, Output, A>,
    parts: &Optional<A, W>,
    left: &mut Optional<A, W>,
    joined: &mut Optional<A, W>,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: Blueprint,
    #[comptime] joins: Option<JoinShape>,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(G)] _given_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    if comptime!(blueprint.at_once) {
        in_turn::<Typed<(F, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>, W>(
            source, affine, results, left, joined, &partition, &scalars, blueprint, joins,
        );
    } else {
        normalize_all::<
            Typed<(F, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>,
            W,
        >(
            source, affine, results, parts, &partition, &scalars, blueprint,
        );
    }
    wait_for_stores(blueprint.output.past_caches);
}

/// The first launch of a split row: leaves the statistics of each part in the workspace, and writes
/// the sum of input and residual where it is asked for.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn reduce_parts<
    F: Float,
    A: Float,
    N: Size,
    Input: Size,
    Residual: Size,
    Output: Size,
    W: Size,
>(
    source: &Source<F, Input, Residual>,
    sum: &mut Optional<F, Output>,
    workspace: &mut Tensor<Vector<A, W>>,
    partition: Partition,
    #[comptime] blueprint: Blueprint,
    #[define(F)] _dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    reduce_all::<
        Typed<(F, F, F, A, N), (Input, Residual, Output, Output, Output, Output, Output)>,
        W,
    >(source, sum, workspace, &partition, blueprint);
    wait_for_stores(comptime!(
        blueprint.writes_sum && blueprint.output.past_caches
    ));
}

/// What the launches of a split do, one after another: units wait for each other where one of them would end.
#[cube]
#[allow(clippy::too_many_arguments)]
fn in_turn<T: Types, W: Size>(
    source: &TypedSource<T>,
    affine: &TypedAffine<T>,
    results: &mut TypedResults<T>,
    left: &mut Optional<T::A, W>,
    joined: &mut Optional<T::A, W>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
    #[comptime] joins: Option<JoinShape>,
) {
    reduce_all::<T, W>(
        source,
        &mut results.sum,
        left.as_mut().unwrap(),
        partition,
        blueprint,
    );
    sync_cube();
    if comptime!(joins.is_some()) {
        let rows = partition.groups * T::N::value() / partition.strands;
        join_left::<T::A, W>(&*left, joined, rows, partition, comptime!(joins.unwrap()));
        sync_cube();
        normalize_all::<T, W>(
            source, affine, results, &*joined, partition, scalars, blueprint,
        );
    } else {
        normalize_all::<T, W>(
            source, affine, results, &*left, partition, scalars, blueprint,
        );
    }
}

/// Joins what is left of the strands of each of `rows`, and leaves that.
#[cube]
fn join_left<A: Float, W: Size>(
    left: &Optional<A, W>,
    joined: &mut Optional<A, W>,
    rows: usize,
    partition: &Partition,
    #[comptime] shape: JoinShape,
) {
    let left = left.as_ref().unwrap();
    let unweighted = ComptimeOption::new_None();
    join_rows::<A, A, W>(
        left,
        &unweighted,
        joined.as_mut().unwrap(),
        rows,
        partition,
        shape,
    );
}

/// Normalizes the items of a team, as many at a time as the plan takes abreast.
#[cube]
#[allow(clippy::too_many_arguments)]
fn normalize_all<T: Types, W: Size>(
    source: &TypedSource<T>,
    affine: &TypedAffine<T>,
    results: &mut TypedResults<T>,
    parts: &Optional<T::A, W>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.side_by_side) {
            normalize_side_by_side::<T, W>(
                source, affine, results, parts, round, partition, scalars, blueprint,
            );
        } else {
            normalize_items::<T, W>(
                source, affine, results, parts, round, partition, scalars, blueprint,
            );
        }
        round += comptime!(blueprint.abreast);
    }
}

/// Reduces them, of rows that are split.
#[cube]
fn reduce_all<T: Types, W: Size>(
    source: &TypedSource<T>,
    sum: &mut Optional<T::F, T::Output>,
    workspace: &mut Tensor<Vector<T::A, W>>,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.side_by_side) {
            reduce_side_by_side::<T, W>(source, sum, workspace, round, partition, blueprint);
        } else {
            reduce_item::<T, W>(source, sum, workspace, round, partition, blueprint);
        }
        round += comptime!(blueprint.abreast);
    }
}
