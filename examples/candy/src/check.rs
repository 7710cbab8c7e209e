//! The comparison with stored results.

use anyhow::{Result, ensure};
use burn::tensor::Tensor;
use image::RgbImage;

use crate::network::Candy;
use crate::picture::read_values;
use crate::weights::Weights;
use cubenorm_example_common::Norms;

/// How far the output of the small check may be off. Correct float32 stays below 0.001, and
/// convolutions that round to TF32 or float16 come to about 0.3.
pub const TOLERANCE: f32 = 0.01;

/// How many 8-bit levels a picture may be off, anywhere.
pub const LEVEL_TOLERANCE: u8 = 1;

/// How far one tensor of the small check is off.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    /// The layer that the tensor comes out of.
    pub layer: &'static str,
    /// The largest absolute difference; NaN if there is a NaN.
    pub largest: f32,
}

/// Runs the 64x64 picture that comes with the weights.
///
/// Returns the deviations of three layers inside of the network, which tell where it went wrong,
/// and the output's.
pub fn check64(network: &Candy, weights: &Weights, norms: Norms) -> Result<Vec<Deviation>> {
    let input = weights.tensor("check64_input", [1, 3, 64, 64])?;
    let mut observed = Vec::new();
    let output = network.forward_observed(input, norms, |layer, tensor| {
        observed.push((layer, tensor.clone()));
    });
    observed.push(("expected", output));

    observed
        .into_iter()
        .map(|(layer, tensor)| {
            let expected: Tensor<4> = weights.tensor(&format!("check64_{layer}"), tensor.dims())?;
            let layer = if layer == "expected" { "output" } else { layer };
            let largest = largest_difference(&read_values(tensor)?, &read_values(expected)?);
            Ok(Deviation { layer, largest })
        })
        .collect()
}

/// How two pictures differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelDifference {
    /// How many of the 8-bit values differ.
    pub count: usize,
    /// How many there are.
    pub total: usize,
    /// The largest difference, in levels.
    pub largest: u8,
}

/// Compares two pictures value by value.
///
/// # Errors
///
/// When they are not of the same size.
pub fn compare(picture: &RgbImage, expected: &RgbImage) -> Result<LevelDifference> {
    ensure!(
        picture.dimensions() == expected.dimensions(),
        "the picture's size is {:?}, and the expected one's {:?}",
        picture.dimensions(),
        expected.dimensions()
    );
    let differences = || {
        let pairs = picture.as_raw().iter().zip(expected.as_raw());
        pairs.map(|(a, b)| a.abs_diff(*b))
    };
    Ok(LevelDifference {
        count: differences().filter(|difference| *difference > 0).count(),
        total: differences().count(),
        largest: differences().max().unwrap_or(0),
    })
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |largest, difference| {
            // `f32::max` would drop a NaN, and with it the one difference that must be seen.
            if difference.is_nan() || difference > largest {
                difference
            } else {
                largest
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_compared_value_by_value() {
        let a = RgbImage::from_raw(1, 2, vec![0, 10, 20, 30, 40, 50]).unwrap();
        let b = RgbImage::from_raw(1, 2, vec![0, 11, 20, 27, 40, 50]).unwrap();
        let difference = compare(&a, &b).unwrap();
        assert_eq!(
            (difference.count, difference.total, difference.largest),
            (2, 6, 3)
        );
        assert!(compare(&a, &RgbImage::new(2, 1)).is_err());
    }

    #[test]
    fn a_nan_is_not_overlooked() {
        assert!(largest_difference(&[f32::NAN, 1.0], &[0.0, 5.0]).is_nan());
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
    }
}
