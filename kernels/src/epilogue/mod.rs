//! What happens to a normalized value: scale, bias, activation.

mod activation;
mod affine;
mod slopes;

pub(crate) use activation::activate;
pub(crate) use affine::{
    Affine, AffineLaunch, AffineRow, AffineRows, AffineStep, FoldedRows, ParamRow, ParamRows,
    TypedAffine, affine_row, affine_step, folded_row, param, param_row, transform,
};
pub(crate) use slopes::slope;
