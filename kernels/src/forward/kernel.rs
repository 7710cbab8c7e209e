//! Entry points of the forward kernels: one launch, or two if rows are split.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;
use cubenorm_cpu_hints::wait_for_stores;

use crate::cpu::forward_tile::{normalize_tile, reduce_tile};
use crate::epilogue::{Affine, kept_params};
use crate::forward::apply::{Bound, Results, Scalars};
use crate::forward::rows::{normalize_items, reduce_item};
use crate::memory::access::Optional;
use crate::memory::input::Source;
use crate::reduce::split::Partition;
use crate::schedule::{WorkCounter, rounds};
use crate::types::{Typed, Types};

/// Normalizes. A team reduces a row and then normalizes it.
///
/// If rows are split, a team merges the parts that [`reduce_parts`] has written and normalizes one
/// part. If segments are combined, `parts` holds the combined statistics. With provided statistics
/// nothing is reduced.
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
    work_counter: &WorkCounter,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: Blueprint,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(G)] _given_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let bound = Bound::<
        Typed<(F, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>,
    >::new(source, affine, results, &scalars);
    normalize_share::<
        Typed<(F, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>,
        W,
    >(bound, parts, work_counter, &partition, blueprint);
}

/// Normalizes all work items of a team.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn normalize_share<T: Types, W: Size>(
    mut bound: Bound<'_, T>,
    parts: &Optional<T::A, W>,
    work_counter: &WorkCounter,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let kept = kept_params::<T>(bound.affine, bound.epsilon(), blueprint);
    let mine = rounds(work_counter, partition, team);
    let (mut round, mut end) = (mine.next, mine.end);
    while round < end {
        if comptime!(team.tile) {
            normalize_tile::<T, W>(&mut bound, parts, round, partition, blueprint);
        } else {
            normalize_items::<T, W>(&mut bound, parts, &kept, round, partition, blueprint);
        }
        round += comptime!(blueprint.rows_per_unit);
        if comptime!(team.dynamic) {
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
    let mut round = 0usize;
    while round < partition.items_per_team {
        if comptime!(blueprint.team.tile) {
            reduce_tile::<
                Typed<(F, F, F, A, N), (Input, Residual, Output, Output, Output, Output, Output)>,
                W,
            >(source, sum, workspace, round, &partition, blueprint);
        } else {
            reduce_item::<
                Typed<(F, F, F, A, N), (Input, Residual, Output, Output, Output, Output, Output)>,
                W,
            >(source, sum, workspace, round, &partition, blueprint);
        }
        round += comptime!(blueprint.rows_per_unit);
    }
    wait_for_stores(comptime!(
        blueprint.writes_sum && blueprint.output.nontemporal
    ));
}
