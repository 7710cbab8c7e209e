//! Input gradient: the row's gradient minus its correction.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, RowSums, StatisticsKind};

use crate::backward::element::{BackwardRow, Element, TypedBackwardSource};
use crate::epilogue::{Scalars, param_row};
use crate::reduce::moments::Moments;
use crate::schedule::partition::{Partition, row_elements};
use crate::types::{One, Types};

/// Correction that is subtracted from a row's gradient: a constant, and a multiple of the
/// normalized value.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Correction<A: Float, N: Size> {
    pub(crate) constant: Vector<A, N>,
    pub(crate) multiple: Vector<A, N>,
}

/// Correction of the row `index`, from its sums or from the provided ones.
#[cube]
pub(crate) fn correction<T: Types>(
    source: &TypedBackwardSource<T>,
    index: usize,
    sums: &Moments<T::A, T::N>,
    row: &BackwardRow<T::A, T::N>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Correction<T::A, T::N> {
    let kind = comptime!(blueprint.statistics);
    if comptime!(matches!(
        kind,
        StatisticsKind::L1Norm | StatisticsKind::L2Norm
    )) {
        // A norm is a sum, not a mean.
        weighted_sums::<T::A, T::N>(sums, row, blueprint)
    } else {
        let means = if comptime!(blueprint.provides_sums) {
            provided_means::<T>(source, index, blueprint)
        } else {
            let found = weighted_sums::<T::A, T::N>(sums, row, blueprint);
            let count =
                Vector::<T::A, T::N>::new(row_elements::<T::A, T::N>(partition, blueprint.team));
            Correction::<T::A, T::N> {
                constant: mean_of::<T::A, T::N>(found.constant, count, blueprint),
                multiple: mean_of::<T::A, T::N>(found.multiple, count, blueprint),
            }
        };
        let mut multiple = means.multiple;
        if comptime!(!blueprint.epsilon_in_sqrt && kind.reduces_deviation()) {
            // Only the deviation depends on the input, which adds the factor `(deviation + epsilon)
            // / deviation`.
            let epsilon = Vector::<T::A, T::N>::new(scalars.epsilon.get::<T::A>());
            let one = Vector::<T::A, T::N>::new(T::A::new(1.0));
            let share = one - epsilon * row.rstd.constant;
            let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
            let has_deviation = share.greater_than(&zero);
            multiple = select_many(
                has_deviation,
                multiple / select_many(has_deviation, share, one),
                zero,
            );
        }
        Correction::<T::A, T::N> {
            constant: means.constant,
            multiple,
        }
    }
}

/// Sums of a row, weighted by its scale.
#[cube]
fn weighted_sums<A: Float, N: Size>(
    sums: &Moments<A, N>,
    row: &BackwardRow<A, N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Correction<A, N> {
    let mut sum = sums.mean;
    let mut products = sums.m2;
    if comptime!(
        blueprint.sums == RowSums::Plain
            && !blueprint.team.is_segmented()
            && blueprint.scale.is_some()
    ) {
        sum *= row.scale.constant;
        products *= row.scale.constant;
    }
    Correction::<A, N> {
        constant: sum,
        multiple: products,
    }
}

/// Means over a row that other devices share: the two numbers after its saved statistics.
#[cube]
fn provided_means<T: Types>(
    source: &TypedBackwardSource<T>,
    index: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Correction<T::A, T::N> {
    let saved = comptime!(blueprint.saved);
    let lanes = comptime!(blueprint.team.lanes());
    let sum = param_row::<T::A, One, T::A, T::N>(&source.saved, index, saved, 2usize, lanes);
    let products = param_row::<T::A, One, T::A, T::N>(&source.saved, index, saved, 3usize, lanes);
    Correction::<T::A, T::N> {
        constant: sum.constant,
        multiple: products.constant,
    }
}

/// Mean of a row from its sum.
#[cube]
fn mean_of<A: Float, N: Size>(
    sum: Vector<A, N>,
    count: Vector<A, N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.row.is_double()) {
        // A division is a call, and a unit with this many live registers would spill. One
        // reciprocal serves both sums.
        sum * (Vector::<A, N>::new(A::new(1.0)) / count)
    } else {
        sum / count
    }
}

/// Input gradient of a step.
#[cube]
pub(crate) fn passed_back<A: Float, N: Size>(
    element: &Element<A, N>,
    correction: &Correction<A, N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<A, N> {
    match comptime!(blueprint.statistics) {
        // `BackwardDesc::validate` refuses dynamic tanh.
        StatisticsKind::None | StatisticsKind::DynamicTanh => element.wdy,
        StatisticsKind::Provided => element.wdy * element.rstd,
        StatisticsKind::Mean => less_mean::<A, N>(element, correction, blueprint),
        StatisticsKind::MeanVariance => {
            let centered = less_mean::<A, N>(element, correction, blueprint);
            (centered - element.normalized * correction.multiple) * element.rstd
        }
        StatisticsKind::MeanSquare | StatisticsKind::L2Norm => {
            (element.wdy - element.normalized * correction.multiple) * element.rstd
        }
        StatisticsKind::L1Norm => {
            let zero = Vector::<A, N>::new(A::new(0.0));
            let one = Vector::<A, N>::new(A::new(1.0));
            let sign = select_many(element.input.less_than(&zero), -one, one);
            let sign = select_many(element.input.equal(&zero), zero, sign);
            (element.wdy - sign * correction.multiple) * element.rstd
        }
    }
}

/// Gradient before the scale, less its mean over the row.
#[cube]
fn less_mean<A: Float, N: Size>(
    element: &Element<A, N>,
    correction: &Correction<A, N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.has_one_element) {
        // A fused multiply-add would leave the rounding of `dz * scale`, and 1 / sqrt(epsilon) would
        // enlarge it.
        element.wdy * Vector::new(A::new(0.0))
    } else {
        element.wdy - correction.constant
    }
}
