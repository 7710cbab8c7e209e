//! Parts of a row for several teams, in two launches if anything is reduced.

use super::occupancy::cubes_to_fill;
use super::parts::{MAX_SPLITS, even_parts, parts};
use super::units_per_cube::cube::{CUBE_VECTORS, cube};
use super::units_per_cube::perpendicular::perpendicular;
use super::units_per_cube::unit::unit;
use super::{cpu_vulkan, occupancy};
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::Knobs;
use crate::plan::schedule::Schedule;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;

/// Cubes per multiprocessor if nothing is reduced, enough to keep the last wave short.
/// 2,048 channels of 7 x 7 H200, provided statistics, one cube per row -> 16: 1.09x to 1.15x
/// faster.
pub(super) const CUBES_WITHOUT_SUMS: usize = 64;
/// Minimum steps per cube if nothing is reduced.
pub(super) const STEPS_WITHOUT_SUMS: usize = 1024;

/// Minimum steps of a part of a reduced row.
const STEPS_OF_PART: usize = CUBE_VECTORS * 64;

/// Schedules several teams per row. A forced split takes at least two parts if there are two steps.
pub(super) fn split(work: &Workload, hardware: &Hardware, plane: Option<u32>) -> Schedule {
    let at_least = if work.knobs.strategy.is_some() { 2 } else { 1 };
    let limit = |splits: usize| {
        let wanted = work.knobs.splits.unwrap_or(splits);
        let splits = wanted.min(MAX_SPLITS.max(splits));
        splits.max(at_least).min(work.steps).max(1)
    };
    // A team with one part of a row stages no column sums.
    let without_sums = Workload {
        column_sums: 0,
        ..*work
    };
    let mut schedule = if let Some(cores) = occupancy::cores_worth_waking(work, hardware) {
        let accurate = work.steps.div_ceil(work.longest_sum());
        let splits = limit(occupancy::even_parts(work, cores).max(accurate));
        parts_of_units(work, hardware, splits)
    } else if let Some(splits) = cpu_vulkan::splits(work, hardware) {
        parts_of_units(work, hardware, limit(splits))
    } else if work.lanes == Vectorization::Perpendicular {
        let schedule = perpendicular(&without_sums, hardware);
        schedule.in_parts(limit(schedule.grid.splits))
    } else {
        let wanted = match work.reduces {
            true => even_parts(hardware, work, work.steps.div_ceil(STEPS_OF_PART)),
            false => {
                let cubes = cubes_to_fill(hardware, CUBES_WITHOUT_SUMS);
                parts(cubes, work.groups, work, STEPS_WITHOUT_SUMS)
            }
        };
        let splits = limit(wanted);
        let steps = work.steps.div_ceil(splits);
        cube(&without_sums, hardware, steps, plane).in_parts(splits)
    };
    // Nothing is staged between two launches.
    schedule.staging = Staging::Reload;
    schedule.rows_per_unit = 1;
    schedule
}

/// One unit per part.
fn parts_of_units(work: &Workload, hardware: &Hardware, splits: usize) -> Schedule {
    let cores = occupancy::cores_worth_waking(work, hardware);
    let parts = Workload {
        groups: work.groups * splits,
        rows_per_unit: 1,
        // Parts have no more elements than the rows, so they are worth no more cores.
        knobs: Knobs {
            units: work.knobs.units.or(cores),
            ..work.knobs
        },
        ..*work
    };
    unit(&parts, hardware).in_parts(splits)
}
