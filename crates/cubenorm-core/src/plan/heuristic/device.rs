//! Capacity of a device, as far as plans need it.

use crate::plan::{Hardware, Knobs};

/// CPU Vulkan: cubes per core, enough that an uneven last round does not matter.
pub(super) const CUBES_PER_SOFTWARE_CORE: usize = 16;

/// CPU Vulkan: maximum steps per unit. lavapipe silently ends a shader's loops after 65,535
/// iterations in total. A unit iterates over its steps twice, once four at a time.
pub(in crate::plan) const CPU_VULKAN_STEPS: usize = 1 << 14;

/// Units per plane that a plan may use.
///
/// `None` on a CPU, whose compiler has no plane operations. Ignores a size that fits no cube or is
/// no power of two.
pub(in crate::plan) fn plane_size(hardware: &Hardware, knobs: Knobs) -> Option<u32> {
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
    let fits = |size: &u32| size.is_power_of_two() && (2..=most).contains(size);
    let sizes = [knobs.plane_size, hardware.plane_size];
    let size = sizes.into_iter().flatten().find(fits);
    size.filter(|_| hardware.cpu_cores.is_none())
}

/// Cubes that fill the device, with `of_multiprocessor` cubes per multiprocessor. CPU Vulkan:
/// [`CUBES_PER_SOFTWARE_CORE`] per core.
pub(super) fn cubes_to_fill(hardware: &Hardware, of_multiprocessor: usize) -> usize {
    match hardware.cpu_vulkan_cores {
        Some(cores) => cores as usize * CUBES_PER_SOFTWARE_CORE,
        None => hardware.processors() * of_multiprocessor,
    }
}
