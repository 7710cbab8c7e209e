//! Test cases in files: found, run, and compared with what they should give.
//!
//! | case | is | passes where |
//! | --- | --- | --- |
//! | ONNX | a folder with `model.onnx` and folders `test_data_set_*` of `input_N.pb`, `output_N.pb` | every output agrees |
//! | DxDispatch | `NAME.json` with `NAME.expected.json` beside it | every resource named there agrees |
//! | invalid | any of these, or any `*.onnx`, `*.json`, under a folder called `invalid` | it is refused with a typed error |
//!
//! A case is *skipped* only where the device lacks a data type other than float32; everything else
//! that is not as it should be, files that cannot be read included, has *failed*.
//!
//! # Gradients
//!
//! With [`Options::gradients`], an ONNX case whose folder has a `grads.npz`, as `numpy.savez` writes
//! it, passes where its gradients agree, too: `dY`, that of the first output, is given; `dX`, `dScale`
//! and `dBias`, those of what is normalized, of the scale and of the bias, are expected, as many of
//! them as the file has. They are float64 or float32 whatever the model's type. The file is that of
//! the first `test_data_set_*`; each of these folders may have one of its own as well.
//!
//! The tolerances are those of the case's list `gradients` in `cases.json`, of objects with `name`,
//! `rtol` and `atol`, else 1e-3 (bfloat16: 1/64) and 1e-6.
//!
//! # Processes
//!
//! [`verify`] runs the cases in this process. A driver may end the process or never return, so that
//! the program `cubenorm-verify` runs them in another: see [`isolate`].

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

/// How cases are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most bytes that the resources of one DxDispatch model may take.
    pub max_bytes: u64,
    /// Whether the way back of each ONNX case that says what it gives is checked, too.
    pub gradients: bool,
    /// The files outside their folders that models may name. No file is written.
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

/// Runs every case in `paths`, files or folders, in this process. A panic is the case's failure.
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
