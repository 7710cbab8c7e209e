//! A kernel before compilation.

use cubecl::prelude::*;
use cubecl::{CompilationError, define_kernel};

/// A reason that a kernel does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// CubeCL's compiler reports an error.
    #[error("{0}")]
    Refused(String),
    /// CubeCL's compiler panics.
    #[error("CubeCL's compiler panicked: {0}")]
    Panicked(String),
}

impl From<CompilationError> for CompileError {
    fn from(error: CompilationError) -> Self {
        // The rest is a backtrace inside CubeCL.
        let text = error.to_string();
        let reason = text.split("\nBacktrace:").next().unwrap_or(&text);
        Self::Refused(reason.to_owned())
    }
}

/// A kernel in CubeCL's representation, before compilation.
///
/// # Errors
///
/// [`CompileError`] if the kernel's own code fails.
pub fn representation(kernel: &dyn CubeKernel) -> Result<String, CompileError> {
    Ok(define_kernel(kernel)?.body.to_string())
}
