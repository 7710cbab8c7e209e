use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dxdispatch::{self, Model, ModelError, RunError, Session};
use crate::executor::{ExecuteError, Executor};
use crate::file;
use crate::onnx::{BindError, Node, NodeError, Prepared, TensorError, read_tensor};
use crate::verify::compare::{check_array, compare, different, same};
use crate::verify::expected::{ExpectedResource, OnnxTolerances, read_resources};
use crate::verify::gradients::Gradients;
use crate::verify::walk::{data_sets, numbered};
use crate::verify::{Case, ExpectedError, Kind, Options};
use crate::{ElementType, HostArray};

/// Maximum bytes of zeros in place of missing test data.
const MADE_UP_BYTES: usize = 256 << 20;

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", content = "reason", rename_all = "lowercase")]
pub enum CaseResult {
    /// Passed; with the error if the model had to be refused.
    Passed(Option<String>),
    /// Failed, with the reason.
    Failed(String),
    /// Skipped: the device lacks a data type.
    Skipped(String),
}

/// Error of running or comparing a case.
#[derive(Debug, thiserror::Error)]
enum CaseError {
    /// The files of the case are invalid, as they must be in a folder `invalid`.
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error(transparent)]
    Expected(#[from] ExpectedError),
    #[error("{source}")]
    Execute {
        only_f32: bool,
        source: ExecuteError,
    },
    /// The results differ, or there was nothing to run.
    #[error("{0}")]
    Different(String),
}

/// Error of a case's files.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("{}{source}", of_set(.set))]
    Bind {
        set: Option<String>,
        source: BindError,
    },
    #[error("{}: {source}", path.display())]
    Tensor { path: PathBuf, source: TensorError },
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
}

fn of_set(set: &Option<String>) -> String {
    set.as_ref()
        .map(|set| format!("{set}: "))
        .unwrap_or_default()
}

impl From<ModelError> for CaseError {
    fn from(error: ModelError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<NodeError> for CaseError {
    fn from(error: NodeError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<Refusal> for CaseError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Runs one case and compares its results. A panic counts as a failure.
pub fn run_case(case: &Case, executor: &dyn Executor, options: &Options) -> CaseResult {
    if let Some(reason) = &case.broken {
        return CaseResult::Failed(reason.clone());
    }
    let run = || match case.kind {
        Kind::Onnx => run_onnx(case, executor, options),
        Kind::DxDispatch => run_dxdispatch(case, executor, options),
        Kind::Path => Err(CaseError::Different("it is not a case".to_owned())),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => judge(case.must_be_refused, result),
        Err(cause) => CaseResult::Failed(format!("it panicked: {}", message(cause.as_ref()))),
    }
}

fn judge(must_be_refused: bool, result: Result<(), CaseError>) -> CaseResult {
    match (must_be_refused, result) {
        (true, Err(CaseError::Refused(refusal))) => CaseResult::Passed(Some(refusal.to_string())),
        (true, Ok(())) => CaseResult::Failed("it was run: expected it to be refused".to_owned()),
        (false, Ok(())) => CaseResult::Passed(None),
        (
            _,
            Err(CaseError::Execute {
                only_f32,
                source: ExecuteError::Unsupported(reason),
            }),
        ) => match only_f32 {
            true => CaseResult::Failed(format!("the device refuses float32: {reason}")),
            false => CaseResult::Skipped(reason),
        },
        (true, Err(error)) => {
            CaseResult::Failed(format!("it was run: expected it to be refused ({error})"))
        }
        (false, Err(error)) => CaseResult::Failed(error.to_string()),
    }
}

/// Message of a panic.
fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it did not say why".to_owned())
}

fn run_dxdispatch(
    case: &Case,
    executor: &dyn Executor,
    options: &Options,
) -> Result<(), CaseError> {
    let model = Model::read_with(&case.path, options.max_bytes, &options.access)?;
    let mut session = Session::new(&model)?;
    let expected = match case.must_be_refused {
        true => None,
        false => Some(read_resources(&case.path.with_extension("expected.json"))?),
    };
    let run_options = dxdispatch::Options {
        // Verification does not change the model's folder.
        writes_files: false,
        ..dxdispatch::Options::default()
    };
    session
        .run(executor, &run_options, &mut |_| ())
        .map_err(|error| match error {
            RunError::Execute {
                only_f32, source, ..
            } => CaseError::Execute { only_f32, source },
            RunError::Model(error) => error.into(),
        })?;
    for (name, expected) in expected.iter().flatten() {
        check_resource(&session, name, expected)
            .map_err(|reason| CaseError::Different(format!("resource {name:?}: {reason}")))?;
    }
    Ok(())
}

fn check_resource(
    session: &Session,
    name: &str,
    expected: &ExpectedResource,
) -> Result<(), String> {
    let contents = session
        .contents(name)
        .ok_or("the model has no such buffer")?;
    same("data type", &contents.element, &expected.element)?;
    let mut shape = contents.shape.clone();
    if let (Some(written), Some(sizes)) = (session.last_written(name), &expected.sizes) {
        same("sizes", &written.sizes, sizes)?;
        if let Some(strides) = &expected.strides {
            let actual = written.strides.as_ref();
            same("strides", &actual, &Some(strides))?;
        }
        let packed: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
        let count = crate::array::count(&packed);
        if expected.strides.is_none() && count == shape.first().copied() {
            shape = packed;
        }
    }
    let actual = contents.to_f64().map_err(|error| error.to_string())?;
    same("number of elements", &actual.len(), &expected.values.len())?;
    compare(&actual, &expected.values, &shape, expected.tolerance).map_err(different)
}

fn run_onnx(case: &Case, executor: &dyn Executor, options: &Options) -> Result<(), CaseError> {
    let is_folder = case.path.is_dir();
    let model = match is_folder {
        true => case.path.join("model.onnx"),
        false => case.path.clone(),
    };
    let node = Node::read_with(&model, &options.access)?;
    let sets = match is_folder {
        true => data_sets(&case.path),
        false => Vec::new(),
    };
    if sets.is_empty() {
        return run_without_data(&node, executor);
    }
    let tolerances = match case.must_be_refused {
        true => OnnxTolerances::default(),
        false => OnnxTolerances::read(&case.path)?,
    };
    for (number, set) in sets.iter().enumerate() {
        let name = set.file_name().unwrap_or_default().to_string_lossy();
        let inputs = tensors(set, "input_")?;
        let prepared = Prepared::new(&node, &inputs).map_err(|source| Refusal::Bind {
            set: Some(name.to_string()),
            source,
        })?;
        let expected = tensors(set, "output_")?;
        let outputs = execute(&prepared, executor)?;
        check_outputs(&outputs, &expected, &tolerances)
            .map_err(|reason| CaseError::Different(format!("{name}: {reason}")))?;
        if !options.gradients || case.must_be_refused {
            continue;
        }
        for file in Gradients::files(&case.path, set, number == 0) {
            let gradients = Gradients::read(&file)?;
            let of_file = |reason| CaseError::Different(format!("{}: {reason}", file.display()));
            let backward = prepared.gradient(&gradients.given);
            let backward = backward.map_err(|error| of_file(error.to_string()))?;
            let actual = execute(&backward, executor)?;
            gradients.check(&actual, &tolerances).map_err(of_file)?;
        }
    }
    Ok(())
}

/// Runs a model without test data over zeros of the declared shapes, to see if it is refused.
fn run_without_data(node: &Node, executor: &dyn Executor) -> Result<(), CaseError> {
    let mut inputs = Vec::new();
    let mut left = MADE_UP_BYTES;
    for input in node.free_inputs() {
        let sizes = input.shape.iter().flatten().map(|size| size.unwrap_or(1));
        let shape: Vec<usize> = sizes.collect();
        let element = input.element.unwrap_or(ElementType::Float32);
        let size = element.size().unwrap_or(1);
        let bytes = crate::array::count(&shape).and_then(|count| count.checked_mul(size));
        let bytes = bytes.filter(|&bytes| bytes <= left);
        let bytes = bytes.ok_or_else(|| no_data("and is too large to make some up"))?;
        left -= bytes;
        let array = HostArray::new(element, shape, vec![0; bytes]);
        inputs.push(array.map_err(|error| no_data(&error.to_string()))?);
    }
    let prepared =
        Prepared::new(node, &inputs).map_err(|source| Refusal::Bind { set: None, source })?;
    execute(&prepared, executor)?;
    Err(no_data("so there is nothing to compare"))
}

fn no_data(reason: &str) -> CaseError {
    CaseError::Different(format!("the model comes without test data, {reason}"))
}

fn execute(
    prepared: &Prepared,
    executor: &dyn Executor,
) -> Result<Vec<(String, HostArray)>, CaseError> {
    let run = prepared.run(executor, 1);
    let (outputs, _) = run.map_err(|source| CaseError::Execute {
        only_f32: prepared.only_f32(),
        source,
    })?;
    Ok(outputs)
}

/// Reads the tensors of a data set that are called `PREFIX` + number, from 0 on.
fn tensors(set: &Path, prefix: &str) -> Result<Vec<HostArray>, CaseError> {
    let mut arrays = Vec::new();
    for (index, (number, path)) in numbered(set, prefix, ".pb").into_iter().enumerate() {
        if number != index as u64 {
            let reason = format!("{prefix}{index}.pb is missing");
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, reason);
            return Err(Refusal::File { path, source }.into());
        }
        let bytes = read_file(&path)?;
        let (_, array) = read_tensor(&bytes).map_err(|source| Refusal::Tensor { path, source })?;
        arrays.push(array);
    }
    Ok(arrays)
}

fn check_outputs(
    outputs: &[(String, HostArray)],
    expected: &[HostArray],
    tolerances: &OnnxTolerances,
) -> Result<(), String> {
    same("number of outputs", &outputs.len(), &expected.len())?;
    for (position, ((name, actual), expected)) in outputs.iter().zip(expected).enumerate() {
        let tolerance = tolerances.of(position, name, expected.element);
        same("element type", &actual.element, &expected.element)
            .and_then(|()| check_array(actual, expected, tolerance))
            .map_err(|reason| format!("output {name:?}: {reason}"))?;
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Vec<u8>, Refusal> {
    file::read(path).map_err(|source| Refusal::File {
        path: path.to_owned(),
        source,
    })
}
