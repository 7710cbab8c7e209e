//! The Burn-facing crate on every runtime of the build: results against Burn's layers and the f64
//! reference, records in both directions, gradients, error messages, and fusion.
#![cfg(feature = "burn")]

mod capture;
mod errors;
mod forward;
mod gates;
mod gradients;
mod heads;
mod invariance;
mod measure;
mod normalization;
mod pytorch;
mod quantized;
mod records;
mod residual;
mod training;

use burn::tensor::Tensor;
use cubenorm_tests::activations::activations;
use cubenorm_tests::tensors::{devices, noise, supports};

/// The largest absolute difference.
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f64 {
    assert_eq!(a.dims(), b.dims());
    values(a)
        .iter()
        .zip(values(b))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec().expect("the data was converted to f64")
}
