//! Conversion between pictures of 8-bit pixels and f32 tensors.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Tensor, TensorData};
use image::{ImageFormat, ImageReader, RgbImage};

use crate::network::{GRANULARITY, PADDING};

/// Reads a picture as 8-bit RGB.
pub fn read(path: &Path) -> Result<RgbImage> {
    let context = || format!("cannot read the picture {}", path.display());
    let reader = ImageReader::open(path).with_context(context)?;
    let picture = reader.with_guessed_format().with_context(context)?.decode();
    Ok(picture.with_context(context)?.into_rgb8())
}

/// Writes a picture as a PNG.
pub fn write(picture: &RgbImage, path: &Path) -> Result<()> {
    picture
        .save_with_format(path, ImageFormat::Png)
        .with_context(|| format!("cannot write the picture {}", path.display()))
}

/// Converts a picture to the network's input.
///
/// # Shapes
///
/// - output: `[1, 3, height, width]`, values 0 to 255
///
/// # Errors
///
/// If the network cannot process a picture of this size.
pub fn to_tensor(picture: &RgbImage, device: &Device) -> Result<Tensor<4>> {
    let size = [picture.height() as usize, picture.width() as usize];
    let [height, width] = size;
    ensure!(
        size.iter()
            .all(|side| side % GRANULARITY == 0 && *side > PADDING),
        "the picture is {width} wide and {height} high: expected multiples of {GRANULARITY} \
         larger than {PADDING}"
    );
    let pixels: Vec<f32> = picture.as_raw().iter().copied().map(f32::from).collect();
    let data = TensorData::new(pixels, [1, height, width, 3]);
    Ok(Tensor::<4>::from_data(data, device).permute([0, 3, 1, 2]))
}

/// Converts the network's output to a picture, rounded to the nearest level and clamped.
///
/// # Shapes
///
/// - output: `[1, 3, height, width]`
pub fn from_tensor(output: Tensor<4>) -> Result<RgbImage> {
    let [_, _, height, width] = output.dims();
    let values = cubenorm_example_common::read(output.permute([0, 2, 3, 1]))?;
    let levels = values.into_iter().map(to_level).collect();
    RgbImage::from_raw(u32::try_from(width)?, u32::try_from(height)?, levels)
        .context("the output has too few values for a picture")
}

/// The nearest 8-bit level, ties to even.
fn to_level(value: f32) -> u8 {
    // The cast saturates.
    value.round_ties_even() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_and_clamped() {
        assert_eq!(to_level(-46.0), 0);
        assert_eq!(to_level(0.5), 0);
        assert_eq!(to_level(1.5), 2);
        assert_eq!(to_level(254.4), 254);
        assert_eq!(to_level(274.0), 255);
    }
}
