//! Outputs of the backward kernels.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, Vectorization};

use crate::backward::element::TypedBackwardSource;
use crate::epilogue::Scalars;
use crate::memory::access::{Optional, load, row_offset, store};
use crate::reduce::moments::Moments;
use crate::schedule::item::Item;
use crate::schedule::partition::Partition;
use crate::schedule::team::member;
use crate::types::{One, Types};

/// Output tensors.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct BackwardResults<F: Float, O: Float, NY: Size, A: Float, N: Size> {
    /// Input gradient.
    pub(crate) input: Optional<F, NY>,
    /// Gate gradient, with the same strides.
    pub(crate) gate: Optional<O, NY>,
    /// Pairs of `sum(dz * xhat)` and `sum(dz)` of each row. If channels are combined within the
    /// launch, in the order of the [workspace](crate::reduce::split::Workspace).
    pub(crate) rows: Optional<A, One>,
    /// The same two sums for each column, over the rows of a team, or of each row that several
    /// teams share. For each of these, all sums of the first kind, then all of the second.
    pub(crate) columns: Optional<A, N>,
}

/// [`BackwardResults`] for the types of a kernel.
pub(crate) type TypedResults<T> = BackwardResults<
    <T as Types>::F,
    <T as Types>::O,
    <T as Types>::Output,
    <T as Types>::A,
    <T as Types>::N,
>;

/// Tensors and scalars of a backward launch.
#[derive(CubeType)]
pub(crate) struct Bound<'a, T: Types> {
    pub(crate) source: &'a TypedBackwardSource<T>,
    pub(crate) results: &'a mut TypedResults<T>,
    pub(crate) scalars: &'a Scalars,
}

#[cube]
impl<'a, T: Types> Bound<'a, T> {
    pub(crate) fn new(
        source: &'a TypedBackwardSource<T>,
        results: &'a mut TypedResults<T>,
        scalars: &'a Scalars,
    ) -> Bound<'a, T> {
        Bound::<'a, T> {
            source,
            results,
            scalars,
        }
    }
}

/// Stores the input gradient of a step, with the sum's gradient added to it.
#[cube]
pub(crate) fn store_gradient<T: Types>(
    value: Vector<T::A, T::N>,
    start: usize,
    step: usize,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let access = comptime!(blueprint.input_gradient.unwrap());
    let vectorization = comptime!(blueprint.team.lanes());
    let gradient = if comptime!(blueprint.adds_sum_gradient) {
        let tensor = bound.source.sum_gradient.as_ref().unwrap();
        value + load::<T::F, T::Output, T::A, T::N>(tensor, start, step, access, vectorization)
    } else {
        value
    };
    store::<T::F, T::Output, T::A, T::N>(
        bound.results.input.as_mut().unwrap(),
        start,
        step,
        gradient,
        access,
        vectorization,
    );
}

/// Writes the row sums of a group if requested.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
pub(crate) fn write_rows<T: Types>(
    results: &mut TypedResults<T>,
    sums: &Moments<T::A, T::N>,
    item: &Item,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    if comptime!(blueprint.row_sums.is_some() && !blueprint.sums_segments()) {
        if item.in_bounds && item.part == 0 && member(team) == 0 {
            let tensor = results.rows.as_mut().unwrap();
            let access = comptime!(blueprint.row_sums.unwrap());
            let rows = comptime!(match team.lanes() {
                Vectorization::Parallel => 1,
                Vectorization::Perpendicular => team.vector,
            });
            #[unroll]
            for lane in 0..rows {
                let pair = 2 * row_offset::<T::A, One>(
                    &*tensor,
                    item.row + lane,
                    access,
                    Vectorization::Parallel,
                );
                tensor[pair] = Vector::new(sums.m2.extract(lane));
                tensor[pair + 1] = Vector::new(sums.mean.extract(lane));
            }
        }
    }
}

/// Writes the sums of the channels in the lanes of a row group.
#[cube]
pub(crate) fn write_channels<T: Types>(
    results: &mut TypedResults<T>,
    sums: &Moments<T::A, T::N>,
    first: usize,
    partition: &Partition,
) {
    let channels = partition.groups * T::N::value();
    let tensor = results.rows.as_mut().unwrap();
    #[unroll]
    for lane in 0..T::N::value() {
        tensor[first + lane] = Vector::new(sums.mean.extract(lane));
        tensor[channels + first + lane] = Vector::new(sums.m2.extract(lane));
    }
}
