//! Units in the last place.

use cubenorm_core::DType;
use cubenorm_reference::round;

use super::exact::Pair;
use crate::protocol::Deviation;

/// An element is measured in units of at least this share of the largest in its row.
///
/// If scale and bias, or two values, nearly cancel, the rest has few right digits in any
/// implementation. In units of its own size every provider would have an arbitrarily large error.
const FLOOR: f64 = 1.0 / 1024.0;

/// Compares a result with the expected one, in rows of `row` elements; `None` if their lengths
/// differ.
pub fn deviation(dtype: DType, row: usize, expected: &[Pair], actual: &[f64]) -> Option<Deviation> {
    if expected.len() != actual.len() {
        return None;
    }
    let mut deviation = Deviation {
        elements: actual.len(),
        ..Deviation::default()
    };
    let mut measured = 0_usize;
    for (expected, actual) in expected.chunks(row).zip(actual.chunks(row)) {
        let should: Vec<f64> = expected
            .iter()
            .map(|expected| round(dtype, expected.nearest()))
            .collect();
        let finite = should.iter().filter(|should| should.is_finite());
        let floor = FLOOR * finite.fold(0.0, |most: f64, should| most.max(should.abs()));
        for ((expected, should), &actual) in expected.iter().zip(should).zip(actual) {
            if !should.is_finite() || !actual.is_finite() {
                deviation.not_finite += usize::from(should != actual);
                continue;
            }
            let unit = ulp(should.abs().max(floor), dtype);
            let ulps = expected.distance(actual) / unit;
            deviation.max_ulp = deviation.max_ulp.max(ulps);
            deviation.mean_ulp += ulps;
            measured += 1;
        }
    }
    deviation.mean_ulp /= measured.max(1) as f64;
    Some(deviation)
}

/// The distance between the values of a type that are next to each other at this magnitude.
fn ulp(magnitude: f64, dtype: DType) -> f64 {
    // Significant bits after the first, and the exponent of the least normal number.
    let (bits, least) = match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F32 => (23, -126),
        DType::F64 => (52, -1022),
    };
    let biased = ((magnitude.to_bits() >> 52) & 0x7ff) as i32;
    let exponent = (biased - 1023).max(least);
    // From bits, since `powi` may compute 2^-1074 as the reciprocal of infinity.
    let exponent = exponent - bits;
    f64::from_bits(match exponent < -1022 {
        true => 1_u64 << (exponent + 1074),
        false => ((exponent + 1023) as u64) << 52,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(values: &[f64]) -> Vec<Pair> {
        values.iter().copied().map(Pair::from).collect()
    }

    #[test]
    fn a_unit_is_the_step_to_the_next_value() {
        assert_eq!(ulp(1.0, DType::F32), f64::from(f32::EPSILON));
        assert_eq!(ulp(1.999, DType::F64), f64::EPSILON);
        assert_eq!(ulp(1000.0, DType::F16), 0.5);
        assert_eq!(ulp(10000.0, DType::BF16), 64.0);
        // Subnormal numbers are evenly spaced.
        assert_eq!(ulp(0.0, DType::F16), 2_f64.powi(-24));
        assert_eq!(ulp(1e-40, DType::F32), f64::from(f32::from_bits(1)));
        assert_eq!(ulp(0.0, DType::F64), f64::from_bits(1));
    }

    #[test]
    fn right_rounding_is_at_most_half_a_unit() {
        let expected = [0.1, 1.7, -300.3, 3e-4];
        for dtype in DType::ALL {
            let actual = expected.map(|value| round(dtype, value));
            let found = deviation(dtype, 4, &pairs(&expected), &actual).unwrap();
            assert!(found.max_ulp <= 0.5, "{dtype}: {found:?}");
        }
        let off = [0.1_f32, 1.7, -300.3].map(|value| f64::from(value.next_up()));
        let expected = [0.1_f32, 1.7, -300.3].map(f64::from);
        let found = deviation(DType::F32, 1, &pairs(&expected), &off).unwrap();
        assert_eq!((found.max_ulp, found.mean_ulp), (1.0, 1.0));
    }

    #[test]
    fn cancelled_values_are_measured_by_their_row() {
        let (expected, actual) = ([1024.0, 0.0], [1024.0, 2.0 * f64::from(f32::EPSILON)]);
        let found = deviation(DType::F32, 2, &pairs(&expected), &actual).unwrap();
        assert_eq!((found.max_ulp, found.mean_ulp), (2.0, 1.0));
    }

    #[test]
    fn infinities_agree_or_count() {
        let expected = pairs(&[1e39, -1e39, 1.0, 1.0]);
        let actual = [f64::INFINITY, f64::INFINITY, f64::NAN, 1.0];
        let found = deviation(DType::F32, 4, &expected, &actual).unwrap();
        assert_eq!((found.not_finite, found.max_ulp), (2, 0.0));
        assert!(deviation(DType::F32, 4, &expected, &[]).is_none());
    }
}
