//! Values of a type as bytes, and back as `f64`, which holds each of them.

use cubenorm_core::DType;
use half::{bf16, f16};

/// The nearest value that the type holds.
pub fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        DType::F32 => f64::from(value as f32),
        DType::F64 => value,
    }
}

/// Little-endian.
pub fn encode(values: &[f64], dtype: DType) -> Vec<u8> {
    let of = |value: f64| match dtype {
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
    };
    values.iter().copied().flat_map(of).collect()
}

/// Reads what [`encode`] writes; bytes that are no whole value are left out.
pub fn decode(bytes: &[u8], dtype: DType) -> Vec<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_holds_reads_back() {
        for dtype in DType::ALL {
            let values = [0.0, 1.5, -2048.0, 0.1, 6.1e-5].map(|value| rounded(value, dtype));
            let bytes = encode(&values, dtype);
            assert_eq!(bytes.len(), values.len() * dtype.size());
            assert_eq!(decode(&bytes, dtype), values);
        }
    }
}
