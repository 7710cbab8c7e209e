//! Occupancy: CPU cores worth waking, their balance, and the cubes that fill a GPU.

use super::cpu_vulkan;
use crate::plan::hardware::Hardware;
use crate::plan::workload::Workload;

/// Minimum elements to charge per row, for its square root and two divisions. 3 columns f16 AVX2:
/// 8.5 ns per row; 768 columns: 0.34 ns per element.
const LEAST_OF_ROW: usize = 32;

/// Items per core from which an uneven last round no longer matters.
const ROUNDS_OF_CORE: usize = 4;

/// CPU cores worth waking to read `rows` rows of `elements` elements each; `None` unless a CPU
/// runtime runs the units.
pub(in crate::plan) fn busy_cores(
    rows: usize,
    elements: usize,
    hardware: &Hardware,
) -> Option<u32> {
    hardware.busy_cores(rows.saturating_mul(elements.max(LEAST_OF_ROW)))
}

/// CPU cores worth waking for a workload.
pub(super) fn cores_worth_waking(work: &Workload, hardware: &Hardware) -> Option<u32> {
    busy_cores(work.reads * work.groups, work.steps * work.vector, hardware)
}

/// True if `items` balance over `cores`: a multiple, or at least [`ROUNDS_OF_CORE`] items per core.
pub(super) fn are_even(items: usize, cores: u32) -> bool {
    let cores = cores as usize;
    items.is_multiple_of(cores) || items >= ROUNDS_OF_CORE * cores
}

/// Fewest parts per row that balance over `cores`; one part per core if fewer do not.
pub(super) fn even_parts(work: &Workload, cores: u32) -> usize {
    let blocks = work.groups / work.tile;
    let mut parts = 1..cores as usize;
    let even = parts.find(|parts| are_even(blocks * parts, cores));
    even.unwrap_or(cores as usize)
}

/// Cubes that fill the device, with `of_multiprocessor` cubes per multiprocessor.
pub(super) fn cubes_to_fill(hardware: &Hardware, of_multiprocessor: usize) -> usize {
    let of_cpu_vulkan = cpu_vulkan::cubes_to_fill(hardware);
    of_cpu_vulkan.unwrap_or_else(|| hardware.processors() * of_multiprocessor)
}
