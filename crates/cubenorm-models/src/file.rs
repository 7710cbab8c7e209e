use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file that is read, which is also the largest that protobuf can describe.
pub(crate) const MAX_FILE_BYTES: u64 = 2 << 30;

/// Reads a regular file of at most [`MAX_FILE_BYTES`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MAX_FILE_BYTES)
}

/// Reads a regular file of at most `limit` bytes. A pipe or a device, which may never end, is an
/// error, and so is a file that is longer than it says.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    if !metadata.is_file() {
        return Err(invalid("it is not a file".to_owned()));
    }
    let too_long = || invalid(format!("it has more than {limit} bytes"));
    if metadata.len() > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let length = File::open(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match length as u64 > limit {
        true => Err(too_long()),
        false => Ok(bytes),
    }
}
