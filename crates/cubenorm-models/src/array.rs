use std::fmt;

use cubenorm_core::DType;
use half::{bf16, f16};

/// Maximum rank of a tensor in a file.
pub(crate) const MAX_RANK: usize = 64;

/// Element type of a tensor in a file.
///
/// Includes types that are not normalized, so that errors can name them. [`ElementType::dtype`]
/// tells which types are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is its name")]
pub enum ElementType {
    Float32,
    Float16,
    BFloat16,
    Float64,
    Int2,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt2,
    UInt4,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Bool,
    String,
    Complex64,
    Complex128,
    Float4E2M1,
    Float8E4M3FN,
    Float8E4M3FNUZ,
    Float8E5M2,
    Float8E5M2FNUZ,
    Float8E8M0,
}

/// Names and storage of a type.
struct Facts {
    element: ElementType,
    name: &'static str,
    /// `TensorProto.DataType`.
    onnx: i32,
    /// Name without the prefix `DML_TENSOR_DATA_TYPE_`; `None` if DirectML lacks the type.
    directml: Option<&'static str>,
    /// Bytes of one element; `None` if elements share bytes or vary in length.
    size: Option<usize>,
}

const fn facts(
    element: ElementType,
    name: &'static str,
    onnx: i32,
    directml: Option<&'static str>,
    size: Option<usize>,
) -> Facts {
    Facts {
        element,
        name,
        onnx,
        directml,
        size,
    }
}

const FACTS: [Facts; 26] = {
    use ElementType::*;
    [
        facts(Float32, "float32", 1, Some("FLOAT32"), Some(4)),
        facts(UInt8, "uint8", 2, Some("UINT8"), Some(1)),
        facts(Int8, "int8", 3, Some("INT8"), Some(1)),
        facts(UInt16, "uint16", 4, Some("UINT16"), Some(2)),
        facts(Int16, "int16", 5, Some("INT16"), Some(2)),
        facts(Int32, "int32", 6, Some("INT32"), Some(4)),
        facts(Int64, "int64", 7, Some("INT64"), Some(8)),
        facts(String, "string", 8, None, None),
        facts(Bool, "bool", 9, None, Some(1)),
        facts(Float16, "float16", 10, Some("FLOAT16"), Some(2)),
        facts(Float64, "float64", 11, Some("FLOAT64"), Some(8)),
        facts(UInt32, "uint32", 12, Some("UINT32"), Some(4)),
        facts(UInt64, "uint64", 13, Some("UINT64"), Some(8)),
        facts(Complex64, "complex64", 14, None, Some(8)),
        facts(Complex128, "complex128", 15, None, Some(16)),
        facts(BFloat16, "bfloat16", 16, None, Some(2)),
        facts(Float8E4M3FN, "float8e4m3fn", 17, None, Some(1)),
        facts(Float8E4M3FNUZ, "float8e4m3fnuz", 18, None, Some(1)),
        facts(Float8E5M2, "float8e5m2", 19, None, Some(1)),
        facts(Float8E5M2FNUZ, "float8e5m2fnuz", 20, None, Some(1)),
        facts(UInt4, "uint4", 21, Some("UINT4"), None),
        facts(Int4, "int4", 22, Some("INT4"), None),
        facts(Float4E2M1, "float4e2m1", 23, None, None),
        facts(Float8E8M0, "float8e8m0", 24, None, Some(1)),
        facts(UInt2, "uint2", 25, None, None),
        facts(Int2, "int2", 26, None, None),
    ]
};

impl ElementType {
    fn facts(self) -> &'static Facts {
        let found = FACTS.iter().find(|facts| facts.element == self);
        // The table lists every variant; a test counts them.
        found.unwrap_or(&FACTS[0])
    }

    /// Looks up a type by its number in ONNX's `TensorProto.DataType`.
    pub fn from_onnx(code: i32) -> Option<Self> {
        let found = FACTS.iter().find(|facts| facts.onnx == code);
        found.map(|facts| facts.element)
    }

    /// Number of the type in ONNX's `TensorProto.DataType`.
    pub fn onnx(self) -> i32 {
        self.facts().onnx
    }

    /// Looks up a type by its name in DirectML, with or without `DML_TENSOR_DATA_TYPE_`.
    pub fn from_directml(name: &str) -> Option<Self> {
        let name = name.strip_prefix("DML_TENSOR_DATA_TYPE_").unwrap_or(name);
        let found = FACTS.iter().find(|facts| facts.directml == Some(name));
        found.map(|facts| facts.element)
    }

    /// Name in DirectML, without the prefix; `None` if DirectML lacks the type.
    pub fn directml(self) -> Option<&'static str> {
        self.facts().directml
    }

    /// Bytes of one element; `None` for strings and for types below a byte.
    pub fn size(self) -> Option<usize> {
        self.facts().size
    }

    /// Dtype to normalize the type in; `None` if it is not normalized.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Self::Float16 => Some(DType::F16),
            Self::BFloat16 => Some(DType::BF16),
            Self::Float32 => Some(DType::F32),
            Self::Float64 => Some(DType::F64),
            _ => None,
        }
    }

    /// Reads one little-endian element. Returns `None` if the number of bytes differs from
    /// [`size`](Self::size), and for types that are not numbers or are smaller than a byte.
    pub fn number(self, bytes: &[u8]) -> Option<f64> {
        macro_rules! read {
            ($type:ty) => {
                <$type>::from_le_bytes(bytes.try_into().ok()?)
            };
        }
        Some(match self {
            Self::Float32 => f64::from(read!(f32)),
            Self::Float16 => read!(f16).to_f64(),
            Self::BFloat16 => read!(bf16).to_f64(),
            Self::Float64 => read!(f64),
            Self::Int8 => f64::from(read!(i8)),
            Self::Int16 => f64::from(read!(i16)),
            Self::Int32 => f64::from(read!(i32)),
            Self::Int64 => read!(i64) as f64,
            Self::UInt8 | Self::Bool => f64::from(read!(u8)),
            Self::UInt16 => f64::from(read!(u16)),
            Self::UInt32 => f64::from(read!(u32)),
            Self::UInt64 => read!(u64) as f64,
            _ => return None,
        })
    }

    /// Formats one element with digits that read back to the same value. Returns `None` like
    /// [`number`](Self::number).
    pub fn text(self, bytes: &[u8]) -> Option<String> {
        macro_rules! read {
            ($type:ty) => {
                <$type>::from_le_bytes(bytes.try_into().ok()?)
            };
        }
        let float = |text: String| {
            let text = text.strip_suffix(".0").unwrap_or(&text);
            text.replace("NaN", "nan")
        };
        Some(match self {
            Self::Float32 => float(format!("{:?}", read!(f32))),
            Self::Float16 => float(format!("{:?}", read!(f16).to_f32())),
            Self::BFloat16 => float(format!("{:?}", read!(bf16).to_f32())),
            Self::Float64 => float(format!("{:?}", read!(f64))),
            Self::Int64 => read!(i64).to_string(),
            Self::UInt64 => read!(u64).to_string(),
            // Integers below 2^53, which f64 formats without a fraction.
            _ => self.number(bytes)?.to_string(),
        })
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::Float16,
            DType::BF16 => Self::BFloat16,
            DType::F32 => Self::Float32,
            DType::F64 => Self::Float64,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().name)
    }
}

/// Error of making an array of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The elements cannot be counted.
    #[error("shape {shape:?} is too large: expected elements that this machine can address")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The number of bytes differs from that of the shape.
    #[error("shape {shape:?} of {element} takes {expected} bytes, but there are {actual}")]
    Size {
        /// The element type.
        element: ElementType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes of the shape.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// Elements of this type share bytes, or are not numbers.
    #[error("elements of type {element} cannot be read as numbers")]
    NotNumbers {
        /// The element type.
        element: ElementType,
    },
}

/// A tensor in host memory, row-major and without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostArray {
    /// The type of its elements.
    pub element: ElementType,
    /// Size of each dimension; none for a single element.
    pub shape: Vec<usize>,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

impl HostArray {
    /// Makes an array of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ArrayError`] if the shape takes another number of bytes or overflows, or if elements share
    /// bytes.
    pub fn new(
        element: ElementType,
        shape: impl Into<Vec<usize>>,
        bytes: Vec<u8>,
    ) -> Result<Self, ArrayError> {
        let shape = shape.into();
        let size = element.size().ok_or(ArrayError::NotNumbers { element })?;
        let expected = count(&shape).and_then(|count| count.checked_mul(size));
        match expected {
            None => Err(ArrayError::TooLarge { shape }),
            Some(expected) if expected != bytes.len() => Err(ArrayError::Size {
                element,
                shape,
                expected,
                actual: bytes.len(),
            }),
            Some(_) => Ok(Self {
                element,
                shape,
                bytes,
            }),
        }
    }

    /// Makes an array of `values`, rounded to `dtype`.
    ///
    /// # Errors
    ///
    /// [`ArrayError`] if the shape has another number of elements.
    pub fn from_f64(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        values: &[f64],
    ) -> Result<Self, ArrayError> {
        let mut bytes = Vec::with_capacity(values.len() * dtype.size());
        for &value in values {
            push(&mut bytes, dtype, value);
        }
        Self::new(dtype.into(), shape, bytes)
    }

    /// Converts the elements to f64; integers beyond 2^53 are rounded.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NotNumbers`].
    pub fn to_f64(&self) -> Result<Vec<f64>, ArrayError> {
        let element = self.element;
        let error = ArrayError::NotNumbers { element };
        let size = element.size().ok_or(error.clone())?;
        let numbers = self.bytes.chunks(size).map(|chunk| element.number(chunk));
        numbers.collect::<Option<_>>().ok_or(error)
    }
}

/// Number of elements of a shape; `None` if it exceeds a `usize`.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
}

/// Appends `value`, rounded to `dtype`.
pub(crate) fn push(bytes: &mut Vec<u8>, dtype: DType, value: f64) {
    match dtype {
        DType::F16 => bytes.extend(to_f16(value).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f32(to_odd(value)).to_le_bytes()),
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::F64 => bytes.extend(value.to_le_bytes()),
    }
}

/// Rounds once to the nearest f16.
pub(crate) fn to_f16(value: f64) -> f16 {
    f16::from_f32(to_odd(value))
}

/// Rounds to odd: towards 0, with an odd mantissa if the result is inexact. A second rounding to
/// fewer digits then gives the same result as one rounding. `half` rounds an `f64` twice.
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
    fn every_type_has_its_own_facts() {
        for facts in &FACTS {
            assert_eq!(facts.element.to_string(), facts.name);
            assert_eq!(ElementType::from_onnx(facts.onnx), Some(facts.element));
        }
        // The number of the last variant is the number of variants less one.
        let last = ElementType::Float8E8M0 as usize;
        assert!((0..=last).all(|at| FACTS.iter().any(|facts| facts.element as usize == at)));
        assert_eq!(FACTS.len(), last + 1);
    }

    #[test]
    fn directml_names_need_no_prefix() {
        let long = ElementType::from_directml("DML_TENSOR_DATA_TYPE_FLOAT16");
        assert_eq!(long, Some(ElementType::Float16));
        assert_eq!(ElementType::from_directml("FLOAT16"), long);
        assert_eq!(ElementType::from_directml("float16"), None);
        assert_eq!(ElementType::from_directml("UNKNOWN"), None);
    }

    #[test]
    fn numbers_print_with_the_fewest_exact_digits() {
        let f32_text = |value: f32| ElementType::Float32.text(&value.to_le_bytes()).unwrap();
        assert_eq!(f32_text(1.0), "1");
        assert_eq!(f32_text(-0.1), "-0.1");
        assert_eq!(f32_text(1e-30), "1e-30");
        assert_eq!(f32_text(f32::NAN), "nan");
        assert_eq!(f32_text(f32::NEG_INFINITY), "-inf");
        let int = ElementType::Int64.text(&i64::MIN.to_le_bytes()).unwrap();
        assert_eq!(int, "-9223372036854775808");
    }

    #[test]
    fn f16_and_bf16_are_rounded_once() {
        let rounded = |dtype, value| {
            let array = HostArray::from_f64(dtype, [1], &[value]).unwrap();
            array.to_f64().unwrap()[0]
        };
        // Less than one f32 step above and below the middle of two neighbours.
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(rounded(DType::BF16, above), 1.0 + 2f64.powi(-7));
        let below = 1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40);
        assert_eq!(rounded(DType::F16, -below), -1.0 - 2f64.powi(-10));
        assert_eq!(rounded(DType::F16, 1e300), f64::INFINITY);
        assert_eq!(rounded(DType::F16, -1e-300), 0.0);
        assert!(rounded(DType::BF16, f64::NAN).is_nan());
    }

    #[test]
    fn arrays_have_the_bytes_of_their_shape() {
        let error = HostArray::new(ElementType::Float32, [2, 3], vec![0; 20]).unwrap_err();
        assert!(error.to_string().contains("takes 24 bytes"), "{error}");
        assert!(HostArray::new(ElementType::Float32, [usize::MAX, 2], vec![]).is_err());
        assert!(HostArray::new(ElementType::String, [1], vec![0]).is_err());
        let scalar = HostArray::new(ElementType::Int8, [], vec![255]).unwrap();
        assert_eq!(scalar.to_f64().unwrap(), [-1.0]);
    }
}
