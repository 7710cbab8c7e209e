//! Splits rows into parts that fill the device.

use crate::plan::hardware::Hardware;
use crate::plan::workload::Workload;

/// Elements below which splitting a row costs more than it saves. The second launch alone takes the
/// time of about this many.
pub(super) const SPLIT_ELEMENTS: usize = 1 << 15;

/// Maximum parts per row. Every team of the second launch reads the partial statistics of all
/// parts.
pub(super) const MAX_SPLITS: usize = 256;

/// Cost of each part of a long row, as a share of the total time.
/// 64 channels of 1M f32 H200, batch norm, three or nine parts -> two: 1.22x faster.
const COST_OF_PART: f64 = 0.02;

/// Parts per row that turn `cubes` cubes into about `wanted`, each of at least `least` steps.
pub(super) fn parts(wanted: usize, cubes: usize, work: &Workload, least: usize) -> usize {
    match work.elements() < SPLIT_ELEMENTS {
        true => 1,
        false => wanted
            .div_ceil(cubes.max(1))
            .min(work.steps.div_ceil(least.max(1)))
            .clamp(1, MAX_SPLITS),
    }
}

/// Parts per long row, one cube each, that leave the fewest multiprocessors idle in the last wave.
/// Returns at most `most`.
pub(super) fn even_parts(hardware: &Hardware, work: &Workload, most: usize) -> usize {
    let processors = hardware.processors();
    let cost = |parts: usize| {
        let cubes = work.groups * parts;
        let rounds = cubes.div_ceil(processors) as f64;
        rounds * processors as f64 / cubes as f64 * (1.0 + COST_OF_PART * parts as f64)
    };
    let most = match work.elements() < SPLIT_ELEMENTS {
        true => 1,
        false => most.clamp(1, processors.min(MAX_SPLITS)),
    };
    let cheapest = (1..=most).min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
    cheapest.unwrap_or(1)
}
