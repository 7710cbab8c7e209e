use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Maximum bytes of a file, which is also protobuf's limit.
pub(crate) const MAX_FILE_BYTES: u64 = 2 << 30;
/// Maximum bytes of a JSON file with expected results.
pub(crate) const MAX_JSON_BYTES: u64 = 64 << 20;

/// Reads a regular file of at most [`MAX_FILE_BYTES`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MAX_FILE_BYTES)
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = Opened::new(path)?;
    if file.length > limit {
        return Err(invalid(format!(
            "it has {} bytes: expected at most {limit}",
            file.length
        )));
    }
    file.read()
}

/// An open regular file and its length.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    pub length: u64,
}

impl Opened {
    /// Opens a regular file. Pipes and devices may never end, and are an error.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        // Before opening: opening a pipe waits for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(invalid("it is not a file".to_owned()));
        }
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Reads the whole file. A length that differs from the metadata is an error.
    pub(crate) fn read(self) -> io::Result<Vec<u8>> {
        let length = self.length;
        self.read_part(0, length).and_then(|(bytes, rest)| {
            let mut rest = rest;
            match rest.read(&mut [0])? {
                0 => Ok(bytes),
                _ => Err(invalid(format!(
                    "it has more bytes than its length of {length}"
                ))),
            }
        })
    }

    /// Reads `length` bytes from `offset` into one allocation. Also returns the file, positioned
    /// after them.
    pub(crate) fn read_part(mut self, offset: u64, length: u64) -> io::Result<(Vec<u8>, File)> {
        let size = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(size)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if offset > 0 {
            self.file.seek(SeekFrom::Start(offset))?;
        }
        let read = (&mut self.file).take(length).read_to_end(&mut bytes)?;
        match read == size {
            true => Ok((bytes, self.file)),
            false => Err(invalid(format!("it ends after {read} of {length} bytes"))),
        }
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
