//! The same functions in a build without a runtime that has plans.

use std::path::Path;

use anyhow::{Result, bail};
use burn::tensor::Device;

use crate::{
    problems::Problem,
    protocol::{Explained, Tuned},
};

/// Lets the tuner choose: there is nothing to choose from.
///
/// # Errors
///
/// Always, as the others here.
pub fn tune(_problem: &Problem, _device: &Device) -> Result<Vec<Tuned>> {
    absent()
}

/// Explains a problem's plan: it has none.
///
/// # Errors
///
/// Always.
pub fn explain(_problem: &Problem, _device: &Device) -> Result<Explained> {
    absent()
}

/// Has the runtime log what it compiles: there is none.
pub fn log_sources(_log: &Path) {}

/// The plan that a layer's call runs: there is none.
///
/// # Errors
///
/// Always.
pub fn running(_problem: &Problem, _device: &Device) -> Result<String> {
    absent()
}

/// Name of the runtime.
pub fn runtime(device: &Device) -> String {
    format!("{device:?}")
}

/// Runs `tune`: there is nothing to bundle.
///
/// # Errors
///
/// Always.
pub fn bundled(_bundle: &Path, _tune: impl FnOnce() -> Result<()>) -> Result<()> {
    absent()
}

fn absent<T>() -> Result<T> {
    bail!("this build has no CubeCL runtime, which is what has plans")
}
