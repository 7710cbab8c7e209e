//! Checks that need no program beside this one.

mod msl;
mod wgsl;

use cubecl::ir::DeviceProperties;

use crate::{Source, Target};

/// Whether a source is right, as far as that can be told in here; none where it takes another program.
pub fn check(
    target: Target,
    source: &Source,
    properties: &DeviceProperties,
) -> Option<Result<(), String>> {
    match target {
        Target::Msl => Some(msl::check(&source.text)),
        Target::Wgsl => Some(wgsl::check(&source.text, properties)),
        // It is machine code already: LLVM has verified it and made it so.
        Target::Llvm => Some(Ok(())),
        Target::Ptx { .. } | Target::Cuda { .. } | Target::Hip { .. } | Target::Spirv { .. } => {
            None
        }
    }
}
