//! What a device has room for, where plans ask.

use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{AccessBlueprint, Hardware, Hold, Knobs, LoadMode};

/// Cubes for each core where a driver runs cubes on a CPU: enough that an uneven last one does not
/// matter.
pub(super) const CUBES_PER_SOFTWARE_CORE: usize = 16;

/// Steps that a unit takes at most where a driver runs units on a CPU. Mesa's driver ends the loops of
/// a shader, silently, after 65,535 iterations in all; a unit goes over its steps twice, once of
/// them four at a time.
pub(in crate::plan) const SOFTWARE_STEPS: usize = 1 << 14;

/// Bytes of the narrowest vector that a processor stores past its caches.
const LEAST_STORE: usize = 16;

/// Units of a plane that a plan may count on.
pub(in crate::plan) fn plane_size(hardware: &Hardware, knobs: Knobs) -> Option<u32> {
    knobs.plane_size.or(hardware.plane_size)
}

/// Cubes that fill the device, where so many do a multiprocessor.
pub(super) fn cubes_to_fill(hardware: &Hardware, of_multiprocessor: usize) -> usize {
    match hardware.software_cores {
        Some(cores) => cores as usize * CUBES_PER_SOFTWARE_CORE,
        None => hardware.processors() * of_multiprocessor,
    }
}

/// Whether a result that is accessed like this may go past the caches of a CPU, since what the call moves is more than half of
/// them.
///
/// Whoever reads the result next finds it there only if all that is worked on meanwhile fits as well. Measured with AVX2 and
/// 32 MiB, a norm and two copies after one another: with results of the norm past the caches they take 1.3 to 1.9 times the time
/// where it moves 2 to 12 MiB, 1.0 at 16, 0.92 to 0.96 at 24 and more.
pub(in crate::plan) fn may_pass_caches(
    result: AccessBlueprint,
    vector: usize,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let is_wide = vector * task.dtype.size() >= LEAST_STORE;
    let moved = (task.reads + 1) * task.rows * task.cols * task.dtype.size();
    let is_beyond = hardware.passable_caches.is_some_and(|it| moved > it / 2);
    result.mode == LoadMode::Vector && is_wide && is_beyond
}

/// Whether it does.
///
/// Lines that a core fills so have buffers of their own, and rows that it goes through abreast take each other's: measured with
/// AVX2, four rows of 4 KiB abreast take 2.3 times the time that they take through the caches, one 0.76. Rows side by side
/// continue each other's lines, and rows that are held are written one after another.
pub(in crate::plan) fn passes_caches(
    result: AccessBlueprint,
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let in_order = cut.abreast == 1 || cut.team.side_by_side || cut.hold != Hold::Reread;
    in_order && may_pass_caches(result, cut.team.vector, task, hardware)
}
