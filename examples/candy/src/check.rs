//! Comparison with stored results.

use anyhow::{Result, ensure};
use burn::tensor::Tensor;
use image::RgbImage;

use crate::network::Candy;
use crate::weights::Weights;
use cubenorm_example_common::training::largest_difference;
use cubenorm_example_common::{Norms, read};

/// Largest error of the small check's output. f32 is below 0.001, while convolutions in TF32 or f16
/// are off by about 0.3.
pub const TOLERANCE: f32 = 0.01;

/// Largest difference of any value of a picture, in 8-bit levels.
pub const LEVEL_TOLERANCE: u8 = 1;

/// Error of one tensor of the small check.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    /// Layer with this output.
    pub layer: &'static str,
    /// Largest absolute difference; NaN if there is a NaN.
    pub largest: f32,
}

/// Runs the 64x64 picture that is part of the weights.
///
/// Returns the deviations of three inner layers, which help to locate an error, and of the output.
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
            let largest = largest_difference(&read(tensor)?, &read(expected)?);
            Ok(Deviation { layer, largest })
        })
        .collect()
}

/// Difference of two pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelDifference {
    /// Number of 8-bit values that differ.
    pub count: usize,
    /// Number of 8-bit values.
    pub total: usize,
    /// Largest difference in levels.
    pub largest: u8,
}

/// Compares two pictures value by value.
///
/// # Errors
///
/// If their sizes differ.
pub fn compare(picture: &RgbImage, expected: &RgbImage) -> Result<LevelDifference> {
    ensure!(
        picture.dimensions() == expected.dimensions(),
        "the picture has the size {:?}, expected {:?}",
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
}
