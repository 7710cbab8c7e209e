use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::access::{Denied, FileAccess};
use crate::file::Opened;
use crate::onnx::tensor_error::TensorError;

/// Bytes that initializers may take beyond twice the size of their files. Tensors that share a part
/// of a file are few and small in valid models.
const SHARED_BYTES: u64 = 16 << 20;

/// Entries of `TensorProto.external_data` that are read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Location<'a> {
    pub path: Option<&'a str>,
    pub offset: Option<&'a str>,
    pub length: Option<&'a str>,
}

/// Files with the data of a model's initializers.
#[derive(Debug)]
pub(crate) struct ExternalData<'a> {
    folder: &'a Path,
    access: &'a FileAccess,
    /// Lengths of the opened files.
    files: BTreeMap<PathBuf, u64>,
    /// Bytes read from all files.
    used: u64,
}

impl<'a> ExternalData<'a> {
    pub(super) fn new(folder: &'a Path, access: &'a FileAccess) -> Self {
        Self {
            folder,
            access,
            files: BTreeMap::new(),
            used: 0,
        }
    }

    /// Reads the `expected` bytes of a tensor.
    pub(super) fn read(
        &mut self,
        name: &str,
        location: Location,
        expected: u64,
    ) -> Result<Vec<u8>, TensorError> {
        let entry = |key, value: Option<&str>, expected| TensorError::ExternalEntry {
            name: name.to_owned(),
            key,
            expected,
            actual: value.unwrap_or_default().to_owned(),
        };
        let number = |key, value: Option<&str>| match value {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let expected = "a whole number of bytes";
                entry(key, value, expected)
            }),
        };
        let offset: u64 = number("offset", location.offset)?.unwrap_or(0);
        let length: Option<u64> = number("length", location.length)?;
        let path = location.path.filter(|path| !path.is_empty());
        let path = Path::new(path.ok_or_else(|| entry("location", None, "the path of a file"))?);

        let failed = |path: &Path, source| TensorError::ExternalFile {
            name: name.to_owned(),
            path: path.to_owned(),
            source,
        };
        let found = self.access.source(self.folder, path);
        let found = found.map_err(|denied| match denied {
            Denied::Outside => TensorError::ExternalOutside {
                name: name.to_owned(),
                path: path.to_owned(),
            },
            Denied::Io(source) => failed(path, source),
        })?;
        let file = Opened::new(&found).map_err(|source| failed(&found, source))?;
        let left = file.length.saturating_sub(offset);
        let length = length.unwrap_or(left);
        if length != expected || length > left {
            return Err(TensorError::ExternalSize {
                name: name.to_owned(),
                path: found,
                offset,
                expected,
                actual: length.min(left),
            });
        }
        self.files.insert(found.clone(), file.length);
        let files: u64 = self
            .files
            .values()
            .fold(0, |sum, &length| sum.saturating_add(length));
        let limit = files.saturating_mul(2).saturating_add(SHARED_BYTES);
        self.used = self.used.saturating_add(length);
        if self.used > limit {
            return Err(TensorError::TooLarge {
                name: name.to_owned(),
                bytes: self.used,
                limit,
            });
        }
        let (bytes, _) = file
            .read_part(offset, length)
            .map_err(|source| failed(&found, source))?;
        Ok(bytes)
    }
}
