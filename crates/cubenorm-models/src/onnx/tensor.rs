use prost::Message;

use crate::array::{ArrayError, ElementType, HostArray, count};
use crate::onnx::proto::{EXTERNAL, TensorProto};

/// Why a `TensorProto` is not an array.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The bytes are no such message.
    #[error("it is not a TensorProto: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The element type is not one that ONNX names, or is not given.
    #[error("tensor {name:?} has data type {code}, which is none of ONNX's")]
    UnknownType {
        /// The tensor.
        name: String,
        /// The number that came; 0 where none is given.
        code: i32,
    },
    /// The element type is one that is not read.
    #[error("tensor {name:?} has elements of type {element}, which are not read")]
    UnreadableType {
        /// The tensor.
        name: String,
        /// The type.
        element: ElementType,
    },
    /// A dimension is negative or more than this machine can address.
    #[error("tensor {name:?} has dims {dims:?}: expected sizes from 0 that can be counted")]
    Dims {
        /// The tensor.
        name: String,
        /// The sizes that came.
        dims: Vec<i64>,
    },
    /// The data is in another file.
    #[error("tensor {name:?} keeps its data in another file, which is not read")]
    External {
        /// The tensor.
        name: String,
    },
    /// The data is a part of a larger tensor.
    #[error("tensor {name:?} is a segment of another, which is not read")]
    Segment {
        /// The tensor.
        name: String,
    },
    /// The data is in a field that does not go with the type, or in several.
    #[error("tensor {name:?} of {element} has data in {actual}: expected it in {expected}")]
    Field {
        /// The tensor.
        name: String,
        /// Its element type.
        element: ElementType,
        /// The fields that would have been read.
        expected: &'static str,
        /// The fields that have something.
        actual: String,
    },
    /// An element does not fit the element type.
    #[error(
        "tensor {name:?} of {element} has the element {value} in {field}, beyond the type's range"
    )]
    Range {
        /// The tensor.
        name: String,
        /// Its element type.
        element: ElementType,
        /// The field.
        field: &'static str,
        /// The element.
        value: i64,
    },
    /// There are more or fewer elements than the dimensions multiply to.
    #[error("tensor {name:?}: {source}")]
    Size {
        /// The tensor.
        name: String,
        /// What does not fit.
        source: ArrayError,
    },
}

/// Reads a serialized `TensorProto`, as test data is stored: its name and the array.
///
/// # Errors
///
/// [`TensorError`].
pub fn read_tensor(bytes: &[u8]) -> Result<(String, HostArray), TensorError> {
    let tensor = TensorProto::decode(bytes)?;
    let array = array(&tensor)?;
    Ok((tensor.name.unwrap_or_default(), array))
}

/// Serializes an array as a `TensorProto` with raw data.
pub fn write_tensor(name: &str, array: &HostArray) -> Vec<u8> {
    let dims = array.shape.iter();
    TensorProto {
        dims: dims
            .map(|&size| size.try_into().unwrap_or(i64::MAX))
            .collect(),
        data_type: Some(array.element.onnx()),
        name: Some(name.to_owned()),
        raw_data: Some(array.bytes.clone()),
        ..TensorProto::default()
    }
    .encode_to_vec()
}

/// The array that a message holds, from raw data or from the field that its type has.
pub(crate) fn array(tensor: &TensorProto) -> Result<HostArray, TensorError> {
    let name = || tensor.name.clone().unwrap_or_default();
    if tensor.data_location == Some(EXTERNAL) || !tensor.external_data.is_empty() {
        return Err(TensorError::External { name: name() });
    }
    if tensor.segment.is_some() {
        return Err(TensorError::Segment { name: name() });
    }
    let code = tensor.data_type.unwrap_or_default();
    let element = ElementType::from_onnx(code)
        .ok_or_else(|| TensorError::UnknownType { name: name(), code })?;
    let unreadable = || TensorError::UnreadableType {
        name: name(),
        element,
    };
    let size = element.size().ok_or_else(unreadable)?;

    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&size| usize::try_from(size).ok())
        .collect();
    let bytes = |shape: &[usize]| count(shape)?.checked_mul(size);
    let shape = dims
        .filter(|shape| bytes(shape).is_some_and(|bytes| bytes <= isize::MAX as usize))
        .ok_or_else(|| TensorError::Dims {
            name: name(),
            dims: tensor.dims.clone(),
        })?;

    // Some writers leave an empty field behind.
    let raw = tensor.raw_data.as_ref().filter(|raw| !raw.is_empty());
    let bytes = match raw {
        Some(raw) => {
            expect_only(tensor, element, "raw_data")?;
            raw.clone()
        }
        None => typed_data(tensor, element)?.ok_or_else(unreadable)?,
    };
    HostArray::new(element, shape, bytes).map_err(|source| TensorError::Size {
        name: name(),
        source,
    })
}

/// The bytes of the typed field that ONNX prescribes for `element`; `None` where no field is read.
fn typed_data(tensor: &TensorProto, element: ElementType) -> Result<Option<Vec<u8>>, TensorError> {
    use ElementType::*;
    let field = match element {
        Float32 => "float_data",
        Float64 => "double_data",
        Int64 => "int64_data",
        UInt32 | UInt64 => "uint64_data",
        Float16 | BFloat16 | Int8 | Int16 | Int32 | UInt8 | UInt16 | Bool => "int32_data",
        _ => return Ok(None),
    };
    expect_only(tensor, element, field)?;
    let range = |value: i64| TensorError::Range {
        name: tensor.name.clone().unwrap_or_default(),
        element,
        field,
        value,
    };
    // Each element of int32_data and uint64_data holds one of the tensor's, in its low bytes.
    macro_rules! narrow {
        ($field:ident as $type:ty) => {{
            let mut bytes = Vec::new();
            for &value in &tensor.$field {
                let narrow = <$type>::try_from(value).map_err(|_| range(value as i64))?;
                bytes.extend(narrow.to_le_bytes());
            }
            bytes
        }};
    }
    macro_rules! plain {
        ($field:ident) => {
            tensor.$field.iter().flat_map(|v| v.to_le_bytes()).collect()
        };
    }
    Ok(Some(match element {
        Float32 => plain!(float_data),
        Float64 => plain!(double_data),
        Int64 => plain!(int64_data),
        UInt64 => plain!(uint64_data),
        UInt32 => narrow!(uint64_data as u32),
        Int32 => plain!(int32_data),
        Int16 => narrow!(int32_data as i16),
        Int8 => narrow!(int32_data as i8),
        UInt8 | Bool => narrow!(int32_data as u8),
        _ => narrow!(int32_data as u16),
    }))
}

/// Checks that no field but `expected` has data.
fn expect_only(
    tensor: &TensorProto,
    element: ElementType,
    expected: &'static str,
) -> Result<(), TensorError> {
    let filled = [
        (
            "raw_data",
            tensor.raw_data.as_ref().is_some_and(|raw| !raw.is_empty()),
        ),
        ("float_data", !tensor.float_data.is_empty()),
        ("int32_data", !tensor.int32_data.is_empty()),
        ("int64_data", !tensor.int64_data.is_empty()),
        ("double_data", !tensor.double_data.is_empty()),
        ("uint64_data", !tensor.uint64_data.is_empty()),
    ];
    let filled = filled.into_iter().filter(|&(_, is_filled)| is_filled);
    let filled: Vec<&str> = filled.map(|(field, _)| field).collect();
    match filled.iter().all(|&field| field == expected) {
        true => Ok(()),
        false => Err(TensorError::Field {
            name: tensor.name.clone().unwrap_or_default(),
            element,
            expected,
            actual: filled.join(" and "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::onnx::proto::Segment;

    fn tensor(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto {
            data_type: Some(data_type),
            dims: dims.to_vec(),
            name: Some("t".to_owned()),
            ..TensorProto::default()
        }
    }

    #[test]
    fn an_array_reads_back_as_it_was_written() {
        let bytes = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes());
        let array = HostArray::new(ElementType::Float32, [2, 1], bytes.collect()).unwrap();
        let (name, read) = read_tensor(&write_tensor("x", &array)).unwrap();
        assert_eq!((name.as_str(), read), ("x", array));
    }

    #[test]
    fn data_is_read_from_the_field_of_its_type() {
        let mut floats = tensor(1, &[2]);
        floats.float_data = vec![1.0, 2.0];
        assert_eq!(array(&floats).unwrap().to_f64().unwrap(), [1.0, 2.0]);

        let mut halves = tensor(10, &[2]);
        let bits = |value: f32| i32::from(f16::from_f32(value).to_bits());
        halves.int32_data = vec![bits(0.5), bits(-3.0)];
        assert_eq!(array(&halves).unwrap().to_f64().unwrap(), [0.5, -3.0]);

        let mut doubles = tensor(11, &[1]);
        doubles.double_data = vec![0.1];
        assert_eq!(array(&doubles).unwrap().to_f64().unwrap(), [0.1]);

        let mut wrong = tensor(1, &[1]);
        wrong.double_data = vec![0.1];
        assert!(matches!(array(&wrong), Err(TensorError::Field { .. })));
        floats.raw_data = Some(vec![0; 8]);
        assert!(matches!(array(&floats), Err(TensorError::Field { .. })));
        halves.int32_data[0] = 65536;
        assert!(matches!(array(&halves), Err(TensorError::Range { .. })));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |tensor: &TensorProto| array(tensor).unwrap_err();
        assert!(matches!(
            refused(&tensor(1, &[2])),
            TensorError::Size { .. }
        ));
        assert!(matches!(
            refused(&tensor(1, &[-1])),
            TensorError::Dims { .. }
        ));
        let huge = tensor(1, &[i64::MAX, i64::MAX]);
        assert!(matches!(refused(&huge), TensorError::Dims { .. }));
        assert!(matches!(
            refused(&tensor(0, &[])),
            TensorError::UnknownType { .. }
        ));
        assert!(matches!(
            refused(&tensor(99, &[])),
            TensorError::UnknownType { .. }
        ));
        assert!(matches!(
            refused(&tensor(8, &[])),
            TensorError::UnreadableType { .. }
        ));
        let mut external = tensor(1, &[0]);
        external.data_location = Some(EXTERNAL);
        assert!(matches!(refused(&external), TensorError::External { .. }));
        let mut segment = tensor(1, &[0]);
        segment.segment = Some(Segment::default());
        assert!(matches!(refused(&segment), TensorError::Segment { .. }));
        assert!(array(&tensor(1, &[0, i64::MAX])).is_ok());
    }
}
