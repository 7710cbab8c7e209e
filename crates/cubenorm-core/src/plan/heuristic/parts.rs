//! Parts that rows are cut in, so that there is work for all.

use super::Work;
use crate::plan::Hardware;

/// Elements below which splitting a row between cores costs more than it saves: the second launch
/// alone is worth about this many.
pub(super) const SPLIT_ELEMENTS: usize = 1 << 15;

/// Parts of one row. Every team of the second launch reads the partial statistics of all.
pub(super) const MAX_SPLITS: usize = 256;

/// What a part of a long row adds to the time of all, as a share of it: measured on an H200, batch norm of 64 channels
/// of a million floats each, whose two parts are 128 cubes for 132 multiprocessors and take 0.97 of the time of four,
/// 0.9 of eight, and 0.82 of three or nine, which do not come out even.
const COST_OF_PART: f64 = 0.02;

/// Parts of a row that come to `wanted` cubes when `cubes` cubes alone do not, of at least `least` steps.
pub(super) fn parts(wanted: usize, cubes: usize, work: &Work, least: usize) -> usize {
    match work.elements() < SPLIT_ELEMENTS {
        true => 1,
        false => wanted
            .div_ceil(cubes.max(1))
            .min(work.steps.div_ceil(least.max(1)))
            .clamp(1, MAX_SPLITS),
    }
}

/// Parts of long rows, a cube for each, of at most so many: those that leave the fewest multiprocessors idle at the
/// end.
pub(super) fn even_parts(hardware: &Hardware, work: &Work, most: usize) -> usize {
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
