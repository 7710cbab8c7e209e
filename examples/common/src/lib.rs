//! What the examples share.
//!
//! - [`open`]: a device by name
//! - [`wheel`]: files out of packages of the Python package index
//! - [`training`]: the same model trained with two kinds of norm, side by side
//! - [`progress`] and [`tuning`]: what a run of many minutes owes to who waits for it

mod device;
pub mod progress;
pub mod training;
pub mod tuning;
pub mod wheel;

use std::path::{Path, PathBuf};

pub use device::{DEVICES, OpenDevice, compiled, open};

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
