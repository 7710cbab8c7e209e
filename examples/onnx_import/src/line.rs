//! The picture of a line of text, and ONNX Runtime's result for it.

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Tensor, TensorData};
use image::{ImageFormat, load_from_memory_with_format};
use serde::Deserialize;

/// Height and width of a line, as the network takes it.
pub(crate) const SIZE: [usize; 2] = [48, 192];

/// A line of text, drawn by `reference/make_fixture.py`.
const PICTURE: &[u8] = include_bytes!("../fixtures/line.png");

/// Probabilities of `reference/make_fixture.py`, by ONNX Runtime.
const FIXTURE: &str = include_str!("../fixtures/probabilities.json");

#[derive(Debug, Deserialize)]
struct Fixture {
    probabilities: [[f32; 2]; 2],
}

/// Probabilities of upright and upside down by ONNX Runtime, for the line as it is and for the line upside down.
pub(crate) fn expected() -> Result<[[f32; 2]; 2]> {
    let fixture: Fixture = serde_json::from_str(FIXTURE).context("the fixture is invalid")?;
    Ok(fixture.probabilities)
}

/// Lines of text in turns: as it is, and upside down.
///
/// # Shapes
///
/// - output: `[count, 3, 48, 192]`, from -1 to 1
pub(crate) fn batch(count: usize, device: &Device) -> Result<Tensor<4>> {
    let picture = load_from_memory_with_format(PICTURE, ImageFormat::Png)?.into_luma8();
    let [height, width] = SIZE;
    let pixels = picture.as_raw();
    ensure!(
        pixels.len() == height * width,
        "the picture has another size"
    );
    let level = |&pixel: &u8| f32::from(pixel) / 127.5 - 1.0;
    let upright: Vec<f32> = pixels.iter().map(level).collect();
    let turned: Vec<f32> = pixels.iter().rev().map(level).collect();
    let mut values = Vec::with_capacity(count * 3 * height * width);
    for line in [&upright, &turned].into_iter().cycle().take(count) {
        // The network takes three colours.
        (0..3).for_each(|_| values.extend_from_slice(line));
    }
    let data = TensorData::new(values, [count, 3, height, width]);
    Ok(Tensor::from_data(data, device))
}
