//! What the examples share.
//!
//! - [`open`]: a device by name
//! - [`Norms`]: the two kinds of norm, and [`Choice`]: what `--norms` names
//! - [`exit`]: how a program ends
//! - [`wheel`]: files out of packages of the Python package index
//! - [`training`]: the same model trained with two kinds of norm, side by side
//! - [`progress`] and [`tuning`]: what a run of many minutes owes to who waits for it

mod device;
mod norms;
pub mod progress;
pub mod training;
pub mod tuning;
pub mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use device::{DEVICES, OpenDevice, compiled, open};
pub use norms::{Choice, Norms};

/// How a program ends: with its error on standard error and an exit code that says so.
pub fn exit(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of this name in the workspace's `target`, where examples put what they fetch and write.
pub fn target_folder(name: &str) -> PathBuf {
    workspace().join("target").join(name)
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = examples.and_then(Path::parent);
    workspace.unwrap_or(Path::new(".")).to_owned()
}
