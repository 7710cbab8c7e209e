//! Entry points of the forward kernels: one launch, or two if rows are split.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;
use cubenorm_cpu_hints::wait_for_stores;

use crate::epilogue::{Affine, Scalars, TypedAffine, kept_params};
use crate::forward::io::{Bound, Results, TypedResults};
use crate::forward::parts::{BoundParts, reduce_item};
use crate::forward::rows::normalize_items;
use crate::forward::tile::{normalize_tile, reduce_tile};
use crate::memory::access::Optional;
use crate::memory::input::{Source, TypedSource};
use crate::reduce::cluster::Words;
use crate::reduce::partials::Partials;
use crate::reduce::split::Workspace;
use crate::schedule::item::{WorkCounter, rounds};
use crate::schedule::partition::Partition;
use crate::types::{One, Typed, Types};

/// Normalizes. A team reduces a row and then normalizes it.
///
/// If rows are split, a team merges the parts that [`reduce_parts`] has written and normalizes one
/// part. If segments are combined, `parts` holds the combined statistics. With provided statistics
/// nothing is reduced. If cubes share a row, they exchange its parts through `words`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn normalize<
    F: Float,
    R: Float,
    O: Float,
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
    source: &Source<F, Input, R, Residual>,
    affine: &Affine<P, G, Scale, Bias, Mean, Variance>,
    results: &mut Results<F, O, Output, A>,
    parts: &Optional<A, W>,
    words: &Words,
    work_counter: &WorkCounter,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: Blueprint,
    #[define(F)] _dtype: ElemType,
    #[define(R)] _residual_dtype: ElemType,
    #[define(O)] _output_dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(G)] _given_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    normalize_share::<
        Typed<(F, R, O, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>,
        W,
    >(
        source,
        affine,
        results,
        &Partials::<A, W>::new(parts, words),
        work_counter,
        &partition,
        &scalars,
        blueprint,
    );
}

/// Two normalizations: cubes with `y` of 0 have the first, the others the second. Each works as [`normalize`], without
/// split rows. Both share types and widths.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn normalize_pair<
    F: Float,
    R: Float,
    O: Float,
    P: Float,
    G: Float,
    A: Float,
    N: Size,
    Input: Size,
    Scale: Size,
    Bias: Size,
    Table: Size,
    Output: Size,
>(
    source: &Source<F, Input, R, One>,
    affine: &Affine<P, G, Scale, Bias, Table, One>,
    results: &mut Results<F, O, Output, A>,
    partition: Partition,
    source_of_second: &Source<F, Input, R, One>,
    affine_of_second: &Affine<P, G, Scale, Bias, Table, One>,
    results_of_second: &mut Results<F, O, Output, A>,
    partition_of_second: Partition,
    scalars: Scalars,
    #[comptime] blueprint: Blueprint,
    #[comptime] blueprint_of_second: Blueprint,
    #[define(F)] _dtype: ElemType,
    #[define(R)] _residual_dtype: ElemType,
    #[define(O)] _output_dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(G)] _given_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let parts = ComptimeOption::new_None();
    let words = ComptimeOption::new_None();
    let partials = Partials::<A, One>::new(&parts, &words);
    let work_counter = ComptimeOption::new_None();
    if CUBE_POS_Y == 0 {
        normalize_share::<
            Typed<(F, R, O, P, G, A, N), (Input, One, Scale, Bias, Table, One, Output)>,
            One,
        >(
            source,
            affine,
            results,
            &partials,
            &work_counter,
            &partition,
            &scalars,
            blueprint,
        );
    } else {
        normalize_share::<
            Typed<(F, R, O, P, G, A, N), (Input, One, Scale, Bias, Table, One, Output)>,
            One,
        >(
            source_of_second,
            affine_of_second,
            results_of_second,
            &partials,
            &work_counter,
            &partition_of_second,
            &scalars,
            blueprint_of_second,
        );
    }
}

/// Normalizes all work items of a team.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn normalize_share<T: Types, W: Size>(
    source: &TypedSource<T>,
    affine: &TypedAffine<T>,
    results: &mut TypedResults<T>,
    partials: &Partials<'_, T::A, W>,
    work_counter: &WorkCounter,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let mut bound = Bound::<T>::new(source, affine, results, scalars);
    let team = comptime!(blueprint.team);
    let kept = kept_params::<T>(bound.affine, bound.epsilon(), blueprint);
    let mine = rounds(work_counter, partition, team);
    let (mut round, mut end) = (mine.next, mine.end);
    while round < end {
        if comptime!(team.is_tile()) {
            normalize_tile::<T, W>(&mut bound, partials.parts, round, partition, blueprint);
        } else {
            normalize_items::<T, W>(&mut bound, partials, &kept, round, partition, blueprint);
        }
        round += comptime!(blueprint.rows_per_unit);
        if comptime!(team.is_dynamic()) {
            if round >= end {
                let more = rounds(work_counter, partition, team);
                round = more.next;
                end = more.end;
            }
        }
    }
    wait_for_stores(blueprint.output.nontemporal);
}

/// First launch of a split row. Writes the partial statistics of each part to the workspace, and
/// the sum of input and residual if requested.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn reduce_parts<
    F: Float,
    R: Float,
    A: Float,
    N: Size,
    Input: Size,
    Residual: Size,
    Output: Size,
    W: Size,
>(
    source: &Source<F, Input, R, Residual>,
    sum: &mut Optional<F, Output>,
    workspace: &mut Tensor<Vector<A, W>>,
    partition: Partition,
    #[comptime] blueprint: Blueprint,
    #[define(F)] _dtype: ElemType,
    #[define(R)] _residual_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    reduce_share::<
        Typed<(F, R, F, F, F, A, N), (Input, Residual, Output, Output, Output, Output, Output)>,
        W,
    >(source, sum, workspace, &partition, blueprint);
}

/// Reduces all work items of a team.
#[cube]
fn reduce_share<T: Types, W: Size>(
    source: &TypedSource<T>,
    sum: &mut Optional<T::F, T::Output>,
    workspace: &mut Workspace<T::A, W>,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let mut bound = BoundParts::<T, W>::new(source, sum, workspace);
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.is_tile()) {
            reduce_tile::<T, W>(&mut bound, round, partition, blueprint);
        } else {
            reduce_item::<T, W>(&mut bound, round, partition, blueprint);
        }
        round += comptime!(blueprint.rows_per_unit);
    }
    wait_for_stores(comptime!(
        blueprint.writes_sum && blueprint.output.nontemporal
    ));
}
