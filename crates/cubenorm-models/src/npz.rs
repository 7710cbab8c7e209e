use std::collections::BTreeMap;
use std::io::{self, Read};

use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, ZipArchive};

use crate::array::HostArray;
use crate::npy::{self, NpyError};

/// Suffix of the name of each array.
const SUFFIX: &str = ".npy";

/// Error of reading an archive of arrays, the format of `numpy.savez`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The bytes are not an archive.
    #[error("it is not a zip archive: {0}")]
    Zip(rawzip::Error),
    /// The archive has an unexpected entry.
    #[error("it has an entry {name:?}: expected {}", expected.join(", "))]
    Unknown {
        /// Name of the entry.
        name: String,
        /// Names of the accepted arrays.
        expected: &'static [&'static str],
    },
    /// The archive has fewer or more entries than it declares.
    #[error("it has {actual} entries: expected {expected}, the number it declares")]
    Count {
        /// Number declared.
        expected: u64,
        /// Number found.
        actual: u64,
    },
    /// The archive has two arrays with the same name.
    #[error("it has more than one entry {name:?}")]
    Repeated {
        /// Name of the array.
        name: String,
    },
    /// The compression method of an array is not supported.
    #[error("{name}: it is compressed by {method}: expected it to be stored or deflated")]
    Method {
        /// Name of the array.
        name: String,
        /// The compression method.
        method: String,
    },
    /// An array cannot be decompressed, or its size or checksum differs from the archive's record.
    #[error("{name}: it cannot be decompressed: {source}")]
    Entry {
        /// Name of the array.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The arrays together exceed the limit.
    #[error("{name}: the arrays have more than {limit} bytes together")]
    TooLarge {
        /// Name of the array.
        name: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// An array is not in NumPy's format.
    #[error("{name}: {source}")]
    Array {
        /// Name of the array.
        name: String,
        /// The cause.
        source: NpyError,
    },
}

/// Bytes that arrays may take beyond the size of their archive.
const INFLATED_BYTES: u64 = 24 << 20;

/// Reads the arrays of an archive, by their names without `.npy`. Entries other than `names` are an
/// error. The arrays may take the size of the archive and 24 MiB together: zeros deflate to a
/// thousandth of their size.
///
/// # Errors
///
/// [`NpzError`].
pub(crate) fn read(
    bytes: &[u8],
    names: &'static [&'static str],
) -> Result<BTreeMap<&'static str, HostArray>, NpzError> {
    let limit = (bytes.len() as u64).saturating_add(INFLATED_BYTES);
    let archive = ZipArchive::from_slice(bytes).map_err(NpzError::Zip)?;
    let mut arrays = BTreeMap::new();
    let mut left = limit;
    let mut count = 0;
    let mut entries = archive.entries();
    while let Some(entry) = entries.next_entry().map_err(NpzError::Zip)? {
        count += 1;
        let path = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
        let known = path.strip_suffix(SUFFIX);
        let known = known.and_then(|stem| names.iter().copied().find(|&name| name == stem));
        let Some(name) = known else {
            return Err(NpzError::Unknown {
                name: path,
                expected: names,
            });
        };
        let named = || name.to_owned();
        let found = archive.get_entry(entry.wayfinder());
        let found = found.map_err(NpzError::Zip)?;
        let data: Box<dyn Read> = match entry.compression_method() {
            CompressionMethod::STORE => Box::new(found.data()),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(found.data())),
            other => {
                return Err(NpzError::Method {
                    name: named(),
                    method: other.to_string(),
                });
            }
        };
        if arrays.contains_key(name) {
            return Err(NpzError::Repeated { name: named() });
        }
        // The declared size only avoids reallocation: the reader compares it with the actual size.
        let size = entry.uncompressed_size_hint().min(left.saturating_add(1));
        let mut array = Vec::new();
        reserve(&mut array, size)
            .and_then(|()| {
                let mut data = found.verifying_reader(data);
                data.by_ref()
                    .take(left.saturating_add(1))
                    .read_to_end(&mut array)
            })
            .map_err(|source| NpzError::Entry {
                name: named(),
                source,
            })?;
        let Some(rest) = left.checked_sub(array.len() as u64) else {
            return Err(NpzError::TooLarge {
                name: named(),
                limit,
            });
        };
        left = rest;
        let array = npy::read(array).map_err(|source| NpzError::Array {
            name: named(),
            source,
        })?;
        arrays.insert(name, array);
    }
    match archive.entries_hint() {
        expected if expected == count => Ok(arrays),
        expected => Err(NpzError::Count {
            expected,
            actual: count,
        }),
    }
}

fn reserve(bytes: &mut Vec<u8>, more: u64) -> io::Result<()> {
    let more = usize::try_from(more).unwrap_or(usize::MAX);
    let reserved = bytes.try_reserve_exact(more);
    reserved.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cubenorm_core::DType;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use rawzip::ZipArchiveWriter;

    use super::*;

    const NAMES: &[&str] = &["a", "b"];

    fn array(values: &[f64]) -> HostArray {
        HostArray::from_f64(DType::F64, [values.len()], values).unwrap()
    }

    fn file(entries: &[(&str, &[u8], CompressionMethod)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut archive = ZipArchiveWriter::new(&mut bytes);
        for &(name, data, method) in entries {
            let builder = archive.new_file(name).compression_method(method);
            let (mut entry, config) = builder.start().unwrap();
            let descriptor = if method == CompressionMethod::DEFLATE {
                let encoder = DeflateEncoder::new(&mut entry, Compression::default());
                let mut writer = config.wrap(encoder);
                writer.write_all(data).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(data).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap();
        bytes
    }

    fn npy(values: &[f64]) -> Vec<u8> {
        npy::write(&array(values)).unwrap().unwrap()
    }

    #[test]
    fn stored_and_deflated_arrays_read_back() {
        let (a, b) = (npy(&[1.0, -2.5]), npy(&[0.0; 900]));
        let bytes = file(&[
            ("a.npy", &a, CompressionMethod::STORE),
            ("b.npy", &b, CompressionMethod::DEFLATE),
        ]);
        assert!(bytes.len() < b.len());
        let arrays = read(&bytes, NAMES).unwrap();
        assert_eq!(arrays["a"], array(&[1.0, -2.5]));
        assert_eq!(arrays["b"], array(&[0.0; 900]));
        assert!(read(&file(&[]), NAMES).unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_entry() {
        let a = npy(&[1.0]);
        let message = |entries: &[(&str, &[u8], CompressionMethod)]| {
            let read = read(&file(entries), NAMES);
            read.map(drop).unwrap_err().to_string()
        };
        let stored = CompressionMethod::STORE;
        let unknown = message(&[("c.npy", &a, stored)]);
        assert_eq!(unknown, "it has an entry \"c.npy\": expected a, b");
        let repeated = message(&[("a.npy", &a, stored), ("a.npy", &a, stored)]);
        assert_eq!(repeated, "it has more than one entry \"a\"");
        let method = message(&[("a.npy", &a, CompressionMethod::ZSTD)]);
        assert!(method.starts_with("a: it is compressed by"), "{method}");
        let array = message(&[("a.npy", b"nothing", stored)]);
        assert!(array.starts_with("a: its header"), "{array}");
        assert!(matches!(read(b"", NAMES), Err(NpzError::Zip(_))));
    }

    #[test]
    fn inflated_bytes_are_limited_by_the_archive() {
        let limit = INFLATED_BYTES as usize;
        let much = vec![0; limit + (1 << 20)];
        let bytes = file(&[("a.npy", &much, CompressionMethod::DEFLATE)]);
        assert!(bytes.len() < much.len() / 500);
        let error = read(&bytes, NAMES).unwrap_err();
        assert!(matches!(error, NpzError::TooLarge { .. }), "{error}");
        // The limit applies to all arrays together.
        let a = npy(&vec![0.0; limit / 8 - 100]);
        let bytes = file(&[
            ("a.npy", &a, CompressionMethod::DEFLATE),
            ("b.npy", &a, CompressionMethod::DEFLATE),
        ]);
        let error = read(&bytes, NAMES).unwrap_err();
        assert!(error.to_string().starts_with("b: the arrays"), "{error}");
        // Stored arrays never exceed it.
        let bytes = file(&[
            ("a.npy", &a, CompressionMethod::STORE),
            ("b.npy", &a, CompressionMethod::STORE),
        ]);
        assert_eq!(read(&bytes, NAMES).unwrap().len(), 2);
    }

    #[test]
    fn changed_data_is_refused() {
        let a = npy(&[1.0, 2.0]);
        let bytes = file(&[("a.npy", &a, CompressionMethod::STORE)]);
        let at = bytes.windows(a.len()).position(|part| part == a).unwrap();
        let mut changed = bytes.clone();
        changed[at + a.len() - 1] ^= 1;
        let error = read(&changed, NAMES).unwrap_err();
        assert!(matches!(error, NpzError::Entry { .. }), "{error}");
    }
}
