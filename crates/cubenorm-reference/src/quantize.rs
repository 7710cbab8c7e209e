//! Codes of 8 bits, by their definition.

use cubenorm_core::CodeFormat;

/// The number of a code.
///
/// ```
/// use cubenorm_core::CodeFormat;
/// use cubenorm_reference::decoded;
///
/// assert_eq!(decoded(CodeFormat::Int8, 0xff), -1.0);
/// assert_eq!(decoded(CodeFormat::E4M3, 0x7e), 448.0);
/// assert_eq!(decoded(CodeFormat::E4M3, 0x81), -0.001953125);
/// ```
pub fn decoded(format: CodeFormat, code: u8) -> f64 {
    match format {
        CodeFormat::Int8 => f64::from(code as i8),
        CodeFormat::E4M3 => {
            let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let magnitude = match (exponent, code & 7) {
                (15, 7) => f64::NAN,
                (0, _) => mantissa / 512.0,
                _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
            };
            if code < 0x80 { magnitude } else { -magnitude }
        }
    }
}

/// The code of the nearest number, ties to even; of the largest or smallest outside of the range.
///
/// Every code is tried. NaN has the code of -127 or of NaN.
pub fn encoded(format: CodeFormat, value: f64) -> u8 {
    if value.is_nan() {
        return match format {
            CodeFormat::Int8 => 0x81,
            CodeFormat::E4M3 => 0x7f,
        };
    }
    let is_negative = value.is_sign_negative();
    let codes = (0..=u8::MAX).filter(|&code| match format {
        // The codes from -127 to 127.
        CodeFormat::Int8 => code != 0x80,
        CodeFormat::E4M3 => code & 0x7f != 0x7f && (code >= 0x80) == is_negative,
    });
    let distance = |code: u8| (decoded(format, code) - value).abs();
    let nearest = codes.min_by(|&a, &b| {
        let by_distance = distance(a).total_cmp(&distance(b));
        by_distance.then((a & 1).cmp(&(b & 1)))
    });
    nearest.expect("a format has codes")
}

/// The scale of a row with these results.
pub fn scale(format: CodeFormat, row: &[f64]) -> f64 {
    if row.iter().any(|value| !value.is_finite()) {
        return f64::NAN;
    }
    let largest = row.iter().map(|value| value.abs()).fold(0.0, f64::max);
    match largest < 2f64.powi(-100) {
        true => 1.0,
        false => largest / f64::from(format.largest()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_themselves() {
        for format in CodeFormat::ALL {
            for code in 0..=u8::MAX {
                let value = decoded(format, code);
                let is_code = value.abs() <= f64::from(format.largest());
                if is_code {
                    assert_eq!(encoded(format, value), code, "{format:?} {value}");
                }
            }
            assert_eq!(
                decoded(format, encoded(format, 1e9)),
                f64::from(format.largest())
            );
            assert_eq!(
                decoded(format, encoded(format, -1e9)),
                -f64::from(format.largest())
            );
        }
        assert_eq!(encoded(CodeFormat::Int8, 2.5), 2);
        assert_eq!(encoded(CodeFormat::Int8, -3.5), 0xfc);
        // Between 1 and 1.125.
        assert_eq!(encoded(CodeFormat::E4M3, 1.0625), 0x38);
    }
}
