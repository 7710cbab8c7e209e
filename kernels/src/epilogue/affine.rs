//! Scale and bias, and statistics that are given instead of reduced.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::moments::{RowStatistics, reciprocal_deviation};
use crate::operand::{Optional, load, optional_row};
use crate::types::Types;

/// The tensors that broadcast to the input.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Affine<P: Float, NS: Size, NB: Size, NM: Size, NV: Size> {
    pub(crate) scale: Optional<P, NS>,
    pub(crate) bias: Optional<P, NB>,
    pub(crate) mean: Optional<P, NM>,
    pub(crate) variance: Optional<P, NV>,
}

/// [`Affine`] of a kernel's types.
pub(crate) type TypedAffine<T> = Affine<
    <T as Types>::P,
    <T as Types>::Scale,
    <T as Types>::Bias,
    <T as Types>::Mean,
    <T as Types>::Variance,
>;

/// Where a row starts in each of them.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct AffineRow {
    scale: usize,
    bias: usize,
    mean: usize,
    variance: usize,
}

/// Finds a row.
#[cube]
pub(crate) fn affine_row<T: Types>(
    affine: &TypedAffine<T>,
    row: usize,
    #[comptime] blueprint: Blueprint,
) -> AffineRow {
    let lanes = comptime!(blueprint.lanes);
    AffineRow {
        scale: optional_row::<T::P, T::Scale>(&affine.scale, row, blueprint.scale, lanes),
        bias: optional_row::<T::P, T::Bias>(&affine.bias, row, blueprint.bias, lanes),
        mean: optional_row::<T::P, T::Mean>(&affine.mean, row, blueprint.mean, lanes),
        variance: optional_row::<T::P, T::Variance>(
            &affine.variance,
            row,
            blueprint.variance,
            lanes,
        ),
    }
}

/// The statistics of one step, where they are given.
#[cube]
pub(crate) fn given<T: Types>(
    affine: &TypedAffine<T>,
    row: &AffineRow,
    step: usize,
    epsilon: T::A,
    #[comptime] blueprint: Blueprint,
) -> RowStatistics<T::A, T::N> {
    let lanes = comptime!(blueprint.lanes);
    let mean_access = comptime!(blueprint.mean.unwrap());
    let variance_access = comptime!(blueprint.variance.unwrap());
    let mean = affine.mean.as_ref().unwrap();
    let variance = affine.variance.as_ref().unwrap();
    let variance =
        load::<T::P, T::Variance, T::A, T::N>(variance, row.variance, step, variance_access, lanes);
    RowStatistics::<T::A, T::N> {
        mean: load::<T::P, T::Mean, T::A, T::N>(mean, row.mean, step, mean_access, lanes),
        rstd: reciprocal_deviation::<T::A, T::N>(variance, epsilon, blueprint),
    }
}

/// `value * scale + bias`, as far as they are there.
#[cube]
pub(crate) fn transform<T: Types>(
    value: Vector<T::A, T::N>,
    affine: &TypedAffine<T>,
    row: &AffineRow,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let lanes = comptime!(blueprint.lanes);
    let scaled = if comptime!(blueprint.scale.is_some()) {
        let access = comptime!(blueprint.scale.unwrap());
        let scale = affine.scale.as_ref().unwrap();
        value * load::<T::P, T::Scale, T::A, T::N>(scale, row.scale, step, access, lanes)
    } else {
        value
    };
    if comptime!(blueprint.bias.is_some()) {
        let access = comptime!(blueprint.bias.unwrap());
        let bias = affine.bias.as_ref().unwrap();
        scaled + load::<T::P, T::Bias, T::A, T::N>(bias, row.bias, step, access, lanes)
    } else {
        scaled
    }
}
