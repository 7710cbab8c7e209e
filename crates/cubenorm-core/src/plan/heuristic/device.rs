//! What a device has room for, where plans ask.

use crate::plan::{Hardware, Knobs};

/// Cubes for each core where a driver runs cubes on a CPU: enough that an uneven last one does not
/// matter.
pub(super) const CUBES_PER_SOFTWARE_CORE: usize = 16;

/// Steps that a unit takes at most where a driver runs units on a CPU. Mesa's driver ends the loops of
/// a shader, silently, after 65,535 iterations in all; a unit goes over its steps twice, once of
/// them four at a time.
pub(in crate::plan) const SOFTWARE_STEPS: usize = 1 << 14;

/// Units of a plane that a plan may use.
///
/// `None` on a CPU, whose compiler has no plane operations. A size that no cube holds, or that is no power of two, is
/// ignored.
pub(in crate::plan) fn plane_size(hardware: &Hardware, knobs: Knobs) -> Option<u32> {
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
    let fits = |size: &u32| size.is_power_of_two() && (2..=most).contains(size);
    let sizes = [knobs.plane_size, hardware.plane_size];
    let size = sizes.into_iter().flatten().find(fits);
    size.filter(|_| hardware.cpu_cores.is_none())
}

/// Cubes that fill the device, where so many do a multiprocessor.
pub(super) fn cubes_to_fill(hardware: &Hardware, of_multiprocessor: usize) -> usize {
    match hardware.software_cores {
        Some(cores) => cores as usize * CUBES_PER_SOFTWARE_CORE,
        None => hardware.processors() * of_multiprocessor,
    }
}
