//! Normalization operators from files: read, run on a device, compared with what they should give.
//!
//! - [`onnx`] reads ONNX models of one node and the tensors that come with them.
//! - [`dxdispatch`] reads the JSON models of DxDispatch, DirectML's command-line tool.
//! - [`verify`](mod@verify) runs both over folders of test cases and reports.
//!
//! What they compute is [`cubenorm_operators`]' to say, and an [`Executor`]'s to run: [`run::open`]
//! gives one for each runtime that is compiled in by a feature. Without features, files are read and
//! checked, and whoever has an executor of their own runs them.
//!
//! Files may come from anywhere: nothing in one makes this crate panic, wait, or allocate more than
//! the file has or a limit allows. What is wrong is a typed error that names the place.
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
