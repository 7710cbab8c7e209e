//! Clusters: several cubes per row, in one launch.

use super::units_per_cube::cube::{COLUMNS_OF_CUBE, cube};
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::{Knobs, StagingPreference};
use crate::plan::schedule::Schedule;
use crate::plan::team::{Division, Vectorization};
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Columns of f32 per cube of a cluster: the most that leaves room for the next row.
/// 32,768 and 65,536 f32 H200, backward, 16,384 -> 8,192 columns per cube: 1.04x to 1.14x faster.
const FLOATS_OF_CUBE: usize = 1 << 13;

/// Maximum cluster size: each row takes the time of its slowest cube.
const MOST_CUBES_OF_CLUSTER: u32 = 8;

/// Maximum units per cube of a cluster. Each multiprocessor runs one cube, so that all of them are
/// resident. Fewer units have more registers for staging and wait less for each other.
/// 65,536 f32 H200, backward, eight cubes of 512 -> 256 units: 1.05x to 1.06x faster.
/// 40,960 to 163,840 f16 H200, group norm with SiLU, two cubes of 1,024 -> 512 units: 1.10x to 1.19x faster.
const MOST_UNITS_OF_CUBE: u32 = 512;
/// Minimum units per cube of a cluster.
const LEAST_UNITS_OF_CUBE: u32 = 256;

/// Minimum bytes of a row per cube, forward. Cubes wait a microsecond for each other.
/// 64 rows H200, group norm with SiLU f16, one cube -> two: 20 KiB 1.11x slower, 80 KiB 1.16x faster.
const LEAST_OF_CUBE: usize = 16 << 10;

/// Vectors per unit, forward, up to [`MOST_UNITS_OF_CUBE`].
const VECTORS_OF_UNIT: usize = 4;

/// Maximum cubes per multiprocessor, forward. More rows take several rounds, and their words fewer bytes.
const CUBES_OF_PROCESSOR: usize = 4;

/// Schedules several cubes per row. `None` if one is better, or if cubes cannot cooperate.
pub(super) fn cluster(
    work: &Workload,
    hardware: &Hardware,
    plane: Option<u32>,
) -> Option<Schedule> {
    match work.column_sums {
        0 => of_rows(work, hardware, plane),
        _ => of_sums(work, hardware, plane),
    }
}

/// True if the cubes of a device can share the rows of a workload.
fn can_meet(work: &Workload, hardware: &Hardware) -> bool {
    // A sum and its round are published as one word of 8 bytes.
    hardware.inter_cube_atomics && work.accumulation() == 4 && work.reduces && work.segments == 1
}

/// Forward: cubes per row that occupy the multiprocessors, if the rows alone do not; 1 for no cluster.
///
/// 33 rows of 131,072 H200, layer norm, parts in two launches -> four cubes per row: 1.30x to 1.46x faster. 64 groups of
/// 40,960 to 163,840 f16, SiLU, one cube -> two: 1.16x to 1.54x faster.
pub(super) fn cubes_of_rows(work: &Workload, hardware: &Hardware) -> u32 {
    let merges = matches!(work.merge, Merge::Moments | Merge::Means | Merge::Sum);
    let is_plain = !work.quantizes && !work.has_tail && work.lanes == Vectorization::Parallel;
    if !can_meet(work, hardware) || !merges || !is_plain || work.column_sums > 0 {
        return 1;
    }
    let most = match (work.knobs.cluster_size, hardware.multiprocessors) {
        (Some(cubes), _) => cubes as usize,
        (None, None) => 1,
        (None, Some(processors)) => {
            let processors = processors as usize;
            let cubes = (processors / work.groups.max(1)).min(work.row_bytes() / LEAST_OF_CUBE);
            let cubes = cubes.clamp(1, MOST_CUBES_OF_CLUSTER as usize);
            // With too few rows for it, parts of rows occupy more multiprocessors.
            match 4 * work.groups * (1 << cubes.ilog2()) < 3 * processors {
                true => 1,
                false => cubes,
            }
        }
    };
    let most = most.clamp(1, MOST_CUBES_OF_CLUSTER as usize);
    // Each cube has a step.
    let has_steps = |cubes: usize| work.steps > cubes * (cubes - 1);
    let mut cubes = 1 << most.ilog2();
    while !has_steps(cubes) {
        cubes /= 2;
    }
    cubes as u32
}

/// Schedules the cubes of [`cubes_of_rows`]. If vectors are narrow and the parts of a row are not staged, more units may
/// stage them.
fn of_rows(work: &Workload, hardware: &Hardware, plane: Option<u32>) -> Option<Schedule> {
    let cubes = cubes_of_rows(work, hardware);
    if cubes == 1 {
        return None;
    }
    let of = |most| in_cubes(work, hardware, plane, cubes, most);
    let few = of(MOST_UNITS_OF_CUBE);
    let is_narrow = work.vector < hardware.widest_vector(work.dtype.size());
    if few.staging != Staging::Reload || !is_narrow {
        return Some(few);
    }
    let many = of(2 * MOST_UNITS_OF_CUBE);
    Some(match many.staging {
        Staging::Reload => few,
        _ => many,
    })
}

/// Schedules `cubes` cubes of at most `most` units per row.
fn in_cubes(
    work: &Workload,
    hardware: &Hardware,
    plane: Option<u32>,
    cubes: u32,
    most: u32,
) -> Schedule {
    let steps = work.steps.div_ceil(cubes as usize);
    let units = steps.div_ceil(VECTORS_OF_UNIT).next_power_of_two();
    let units = units.clamp(LEAST_UNITS_OF_CUBE as usize, most as usize) as u32;
    let part = Workload {
        cluster_size: cubes,
        steps,
        cols: steps * work.vector,
        knobs: Knobs {
            units: work.knobs.units.or(Some(units)),
            ..work.knobs
        },
        ..*work
    };
    let mut schedule = cube(&part, hardware, steps, plane).in_parts(cubes as usize);
    schedule.team.division = Division::Cluster(cubes);
    (schedule.grid.steps, schedule.grid.segment_steps) = (work.steps, work.steps);
    schedule.rows_per_unit = 1;
    schedule.max_teams = (CUBES_OF_PROCESSOR * hardware.processors() / cubes as usize).max(1);
    schedule
}

/// Backward: schedules several cubes per row if one cannot hold all column sums.
fn of_sums(work: &Workload, hardware: &Hardware, plane: Option<u32>) -> Option<Schedule> {
    let columns = work.steps * work.vector;
    let cubes = match work.knobs.cluster_size {
        Some(cubes) => [cubes.clamp(1, MOST_CUBES_OF_CLUSTER) as usize; 2],
        // All cubes of a cluster should be resident, and the number of resident cubes is unknown.
        None if hardware.multiprocessors.is_none() => [1; 2],
        None if columns <= COLUMNS_OF_CUBE => [1; 2],
        None if work.is_half() => [columns.div_ceil(COLUMNS_OF_CUBE); 2],
        // Rounding down gives each cube a few more columns, if they fit.
        None => [columns / FLOATS_OF_CUBE, columns.div_ceil(FLOATS_OF_CUBE)],
    };
    let cubes = cubes.map(|cubes| {
        cubes
            .clamp(1, MOST_CUBES_OF_CLUSTER as usize)
            .next_power_of_two() as u32
    });
    cubes
        .into_iter()
        .find_map(|cubes| sharing(work, hardware, cubes, plane))
}

/// Schedules `cubes` cubes per row; `None` if they cannot hold its column sums.
fn sharing(
    work: &Workload,
    hardware: &Hardware,
    cubes: u32,
    plane: Option<u32>,
) -> Option<Schedule> {
    if cubes == 1 || !can_meet(work, hardware) {
        return None;
    }
    let units = match work.is_half() {
        true => MOST_UNITS_OF_CUBE,
        false => (4 * MOST_UNITS_OF_CUBE / cubes).clamp(LEAST_UNITS_OF_CUBE, MOST_UNITS_OF_CUBE),
    };
    let parts = Workload {
        cluster_size: cubes,
        knobs: Knobs {
            units: work.knobs.units.or(Some(units)),
            // Column sums in registers would leave none for the next row.
            row: work.knobs.row.or(Some(StagingPreference::Shared)),
            ..work.knobs
        },
        ..*work
    };
    let steps = work.steps.div_ceil(cubes as usize);
    let mut schedule = cube(&parts, hardware, steps, plane).in_parts(cubes as usize);
    schedule.team.division = Division::Cluster(cubes);
    (schedule.staged_columns != Staging::Reload).then_some(schedule)
}
