//! The data set: 1,797 handwritten digits of 8 by 8 pixels.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Height and width of a picture.
pub const SIDE: usize = 8;
/// Number of classes.
pub const CLASSES: usize = 10;

const PIXELS: usize = SIDE * SIDE;
/// Value of the darkest pixel.
const DARKEST: f32 = 16.0;
/// Every third picture is test data, so that half a point of accuracy is about three pictures.
const TEST_EVERY: usize = 3;

/// Training and test pictures.
#[derive(Debug, Clone)]
pub struct Digits {
    /// Training data.
    pub training: Vec<Picture>,
    /// Test data.
    pub test: Vec<Picture>,
}

/// A handwritten digit.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Pixels from 0 (blank) to 1, row-major.
    pub pixels: [f32; PIXELS],
    /// Its class.
    pub digit: u8,
}

/// Pictures on a device.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[pictures, 1, SIDE, SIDE]`.
    pub pixels: Tensor<4>,
    /// `[pictures]`.
    pub digits: Tensor<1, Int>,
}

impl Digits {
    /// Reads the digits. Each line has 64 pixels from 0 to 16 and the digit.
    ///
    /// # Errors
    ///
    /// If the file is missing or has another content.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} does not contain digits", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let (mut training, mut test) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let picture = Picture::parse(line).with_context(|| format!("in line {}", index + 1))?;
            match index % TEST_EVERY {
                0 => test.push(picture),
                _ => training.push(picture),
            }
        }
        ensure!(!training.is_empty(), "expected at least two lines");
        Ok(Self { training, test })
    }
}

impl Picture {
    fn parse(line: &str) -> Result<Self> {
        let values = line
            .split(',')
            .map(|value| value.trim().parse::<u8>())
            .collect::<Result<Vec<_>, _>>()?;
        let [pixels @ .., digit] = values.as_slice() else {
            anyhow::bail!("the line is empty");
        };
        let count = pixels.len();
        let pixels: [u8; PIXELS] = pixels
            .try_into()
            .ok()
            .with_context(|| format!("{count} pixels, expected {PIXELS}"))?;
        ensure!(usize::from(*digit) < CLASSES, "{digit} is not a digit");
        Ok(Self {
            pixels: pixels.map(|pixel| f32::from(pixel) / DARKEST),
            digit: *digit,
        })
    }
}

impl Batch {
    /// Uploads pictures to a device.
    pub fn new<'a>(pictures: impl IntoIterator<Item = &'a Picture>, device: &Device) -> Self {
        let (mut pixels, mut digits) = (Vec::new(), Vec::new());
        for picture in pictures {
            pixels.extend(picture.pixels);
            digits.push(i32::from(picture.digit));
        }
        let count = digits.len();
        Self {
            pixels: Tensor::from_data(TensorData::new(pixels, [count, 1, SIDE, SIDE]), device),
            digits: Tensor::from_data(TensorData::new(digits, [count]), device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pixel: u8, digit: u8) -> String {
        let pixels = vec![pixel.to_string(); PIXELS].join(",");
        format!("{pixels},{digit}\n")
    }

    #[test]
    fn every_third_picture_is_test_data() {
        let text: String = (0..7).map(|digit| line(digit, digit)).collect();
        let digits = Digits::parse(&text).unwrap();
        let of = |pictures: &[Picture]| pictures.iter().map(|p| p.digit).collect::<Vec<_>>();
        assert_eq!(of(&digits.test), [0, 3, 6]);
        assert_eq!(of(&digits.training), [1, 2, 4, 5]);
        assert_eq!(digits.test[1].pixels, [3.0 / 16.0; PIXELS]);
    }

    #[test]
    fn invalid_files_are_refused() {
        let broken = format!("{}1,2,3\n", line(0, 0));
        let error = format!("{:#}", Digits::parse(&broken).unwrap_err());
        assert_eq!(error, "in line 2: 2 pixels, expected 64");
        let error = format!("{:#}", Digits::parse(&line(0, 10)).unwrap_err());
        assert_eq!(error, "in line 1: 10 is not a digit");
        assert!(Digits::parse("").is_err());
        assert!(Digits::parse("a").is_err());
    }
}
