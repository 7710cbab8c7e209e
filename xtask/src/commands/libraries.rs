//! Libraries outside Rust that some verbs compare with, as Python packages.

use anyhow::Result;

use crate::{device::Device, python::Python};

/// A library that has the same operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    PyTorch,
    OnnxRuntime,
    Liger,
    Quack,
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
const LIGER: &str = "liger-kernel==0.8.5";
const QUACK: &str = "quack-kernels==0.6.5";

impl Library {
    /// An interpreter that has this library. Installs it into the environment if the system's own
    /// does not have it either.
    ///
    /// # Errors
    ///
    /// If there is no Python, or the library cannot be installed.
    pub(super) fn install(self) -> Result<Python> {
        let (packages, modules): (&[&str], &[&str]) = match self {
            Self::PyTorch => (&[ONNX, TORCH], &["numpy", "torch"]),
            Self::OnnxRuntime => (&[ONNX, ONNX_RUNTIME], &["numpy", "onnx", "onnxruntime"]),
            Self::Liger => (&[ONNX, TORCH, LIGER], &["numpy", "torch", "liger_kernel"]),
            Self::Quack => (&[ONNX, TORCH, QUACK], &["numpy", "torch", "quack"]),
        };
        if let Some(python) = Python::having(packages, modules) {
            return Ok(python);
        }
        let python = Python::new()?;
        for package in packages {
            let is_small = *package == TORCH
                && Device::Cuda.missing().is_some()
                && python.install(&[package], &TORCH_CPU).is_ok();
            if !is_small {
                python.install(&[package], &[])?;
            }
        }
        Ok(python)
    }
}
