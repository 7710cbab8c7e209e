//! Reads normalization operators from files, runs them on a device and compares the results.
//!
//! - [`onnx`] reads ONNX models of one node and their tensors.
//! - [`dxdispatch`] reads the JSON models of DxDispatch, DirectML's command-line tool.
//! - [`verify`](mod@verify) runs both over folders of test cases and reports the results.
//!
//! [`cubenorm_operators`] defines the operators. An [`Executor`] runs them: [`run::open`] gives one
//! for each runtime that is enabled by a feature. Without features, files are read and checked.
//! Callers may then bring an executor of their own.
//!
//! Files need not be trusted. No file makes this crate panic or wait. A parser takes at most 4
//! times the bytes of its files and 64 MiB. Models read and write files below their own folder
//! only, unless [`FileAccess`] allows more. Errors are typed and name the place in the file.
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//!
//! use cubenorm_models::dxdispatch::{Model, Session};
//!
//! let text = br#"{
//!     "resources": {
//!         "In": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4] },
//!         "Out": { "initialValuesDataType": "FLOAT32", "initialValues": { "valueCount": 4, "value": 0 } },
//!     },
//!     "dispatchables": {
//!         "normalize": {
//!             "type": "MEAN_VARIANCE_NORMALIZATION1",
//!             "desc": {
//!                 "InputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2] },
//!                 "OutputTensor": { "DataType": "FLOAT32", "Sizes": [2, 2] },
//!                 "AxisCount": 1, "Axes": [1], "NormalizeVariance": true, "Epsilon": 1e-5,
//!             },
//!         },
//!     },
//!     "commands": [
//!         {
//!             "type": "dispatch",
//!             "dispatchable": "normalize",
//!             "bindings": { "InputTensor": "In", "OutputTensor": "Out" },
//!         },
//!         { "type": "print", "resource": "Out" },
//!     ],
//! }"#;
//! let model = Model::parse(text, Path::new(""), Model::MAX_BYTES)?;
//! let session = Session::new(&model)?;
//! let before = session.contents("Out").expect("it is a resource");
//! assert_eq!(before.to_f64().expect("floats are numbers"), [0.0; 4]);
//! # Ok::<(), cubenorm_models::dxdispatch::ModelError>(())
//! ```

mod access;
mod array;
pub mod dxdispatch;
mod executor;
mod file;
mod npy;
mod npz;
pub mod onnx;
pub mod run;
mod strided;
pub mod verify;

pub use access::FileAccess;
pub use array::{ArrayError, ElementType, HostArray};
pub use executor::{ExecuteError, Executor, Run};
pub use npy::NpyError;
pub use npz::NpzError;
