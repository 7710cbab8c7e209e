//! Several teams for each row, in two launches.

use super::column::column;
use super::cube::{CUBE_VECTORS, cube};
use super::device::{CUBES_PER_SOFTWARE_CORE, SOFTWARE_STEPS, cubes_to_fill};
use super::parts::{MAX_SPLITS, even_parts, parts};
use super::unit::unit;
use super::{Shape, Work};
use crate::plan::hardware::LANES;
use crate::plan::{Hardware, Hold, Knobs, Lanes};

/// Cubes for each multiprocessor where nothing is reduced, so that the last of them leave few idle, and steps of each
/// that are worth one. Measured on an H200, batch norm by given statistics of 2,048 channels of 7 x 7: 668 rows in 16
/// parts each take 0.87 to 0.92 of the time of one cube for each.
pub(super) const CUBES_WITHOUT_SUMS: usize = 64;
pub(super) const STEPS_WITHOUT_SUMS: usize = 1024;

/// Steps that are worth a lane of a software driver's. Measured on Mesa's driver, both ways of one row: eight parts, a lane
/// each, take 0.8 to 1.0 of the time of two and four, down to 32 steps.
const STEPS_OF_LANE: usize = 32;

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
            let even = work.even_among(cores);
            of_units(limit(even.max(work.steps.div_ceil(work.longest_sum()))))
        }
        (_, None, Some(cores)) => {
            let cubes = cores as usize * CUBES_PER_SOFTWARE_CORE;
            let wanted = cubes.div_ceil(work.groups.max(1));
            let filled = wanted.min(work.steps.div_ceil(CUBE_VECTORS * 64));
            let lanes = (LANES as usize / work.groups.max(1)).min(work.steps / STEPS_OF_LANE);
            let least = work.steps.div_ceil(SOFTWARE_STEPS);
            of_units(limit(filled.max(lanes).max(least)))
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
