//! The limits of a device.

use super::footprint::Footprint;
use super::hardware::Hardware;
use super::result::PlanError;

/// Checks the launches against the limits of a device.
pub(super) fn check_limits(launches: &[Footprint], hardware: &Hardware) -> Result<(), PlanError> {
    for launch in launches {
        let Footprint {
            bindings, cube_dim, ..
        } = *launch;
        if bindings > hardware.max_bindings {
            return Err(PlanError::Bindings {
                needed: bindings,
                available: hardware.max_bindings,
            });
        }
        let units: u64 = cube_dim.iter().map(|&units| u64::from(units)).product();
        let (allowed, most) = (hardware.max_cube_dim, hardware.max_units_per_cube);
        let mut dims = cube_dim.iter().zip(allowed);
        if units > u64::from(most) || dims.any(|(&units, most)| units > most) {
            return Err(PlanError::Units {
                needed: cube_dim,
                allowed,
                most,
            });
        }
        let needed = launch.shared_memory.needed(hardware);
        // A CPU reports a cache size, which is not a limit.
        if needed > hardware.max_shared_memory && hardware.cpu_cores.is_none() {
            return Err(PlanError::SharedMemory {
                needed,
                available: hardware.max_shared_memory,
            });
        }
    }
    Ok(())
}
