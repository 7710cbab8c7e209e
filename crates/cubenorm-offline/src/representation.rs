//! A kernel before any compiler has seen it.

use cubecl::prelude::*;
use cubecl::{CompilationError, define_kernel};

/// Why a kernel has not become anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// CubeCL's compiler says why.
    #[error("{0}")]
    Refused(String),
    /// It panicked.
    #[error("CubeCL's compiler panicked: {0}")]
    Panicked(String),
}

impl From<CompilationError> for CompileError {
    fn from(error: CompilationError) -> Self {
        // What comes after is where in CubeCL it happened.
        let text = error.to_string();
        let reason = text.split("\nBacktrace:").next().unwrap_or(&text);
        Self::Refused(reason.to_owned())
    }
}

/// A kernel in CubeCL's own representation, before any compiler has seen it.
///
/// # Errors
///
/// [`CompileError`] where the kernel's own code fails.
pub fn representation(kernel: &dyn CubeKernel) -> Result<String, CompileError> {
    Ok(define_kernel(kernel)?.body.to_string())
}
