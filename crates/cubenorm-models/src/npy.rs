use std::io;

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};

use crate::array::{ArrayError, ElementType, HostArray, MAX_RANK};

/// Error of reading NumPy's format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The header is malformed.
    #[error("its header is not NumPy's: {0}")]
    Header(io::Error),
    /// The array has too many dimensions.
    #[error("it has rank {rank}: expected at most {MAX_RANK}")]
    Rank {
        /// Its number of dimensions.
        rank: usize,
    },
    /// The element type is not supported.
    #[error("its elements have the type {0}, which is not supported")]
    Type(String),
    /// The data does not match the header.
    #[error("its data is not what its header says: {0}")]
    Data(#[from] ArrayError),
}

/// Reads an array. The result is row-major and little-endian.
///
/// # Errors
///
/// [`NpyError`].
pub(crate) fn read(mut bytes: Vec<u8>) -> Result<HostArray, NpyError> {
    check_header(&bytes)
        .map_err(|message| NpyError::Header(io::Error::new(io::ErrorKind::InvalidData, message)))?;
    let mut rest = bytes.as_slice();
    let header = NpyHeader::from_reader(&mut rest).map_err(NpyError::Header)?;
    let data = bytes.len() - rest.len();
    let rank = header.shape().len();
    if rank > MAX_RANK {
        return Err(NpyError::Rank { rank });
    }
    let (element, swap) = match header.dtype() {
        DType::Plain(name) => {
            let element = element_type(&name).ok_or_else(|| NpyError::Type(name.to_string()))?;
            (element, name.endianness() == Endianness::Big)
        }
        other => return Err(NpyError::Type(other.descr())),
    };
    let size = |&size: &u64| usize::try_from(size).unwrap_or(usize::MAX);
    let shape: Vec<usize> = header.shape().iter().map(size).collect();
    // In place, so that large files are in memory once.
    bytes.drain(..data);
    let mut array = HostArray::new(element, shape, bytes)?;
    let width = element.size().unwrap_or(1);
    if swap {
        array.bytes.chunks_mut(width).for_each(<[u8]>::reverse);
    }
    if header.order() == Order::Fortran {
        array.bytes = row_major(&array.bytes, &array.shape, width);
    }
    Ok(array)
}

/// Writes an array; `None` if NumPy lacks its type.
pub(crate) fn write(array: &HostArray) -> Option<io::Result<Vec<u8>>> {
    let name = type_name(array.element)?;
    let shape: Vec<u64> = array.shape.iter().map(|&size| size as u64).collect();
    let invalid = |error: npyz::ParseTypeStrError| io::Error::other(error.to_string());
    let bytes = name.parse().map_err(invalid).and_then(|name: TypeStr| {
        let mut bytes = Vec::new();
        WriteOptions::new_header_only()
            .dtype(DType::new_scalar(name))
            .shape(&shape)
            .writer(&mut bytes)
            .write_header_only()?;
        bytes.extend(&array.bytes);
        Ok(bytes)
    });
    Some(bytes)
}

/// Refuses headers that exceed the parser: lengths beyond the file, which it would allocate; nested
/// brackets, which it would recurse into; sizes whose product overflows.
fn check_header(bytes: &[u8]) -> Result<(), String> {
    let length_bytes = match bytes {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, rest @ ..] => rest.get(..2),
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, rest @ ..] => rest.get(..4),
        _ => return Err("it does not start as one".to_owned()),
    };
    let length_bytes = length_bytes.ok_or("it ends within the header")?;
    let length = length_bytes
        .iter()
        .rev()
        .fold(0usize, |length, &byte| length << 8 | usize::from(byte));
    let start = 8 + length_bytes.len();
    let text = bytes
        .get(start..start.saturating_add(length))
        .filter(|text| text.len() <= usize::from(u16::MAX))
        .ok_or_else(|| format!("a header of {length} bytes is too long"))?;

    let (mut depth, mut quote, mut number, mut product) = (0, None, None, 1u64);
    let mut word = false;
    for &byte in text.iter().chain(b" ") {
        match (quote, byte) {
            (Some(open), byte) => quote = Some(open).filter(|&open| open != byte),
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth -= 1,
            _ => (),
        }
        if depth > 3 {
            return Err("it nests brackets".to_owned());
        }
        // Other notations of Python's numbers, and quotes that do not end a text.
        let is_word = quote.is_none() && (byte.is_ascii_alphabetic() || byte == b'_');
        let is_digit = quote.is_none() && byte.is_ascii_digit();
        if byte == b'\\' || is_word && number.is_some() || is_digit && word {
            return Err("it has more than texts and whole numbers".to_owned());
        }
        word = is_word;
        let overflow = || "its sizes cannot be counted".to_owned();
        match byte {
            b'0'..=b'9' if quote.is_none() => {
                let digit = u64::from(byte - b'0');
                let next = number.unwrap_or(0u64).checked_mul(10);
                number = Some(
                    next.and_then(|n| n.checked_add(digit))
                        .ok_or_else(overflow)?,
                );
            }
            _ => {
                if let Some(number) = number.take() {
                    product = product.checked_mul(number.max(1)).ok_or_else(overflow)?;
                }
            }
        }
    }
    Ok(())
}

fn element_type(name: &TypeStr) -> Option<ElementType> {
    use ElementType::*;
    Some(match (name.type_char(), name.size_field()) {
        (TypeChar::Float, 2) => Float16,
        (TypeChar::Float, 4) => Float32,
        (TypeChar::Float, 8) => Float64,
        (TypeChar::Int, 1) => Int8,
        (TypeChar::Int, 2) => Int16,
        (TypeChar::Int, 4) => Int32,
        (TypeChar::Int, 8) => Int64,
        (TypeChar::Uint, 1) => UInt8,
        (TypeChar::Uint, 2) => UInt16,
        (TypeChar::Uint, 4) => UInt32,
        (TypeChar::Uint, 8) => UInt64,
        (TypeChar::Bool, 1) => Bool,
        _ => return None,
    })
}

fn type_name(element: ElementType) -> Option<&'static str> {
    use ElementType::*;
    Some(match element {
        Float16 => "<f2",
        Float32 => "<f4",
        Float64 => "<f8",
        Int8 => "|i1",
        Int16 => "<i2",
        Int32 => "<i4",
        Int64 => "<i8",
        UInt8 => "|u1",
        UInt16 => "<u2",
        UInt32 => "<u4",
        UInt64 => "<u8",
        Bool => "|b1",
        _ => return None,
    })
}

/// Reorders a column-major array to row-major.
fn row_major(bytes: &[u8], shape: &[usize], width: usize) -> Vec<u8> {
    if bytes.is_empty() {
        // The product of the other sizes may overflow.
        return Vec::new();
    }
    let mut strides = Vec::with_capacity(shape.len());
    let mut step = width;
    for &size in shape {
        strides.push(step);
        step *= size;
    }
    let mut result = Vec::with_capacity(bytes.len());
    let mut index = vec![0; shape.len()];
    while result.len() < bytes.len() {
        let at: usize = index
            .iter()
            .zip(&strides)
            .map(|(i, stride)| i * stride)
            .sum();
        result.extend(&bytes[at..at + width]);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn written_arrays_read_back() {
        for element in [ElementType::Float16, ElementType::UInt8, ElementType::Int64] {
            let bytes = (0..6 * element.size().unwrap()).map(|b| b as u8).collect();
            let array = HostArray::new(element, [2, 3], bytes).unwrap();
            let written = write(&array).unwrap().unwrap();
            assert_eq!(read(written).unwrap(), array);
        }
    }

    #[test]
    fn column_major_and_big_endian_data_is_reordered() {
        let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
        let data = [0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6];
        let array = read(file(1, header, &data)).unwrap();
        assert_eq!(array.to_f64().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn refuses_costly_headers_before_parsing() {
        let huge = [0x93, b'N', b'U', b'M', b'P', b'Y', 2, 0, 255, 255, 255, 255];
        assert!(matches!(read(huge.to_vec()), Err(NpyError::Header(_))));
        let nested = "(".repeat(60_000);
        assert!(matches!(
            read(file(1, &nested, &[])),
            Err(NpyError::Header(_))
        ));
        let large = "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }";
        assert!(matches!(
            read(file(1, large, &[])),
            Err(NpyError::Header(_))
        ));
        // Nesting behind an escaped quote, and numbers in other notations.
        let nested = "[".repeat(60);
        for header in [
            format!("{{'\\'': {nested}1"),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4_294_967_296, 4_294_967_296), }"
                .into(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0xffffffff, 0xffffffff), }".into(),
        ] {
            assert!(matches!(
                read(file(1, &header, &[])),
                Err(NpyError::Header(_))
            ));
        }
        // A product of 0 with an overflow in between.
        let empty = "{'descr': '<f8', 'fortran_order': True, 'shape': (9223372036854775808, 0), }";
        assert!(read(file(1, empty, &[])).unwrap().bytes.is_empty());
        let object = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }";
        assert!(matches!(
            read(file(1, object, &[0])),
            Err(NpyError::Type(_))
        ));
        let short = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        assert!(matches!(
            read(file(1, short, &[0; 4])),
            Err(NpyError::Data(_))
        ));
    }

    #[test]
    fn refuses_ranks_above_64() {
        let header = |rank: usize| {
            let sizes = "1,".repeat(rank);
            format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({sizes}), }}")
        };
        let array = read(file(1, &header(64), &[0; 4])).unwrap();
        assert_eq!(array.shape.len(), 64);
        for rank in [65, 30_000] {
            let error = read(file(1, &header(rank), &[0; 4])).unwrap_err();
            assert!(
                matches!(error, NpyError::Rank { rank: r } if r == rank),
                "{error}"
            );
        }
    }
}
