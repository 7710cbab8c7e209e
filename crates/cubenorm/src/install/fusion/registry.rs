//! The entry in Burn's registry of fusers.

use burn_cubecl::fusion::{CubeFuser, OptimizationProvider, RegistryError, register, remove};
use cubecl::Device;

use super::fuser::NormFuser;
use super::run::{NAME, NormOptimization};
use crate::install::{InstallError, InstallState};

struct Provider;

impl OptimizationProvider for Provider {
    type Operation = NormOptimization;

    fn fuser(&self, device: &Device) -> CubeFuser {
        CubeFuser::new(NormFuser::new(device))
    }
}

pub(in crate::install) fn enter() -> Result<InstallState, InstallError> {
    match register(Provider) {
        // Another copy of this crate did.
        Ok(()) | Err(RegistryError::DuplicateOptimization { .. }) => Ok(InstallState::Installed),
        Err(RegistryError::ServiceRunning) => Err(InstallError::FusionRunning),
    }
}

pub(in crate::install) fn leave() -> Result<(), InstallError> {
    match remove(NAME) {
        Ok(()) | Err(RegistryError::DuplicateOptimization { .. }) => Ok(()),
        Err(RegistryError::ServiceRunning) => Err(InstallError::FusionRunning),
    }
}
