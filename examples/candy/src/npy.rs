//! Reads NumPy's `.npy` files of little-endian f32 in C order, the format of the weights.
//!
//! The headers of the published weights are valid but unusual: no spaces after colons, and a
//! trailing comma in every shape. Common readers reject them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};

const MAGIC: &[u8] = b"\x93NUMPY";

/// A row-major array of f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Size of each dimension.
    pub shape: Vec<usize>,
    /// Elements.
    pub values: Vec<f32>,
}

/// Reads an array from a file.
pub fn read(path: &Path) -> Result<Array> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&bytes).with_context(|| format!("cannot use {}", path.display()))
}

/// Reads an array from the bytes of a file.
pub fn parse(bytes: &[u8]) -> Result<Array> {
    let (header, data) = split_header(bytes)?;
    let shape =
        parse_header(header).with_context(|| format!("in the header {:?}", header.trim()))?;

    let count = shape
        .iter()
        .try_fold(1_usize, |count, &size| count.checked_mul(size))
        .and_then(|count| count.checked_mul(size_of::<f32>()))
        .with_context(|| format!("the shape {shape:?} is too large"))?;
    ensure!(
        data.len() == count,
        "the shape {shape:?} needs {count} bytes of data, but the file has {}",
        data.len()
    );
    let values = data
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    Ok(Array { shape, values })
}

/// Splits a file into the text of the header and the data.
fn split_header(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("not an npy file")?;
    // The length has two bytes in version 1, and four later.
    let (length, rest) = match rest {
        [1, _minor, low, high, rest @ ..] => (u16::from_le_bytes([*low, *high]).into(), rest),
        [2 | 3, _minor, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        _ => bail!("unknown version of npy"),
    };
    let (header, data) = rest
        .split_at_checked(usize::try_from(length)?)
        .context("the file ends within its header")?;
    Ok((std::str::from_utf8(header)?, data))
}

/// Parses the shape in a header.
///
/// Example: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse_header(header: &str) -> Result<Vec<usize>> {
    let descr = field(header, "descr")?;
    ensure!(
        descr.starts_with("'<f4'") || descr.starts_with("\"<f4\""),
        "the elements are not little-endian f32"
    );
    ensure!(
        field(header, "fortran_order")?.starts_with("False"),
        "the array is not in C order"
    );
    let (shape, _) = field(header, "shape")?
        .strip_prefix('(')
        .and_then(|shape| shape.split_once(')'))
        .ok_or_else(|| anyhow!("the shape is not a tuple"))?;
    shape
        .split(',')
        .map(str::trim)
        // A trailing comma, or the shape of a scalar, gives an empty part.
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().with_context(|| format!("{size:?} is not a size")))
        .collect()
}

/// Text after the name of a field and its colon.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str> {
    ["'", "\""]
        .iter()
        .find_map(|quote| header.split_once(&format!("{quote}{name}{quote}")))
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
        .map(str::trim_start)
        .ok_or_else(|| anyhow!("there is no {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a file of version 1.
    fn file(header: &str, values: &[f32]) -> Vec<u8> {
        let length = u16::try_from(header.len()).unwrap();
        let mut bytes = [MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes()].concat();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    #[test]
    fn numpys_own_header_is_read() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n";
        let array = parse(&file(header, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        assert_eq!(array.shape, [2, 3]);
        assert_eq!(array.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn header_with_trailing_comma_and_no_spaces_is_read() {
        let header = "{'descr':'<f4', 'fortran_order':False, 'shape':(2,1,1,), }\n";
        let array = parse(&file(header, &[-0.5, 7.0])).unwrap();
        assert_eq!(array.shape, [2, 1, 1]);
        assert_eq!(array.values, [-0.5, 7.0]);
    }

    #[test]
    fn scalars_and_vectors_are_read() {
        let scalar = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }";
        assert!(parse(&file(scalar, &[3.0])).unwrap().shape.is_empty());
        let vector = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        assert_eq!(parse(&file(vector, &[3.0])).unwrap().shape, [1]);
    }

    #[test]
    fn version_2_is_read() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        let length = u32::try_from(header.len()).unwrap();
        let mut bytes = [MAGIC, &[2, 0], &length.to_le_bytes(), header.as_bytes()].concat();
        bytes.extend(3.0_f32.to_le_bytes());
        assert_eq!(parse(&bytes).unwrap().values, [3.0]);
    }

    #[test]
    fn unsupported_files_are_errors() {
        let wrong = [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': 1, }",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        ];
        for header in wrong {
            assert!(parse(&file(header, &[1.0])).is_err(), "{header}");
        }
        assert!(parse(b"").is_err());
        assert!(parse(b"\x93NUMPY\x01\x00\xff\xff").is_err());
        assert!(parse(b"PK\x03\x04").is_err());
    }
}
