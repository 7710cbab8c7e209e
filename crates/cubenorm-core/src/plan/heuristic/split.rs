//! Several teams for each row, in two launches.

use super::column::column;
use super::cube::{CUBE_VECTORS, cube};
use super::device::{CUBES_PER_SOFTWARE_CORE, SOFTWARE_STEPS, cubes_to_fill, multiprocessors};
use super::unit::unit;
use super::{Shape, Work};
use crate::plan::{Hardware, Hold, Knobs, Lanes};

/// Cubes for each multiprocessor where nothing is reduced, so that the last of them leave few idle, and steps of each
/// that are worth one. Measured on an H200, batch norm by given statistics of 2,048 channels of 7 x 7: 668 rows in 16
/// parts each take 0.87 to 0.92 of the time of one cube for each.
pub(super) const CUBES_WITHOUT_SUMS: usize = 64;
pub(super) const STEPS_WITHOUT_SUMS: usize = 1024;

/// Elements below which splitting a row between cores costs more than it saves: the second launch
/// alone is worth about this many.
pub(super) const SPLIT_ELEMENTS: usize = 1 << 15;

/// Parts of one row. Every team of the second launch reads the partial statistics of all.
pub(super) const MAX_SPLITS: usize = 256;

/// What a part of a long row adds to the time of all, as a share of it: measured on an H200, batch norm of 64 channels
/// of a million floats each, whose two parts are 128 cubes for 132 multiprocessors and take 0.97 of the time of four,
/// 0.9 of eight, and 0.82 of three or nine, which do not come out even.
const COST_OF_PART: f64 = 0.02;

/// Several teams for each row. A forced split takes at least two parts wherever there are two steps.
pub(super) fn split(
    work: &Work,
    hardware: &Hardware,
    plane: Option<u32>,
    is_forced: bool,
) -> Shape {
    let at_least = if is_forced { 2 } else { 1 };
    let limit = |splits: usize| {
        let splits = work
            .knobs
            .splits
            .unwrap_or(splits)
            .min(MAX_SPLITS.max(splits));
        splits.max(at_least).min(work.steps).max(1)
    };
    let of_units = |splits: usize| {
        let cores = work.busy_cores(hardware);
        let parts = Work {
            groups: work.groups * splits,
            abreast: 1,
            // The parts have no more elements than the rows.
            knobs: Knobs {
                units: work.knobs.units.or(cores),
                ..work.knobs
            },
            ..*work
        };
        Shape {
            splits,
            ..unit(&parts, hardware)
        }
    };
    // Who has a part of a row alone holds no sums of its columns.
    let without_sums = Work {
        column_sums: 0,
        ..*work
    };
    let mut shape = match (
        work.lanes,
        work.busy_cores(hardware),
        hardware.software_cores,
    ) {
        (_, Some(cores), _) => {
            let busy = (cores as usize).div_ceil(work.groups.max(1));
            of_units(limit(busy.max(work.steps.div_ceil(work.longest_sum()))))
        }
        (_, None, Some(cores)) => {
            let cubes = cores as usize * CUBES_PER_SOFTWARE_CORE;
            let wanted = cubes.div_ceil(work.groups.max(1));
            let filled = wanted.min(work.steps.div_ceil(CUBE_VECTORS * 64));
            of_units(limit(filled.max(work.steps.div_ceil(SOFTWARE_STEPS))))
        }
        (Lanes::Rows, None, None) => {
            let shape = column(&without_sums, hardware, is_forced);
            Shape {
                splits: limit(shape.splits),
                ..shape
            }
        }
        (Lanes::Columns, None, None) => {
            let least = CUBE_VECTORS * 64;
            let most = work.steps.div_ceil(least);
            let wanted = match work.reduces {
                true => even_parts(hardware, work, most),
                false => {
                    let cubes = cubes_to_fill(hardware, CUBES_WITHOUT_SUMS);
                    parts(cubes, work.groups, work, STEPS_WITHOUT_SUMS)
                }
            };
            let splits = limit(wanted);
            Shape {
                splits,
                ..cube(&without_sums, hardware, work.steps.div_ceil(splits), plane)
            }
        }
    };
    // Between the two launches nothing is held.
    shape.hold = Hold::Reread;
    shape.room = 1;
    shape
}

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
fn even_parts(hardware: &Hardware, work: &Work, most: usize) -> usize {
    let processors = multiprocessors(hardware);
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
