//! Finds test cases in files, runs them and compares the results.
//!
//! | case | files | passes if |
//! | --- | --- | --- |
//! | ONNX | a folder with `model.onnx` and folders `test_data_set_*` of `input_N.pb`, `output_N.pb` | every output agrees |
//! | DxDispatch | `NAME.json` and `NAME.expected.json` in one folder | every resource named there agrees |
//! | invalid | any of these, or any `*.onnx`, `*.json`, below a folder called `invalid` | it is refused with a typed error |
//!
//! A case is *skipped* if the device lacks a data type other than float32. Any other deviation,
//! unreadable files included, is a *failure*.
//!
//! # Gradients
//!
//! With [`Options::gradients`], the gradients of an ONNX case must agree as well, if its folder has
//! a `grads.npz` in the format of `numpy.savez`. `dY` is the given gradient of the first output.
//! `dX`, `dScale` and `dBias` are the expected gradients of the input, scale and bias; the file has
//! one or more of them. They are float64 or float32 for any type of the model. The file belongs to
//! the first `test_data_set_*`. Each of these folders may have its own as well.
//!
//! Tolerances are listed under `gradients` in `cases.json`, as objects with `name`, `rtol` and
//! `atol`. The defaults are 1e-3 (bfloat16: 1/64) and 1e-6.
//!
//! # Processes
//!
//! [`verify`] runs the cases in this process. A driver may crash or hang, so the program
//! `cubenorm-verify` runs them in another process: see [`isolate`].

mod case;
mod compare;
mod expected;
mod gradients;
pub mod isolate;
mod report;
mod walk;

use std::path::PathBuf;

pub use case::{CaseResult, run_case};
pub use compare::{Difference, Tolerance};
pub use expected::ExpectedError;
pub use report::{Outcome, Report};
pub use walk::{Case, Kind, find_cases};

use crate::{Executor, FileAccess};

/// Options of running cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Maximum bytes of the resources of one DxDispatch model.
    pub max_bytes: u64,
    /// True if the backward pass of ONNX cases with expected gradients is checked.
    pub gradients: bool,
    /// Access of models to files outside their folders. No file is written.
    pub access: FileAccess,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_bytes: crate::dxdispatch::Model::MAX_BYTES,
            gradients: false,
            access: FileAccess::new(),
        }
    }
}

/// Runs every case in `paths`, files or folders, in this process. A panic counts as a failure.
pub fn verify(paths: &[PathBuf], executor: &dyn Executor, options: &Options) -> Report {
    let run = |case: Case| Outcome {
        result: run_case(&case, executor, options),
        case,
    };
    Report {
        device: executor.name().to_owned(),
        outcomes: find_cases(paths).into_iter().map(run).collect(),
    }
}
