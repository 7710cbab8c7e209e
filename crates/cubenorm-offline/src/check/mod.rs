//! Checks that need no other program.

mod msl;
mod wgsl;

use cubecl::ir::DeviceProperties;

use crate::{Source, Target};

/// Checks a source; `None` if that needs another program.
pub fn check(
    target: Target,
    source: &Source,
    properties: &DeviceProperties,
) -> Option<Result<(), String>> {
    match target {
        Target::Msl => Some(msl::check(&source.text)),
        Target::Wgsl => Some(wgsl::check(&source.text, properties)),
        // LLVM has already verified and compiled it.
        Target::Llvm => Some(Ok(())),
        Target::Ptx { .. } | Target::Cuda { .. } | Target::Hip { .. } | Target::Spirv { .. } => {
            None
        }
    }
}
