//! What happens to a normalized value: scale, bias, activation.

mod activation;
mod affine;
mod slopes;

pub(crate) use activation::activate;
pub(crate) use affine::{
    Affine, AffineLaunch, AffineRow, AffineStep, ParamRow, TypedAffine, affine_row, affine_step,
    param, param_row, step_of_row, transform,
};
pub(crate) use slopes::slope;
