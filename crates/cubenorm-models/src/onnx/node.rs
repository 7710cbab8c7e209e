use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cubenorm_operators::OperatorError;
use cubenorm_operators::onnx::{AttributeValue, Operator};
use prost::Message;

use crate::array::{ElementType, HostArray};
use crate::file;
use crate::onnx::proto::{AttributeProto, GraphProto, ModelProto, ValueInfoProto, attribute_type};
use crate::onnx::tensor::{TensorError, array};

/// Why a model is not one of a single normalization.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The file cannot be read.
    #[error("the model cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The bytes are no such message.
    #[error("it is not an ONNX model: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// The graph has none or several nodes.
    #[error("the graph has {0} nodes: expected exactly one")]
    NodeCount(usize),
    /// The graph has no output.
    #[error("the graph has no output")]
    NoOutput,
    /// No version of the node's domain is imported.
    #[error("the model imports no opset for the domain {domain:?} of its node")]
    NoOpset {
        /// The domain.
        domain: String,
    },
    /// A name stands for two things.
    #[error("{kind} {name:?} is listed more than once")]
    Repeated {
        /// What it names.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// An attribute's value is not of the type it says.
    #[error("attribute {name:?} has a value that is not of its type, {code}")]
    AttributeType {
        /// The attribute.
        name: String,
        /// The number in `AttributeProto.type`.
        code: i32,
    },
    /// An input or output of the graph is no tensor, or has a type or size that there is none of.
    #[error("{name:?} is declared with {what}")]
    Declaration {
        /// The input or output.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Nothing gives an input of the node.
    #[error("the node reads {name:?}, which is neither an input of the graph nor an initializer")]
    UnknownInput {
        /// The input.
        name: String,
    },
    /// Nothing gives an output of the graph.
    #[error("the graph returns {name:?}, which the node does not write")]
    UnknownOutput {
        /// The output.
        name: String,
    },
    /// An initializer is no array.
    #[error("initializer: {0}")]
    Initializer(#[from] TensorError),
    /// The operator is unknown or described wrongly.
    #[error(transparent)]
    Operator(#[from] OperatorError),
}

/// A model of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What the node computes.
    pub operator: Operator,
    /// Its inputs by position; empty where an optional one is absent.
    pub inputs: Vec<String>,
    /// Its outputs by position; empty where one is not wanted.
    pub outputs: Vec<String>,
    /// Inputs of the graph, in order.
    pub graph_inputs: Vec<Value>,
    /// Outputs of the graph, in order: all of them the node's.
    pub graph_outputs: Vec<Value>,
    /// What initializers give.
    pub initializers: BTreeMap<String, HostArray>,
}

/// An input or output of a graph, as far as the model says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub element: Option<ElementType>,
    /// Its sizes, `None` for each that is open.
    pub shape: Option<Vec<Option<usize>>>,
}

impl Node {
    /// Reads a model's file.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn read(path: &Path) -> Result<Self, NodeError> {
        Self::from_bytes(&file::read(path)?)
    }

    /// Reads a serialized `ModelProto`.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NodeError> {
        Self::from_model(ModelProto::decode(bytes)?)
    }

    /// Takes a model apart.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn from_model(model: ModelProto) -> Result<Self, NodeError> {
        let mut graph = model.graph.ok_or(NodeError::NoGraph)?;
        let count = graph.node.len();
        let node = match graph.node.pop() {
            Some(node) if count == 1 => node,
            _ => return Err(NodeError::NodeCount(count)),
        };

        let domain = plain_domain(node.domain.as_deref());
        let opset = model
            .opset_import
            .iter()
            .find(|opset| plain_domain(opset.domain.as_deref()) == domain)
            .map(|opset| opset.version.unwrap_or_default())
            .ok_or_else(|| NodeError::NoOpset {
                domain: domain.to_owned(),
            })?;
        let mut attributes = BTreeMap::new();
        for attribute in &node.attribute {
            let name = attribute.name.clone().unwrap_or_default();
            if attributes.insert(name.clone(), value(attribute)?).is_some() {
                let kind = "attribute";
                return Err(NodeError::Repeated { kind, name });
            }
        }
        let op_type = node.op_type.as_deref().unwrap_or_default();
        let operator = Operator::from_node(domain, op_type, opset, &attributes)?;

        let read = Self {
            operator,
            inputs: node.input,
            outputs: node.output,
            initializers: initializers(&graph)?,
            graph_inputs: values(&graph.input, "graph input")?,
            graph_outputs: values(&graph.output, "graph output")?,
        };
        read.check_names()?;
        Ok(read)
    }

    /// The inputs of the graph that the caller gives: those that no initializer gives.
    pub fn free_inputs(&self) -> impl Iterator<Item = &Value> {
        let inputs = self.graph_inputs.iter();
        inputs.filter(|input| !self.initializers.contains_key(&input.name))
    }

    fn check_names(&self) -> Result<(), NodeError> {
        let declared: BTreeSet<&String> = self.graph_inputs.iter().map(|it| &it.name).collect();
        let is_given = |name: &String| {
            name.is_empty() || self.initializers.contains_key(name) || declared.contains(name)
        };
        if let Some(name) = self.inputs.iter().find(|name| !is_given(name)) {
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

/// ONNX's own domain has two names.
fn plain_domain(domain: Option<&str>) -> &str {
    match domain {
        None | Some("ai.onnx") => "",
        Some(domain) => domain,
    }
}

fn initializers(graph: &GraphProto) -> Result<BTreeMap<String, HostArray>, NodeError> {
    let mut initializers = BTreeMap::new();
    for tensor in &graph.initializer {
        let name = tensor.name.clone().unwrap_or_default();
        if initializers.insert(name.clone(), array(tensor)?).is_some() {
            let kind = "initializer";
            return Err(NodeError::Repeated { kind, name });
        }
    }
    Ok(initializers)
}

fn values(declared: &[ValueInfoProto], kind: &'static str) -> Result<Vec<Value>, NodeError> {
    let mut values: Vec<Value> = Vec::with_capacity(declared.len());
    let mut names = BTreeSet::new();
    for value in declared {
        let value = declaration(value)?;
        if !names.insert(value.name.clone()) {
            let name = value.name;
            return Err(NodeError::Repeated { kind, name });
        }
        values.push(value);
    }
    Ok(values)
}

fn declaration(info: &ValueInfoProto) -> Result<Value, NodeError> {
    let name = info.name.clone().unwrap_or_default();
    let wrong = |what: String| NodeError::Declaration {
        name: name.clone(),
        what,
    };
    let Some(declared) = &info.r#type else {
        return Ok(Value {
            name,
            element: None,
            shape: None,
        });
    };
    let tensor = declared.tensor_type.as_ref();
    let tensor = tensor.ok_or_else(|| wrong("a type that is no tensor".to_owned()))?;
    let code = tensor.elem_type.unwrap_or_default();
    let element = ElementType::from_onnx(code);
    let element = element.ok_or_else(|| wrong(format!("the unknown element type {code}")))?;
    let shape = match &tensor.shape {
        None => None,
        Some(shape) => {
            let mut sizes = Vec::with_capacity(shape.dim.len());
            for dim in &shape.dim {
                let size = dim.dim_value.map(usize::try_from).transpose();
                sizes.push(size.map_err(|_| wrong(format!("the size {:?}", dim.dim_value)))?);
            }
            Some(sizes)
        }
    };
    Ok(Value {
        name: name.clone(),
        element: Some(element),
        shape,
    })
}

/// An attribute's value. Models of old do not say the type, and writers of proto3 leave zeros out.
fn value(attribute: &AttributeProto) -> Result<AttributeValue, NodeError> {
    use attribute_type::*;
    let given = [
        (FLOAT, attribute.f.is_some()),
        (INT, attribute.i.is_some()),
        (STRING, attribute.s.is_some()),
        (FLOATS, !attribute.floats.is_empty()),
        (INTS, !attribute.ints.is_empty()),
    ];
    let first = given.iter().find(|(_, is_given)| *is_given);
    let first = first.map_or(UNDEFINED, |&(code, _)| code);
    let code = match attribute.r#type {
        None | Some(UNDEFINED) => first,
        Some(code) => code,
    };
    if given
        .iter()
        .any(|&(other, is_given)| is_given && other != code)
    {
        return Err(NodeError::AttributeType {
            name: attribute.name.clone().unwrap_or_default(),
            code,
        });
    }
    Ok(match code {
        FLOAT => AttributeValue::Float(attribute.f.unwrap_or_default()),
        INT => AttributeValue::Int(attribute.i.unwrap_or_default()),
        FLOATS => AttributeValue::Floats(attribute.floats.clone()),
        INTS => AttributeValue::Ints(attribute.ints.clone()),
        STRING => AttributeValue::String(attribute.s.clone().unwrap_or_default()),
        _ => AttributeValue::Other,
    })
}
