use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cubenorm_core::TensorDesc;
use cubenorm_operators::{OperatorError, Program, Slot};

use crate::array::{ArrayError, ElementType, HostArray};
use crate::executor::{ExecuteError, Executor, Run, check_outputs, only_f32, span_bytes};
use crate::onnx::node::{Node, Value};
use crate::strided::row_major;

/// Maximum bytes of all outputs together. An empty input may have outputs that are not empty.
const MAX_OUTPUT_BYTES: usize = 4 << 30;

/// Error of binding inputs to a node.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The number of inputs differs from the graph's.
    #[error("{actual} inputs are given: the graph has {expected}")]
    Count {
        /// Declared by the graph.
        expected: usize,
        /// Number given.
        actual: usize,
    },
    /// The element type of an input differs from the declared one.
    #[error("input {name:?} has elements of type {actual}: the graph declares {expected}")]
    ElementType {
        /// Name of the input.
        name: String,
        /// Declared by the graph.
        expected: ElementType,
        /// Given.
        actual: ElementType,
    },
    /// The shape of an input differs from the declared one.
    #[error("input {name:?} has the shape {actual:?}: the graph declares {expected:?}")]
    Shape {
        /// Name of the input.
        name: String,
        /// Declared by the graph, `None` for each open size.
        expected: Vec<Option<usize>>,
        /// Given.
        actual: Vec<usize>,
    },
    /// The element type of an input is not normalized.
    #[error("input {name:?} has elements of type {element}, which are not normalized")]
    NotNormalized {
        /// Name of the input.
        name: String,
        /// Its element type.
        element: ElementType,
    },
    /// The element type of an output differs from the declared one.
    #[error("output {name:?} has elements of type {actual}: the graph declares {expected}")]
    OutputType {
        /// Name of the output.
        name: String,
        /// Declared by the graph.
        expected: ElementType,
        /// Computed by the operator.
        actual: ElementType,
    },
    /// The shape of an output differs from the declared one.
    #[error("output {name:?} has the shape {actual:?}: the graph declares {expected:?}")]
    OutputShape {
        /// Name of the output.
        name: String,
        /// Declared by the graph, `None` for each open size.
        expected: Vec<Option<usize>>,
        /// Computed by the operator.
        actual: Vec<usize>,
    },
    /// The outputs, up to this one, exceed the limit together.
    #[error(
        "output {name:?} has the shape {shape:?}: expected at most {MAX_OUTPUT_BYTES} bytes of \
         outputs together"
    )]
    TooLarge {
        /// Name of the output.
        name: String,
        /// Its sizes.
        shape: Vec<usize>,
    },
    /// The operator does not write an output of the graph.
    #[error("output {name:?} is not an output of the operator")]
    NotWritten {
        /// Name of the output.
        name: String,
    },
    /// The shape of the given gradient differs from that of the first output.
    #[error("dY has the shape {actual:?}: expected {expected:?}, the shape of the first output")]
    OutputGradient {
        /// Shape of the first output.
        expected: Vec<usize>,
        /// Shape of the gradient.
        actual: Vec<usize>,
    },
    /// The given gradient cannot be read.
    #[error("dY: {0}")]
    Array(#[from] ArrayError),
    /// The operator refuses inputs of these shapes and types.
    #[error(transparent)]
    Operator(#[from] OperatorError),
}

/// A node with its inputs, ready to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    program: Program,
    buffers: BTreeMap<Slot, Vec<u8>>,
    /// Name, tensor and shape of each output of the graph.
    outputs: Vec<(String, Slot, Vec<usize>)>,
}

impl Prepared {
    /// Binds `inputs` to the inputs of the graph, in order. Inputs that have an initializer may be
    /// left out.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn new(node: &Node, inputs: &[HostArray]) -> Result<Self, BindError> {
        let arrays = arrays(node, inputs)?;
        let mut given = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            // An input without a name is absent, even if another array has no name either.
            let named = Some(name.as_str()).filter(|name| !name.is_empty());
            given.push(named.and_then(|name| arrays.get(name)).copied());
        }
        let mut descs = Vec::with_capacity(given.len());
        for (array, name) in given.iter().zip(&node.inputs) {
            descs.push(array.map(|array| describe(array, name)).transpose()?);
        }
        let asked = node.graph_outputs.iter().map(|out| out.name.as_str());
        let asked: BTreeSet<&str> = asked.collect();
        // For some operators the set of outputs selects training, even if the graph does not return
        // them.
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
        // Outputs of the operator that the graph does not return.
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

    /// Builds the backward pass from `output_gradient`, the gradient of the operator's first
    /// output, in any element type. It returns `dX`, `dScale` and `dBias` in place of the graph's
    /// outputs: see [`Program::gradient`].
    ///
    /// # Errors
    ///
    /// [`BindError`] if the gradient has another shape than the output, or the operator has no
    /// backward pass.
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

    /// Runs the node `iterations` times. Returns the graph's outputs in order, by name, and the
    /// times.
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

    /// True if all inputs and outputs are float32, which every device has to support.
    pub fn only_f32(&self) -> bool {
        only_f32(&self.program)
    }
}

/// Checks that the temporaries fit in memory together.
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

/// Allocates the buffer of an output, and takes it from the bytes left.
fn zeros(desc: &TensorDesc, name: &str, left: &mut usize) -> Result<Vec<u8>, BindError> {
    let bytes = span_bytes(desc).filter(|&bytes| bytes <= *left);
    let bytes = bytes.ok_or_else(|| BindError::TooLarge {
        name: name.to_owned(),
        shape: desc.shape().to_vec(),
    })?;
    *left -= bytes;
    Ok(vec![0; bytes])
}

/// Collects the arrays that the node may read, by name.
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

/// True if all declared sizes match.
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

/// Finds the tensor and shape of a graph's output.
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
