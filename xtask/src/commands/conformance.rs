//! `cargo xtask conformance`: ONNX's own node tests, from its own package.

use std::path::PathBuf;

use anyhow::Result;

use super::verify::everywhere;
use crate::{device::Device, exec::workspace, python::Python, style};

/// The package whose node tests are exported, and its version.
const ONNX: &str = "onnx==1.23.2";
/// Folder of the exported tests.
const FOLDER: &str = "target/conformance/onnx";

/// Export ONNX's own node tests of the normalization operators, and verify them on every runtime.
///
/// The tests come from a pinned version of the Python package `onnx`, installed into target/python,
/// and go to target/conformance/onnx. Models of one node are exported as ONNX wrote them. Models in
/// which a function body replaces the operator are left out. Ends with a table: runtime, passed,
/// failed, skipped.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Runtimes to verify on [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    everywhere::verify(&[export()?], &args.device)
}

/// Exports the tests, and returns their folder.
pub(crate) fn export() -> Result<PathBuf> {
    let python = Python::with(&[ONNX])?;
    anstream::println!("{} to {FOLDER}", style::heading("export"));
    python.script("export_onnx_cases.py").arg(FOLDER).run()?;
    Ok(workspace().join(FOLDER))
}
