//! Values of a dtype as bytes, and back as `f64`, which holds each of them.

use cubenorm_core::DType;
use half::{bf16, f16};

/// Rounds a number once to the nearest value of a dtype, ties to even. `half` rounds `f64` twice.
///
/// ```
/// use cubenorm_core::DType;
///
/// assert_eq!(cubenorm_reference::round(DType::F16, 2049.0), 2048.0);
/// ```
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(to_odd(value)).to_f64(),
        DType::BF16 => bf16::from_f32(to_odd(value)).to_f64(),
        DType::F32 => f64::from(value as f32),
        DType::F64 => value,
    }
}

/// Encodes values as little-endian bytes of a dtype, each rounded.
pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    for &value in values {
        match dtype {
            DType::F16 => bytes.extend(f16::from_f32(to_odd(value)).to_le_bytes()),
            DType::BF16 => bytes.extend(bf16::from_f32(to_odd(value)).to_le_bytes()),
            DType::F32 => bytes.extend((value as f32).to_le_bytes()),
            DType::F64 => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes
}

/// Reads what [`encode`] writes. Bytes that are no whole value are left out.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F16 => chunks(bytes, |b| f16::from_le_bytes(b).to_f64()),
        DType::BF16 => chunks(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        DType::F32 => chunks(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F64 => chunks(bytes, f64::from_le_bytes),
    }
}

fn chunks<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|&chunk| value(chunk)).collect()
}

/// Rounds to odd, so that a second rounding to fewer digits equals a single one (Boldo and
/// Melquiond, 2008).
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if near.is_nan() || f64::from(near) == value {
        return near;
    }
    let exceeds_threshold = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(exceeds_threshold)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_values_read_back() {
        for dtype in DType::ALL {
            let values = [0.0, 1.5, -2048.0, 0.1, 6.1e-5].map(|value| round(dtype, value));
            let bytes = encode(dtype, &values);
            assert_eq!(bytes.len(), values.len() * dtype.size());
            assert_eq!(decode(dtype, &bytes), values);
        }
    }

    #[test]
    fn numbers_round_once() {
        // Just above the middle of two f16 neighbours, and nearer to it than f32 can tell.
        let value = 2049.0 + 1e-9;
        assert_eq!(round(DType::F16, value), 2050.0);
        assert_eq!(decode(DType::F16, &encode(DType::F16, &[value])), [2050.0]);
        assert_eq!(round(DType::F16, f64::MAX), f64::INFINITY);
        assert!(round(DType::BF16, f64::NAN).is_nan());
    }
}
