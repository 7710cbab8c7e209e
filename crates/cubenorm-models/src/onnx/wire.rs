//! Reader of protobuf's wire format over borrowed bytes.
//!
//! A decoder of whole messages allocates before the caller can look at them: an empty tensor takes
//! 2 bytes in a file and 300 in memory. This reader does not allocate. The caller skips unneeded
//! fields and limits the number of the others.

use std::str::Utf8Error;

/// Maximum bytes of the name of an operator, tensor or attribute. Names are copied, and errors show
/// them with escapes.
const MAX_NAME_BYTES: usize = 1 << 16;

/// Error of reading a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A varint is truncated or has more than 64 bits.
    #[error("a varint is cut off or longer than 64 bits")]
    Varint,
    /// A field is longer than its message.
    #[error("field {field} has {length} bytes: expected at most {left}, the rest of its message")]
    Length {
        /// The field's number.
        field: u32,
        /// Declared length.
        length: u64,
        /// Bytes left in the message.
        left: usize,
    },
    /// The field number is invalid.
    #[error("field number {0} is out of range: expected 1 to 536870911")]
    FieldNumber(u64),
    /// The wire type does not match the field's type.
    #[error("field {field} has wire type {actual}: expected {expected}")]
    WireType {
        /// The field's number.
        field: u32,
        /// The accepted wire types.
        expected: &'static str,
        /// The wire type given.
        actual: u8,
    },
    /// A name is too long.
    #[error("field {field} is a text of {length} bytes: expected at most {MAX_NAME_BYTES}")]
    LongName {
        /// The field's number.
        field: u32,
        /// The length.
        length: usize,
    },
    /// A text is not UTF-8.
    #[error("field {field} is not text: {source}")]
    Text {
        /// The field's number.
        field: u32,
        /// The position.
        source: Utf8Error,
    },
}

/// Value of a field, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Field<'a> {
    pub number: u32,
    value: Value<'a>,
}

impl<'a> Field<'a> {
    fn mismatch(self, expected: &'static str) -> WireError {
        WireError::WireType {
            field: self.number,
            expected,
            actual: match self.value {
                Value::Varint(_) => 0,
                Value::Fixed64(_) => 1,
                Value::Bytes(_) => 2,
                Value::Fixed32(_) => 5,
            },
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch("2, bytes")),
        }
    }

    pub(super) fn message(self) -> Result<Fields<'a>, WireError> {
        self.bytes().map(Fields::new)
    }

    /// Returns a name of at most [`MAX_NAME_BYTES`].
    pub(super) fn name(self) -> Result<&'a str, WireError> {
        let field = self.number;
        std::str::from_utf8(self.short()?).map_err(|source| WireError::Text { field, source })
    }

    /// Returns at most [`MAX_NAME_BYTES`].
    pub(super) fn short(self) -> Result<&'a [u8], WireError> {
        let field = self.number;
        match self.bytes()? {
            bytes if bytes.len() <= MAX_NAME_BYTES => Ok(bytes),
            bytes => Err(WireError::LongName {
                field,
                length: bytes.len(),
            }),
        }
    }

    pub(super) fn int64(self) -> Result<i64, WireError> {
        match self.value {
            Value::Varint(value) => Ok(value as i64),
            _ => Err(self.mismatch("0, a varint")),
        }
    }

    /// Returns the low 32 bits: negative numbers are encoded with 64.
    pub(super) fn int32(self) -> Result<i32, WireError> {
        self.int64().map(|value| value as i32)
    }

    pub(super) fn float(self) -> Result<f32, WireError> {
        match self.value {
            Value::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.mismatch("5, 4 bytes")),
        }
    }

    /// Calls `each` with every number of a repeated integer, packed or not.
    pub(super) fn varints<E: From<WireError>>(
        self,
        each: &mut impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.value {
            Value::Varint(value) => each(value),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    each(varint(&mut packed)?)?;
                }
                Ok(())
            }
            _ => Err(self.mismatch("0 or 2, varints").into()),
        }
    }

    /// Returns the little-endian bytes of a repeated `float`, packed or not.
    pub(super) fn floats(&self) -> Result<&[u8], WireError> {
        match &self.value {
            Value::Fixed32(bytes) => Ok(bytes),
            Value::Bytes(packed) if packed.len() % 4 == 0 => Ok(packed),
            _ => Err(self.mismatch("5 or 2, numbers of 4 bytes")),
        }
    }

    /// Returns the little-endian bytes of a repeated `double`, packed or not.
    pub(super) fn doubles(&self) -> Result<&[u8], WireError> {
        match &self.value {
            Value::Fixed64(bytes) => Ok(bytes),
            Value::Bytes(packed) if packed.len() % 8 == 0 => Ok(packed),
            _ => Err(self.mismatch("1 or 2, numbers of 8 bytes")),
        }
    }
}

/// Fields of a message, in the order of the bytes. Ends after the first error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let key = varint(&mut self.rest)?;
        let Ok(number @ 1..=0x1fff_ffff) = u32::try_from(key >> 3) else {
            return Err(WireError::FieldNumber(key >> 3));
        };
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.rest)?),
            1 => Value::Fixed64(self.array(number)?),
            2 => {
                let length = varint(&mut self.rest)?;
                Value::Bytes(self.take(number, length)?)
            }
            5 => Value::Fixed32(self.array(number)?),
            // Groups, which the schema does not have, and undefined wire types.
            other => {
                return Err(WireError::WireType {
                    field: number,
                    expected: "0, 1, 2 or 5",
                    actual: other as u8,
                });
            }
        };
        Ok(Field { number, value })
    }

    fn take(&mut self, field: u32, length: u64) -> Result<&'a [u8], WireError> {
        let split = usize::try_from(length).ok();
        let split = split.and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or(WireError::Length {
            field,
            length,
            left: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: u32) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N as u64)?);
        Ok(array)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Reads a number of at most 64 bits, 7 per byte, lowest first.
fn varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for (index, &byte) in rest.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit of the number.
        if index == 9 && bits > 1 {
            return Err(WireError::Varint);
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Ok(value);
        }
    }
    Err(WireError::Varint)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::onnx::proto::{AttributeProto, TensorProto};

    fn all(bytes: &[u8]) -> Result<Vec<Field<'_>>, WireError> {
        Fields::new(bytes).collect()
    }

    #[test]
    fn reads_each_wire_type() {
        let attribute = AttributeProto {
            name: Some("axis".to_owned()),
            f: Some(0.5),
            i: Some(-3),
            ..AttributeProto::default()
        };
        let bytes = attribute.encode_to_vec();
        let fields = all(&bytes).unwrap();
        assert_eq!(fields[0].name(), Ok("axis"));
        assert_eq!(fields[1].float(), Ok(0.5));
        assert_eq!(fields[2].int64(), Ok(-3));
        assert_eq!(fields[2].int32(), Ok(-3));
        assert!(matches!(fields[2].bytes(), Err(WireError::WireType { .. })));
        let tensor = TensorProto {
            double_data: vec![0.25, 4.0],
            ..TensorProto::default()
        };
        let bytes = tensor.encode_to_vec();
        let fields = all(&bytes).unwrap();
        assert_eq!(fields[0].doubles().unwrap().len(), 16);
    }

    #[test]
    fn reads_packed_and_single_varints_alike() {
        for bytes in [&b"\x38\x01\x38\xac\x02"[..], b"\x3a\x03\x01\xac\x02"] {
            let mut values = Vec::new();
            for field in Fields::new(bytes) {
                let mut each = |value| {
                    values.push(value);
                    Ok::<_, WireError>(())
                };
                field.unwrap().varints(&mut each).unwrap();
            }
            assert_eq!(values, [1, 300]);
        }
    }

    #[test]
    fn refuses_malformed_bytes() {
        assert_eq!(all(b"\x08"), Err(WireError::Varint));
        assert_eq!(
            all(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
            Err(WireError::Varint)
        );
        assert_eq!(all(b"\x02\x00"), Err(WireError::FieldNumber(0)));
        assert!(matches!(
            all(b"\x0a\x05abc"),
            Err(WireError::Length { left: 3, .. })
        ));
        assert!(matches!(
            all(b"\x0b\x0c"),
            Err(WireError::WireType { actual: 3, .. })
        ));
        assert!(matches!(
            all(b"\x0d\x00"),
            Err(WireError::Length { length: 4, .. })
        ));
        let field = all(b"\x0a\x01\xff").unwrap()[0];
        assert!(matches!(field.name(), Err(WireError::Text { .. })));
    }
}
