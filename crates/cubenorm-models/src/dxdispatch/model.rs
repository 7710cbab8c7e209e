use std::collections::BTreeMap;
use std::path::PathBuf;

use cubenorm_operators::directml::{Operator, TensorDesc};

use crate::access::FileAccess;
use crate::array::ElementType;
use crate::dxdispatch::InitialValues;

/// A model as its file says it: every name in it leads somewhere, every operator has its fields.
/// Whether operators are described rightly and buffers are large enough is a
/// [`Session`](crate::dxdispatch::Session)'s to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Buffers by name.
    pub resources: BTreeMap<String, Resource>,
    /// Operators by name.
    pub dispatchables: BTreeMap<String, Dispatchable>,
    /// What is done, in order.
    pub commands: Vec<Command>,
    /// Folder of the files that the model names.
    pub folder: PathBuf,
    /// The files outside the folder that it may name.
    pub access: FileAccess,
}

/// A buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What it starts with.
    pub initial_values: InitialValues,
    /// The type of the initial values, in which it is shown and offsets are counted; `None` for
    /// values of several types. Tensors bound to it may have another.
    pub element: Option<ElementType>,
    /// Its size, a multiple of 4 that holds at least the initial values.
    pub size_in_bytes: u64,
}

/// An operator to dispatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatchable {
    /// What it computes.
    pub operator: Operator,
    /// The tensors that its description has, by the names of their fields.
    pub tensors: BTreeMap<&'static str, Tensor>,
    /// What is bound to the tensors with the flag OWNED_BY_DML.
    pub bindings: BTreeMap<String, Binding>,
}

/// A tensor of a dispatchable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Sizes, strides, data type.
    pub desc: TensorDesc,
    /// Whether it has the flag OWNED_BY_DML: bound once, before the first command.
    pub owned: bool,
}

/// A part of a resource, to read or write a tensor in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The resource.
    pub resource: String,
    /// Bytes before the tensor's first element.
    pub offset: u64,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Runs a dispatchable.
    Dispatch {
        /// The dispatchable.
        dispatchable: String,
        /// What is bound to its tensors.
        bindings: BTreeMap<String, Binding>,
    },
    /// Shows a resource.
    Print {
        /// The resource.
        resource: String,
    },
    /// Writes a resource to a file: NumPy's format by its extension `npy`, otherwise the bytes.
    WriteFile {
        /// The resource.
        resource: String,
        /// The file.
        path: PathBuf,
        /// The sizes to write it with; empty for one dimension.
        dimensions: Vec<u32>,
    },
}
