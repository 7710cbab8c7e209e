//! Epilogue of a normalized value: scale, bias, activation.

use cubecl::prelude::*;

mod activation;
mod affine;
mod slopes;

pub(crate) use activation::activate;
pub(crate) use affine::{
    Affine, AffineLaunch, AffineRow, AffineRows, AffineStep, FoldedRow, FoldedRows, ParamRow,
    ParamRows, TypedAffine, affine_row, affine_step, folded_row, kept_params, param, param_row,
    scale_of_step, scale_row, transform,
};
pub(crate) use slopes::slope;

/// Scalars that are run-time arguments, so that another value needs no new kernel.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Scalars {
    pub(crate) epsilon: InputScalar,
    pub(crate) alpha: InputScalar,
    pub(crate) beta: InputScalar,
}
