use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cubenorm_core::TensorDesc;
use cubenorm_operators::{OperatorError, Program, Slot};

use crate::array::{ArrayError, ElementType, HostArray};
use crate::executor::{ExecuteError, Executor, Run, check_outputs, only_f32, span_bytes};
use crate::onnx::node::{Node, Value};
use crate::strided::row_major;

/// The most bytes of all outputs together: those of an empty input need not be empty.
const MAX_OUTPUT_BYTES: usize = 4 << 30;

/// Why a node does not take its inputs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// More or fewer inputs than the graph has.
    #[error("{actual} inputs are given: the graph has {expected}")]
    Count {
        /// The graph's.
        expected: usize,
        /// Those given.
        actual: usize,
    },
    /// An input is not of the type that the graph declares.
    #[error("input {name:?} has elements of type {actual}: the graph declares {expected}")]
    ElementType {
        /// The input.
        name: String,
        /// The graph's.
        expected: ElementType,
        /// The input's.
        actual: ElementType,
    },
    /// An input does not have the sizes that the graph declares.
    #[error("input {name:?} has the shape {actual:?}: the graph declares {expected:?}")]
    Shape {
        /// The input.
        name: String,
        /// The graph's, `None` for each size that is open.
        expected: Vec<Option<usize>>,
        /// The input's.
        actual: Vec<usize>,
    },
    /// An input has elements that are not normalized.
    #[error("input {name:?} has elements of type {element}, which are not normalized")]
    NotNormalized {
        /// The input.
        name: String,
        /// Its element type.
        element: ElementType,
    },
    /// An output would be of another type than the graph declares.
    #[error("output {name:?} comes to elements of type {actual}: the graph declares {expected}")]
    OutputType {
        /// The output.
        name: String,
        /// The graph's.
        expected: ElementType,
        /// The operator's.
        actual: ElementType,
    },
    /// An output would have other sizes than the graph declares.
    #[error("output {name:?} comes to the shape {actual:?}: the graph declares {expected:?}")]
    OutputShape {
        /// The output.
        name: String,
        /// The graph's, `None` for each size that is open.
        expected: Vec<Option<usize>>,
        /// The operator's.
        actual: Vec<usize>,
    },
    /// With this output, all of them are larger than any that are allocated.
    #[error(
        "output {name:?} has the shape {shape:?}: expected at most {MAX_OUTPUT_BYTES} bytes of \
         outputs together"
    )]
    TooLarge {
        /// The output.
        name: String,
        /// Its sizes.
        shape: Vec<usize>,
    },
    /// The operator does not write an output of the graph.
    #[error("output {name:?} is not one that the operator has")]
    NotWritten {
        /// The output.
        name: String,
    },
    /// The gradient that is given is not one of the first output.
    #[error("dY has the shape {actual:?}: expected that of the first output, {expected:?}")]
    OutputGradient {
        /// The first output's.
        expected: Vec<usize>,
        /// The gradient's.
        actual: Vec<usize>,
    },
    /// The gradient that is given cannot be read.
    #[error("dY: {0}")]
    Array(#[from] ArrayError),
    /// The operator does not take inputs of these shapes and types.
    #[error(transparent)]
    Operator(#[from] OperatorError),
}

/// A node with its inputs, ready to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    program: Program,
    buffers: BTreeMap<Slot, Vec<u8>>,
    /// Outputs of the graph: name, tensor, and the shape that the operator's has.
    outputs: Vec<(String, Slot, Vec<usize>)>,
}

impl Prepared {
    /// Gives `inputs` to the inputs of the graph, in order; those that initializers give may be left
    /// out.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn new(node: &Node, inputs: &[HostArray]) -> Result<Self, BindError> {
        let arrays = arrays(node, inputs)?;
        let mut given = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            // Without a name there is no input, whatever else has none.
            let named = Some(name.as_str()).filter(|name| !name.is_empty());
            given.push(named.and_then(|name| arrays.get(name)).copied());
        }
        let mut descs = Vec::with_capacity(given.len());
        for (array, name) in given.iter().zip(&node.inputs) {
            descs.push(array.map(|array| describe(array, name)).transpose()?);
        }
        let asked = node.graph_outputs.iter().map(|out| out.name.as_str());
        let asked: BTreeSet<&str> = asked.collect();
        // Which outputs a node has can say what it computes, whoever reads them.
        let all_count = node.operator.trains_by_outputs();
        let is_wanted = |(position, name): (usize, &String)| {
            let is_there = !name.is_empty() && (all_count || position == 0);
            is_there || asked.contains(name.as_str())
        };
        let wanted: Vec<bool> = node.outputs.iter().enumerate().map(is_wanted).collect();
        let program = node.operator.lower(&descs, &wanted)?;
        check_temporaries(&program)?;

        let mut buffers = BTreeMap::new();
        for (slot, tensor) in program.inputs() {
            if let Some(Some(array)) = given.get(tensor.position) {
                buffers.insert(slot, array.bytes.clone());
            }
        }
        let mut left = MAX_OUTPUT_BYTES;
        let mut outputs = Vec::with_capacity(node.graph_outputs.len());
        for output in &node.graph_outputs {
            let (slot, shape) = bind_output(node, &program, output)?;
            let desc = &program.tensor(slot).desc;
            buffers.insert(slot, zeros(desc, &output.name, &mut left)?);
            outputs.push((output.name.clone(), slot, shape));
        }
        // Those that nobody asks for.
        for (slot, tensor) in program.outputs() {
            if let Entry::Vacant(free) = buffers.entry(slot) {
                free.insert(zeros(&tensor.desc, tensor.name, &mut left)?);
            }
        }
        Ok(Self {
            program,
            buffers,
            outputs,
        })
    }

    /// The way back through the node from `output_gradient`, that of the operator's first output in
    /// elements of any type. What it returns are `dX`, `dScale` and `dBias`, see
    /// [`Program::gradient`], instead of the graph's outputs.
    ///
    /// # Errors
    ///
    /// [`BindError`] where the gradient does not have the output's shape, or the operator has none.
    pub fn gradient(&self, output_gradient: &HostArray) -> Result<Self, BindError> {
        let program = self.program.gradient()?;
        check_temporaries(&program)?;
        let mut buffers = BTreeMap::new();
        for (slot, tensor) in program.inputs() {
            if tensor.position == Program::OUTPUT_GRADIENT {
                let expected = tensor.desc.shape().to_vec();
                if output_gradient.shape != expected {
                    return Err(BindError::OutputGradient {
                        expected,
                        actual: output_gradient.shape.clone(),
                    });
                }
                let values = output_gradient.to_f64()?;
                let array = HostArray::from_f64(tensor.desc.dtype, expected, &values)?;
                buffers.insert(slot, array.bytes);
            } else if let Some(given) = self.program.input_at(tensor.position) {
                buffers.insert(slot, self.buffers.get(&given).cloned().unwrap_or_default());
            }
        }
        let mut left = MAX_OUTPUT_BYTES;
        let mut outputs = Vec::new();
        for (slot, tensor) in program.outputs() {
            buffers.insert(slot, zeros(&tensor.desc, tensor.name, &mut left)?);
            outputs.push((tensor.name.to_owned(), slot, tensor.desc.shape().to_vec()));
        }
        Ok(Self {
            program,
            buffers,
            outputs,
        })
    }

    /// Runs the node `iterations` times and returns the graph's outputs in order, by name, with how
    /// long it took.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`].
    pub fn run(
        &self,
        executor: &dyn Executor,
        iterations: usize,
    ) -> Result<(Vec<(String, HostArray)>, Run), ExecuteError> {
        let run = executor.run(&self.program, &self.buffers, iterations.max(1))?;
        check_outputs(&self.program, &self.buffers, &run)?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (name, slot, shape) in &self.outputs {
            let desc = &self.program.tensor(*slot).desc;
            let bytes = row_major(desc, &run.outputs[slot]);
            let array = HostArray::new(desc.dtype.into(), shape.clone(), bytes);
            let array = array.map_err(|error| ExecuteError::Failed(format!("{name}: {error}")))?;
            outputs.push((name.clone(), array));
        }
        Ok((outputs, run))
    }

    /// Whether all inputs and outputs are float32, which every device has.
    pub fn only_f32(&self) -> bool {
        only_f32(&self.program)
    }
}

/// Checks that what steps hand each other has room, all of it together.
fn check_temporaries(program: &Program) -> Result<(), BindError> {
    let mut left = MAX_OUTPUT_BYTES;
    for (_, tensor) in program.temporaries() {
        let fits = span_bytes(&tensor.desc).and_then(|bytes| left.checked_sub(bytes));
        left = fits.ok_or_else(|| BindError::TooLarge {
            name: tensor.name.to_owned(),
            shape: tensor.desc.shape().to_vec(),
        })?;
    }
    Ok(())
}

/// The buffer of an output before it is written.
fn zeros(desc: &TensorDesc, name: &str, left: &mut usize) -> Result<Vec<u8>, BindError> {
    let bytes = span_bytes(desc).filter(|&bytes| bytes <= *left);
    let bytes = bytes.ok_or_else(|| BindError::TooLarge {
        name: name.to_owned(),
        shape: desc.shape().to_vec(),
    })?;
    *left -= bytes;
    Ok(vec![0; bytes])
}

/// All arrays that the node may read, by name.
fn arrays<'a>(
    node: &'a Node,
    inputs: &'a [HostArray],
) -> Result<BTreeMap<&'a str, &'a HostArray>, BindError> {
    let initializers = node.initializers.iter();
    let mut arrays: BTreeMap<&str, &HostArray> = initializers
        .map(|(name, array)| (name.as_str(), array))
        .collect();
    // An input replaces the initializer of its name.
    let all: Vec<&Value> = node.graph_inputs.iter().collect();
    let free: Vec<&Value> = node.free_inputs().collect();
    let values = match inputs.len() {
        count if count == all.len() => all,
        count if count == free.len() => free,
        actual => {
            return Err(BindError::Count {
                expected: free.len(),
                actual,
            });
        }
    };
    for (value, array) in values.into_iter().zip(inputs) {
        check_declared(value, array)?;
        arrays.insert(&value.name, array);
    }
    Ok(arrays)
}

fn check_declared(value: &Value, array: &HostArray) -> Result<(), BindError> {
    let name = || value.name.clone();
    if let Some(expected) = value.element.filter(|&expected| expected != array.element) {
        return Err(BindError::ElementType {
            name: name(),
            expected,
            actual: array.element,
        });
    }
    match &value.shape {
        Some(expected) if !fits(expected, &array.shape) => Err(BindError::Shape {
            name: name(),
            expected: expected.clone(),
            actual: array.shape.clone(),
        }),
        _ => Ok(()),
    }
}

/// Whether sizes are those declared, as far as they are.
fn fits(declared: &[Option<usize>], shape: &[usize]) -> bool {
    let mut sizes = declared.iter().zip(shape);
    declared.len() == shape.len() && sizes.all(|(d, size)| d.is_none_or(|d| d == *size))
}

fn describe(array: &HostArray, name: &str) -> Result<TensorDesc, BindError> {
    let dtype = array.element.dtype();
    let dtype = dtype.ok_or_else(|| BindError::NotNormalized {
        name: name.to_owned(),
        element: array.element,
    })?;
    Ok(TensorDesc::contiguous(array.shape.clone(), dtype))
}

/// The tensor of a graph's output, and its shape.
fn bind_output(
    node: &Node,
    program: &Program,
    output: &Value,
) -> Result<(Slot, Vec<usize>), BindError> {
    let position = node.outputs.iter().position(|name| *name == output.name);
    let slot = position.and_then(|position| program.output_at(position));
    let slot = slot.ok_or_else(|| BindError::NotWritten {
        name: output.name.clone(),
    })?;
    let desc = &program.tensor(slot).desc;
    let actual = ElementType::from(desc.dtype);
    if let Some(expected) = output.element.filter(|&expected| expected != actual) {
        return Err(BindError::OutputType {
            name: output.name.clone(),
            expected,
            actual,
        });
    }
    let shape = desc.shape().to_vec();
    match &output.shape {
        Some(expected) if !fits(expected, &shape) => Err(BindError::OutputShape {
            name: output.name.clone(),
            expected: expected.clone(),
            actual: shape,
        }),
        _ => Ok((slot, shape)),
    }
}
