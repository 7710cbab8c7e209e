//! Quantised output: codes of 8 bits, and a scale per row.

use serde::{Deserialize, Serialize};

use crate::layout::TensorDesc;

/// Codes of one 32-bit word.
pub const CODES_PER_WORD: usize = 4;

/// Rows with smaller numbers than this, 2^-100, have a scale of 1: the reciprocal of theirs may overflow.
pub const LEAST_QUANTIZED: f32 = 1.0 / (1u128 << 100) as f32;

/// An 8-bit format of codes.
///
/// A code is a number in units of the scale. Numbers outside of the format's range become its largest or smallest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum CodeFormat {
    /// Two's complement integers from -127 to 127. NaN becomes -127.
    #[default]
    Int8,
    /// `float8_e4m3fn`: four bits of exponent, three of mantissa, no infinity. The largest number is 448. NaN stays NaN.
    ///
    /// Source: [FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433).
    E4M3,
}

impl CodeFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Int8, Self::E4M3];

    /// The number of a code.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::CodeFormat;
    ///
    /// assert_eq!(CodeFormat::Int8.number(0xff), -1.0);
    /// assert_eq!(CodeFormat::E4M3.number(0x38), 1.0);
    /// assert_eq!(CodeFormat::E4M3.number(0xfe), -448.0);
    /// ```
    pub fn number(self, code: u8) -> f32 {
        match self {
            Self::Int8 => f32::from(code.cast_signed()),
            Self::E4M3 => {
                let (exponent, mantissa) = (i32::from(code >> 3 & 15), code & 7);
                let magnitude = match (exponent, mantissa) {
                    (15, 7) => f32::NAN,
                    (0, _) => f32::from(mantissa) * 2f32.powi(-9),
                    _ => f32::from(8 + mantissa) * 2f32.powi(exponent - 10),
                };
                if code < 0x80 { magnitude } else { -magnitude }
            }
        }
    }

    /// The code of a number: the nearest, ties to even, or the largest or smallest outside of the range.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::CodeFormat;
    ///
    /// assert_eq!(CodeFormat::Int8.code(-2.5), 0xfe);
    /// assert_eq!(CodeFormat::E4M3.code(1e9), 0x7e);
    /// ```
    pub fn code(self, value: f32) -> u8 {
        let limited = value.clamp(-self.largest(), self.largest());
        match self {
            Self::Int8 if value.is_nan() => 0x81,
            Self::Int8 => (limited.round_ties_even() as i8).cast_unsigned(),
            Self::E4M3 if value.is_nan() => 0x7f,
            Self::E4M3 => {
                let magnitude = limited.abs();
                // Three digits behind the leading one, and none below 2^-9.
                let exponent = (magnitude.to_bits() >> 23).max(127 - 6) as i32 - 127;
                let units = (magnitude * 2f32.powi(3 - exponent)).round_ties_even() as u8;
                let code = (((exponent + 6) as u8) << 3) + units;
                code | u8::from(value.is_sign_negative()) << 7
            }
        }
    }

    /// The scale of a row of these numbers: see [`Quantization`].
    pub fn scale(self, row: impl Iterator<Item = f32>) -> f32 {
        let largest = row.fold(0.0, |largest: f32, value| match value.is_finite() {
            true => largest.max(value.abs()),
            false => f32::INFINITY,
        });
        match largest {
            ..LEAST_QUANTIZED => 1.0,
            f32::MAX.. => f32::NAN,
            _ => largest / self.largest(),
        }
    }

    /// The largest number.
    pub const fn largest(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::E4M3 => 448.0,
        }
    }
}

/// Rounding of the output to codes of 8 bits: `code = round(y / scale)`.
///
/// The scale of a row is `max(|y|) / largest` in f32, with the [largest number](CodeFormat::largest) of the format. It is
/// 1 if `max(|y|)` is less than 2^-100, and NaN if an element is NaN or no finite f32.
///
/// Four codes are one 32-bit word, the first in its lowest byte. The rows of codes are contiguous, in the order of the
/// input's dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quantization {
    /// The format of the codes.
    pub format: CodeFormat,
    /// A given scale, which broadcasts to the input and is constant along a row. None: the scale of each row is computed,
    /// and [written](crate::WrittenStatistics::Scale).
    pub scale: Option<TensorDesc>,
}
