use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::array::ElementType;
use crate::file;
use crate::npz::NpzError;
use crate::verify::compare::Tolerance;

/// What ONNX's own runner of these tests allows.
const ONNX_RTOL: f64 = 1e-3;
const ONNX_ATOL: f64 = 1e-7;
/// And of bfloat16, which has 8 significant bits.
const ONNX_RTOL_BF16: f64 = 1.0 / 64.0;

/// What is allowed of gradients where nobody says: sums of products, which cancel to small numbers.
const GRADIENT_ATOL: f64 = 1e-6;

/// Why there is nothing to compare with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not say what is expected.
    #[error("{} does not say what is expected: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The file expects elements of a type that there is none of.
    #[error("{}: resource {resource:?} has the unknown data type {name:?}", path.display())]
    DataType {
        /// The file.
        path: PathBuf,
        /// The resource.
        resource: String,
        /// The type.
        name: String,
    },
    /// The file is not an archive of gradients.
    #[error("{}: {source}", path.display())]
    Npz {
        /// The file.
        path: PathBuf,
        /// Why.
        source: NpzError,
    },
    /// The file does not have what is given.
    #[error("{} does not have {name}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is given.
        name: &'static str,
    },
    /// The file expects nothing.
    #[error("{} expects nothing", path.display())]
    Nothing {
        /// The file.
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

/// The tolerances of an ONNX case: those of `cases.json` beside its folder, where there is one and it
/// has them.
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
    /// Of the case in `folder`.
    pub fn read(folder: &Path) -> Result<Self, ExpectedError> {
        // The name is that of the folder, wherever the path to it is seen from.
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

    /// Of the output at a position of the graph: its own, else the case's, else ONNX's.
    pub fn of(&self, position: usize, name: &str, element: ElementType) -> Tolerance {
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

    /// Of a gradient: its own in the list `gradients`, else ONNX's `rtol` and an `atol` of 1e-6. The
    /// case's are those of its outputs.
    pub fn of_gradient(&self, name: &str, element: ElementType) -> Tolerance {
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

/// What a resource of a DxDispatch model has to have after the last command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedResource {
    pub element: ElementType,
    /// Sizes and strides of the tensor last written to it.
    pub sizes: Option<Vec<u32>>,
    pub strides: Option<Vec<u32>>,
    pub tolerance: Tolerance,
    /// Flat, `None` in gaps.
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
