//! Embeddings as plain vectors.

use anyhow::{Result, anyhow};
use burn::tensor::Tensor;

/// Reads the rows of a tensor back from the device.
///
/// # Shapes
///
/// - tensor: `[rows, columns]`
pub fn read_rows(tensor: Tensor<2>) -> Result<Vec<Vec<f32>>> {
    let [_, columns] = tensor.dims();
    let values = tensor
        .try_into_data()
        .map_err(|error| anyhow!("cannot read the embeddings: {error:?}"))?
        .convert::<f32>()
        .try_into_vec::<f32>()
        .map_err(|error| anyhow!("cannot read the embeddings: {error:?}"))?;
    Ok(values.chunks(columns).map(<[f32]>::to_vec).collect())
}

/// Cosine of the angle between two vectors, in f64.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Largest absolute difference of elements; NaN if there is a NaN.
pub fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    a.iter()
        .flatten()
        .zip(b.iter().flatten())
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |largest, difference| {
            // `f32::max` would ignore a NaN.
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
    fn cosine_ignores_length() {
        assert_eq!(cosine(&[1.0, 0.0], &[3.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 2.0], &[-1.0, -2.0]), -1.0);
    }

    #[test]
    fn largest_difference_is_found() {
        let a = [vec![1.0, 2.0], vec![3.0, 4.0]];
        let b = [vec![1.0, 2.5], vec![2.0, 4.0]];
        assert_eq!(largest_difference(&a, &b), 1.0);
    }

    #[test]
    fn nan_counts_as_a_difference() {
        let a = [vec![f32::NAN, 2.0]];
        let b = [vec![1.0, 9.0]];
        assert!(largest_difference(&a, &b).is_nan());
    }
}
