//! The entry in Burn's registry of fusers.

use burn_cubecl::fusion::{CubeFuser, OptimizationProvider, RegistryError, register, remove};
use cubecl::Device;

use super::InstallError;
use super::fuser::NormFuser;
use super::run::{NAME, NormOptimization};

struct Provider;

impl OptimizationProvider for Provider {
    type Operation = NormOptimization;

    fn fuser(&self, device: &Device) -> CubeFuser {
        CubeFuser::new(NormFuser::new(device))
    }
}

pub(super) fn enter() -> Result<(), InstallError> {
    match register(Provider) {
        // Another copy of this crate did.
        Ok(()) | Err(RegistryError::DuplicateOptimization { .. }) => Ok(()),
        Err(RegistryError::ServiceRunning) => Err(InstallError::FusionRunning),
    }
}

pub(super) fn leave() -> Result<(), InstallError> {
    match remove(NAME) {
        Ok(()) | Err(RegistryError::DuplicateOptimization { .. }) => Ok(()),
        Err(RegistryError::ServiceRunning) => Err(InstallError::FusionRunning),
    }
}
