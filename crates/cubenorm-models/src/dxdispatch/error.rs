use std::path::PathBuf;

use cubenorm_operators::OperatorError;

use crate::array::ElementType;
use crate::dxdispatch::Model;
use crate::npy::NpyError;

/// Why a model cannot be read or run. Every variant says where: the resource, dispatchable or command
/// and the field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("the model cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The text is longer than any that is read.
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
    /// A field without a default is not given.
    #[error("{at}: field {field} is required, but not given")]
    Missing {
        /// Where.
        at: String,
        /// The field.
        field: &'static str,
    },
    /// A value is not what its field takes.
    #[error("{at}: {actual} is given: expected {expected}")]
    Value {
        /// Where.
        at: String,
        /// What would have been taken, in words.
        expected: String,
        /// What came.
        actual: String,
    },
    /// A name that is none of those known.
    #[error("{at}: unknown {kind} {name:?}")]
    Unknown {
        /// Where.
        at: String,
        /// What it should name.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Something that the format has and this crate does not run.
    #[error("{at}: {what} is not supported")]
    Unsupported {
        /// Where.
        at: String,
        /// What.
        what: String,
    },
    /// A count that goes with an array has another value than its length.
    #[error("{at}: {count} is {actual}: expected {expected}, the length of {array}")]
    Count {
        /// Where.
        at: String,
        /// The field that counts.
        count: &'static str,
        /// The array.
        array: &'static str,
        /// Its length.
        expected: usize,
        /// The count.
        actual: u64,
    },
    /// A resource is larger than any is allocated.
    #[error("{at}: {bytes} bytes are asked for: expected at most {limit}")]
    TooLarge {
        /// Where.
        at: String,
        /// The bytes, where they can be counted.
        bytes: u128,
        /// The most that are allocated.
        limit: u64,
    },
    /// A resource is smaller than what it is initialised with.
    #[error(
        "{at}: sizeInBytes is {actual}: expected at least the {expected} bytes of its initial values"
    )]
    TooSmall {
        /// Where.
        at: String,
        /// The bytes of the initial values.
        expected: u64,
        /// The size given.
        actual: u64,
    },
    /// A file that a resource is initialised from cannot be read.
    #[error("{at}: file {} cannot be read: {source}", path.display())]
    File {
        /// Where.
        at: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that a resource is initialised from is no NumPy array.
    #[error("{at}: file {} is not an array: {source}", path.display())]
    Npy {
        /// Where.
        at: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: NpyError,
    },
    /// A file's contents are not of the resource's type.
    #[error("{at}: file {} has {actual}: expected {expected}", path.display())]
    FileType {
        /// Where.
        at: String,
        /// The file.
        path: PathBuf,
        /// What would have been taken, in words.
        expected: String,
        /// What it has, in words.
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
        /// The file.
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
        /// The file.
        path: PathBuf,
    },
    /// A file to write is there already. A session overwrites only the files that it has written.
    #[error("{at}: file {} exists already: expected a new one", path.display())]
    Exists {
        /// Place in the model.
        at: String,
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{at}: file {} cannot be written: {source}", path.display())]
    Write {
        /// Where.
        at: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A tensor of a dispatchable has no resource.
    #[error("{at}: nothing is bound to {tensor}")]
    Unbound {
        /// Where.
        at: String,
        /// The tensor.
        tensor: String,
    },
    /// A resource is bound to what cannot have one there.
    #[error("{at}: a resource is bound to {tensor}, which {reason}")]
    Binding {
        /// Where.
        at: String,
        /// The tensor.
        tensor: String,
        /// Why it cannot be.
        reason: &'static str,
    },
    /// A resource has fewer bytes from the offset on than the tensor bound to it.
    #[error(
        "{at}: {tensor} takes {expected} bytes, but resource {resource:?} has {actual} from its \
         offset of {offset} bytes on"
    )]
    BufferTooSmall {
        /// Where.
        at: String,
        /// The tensor.
        tensor: String,
        /// The resource bound to it.
        resource: String,
        /// The bytes that the tensor takes.
        expected: u64,
        /// The bytes that there are.
        actual: u64,
        /// Where they start.
        offset: u64,
    },
    /// The initial values cannot be held in memory.
    #[error("{at}: {bytes} bytes cannot be allocated")]
    OutOfMemory {
        /// Where.
        at: String,
        /// The bytes.
        bytes: u64,
    },
    /// A resource of no element type is to be shown.
    #[error(
        "{at}: resource {resource:?} has elements of several types, which cannot be shown as one"
    )]
    NoElementType {
        /// Where.
        at: String,
        /// The resource.
        resource: String,
    },
    /// An element type that NumPy does not have.
    #[error("{at}: NumPy has no elements of type {element}")]
    NoNumpyType {
        /// Where.
        at: String,
        /// The type.
        element: ElementType,
    },
    /// An operator is described wrongly.
    #[error("{at}: {source}")]
    Operator {
        /// Where.
        at: String,
        /// What is wrong.
        source: OperatorError,
    },
}
