//! What happens to a normalized value: scale, bias, activation.

mod activation;
mod affine;

pub(crate) use activation::activate;
pub(crate) use affine::{
    Affine, AffineLaunch, AffineRow, AffineStep, TypedAffine, affine_row, affine_step, transform,
};
