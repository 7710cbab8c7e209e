use std::collections::BTreeMap;
use std::path::PathBuf;

use cubenorm_operators::directml::{Operator, TensorDesc};

use crate::access::FileAccess;
use crate::array::ElementType;
use crate::dxdispatch::InitialValues;

/// A parsed model: all names resolve, and every operator has its fields. A
/// [`Session`](crate::dxdispatch::Session) checks the descriptions of operators and the sizes of
/// buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Buffers by name.
    pub resources: BTreeMap<String, Resource>,
    /// Operators by name.
    pub dispatchables: BTreeMap<String, Dispatchable>,
    /// Commands, in order.
    pub commands: Vec<Command>,
    /// Folder of the files that the model names.
    pub folder: PathBuf,
    /// Files outside the folder that the model may name.
    pub access: FileAccess,
}

/// A buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Initial contents.
    pub initial_values: InitialValues,
    /// Element type of the initial values; `None` if there are several. The resource is shown in
    /// this type, and offsets count its elements. Tensors bound to it may have another type.
    pub element: Option<ElementType>,
    /// Size, a multiple of 4 that covers the initial values.
    pub size_in_bytes: u64,
}

/// An operator to dispatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatchable {
    /// Operator and its description.
    pub operator: Operator,
    /// Tensors of the description, by the names of their fields.
    pub tensors: BTreeMap<&'static str, Tensor>,
    /// Bindings of the tensors with the flag OWNED_BY_DML.
    pub bindings: BTreeMap<String, Binding>,
}

/// A tensor of a dispatchable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Sizes, strides, data type.
    pub desc: TensorDesc,
    /// True if it has the flag OWNED_BY_DML: it is bound once, before the first command.
    pub owned: bool,
}

/// A part of a resource that holds a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Name of the resource.
    pub resource: String,
    /// Bytes before the tensor's first element.
    pub offset: u64,
}

/// A command of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Runs a dispatchable.
    Dispatch {
        /// Name of the dispatchable.
        dispatchable: String,
        /// Bindings of its tensors.
        bindings: BTreeMap<String, Binding>,
    },
    /// Shows a resource.
    Print {
        /// Name of the resource.
        resource: String,
    },
    /// Writes a resource to a file: in NumPy's format if its extension is `npy`, otherwise as raw
    /// bytes.
    WriteFile {
        /// Name of the resource.
        resource: String,
        /// Absolute path of the file.
        path: PathBuf,
        /// Shape of the array; empty for one dimension.
        dimensions: Vec<u32>,
    },
}
