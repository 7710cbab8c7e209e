use std::path::PathBuf;

use cubenorm_operators::OperatorError;

use crate::array::ElementType;
use crate::dxdispatch::Model;
use crate::npy::NpyError;

/// Error of reading or running a model. Every variant names the place: the resource, dispatchable
/// or command, and the field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("the model cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The text is too long.
    #[error(
        "the model has {length} bytes: expected at most {}, and larger data in files",
        Model::MAX_TEXT_BYTES
    )]
    LongText {
        /// The length in bytes.
        length: usize,
    },
    /// The text is not UTF-8.
    #[error("the model is not text: {0}")]
    Text(#[from] std::str::Utf8Error),
    /// A slash outside a text does not begin a comment.
    #[error("the model has a / that begins no comment: expected // or /*")]
    Comment,
    /// The text is not JSON.
    #[error("the model is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A required field is missing.
    #[error("{at}: field {field} is required, but not given")]
    Missing {
        /// Place in the model.
        at: String,
        /// The field.
        field: &'static str,
    },
    /// A value is invalid for its field.
    #[error("{at}: {actual} is given: expected {expected}")]
    Value {
        /// Place in the model.
        at: String,
        /// The accepted values, in words.
        expected: String,
        /// The value given.
        actual: String,
    },
    /// A name is unknown.
    #[error("{at}: unknown {kind} {name:?}")]
    Unknown {
        /// Place in the model.
        at: String,
        /// Kind of the item that it should name.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The format has this feature, but this crate does not support it.
    #[error("{at}: {what} is not supported")]
    Unsupported {
        /// Place in the model.
        at: String,
        /// The feature.
        what: String,
    },
    /// A count differs from the length of its array.
    #[error("{at}: {count} is {actual}: expected {expected}, the length of {array}")]
    Count {
        /// Place in the model.
        at: String,
        /// Field of the count.
        count: &'static str,
        /// Field of the array.
        array: &'static str,
        /// Length of the array.
        expected: usize,
        /// The count.
        actual: u64,
    },
    /// Resources exceed the limit.
    #[error("{at}: {bytes} bytes are required: expected at most {limit}")]
    TooLarge {
        /// Place in the model.
        at: String,
        /// Bytes required.
        bytes: u128,
        /// The limit.
        limit: u64,
    },
    /// A resource is smaller than its initial values.
    #[error(
        "{at}: sizeInBytes is {actual}: expected at least the {expected} bytes of its initial values"
    )]
    TooSmall {
        /// Place in the model.
        at: String,
        /// Bytes of the initial values.
        expected: u64,
        /// Size of the resource.
        actual: u64,
    },
    /// The source file of a resource cannot be read.
    #[error("{at}: file {} cannot be read: {source}", path.display())]
    File {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The source file of a resource is not a NumPy array.
    #[error("{at}: file {} is not an array: {source}", path.display())]
    Npy {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: NpyError,
    },
    /// The contents of a source file do not match the resource.
    #[error("{at}: file {} has {actual}: expected {expected}", path.display())]
    FileType {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
        /// The accepted values, in words.
        expected: String,
        /// The contents, in words.
        actual: String,
    },
    /// A file to read is outside the model's folder.
    #[error(
        "{at}: {} is outside the model's folder: --read-anywhere (FileAccess::read_anywhere) \
         allows it",
        path.display()
    )]
    ReadOutside {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file to write is outside the model's folder.
    #[error(
        "{at}: {} is outside the model's folder: --write-under DIR (FileAccess::write_under) \
         allows it",
        path.display()
    )]
    WriteOutside {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file to write exists already. A session overwrites only the files that it has written.
    #[error("{at}: file {} exists already: expected a new one", path.display())]
    Exists {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{at}: file {} cannot be written: {source}", path.display())]
    Write {
        /// Place in the model.
        at: String,
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A tensor of a dispatchable is not bound.
    #[error("{at}: nothing is bound to {tensor}")]
    Unbound {
        /// Place in the model.
        at: String,
        /// Field of the tensor.
        tensor: String,
    },
    /// A tensor that must not be bound is bound.
    #[error("{at}: a resource is bound to {tensor}, which {reason}")]
    Binding {
        /// Place in the model.
        at: String,
        /// Field of the tensor.
        tensor: String,
        /// The reason.
        reason: &'static str,
    },
    /// A resource is too small for the tensor bound to it.
    #[error(
        "{at}: {tensor} takes {expected} bytes, but resource {resource:?} has {actual} from its \
         offset of {offset} bytes on"
    )]
    BufferTooSmall {
        /// Place in the model.
        at: String,
        /// Field of the tensor.
        tensor: String,
        /// Name of the resource bound to it.
        resource: String,
        /// Bytes of the tensor.
        expected: u64,
        /// Bytes of the resource after the offset.
        actual: u64,
        /// Offset of the binding in bytes.
        offset: u64,
    },
    /// Memory for the contents cannot be allocated.
    #[error("{at}: {bytes} bytes cannot be allocated")]
    OutOfMemory {
        /// Place in the model.
        at: String,
        /// The bytes.
        bytes: u64,
    },
    /// A resource of several element types cannot be shown.
    #[error("{at}: resource {resource:?} has elements of several types: expected one type to show")]
    NoElementType {
        /// Place in the model.
        at: String,
        /// Name of the resource.
        resource: String,
    },
    /// NumPy lacks the element type.
    #[error("{at}: NumPy has no elements of type {element}")]
    NoNumpyType {
        /// Place in the model.
        at: String,
        /// The type.
        element: ElementType,
    },
    /// The description of an operator is invalid.
    #[error("{at}: {source}")]
    Operator {
        /// Place in the model.
        at: String,
        /// The invalid part.
        source: OperatorError,
    },
}
