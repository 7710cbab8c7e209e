//! Input gradient: the row's gradient minus its correction.

use cubecl::prelude::*;
use cubenorm_core::{BackwardBlueprint, RowSums, StatisticsKind};

use crate::backward::element::{BackwardRow, Element};
use crate::epilogue::Scalars;
use crate::reduce::moments::Moments;
use crate::schedule::partition::{Partition, row_elements};

/// Correction that is subtracted from a row's gradient: a constant, and a multiple of the
/// normalized value.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Correction<A: Float, N: Size> {
    pub(crate) constant: Vector<A, N>,
    pub(crate) multiple: Vector<A, N>,
}

#[cube]
pub(crate) fn correction<A: Float, N: Size>(
    sums: &Moments<A, N>,
    row: &BackwardRow<A, N>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Correction<A, N> {
    let kind = comptime!(blueprint.statistics);
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
    if comptime!(matches!(
        kind,
        StatisticsKind::L1Norm | StatisticsKind::L2Norm
    )) {
        // A norm is a sum, not a mean.
        Correction::<A, N> {
            constant: sum,
            multiple: products,
        }
    } else {
        let count = Vector::<A, N>::new(row_elements::<A, N>(partition, blueprint.team));
        let mut multiple = mean_of::<A, N>(products, count, blueprint);
        if comptime!(!blueprint.epsilon_in_sqrt && kind.reduces_deviation()) {
            // Only the deviation depends on the input, which adds the factor `(deviation + epsilon)
            // / deviation`.
            let epsilon = Vector::<A, N>::new(scalars.epsilon.get::<A>());
            let one = Vector::<A, N>::new(A::new(1.0));
            let share = one - epsilon * row.rstd.constant;
            let zero = Vector::<A, N>::new(A::new(0.0));
            let has_deviation = share.greater_than(&zero);
            multiple = select_many(
                has_deviation,
                multiple / select_many(has_deviation, share, one),
                zero,
            );
        }
        Correction::<A, N> {
            constant: mean_of::<A, N>(sum, count, blueprint),
            multiple,
        }
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
        StatisticsKind::None => element.wdy,
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
