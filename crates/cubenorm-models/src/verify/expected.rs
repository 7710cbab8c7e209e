use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::array::ElementType;
use crate::file;
use crate::npz::NpzError;
use crate::verify::compare::Tolerance;

/// Tolerances of ONNX's own test runner.
const ONNX_RTOL: f64 = 1e-3;
const ONNX_ATOL: f64 = 1e-7;
/// Relative tolerance for bfloat16, which has 8 significant bits.
const ONNX_RTOL_BF16: f64 = 1.0 / 64.0;

/// Default absolute tolerance of gradients, which are sums of products that may cancel.
const GRADIENT_ATOL: f64 = 1e-6;

/// Error of reading expected results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not in the format of expected results.
    #[error("{} does not say what is expected: {source}", path.display())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The file expects an unknown element type.
    #[error("{}: resource {resource:?} has the unknown data type {name:?}", path.display())]
    DataType {
        /// Path of the file.
        path: PathBuf,
        /// Name of the resource.
        resource: String,
        /// Name of the type.
        name: String,
    },
    /// The file is not an archive of gradients.
    #[error("{}: {source}", path.display())]
    Npz {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: NpzError,
    },
    /// The file lacks the given gradient.
    #[error("{} does not have {name}", path.display())]
    Missing {
        /// Path of the file.
        path: PathBuf,
        /// Name of the given gradient.
        name: &'static str,
    },
    /// The file has no expected results.
    #[error("{} expects nothing", path.display())]
    Nothing {
        /// Path of the file.
        path: PathBuf,
    },
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ExpectedError> {
    let path_of = || path.to_owned();
    let bytes = file::read_at_most(path, file::MAX_JSON_BYTES);
    let bytes = bytes.map_err(|source| ExpectedError::Read {
        path: path_of(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|source| ExpectedError::Json {
        path: path_of(),
        source,
    })
}

/// Tolerances of an ONNX case: its entry of `cases.json` in the parent folder, if there is one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct OnnxTolerances {
    name: String,
    rtol: Option<f64>,
    atol: Option<f64>,
    #[serde(default)]
    outputs: Vec<OutputTolerance>,
    #[serde(default)]
    gradients: Vec<OutputTolerance>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct OutputTolerance {
    name: Option<String>,
    rtol: Option<f64>,
    atol: Option<f64>,
}

impl OnnxTolerances {
    /// Reads the tolerances of the case in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, ExpectedError> {
        // The name is the folder's, even if the path is relative.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let list = folder.parent().map(|parent| parent.join("cases.json"));
        let Some(list) = list.filter(|list| list.exists()) else {
            return Ok(Self::default());
        };
        let cases: Vec<Self> = read(&list)?;
        let name = folder.file_name().and_then(|name| name.to_str());
        let found = cases
            .into_iter()
            .find(|case| Some(case.name.as_str()) == name);
        Ok(found.unwrap_or_default())
    }

    /// Tolerance of the output at a position of the graph: its own, else the case's, else ONNX's.
    pub(super) fn of(&self, position: usize, name: &str, element: ElementType) -> Tolerance {
        let named = |output: &&OutputTolerance| output.name.as_deref() == Some(name);
        let is_unnamed = |output: &&OutputTolerance| output.name.is_none();
        let own = self.outputs.iter().find(named);
        let own = own.or_else(|| self.outputs.get(position).filter(is_unnamed));
        Tolerance {
            rtol: own
                .and_then(|own| own.rtol)
                .or(self.rtol)
                .unwrap_or(default_rtol(element)),
            atol: own
                .and_then(|own| own.atol)
                .or(self.atol)
                .unwrap_or(ONNX_ATOL),
            equal_nonfinite: true,
        }
    }

    /// Tolerance of a gradient: its own in the list `gradients`, else ONNX's `rtol` and an `atol`
    /// of 1e-6. The case's tolerances apply to outputs only.
    pub(super) fn of_gradient(&self, name: &str, element: ElementType) -> Tolerance {
        let mut listed = self.gradients.iter();
        let own = listed.find(|gradient| gradient.name.as_deref() == Some(name));
        Tolerance {
            rtol: own
                .and_then(|own| own.rtol)
                .unwrap_or(default_rtol(element)),
            atol: own.and_then(|own| own.atol).unwrap_or(GRADIENT_ATOL),
            equal_nonfinite: true,
        }
    }
}

fn default_rtol(element: ElementType) -> f64 {
    match element {
        ElementType::BFloat16 => ONNX_RTOL_BF16,
        _ => ONNX_RTOL,
    }
}

/// Expected contents of a resource after the last command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedResource {
    pub element: ElementType,
    /// Sizes and strides of the tensor last written to the resource.
    pub sizes: Option<Vec<u32>>,
    pub strides: Option<Vec<u32>>,
    pub tolerance: Tolerance,
    /// Values in one dimension, `None` in gaps.
    pub values: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct ResourceJson {
    #[serde(rename = "dataType")]
    data_type: String,
    sizes: Option<Vec<u32>>,
    strides: Option<Vec<u32>>,
    rtol: f64,
    atol: f64,
    values: Vec<Option<f64>>,
}

/// Reads `NAME.expected.json`.
pub(crate) fn read_resources(
    path: &Path,
) -> Result<BTreeMap<String, ExpectedResource>, ExpectedError> {
    let resources: BTreeMap<String, ResourceJson> = read(path)?;
    if resources.is_empty() {
        return Err(ExpectedError::Nothing {
            path: path.to_owned(),
        });
    }
    let mut expected = BTreeMap::new();
    for (name, json) in resources {
        let element = ElementType::from_directml(&json.data_type);
        let element = element.ok_or_else(|| ExpectedError::DataType {
            path: path.to_owned(),
            resource: name.clone(),
            name: json.data_type.clone(),
        })?;
        let resource = ExpectedResource {
            element,
            sizes: json.sizes,
            strides: json.strides,
            tolerance: Tolerance {
                rtol: json.rtol,
                atol: json.atol,
                equal_nonfinite: false,
            },
            values: json.values,
        };
        expected.insert(name, resource);
    }
    Ok(expected)
}
