//! Shared code of the examples.
//!
//! - [`open`]: opens a device by name
//! - [`Norms`]: the two implementations of norms, and [`Choice`]: the values of `--norms`
//! - [`exit`]: exit code and error message of a program, and [`read`]: elements of a tensor
//! - [`wheel`]: files from packages of the Python package index
//! - [`training`]: training of one model with both implementations, for comparison
//! - [`graph`]: recorded graphs
//! - [`progress`] and [`tuning`]: progress display, and autotuning in a separate process

mod device;
pub mod graph;
mod norms;
pub mod progress;
pub mod training;
pub mod tuning;
pub mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use burn::tensor::Tensor;

pub use device::{DEVICES, OpenDevice, compiled, open};
pub use norms::{Choice, Norms};

/// Converts the result of a program to an exit code and prints its error to standard error.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Elements of a tensor in row-major order.
///
/// # Errors
///
/// If the device fails.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    let data = tensor.try_into_data();
    let data = data.map_err(|error| anyhow!("the device failed: {error:?}"))?;
    let values = data.convert::<f32>().try_into_vec();
    values.map_err(|error| anyhow!("the tensor is not f32: {error:?}"))
}

/// Folder of this name in the workspace's `target`, for downloads and outputs of an example.
pub fn target_folder(name: &str) -> PathBuf {
    workspace().join("target").join(name)
}

/// Root folder of the workspace.
pub fn workspace() -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = examples.and_then(Path::parent);
    workspace.unwrap_or(Path::new(".")).to_owned()
}
