//! Libraries outside Rust that some verbs compare with, as Python packages.

use anyhow::Result;

use crate::{device::Device, python::Python};

/// A library that has the same operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    PyTorch,
    OnnxRuntime,
}

const TORCH: &str = "torch==2.15.0";
/// PyTorch without its GPU libraries, which are most of it.
const TORCH_CPU: [&str; 6] = [
    "--index-url",
    "https://download.pytorch.org/whl/cpu",
    "--retries",
    "0",
    "--timeout",
    "15",
];
/// It brings numpy, whose arrays our scripts pass.
const ONNX: &str = "onnx==1.23.2";
const ONNX_RUNTIME: &str = "onnxruntime==1.31.1";

impl Library {
    /// An interpreter that has this library. Installs it into the environment if the system's own
    /// does not have it either.
    ///
    /// # Errors
    ///
    /// If there is no Python, or the library cannot be installed.
    pub fn install(self) -> Result<Python> {
        let (packages, modules): (&[&str], &[&str]) = match self {
            Self::PyTorch => (&[ONNX, TORCH], &["numpy", "torch"]),
            Self::OnnxRuntime => (&[ONNX, ONNX_RUNTIME], &["numpy", "onnx", "onnxruntime"]),
        };
        if let Some(python) = Python::having(packages, modules) {
            return Ok(python);
        }
        let python = Python::new()?;
        python.install(&[ONNX], &[])?;
        match self {
            Self::OnnxRuntime => python.install(&[ONNX_RUNTIME], &[])?,
            Self::PyTorch if Device::Cuda.missing().is_none() => python.install(&[TORCH], &[])?,
            Self::PyTorch => python
                .install(&[TORCH], &TORCH_CPU)
                .or_else(|_| python.install(&[TORCH], &[]))?,
        }
        Ok(python)
    }
}
