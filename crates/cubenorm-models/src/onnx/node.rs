use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cubenorm_operators::OperatorError;
use cubenorm_operators::onnx::{AttributeValue, Operator};
use prost::Message;

use crate::access::FileAccess;
use crate::array::{ElementType, HostArray, MAX_RANK};
use crate::file;
use crate::onnx::external::ExternalData;
use crate::onnx::proto::{ModelProto, attribute_type};
use crate::onnx::tensor::TensorView;
use crate::onnx::tensor_error::TensorError;
use crate::onnx::wire::{Field, Fields, WireError};

/// Maximum number of inputs, outputs and attributes of a node, and of numbers in an attribute. No
/// operator has nearly that number, but a hostile file may.
const MAX_NODE_PARTS: usize = 64;
/// Maximum number of inputs of a graph. Models before IR version 4 list every initializer among
/// them.
const MAX_GRAPH_INPUTS: usize = 1024;

/// Error of reading a model of one normalization node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The file cannot be read.
    #[error("the model cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The bytes are not a `ModelProto`.
    #[error("it is not an ONNX model: {0}")]
    Decode(#[from] WireError),
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// The graph has no node or several.
    #[error("the graph has {0} nodes: expected exactly one")]
    NodeCount(usize),
    /// The node or the graph has too many parts.
    #[error("{what} are {actual}: expected at most {limit}")]
    TooMany {
        /// Kind of the parts.
        what: &'static str,
        /// Their number.
        actual: usize,
        /// The limit.
        limit: usize,
    },
    /// The graph has no output.
    #[error("the graph has no output")]
    NoOutput,
    /// The model does not import the node's domain.
    #[error("the model imports no opset for the domain {domain:?} of its node")]
    NoOpset {
        /// The domain.
        domain: String,
    },
    /// A name is listed twice.
    #[error("{kind} {name:?} is listed more than once")]
    Repeated {
        /// Kind of the item.
        kind: &'static str,
        /// Name of the item.
        name: String,
    },
    /// An attribute's value does not match its declared type.
    #[error("attribute {name:?} has a value that is not of its type, {code}")]
    AttributeType {
        /// Name of the attribute.
        name: String,
        /// Declared type, a number of `AttributeProto.AttributeType`.
        code: i32,
    },
    /// An input or output of the graph is not a tensor, or its type or shape is invalid.
    #[error("{name:?} is declared with {what}")]
    Declaration {
        /// Name of the input or output.
        name: String,
        /// The invalid part.
        what: String,
    },
    /// An input of the node is neither an input of the graph nor an initializer.
    #[error("the node reads {name:?}, which is neither an input of the graph nor an initializer")]
    UnknownInput {
        /// Name of the input.
        name: String,
    },
    /// An output of the graph is not an output of the node.
    #[error("the graph returns {name:?}, which the node does not write")]
    UnknownOutput {
        /// Name of the output.
        name: String,
    },
    /// An initializer that the node reads is invalid.
    #[error("initializer: {0}")]
    Initializer(#[from] TensorError),
    /// The operator is unknown or its attributes are invalid.
    #[error(transparent)]
    Operator(#[from] OperatorError),
}

/// A model of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Operator of the node.
    pub operator: Operator,
    /// Inputs by position; empty if an optional one is absent.
    pub inputs: Vec<String>,
    /// Outputs by position; empty if one is not wanted.
    pub outputs: Vec<String>,
    /// Inputs of the graph, in order.
    pub graph_inputs: Vec<Value>,
    /// Outputs of the graph, in order. All are outputs of the node.
    pub graph_outputs: Vec<Value>,
    /// Arrays of the initializers that the node reads.
    pub initializers: BTreeMap<String, HostArray>,
    /// Names of the graph's inputs that have an initializer, read by the node or not.
    pub initialized_inputs: BTreeSet<String>,
}

/// Declaration of an input or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Name of the value.
    pub name: String,
    /// Element type; `None` if it is not declared.
    pub element: Option<ElementType>,
    /// Sizes; `None` for each open one, or for all if no shape is declared.
    pub shape: Option<Vec<Option<usize>>>,
}

impl Node {
    /// Reads a model's file, and the files below its folder that hold its external data.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn read(path: &Path) -> Result<Self, NodeError> {
        Self::read_with(path, &FileAccess::new())
    }

    /// Reads a model's file, with `access` to the files that hold its external data.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn read_with(path: &Path, access: &FileAccess) -> Result<Self, NodeError> {
        let bytes = file::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&bytes, Some(&mut ExternalData::new(folder, access)))
    }

    /// Reads a serialized `ModelProto` without external data.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NodeError> {
        Self::parse(bytes, None)
    }

    /// Reads a model in memory, without external data.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn from_model(model: ModelProto) -> Result<Self, NodeError> {
        Self::from_bytes(&model.encode_to_vec())
    }

    fn parse(model: &[u8], external: Option<&mut ExternalData>) -> Result<Self, NodeError> {
        let node = single_node(model)?;
        let domain = plain_domain(node.domain);
        let opset = opset(model, domain)?.ok_or_else(|| NodeError::NoOpset {
            domain: domain.to_owned(),
        })?;
        let mut attributes = BTreeMap::new();
        for attribute in &node.attributes {
            let (name, value) = read_attribute(*attribute)?;
            if attributes.insert(name.to_owned(), value).is_some() {
                let (kind, name) = ("attribute", name.to_owned());
                return Err(NodeError::Repeated { kind, name });
            }
        }
        let operator = Operator::from_node(domain, node.op_type, opset, &attributes)?;

        let is_read: BTreeSet<&str> = node.inputs.iter().copied().collect();
        let inputs = declared(model, GRAPH_INPUT, "inputs of the graph", MAX_GRAPH_INPUTS)?;
        let outputs = declared(model, GRAPH_OUTPUT, "outputs of the graph", MAX_NODE_PARTS)?;
        let names: BTreeSet<&str> = inputs.iter().map(|input| input.name).collect();
        let (initializers, initialized) = initializers(model, &is_read, &names, external)?;
        let is_ignored = |name: &str| initialized.contains(name) && !is_read.contains(name);
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let read = Self {
            operator,
            inputs: owned(node.inputs.clone()),
            outputs: owned(node.outputs),
            initializers,
            graph_inputs: values(&inputs, "graph input", is_ignored)?,
            graph_outputs: values(&outputs, "graph output", |_| false)?,
            initialized_inputs: initialized.into_iter().map(str::to_owned).collect(),
        };
        read.check_names()?;
        Ok(read)
    }

    /// Inputs of the graph without an initializer, which the caller provides.
    pub fn free_inputs(&self) -> impl Iterator<Item = &Value> {
        let inputs = self.graph_inputs.iter();
        inputs.filter(|input| !self.initialized_inputs.contains(&input.name))
    }

    fn check_names(&self) -> Result<(), NodeError> {
        let declared: BTreeSet<&String> = self.graph_inputs.iter().map(|it| &it.name).collect();
        let is_provided = |name: &String| {
            name.is_empty() || self.initializers.contains_key(name) || declared.contains(name)
        };
        if let Some(name) = self.inputs.iter().find(|name| !is_provided(name)) {
            return Err(NodeError::UnknownInput { name: name.clone() });
        }
        let mut written: Vec<&String> = self.outputs.iter().filter(|n| !n.is_empty()).collect();
        written.sort_unstable();
        if let Some(twice) = written.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NodeError::Repeated {
                kind: "node output",
                name: twice[0].clone(),
            });
        }
        let is_written = |output: &&Value| {
            !output.name.is_empty() && written.binary_search(&&output.name).is_ok()
        };
        if let Some(output) = self.graph_outputs.iter().find(|output| !is_written(output)) {
            return Err(NodeError::UnknownOutput {
                name: output.name.clone(),
            });
        }
        match self.graph_outputs.is_empty() {
            true => Err(NodeError::NoOutput),
            false => Ok(()),
        }
    }
}

/// Fields of `GraphProto`.
const GRAPH_NODE: u32 = 1;
const GRAPH_INITIALIZER: u32 = 5;
const GRAPH_INPUT: u32 = 11;
const GRAPH_OUTPUT: u32 = 12;

/// ONNX's own domain has two names.
fn plain_domain(domain: &str) -> &str {
    match domain {
        "ai.onnx" => "",
        domain => domain,
    }
}

/// Calls `each` with every field of the graph. Protobuf merges a graph that is split into several
/// fields. Returns false if there is none.
fn graph_fields<'a>(
    model: &'a [u8],
    each: &mut dyn FnMut(Field<'a>) -> Result<(), NodeError>,
) -> Result<bool, NodeError> {
    let mut is_there = false;
    for field in Fields::new(model) {
        let field = field?;
        if field.number == 7 {
            is_there = true;
            for field in field.message()? {
                each(field?)?;
            }
        }
    }
    Ok(is_there)
}

/// A `NodeProto` in the bytes of its model.
#[derive(Debug, Default)]
struct NodeView<'a> {
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
    op_type: &'a str,
    domain: &'a str,
    attributes: Vec<Fields<'a>>,
}

/// Finds the node of a graph that has exactly one.
fn single_node(model: &[u8]) -> Result<NodeView<'_>, NodeError> {
    let (mut count, mut node) = (0, None);
    let has_graph = graph_fields(model, &mut |field| {
        if field.number == GRAPH_NODE {
            count += 1;
            node = Some(field.message()?);
        }
        Ok(())
    })?;
    match node {
        Some(node) if count == 1 => read_node(node),
        _ if !has_graph => Err(NodeError::NoGraph),
        _ => Err(NodeError::NodeCount(count)),
    }
}

fn read_node(fields: Fields<'_>) -> Result<NodeView<'_>, NodeError> {
    let mut node = NodeView::default();
    let mut inputs = Limited::new("inputs of the node", MAX_NODE_PARTS);
    let mut outputs = Limited::new("outputs of the node", MAX_NODE_PARTS);
    let mut attributes = Limited::new("attributes of the node", MAX_NODE_PARTS);
    for field in fields {
        let field = field?;
        match field.number {
            1 => inputs.push(field.name()?),
            2 => outputs.push(field.name()?),
            4 => node.op_type = field.name()?,
            5 => attributes.push(field.message()?),
            7 => node.domain = field.name()?,
            _ => (),
        }
    }
    node.inputs = inputs.finish()?;
    node.outputs = outputs.finish()?;
    node.attributes = attributes.finish()?;
    Ok(node)
}

/// A list that counts all items and keeps those within its limit.
struct Limited<T> {
    what: &'static str,
    limit: usize,
    count: usize,
    items: Vec<T>,
}

impl<T> Limited<T> {
    fn new(what: &'static str, limit: usize) -> Self {
        Self {
            what,
            limit,
            count: 0,
            items: Vec::new(),
        }
    }

    fn push(&mut self, item: T) {
        self.count += 1;
        if self.count <= self.limit {
            self.items.push(item);
        }
    }

    fn finish(self) -> Result<Vec<T>, NodeError> {
        match self.count <= self.limit {
            true => Ok(self.items),
            false => Err(NodeError::TooMany {
                what: self.what,
                actual: self.count,
                limit: self.limit,
            }),
        }
    }
}

/// Looks up the opset version that the model imports for a domain.
fn opset(model: &[u8], domain: &str) -> Result<Option<i64>, WireError> {
    let (mut ir_version, mut has_imports, mut found) = (None, false, None);
    for field in Fields::new(model) {
        let field = field?;
        match field.number {
            1 => ir_version = Some(field.int64()?),
            8 => {
                has_imports = true;
                let (mut imported, mut version) = ("", 0);
                for field in field.message()? {
                    let field = field?;
                    match field.number {
                        1 => imported = field.name()?,
                        2 => version = field.int64()?,
                        _ => (),
                    }
                }
                if plain_domain(imported) == domain {
                    found = found.or(Some(version));
                }
            }
            _ => (),
        }
    }
    // Models before IR version 3 have no imports: the specification says opset 1.
    let is_old = ir_version.is_some_and(|version| version < 3);
    let implied = (is_old && !has_imports && domain.is_empty()).then_some(1);
    Ok(found.or(implied))
}

/// Decodes the initializers in `is_read`, and only the names of all others. Also returns the names
/// in `graph_inputs` that have an initializer.
fn initializers<'a>(
    model: &'a [u8],
    is_read: &BTreeSet<&str>,
    graph_inputs: &BTreeSet<&'a str>,
    mut external: Option<&mut ExternalData>,
) -> Result<(BTreeMap<String, HostArray>, BTreeSet<&'a str>), NodeError> {
    let mut arrays = BTreeMap::new();
    let mut initialized = BTreeSet::new();
    graph_fields(model, &mut |field| {
        if field.number != GRAPH_INITIALIZER {
            return Ok(());
        }
        let message = field.bytes()?;
        let name = TensorView::name_of(message)?;
        if let Some(&name) = graph_inputs.get(name) {
            initialized.insert(name);
        }
        // An input without a name is absent, even if an initializer has no name either.
        if name.is_empty() || !is_read.contains(name) {
            return Ok(());
        }
        if arrays.contains_key(name) {
            let (kind, name) = ("initializer", name.to_owned());
            return Err(NodeError::Repeated { kind, name });
        }
        let tensor = TensorView::new(message)?;
        arrays.insert(name.to_owned(), tensor.array(external.as_deref_mut())?);
        Ok(())
    })?;
    Ok((arrays, initialized))
}

/// A `ValueInfoProto` in the bytes of its model.
struct Declared<'a> {
    name: &'a str,
    message: Fields<'a>,
}

fn declared<'a>(
    model: &'a [u8],
    number: u32,
    what: &'static str,
    limit: usize,
) -> Result<Vec<Declared<'a>>, NodeError> {
    let mut list = Limited::new(what, limit);
    graph_fields(model, &mut |field| {
        if field.number == number {
            let message = field.message()?;
            let mut name = "";
            for field in message {
                let field = field?;
                if field.number == 1 {
                    name = field.name()?;
                }
            }
            list.push(Declared { name, message });
        }
        Ok(())
    })?;
    list.finish()
}

/// Reads declarations of the graph. The types of ignored values are skipped.
fn values(
    declared: &[Declared],
    kind: &'static str,
    is_ignored: impl Fn(&str) -> bool,
) -> Result<Vec<Value>, NodeError> {
    let mut values: Vec<Value> = Vec::with_capacity(declared.len());
    let mut names = BTreeSet::new();
    for value in declared {
        if !names.insert(value.name) {
            let name = value.name.to_owned();
            return Err(NodeError::Repeated { kind, name });
        }
        values.push(match is_ignored(value.name) {
            true => Value {
                name: value.name.to_owned(),
                element: None,
                shape: None,
            },
            false => declaration(value)?,
        });
    }
    Ok(values)
}

fn declaration(declared: &Declared) -> Result<Value, NodeError> {
    let wrong = |what: String| NodeError::Declaration {
        name: declared.name.to_owned(),
        what,
    };
    let mut value = Value {
        name: declared.name.to_owned(),
        element: None,
        shape: None,
    };
    let (mut has_type, mut has_tensor, mut code) = (false, false, 0);
    let mut rank = 0;
    for field in declared.message {
        let field = field?;
        if field.number != 2 {
            continue;
        }
        has_type = true;
        for field in field.message()? {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            has_tensor = true;
            for field in field.message()? {
                let field = field?;
                match field.number {
                    1 => code = field.int32()?,
                    2 => {
                        let sizes = value.shape.get_or_insert_default();
                        for field in field.message()? {
                            let field = field?;
                            if field.number != 1 {
                                continue;
                            }
                            let size = dimension(field.message()?)?;
                            let given = size.map(usize::try_from).transpose();
                            let given = given.map_err(|_| wrong(format!("the size {size:?}")))?;
                            rank += 1;
                            if rank <= MAX_RANK {
                                sizes.push(given);
                            }
                        }
                    }
                    _ => (),
                }
            }
        }
    }
    if !has_type {
        return Ok(value);
    }
    if !has_tensor {
        return Err(wrong("a type that is no tensor".to_owned()));
    }
    if rank > MAX_RANK {
        return Err(wrong(format!("rank {rank}: expected at most {MAX_RANK}")));
    }
    let element = ElementType::from_onnx(code);
    value.element = Some(element.ok_or_else(|| wrong(format!("the unknown element type {code}")))?);
    Ok(value)
}

/// Reads the size of a dimension; `None` if it is open.
fn dimension(fields: Fields) -> Result<Option<i64>, WireError> {
    let mut size = None;
    for field in fields {
        let field = field?;
        match field.number {
            1 => size = Some(field.int64()?),
            // The name and the size are alternatives: the last one counts.
            2 => size = None,
            _ => (),
        }
    }
    Ok(size)
}

/// Reads an attribute. Models before IR version 2 do not declare its type, and writers of proto3
/// omit zeros.
fn read_attribute(fields: Fields<'_>) -> Result<(&str, AttributeValue), NodeError> {
    use attribute_type::*;
    let (mut name, mut declared) = ("", UNDEFINED);
    let (mut float, mut int, mut string) = (None, None, None);
    let mut floats = Limited::new("numbers of an attribute", MAX_NODE_PARTS);
    let mut ints = Limited::new("numbers of an attribute", MAX_NODE_PARTS);
    for field in fields {
        let field = field?;
        match field.number {
            1 => name = field.name()?,
            2 => float = Some(field.float()?),
            3 => int = Some(field.int64()?),
            4 => string = Some(field.short()?),
            7 => {
                for bytes in field.floats()?.chunks_exact(4) {
                    floats.push(f32::from_le_bytes(bytes.try_into().unwrap_or_default()));
                }
            }
            8 => field.varints(&mut |value| {
                ints.push(value as i64);
                Ok::<_, WireError>(())
            })?,
            20 => declared = field.int32()?,
            _ => (),
        }
    }
    let (floats, ints) = (floats.finish()?, ints.finish()?);
    let given = [
        (FLOAT, float.is_some()),
        (INT, int.is_some()),
        (STRING, string.is_some()),
        (FLOATS, !floats.is_empty()),
        (INTS, !ints.is_empty()),
    ];
    let mut given = given.iter().filter(|(_, is_provided)| *is_provided);
    let first = given.clone().next().map_or(UNDEFINED, |&(code, _)| code);
    let code = match declared {
        UNDEFINED => first,
        code => code,
    };
    if given.any(|&(other, _)| other != code) {
        return Err(NodeError::AttributeType {
            name: name.to_owned(),
            code,
        });
    }
    let value = match code {
        FLOAT => AttributeValue::Float(float.unwrap_or_default()),
        INT => AttributeValue::Int(int.unwrap_or_default()),
        FLOATS => AttributeValue::Floats(floats),
        INTS => AttributeValue::Ints(ints),
        STRING => AttributeValue::String(string.unwrap_or_default().to_vec()),
        _ => AttributeValue::Other,
    };
    Ok((name, value))
}
