//! What can be wrong with a `TensorProto`.

use crate::array::{ArrayError, ElementType, MAX_RANK};
use crate::onnx::wire::WireError;

/// Error of reading a `TensorProto`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The bytes are not such a message.
    #[error("it is not a TensorProto: {0}")]
    Decode(#[from] WireError),
    /// The element type is not one that ONNX names, or is missing.
    #[error("tensor {name:?} has data type {code}: expected one of ONNX's")]
    UnknownType {
        /// Name of the tensor.
        name: String,
        /// The number given; 0 if there is none.
        code: i32,
    },
    /// The element type is not supported.
    #[error("tensor {name:?} has elements of type {element}, which are not supported")]
    UnreadableType {
        /// Name of the tensor.
        name: String,
        /// The type.
        element: ElementType,
    },
    /// The tensor has too many dimensions.
    #[error("tensor {name:?} has rank {rank}: expected at most {MAX_RANK}")]
    Rank {
        /// Name of the tensor.
        name: String,
        /// Its number of dimensions.
        rank: usize,
    },
    /// A dimension is negative, or the size exceeds the address space.
    #[error("tensor {name:?} has dims {dims:?}: expected sizes from 0 that can be counted")]
    Dims {
        /// Name of the tensor.
        name: String,
        /// The sizes given.
        dims: Vec<i64>,
    },
    /// The data is in another file, but the tensor was not read from a folder.
    #[error("tensor {name:?} keeps its data in another file: expected a model read from a file")]
    External {
        /// Name of the tensor.
        name: String,
    },
    /// An entry that locates external data is missing or malformed.
    #[error("tensor {name:?} has the {key} {actual:?} of external data: expected {expected}")]
    ExternalEntry {
        /// Name of the tensor.
        name: String,
        /// The entry.
        key: &'static str,
        /// The accepted form.
        expected: &'static str,
        /// The value given; empty if there is none.
        actual: String,
    },
    /// External data is outside the model's folder.
    #[error(
        "tensor {name:?} keeps its data in {}, which is outside the model's folder: \
         --read-anywhere (FileAccess::read_anywhere) allows it",
        path.display()
    )]
    ExternalOutside {
        /// Name of the tensor.
        name: String,
        /// The file.
        path: std::path::PathBuf,
    },
    /// The file of external data cannot be read.
    #[error("tensor {name:?} keeps its data in {}, which cannot be read: {source}", path.display())]
    ExternalFile {
        /// Name of the tensor.
        name: String,
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// External data has another size than the dimensions.
    #[error(
        "tensor {name:?} has {actual} bytes in {} from byte {offset} on: expected {expected}",
        path.display()
    )]
    ExternalSize {
        /// Name of the tensor.
        name: String,
        /// The file.
        path: std::path::PathBuf,
        /// First byte of the data.
        offset: u64,
        /// Bytes of the dimensions.
        expected: u64,
        /// Bytes that the model declares or the file has.
        actual: u64,
    },
    /// The array is many times larger than its file.
    #[error(
        "tensor {name:?} brings the model to {bytes} bytes: expected at most {limit} for its files"
    )]
    TooLarge {
        /// Name of the tensor.
        name: String,
        /// The bytes in memory.
        bytes: u64,
        /// The limit, which depends on the file size.
        limit: u64,
    },
    /// The data is a part of a larger tensor.
    #[error("tensor {name:?} is a segment of another, which is not supported")]
    Segment {
        /// Name of the tensor.
        name: String,
    },
    /// The data is in a field of another type, or in several fields.
    #[error("tensor {name:?} of {element} has data in {actual}: expected it in {expected}")]
    Field {
        /// Name of the tensor.
        name: String,
        /// Its element type.
        element: ElementType,
        /// The accepted fields.
        expected: &'static str,
        /// The fields that have data.
        actual: String,
    },
    /// An element exceeds the range of the element type.
    #[error(
        "tensor {name:?} of {element} has the element {value} in {field}, beyond the type's range"
    )]
    Range {
        /// Name of the tensor.
        name: String,
        /// Its element type.
        element: ElementType,
        /// The field.
        field: &'static str,
        /// The element.
        value: i64,
    },
    /// The number of elements differs from the product of the dimensions.
    #[error("tensor {name:?}: {source}")]
    Size {
        /// Name of the tensor.
        name: String,
        /// The mismatch.
        source: ArrayError,
    },
}
