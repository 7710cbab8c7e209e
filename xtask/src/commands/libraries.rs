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
    /// The environment with this library in it.
    ///
    /// # Errors
    ///
    /// If there is no Python, or the library cannot be installed.
    pub fn install(self) -> Result<Python> {
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
