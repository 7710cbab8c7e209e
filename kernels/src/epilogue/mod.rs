//! Epilogue of a normalized value: scale, bias, activation.

mod activation;
mod affine;
mod slopes;

pub(crate) use activation::activate;
pub(crate) use affine::{
    Affine, AffineLaunch, AffineRow, AffineRows, AffineStep, FoldedRow, FoldedRows, ParamRow,
    ParamRows, TypedAffine, affine_row, affine_step, folded_row, kept_params, param, param_row,
    transform,
};
pub(crate) use slopes::slope;
