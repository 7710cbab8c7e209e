//! Clusters: several cubes per row, in one launch.

use super::units_per_cube::cube::{COLUMNS_OF_CUBE, cube};
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::{Knobs, StagingPreference};
use crate::plan::schedule::Schedule;
use crate::plan::team::Division;
use crate::plan::workload::Workload;

/// Columns of f32 per cube of a cluster: the most that leaves room for the next row.
/// 32,768 and 65,536 f32 H200, backward, 16,384 -> 8,192 columns per cube: 1.04x to 1.14x faster.
const FLOATS_OF_CUBE: usize = 1 << 13;

/// Maximum cluster size: each row takes the time of its slowest cube.
const MOST_CUBES_OF_CLUSTER: u32 = 8;

/// Maximum units per cube of a cluster. Each multiprocessor runs one cube, so that all of them are
/// resident. Fewer units have more registers for staging and wait less for each other.
/// 65,536 f32 H200, backward, eight cubes of 512 -> 256 units: 1.05x to 1.06x faster.
const MOST_UNITS_OF_CUBE: u32 = 512;
/// Minimum units per cube of a cluster.
const LEAST_UNITS_OF_CUBE: u32 = 256;

/// Schedules several cubes per row if one cannot hold all column sums. `None` if one can, or if
/// cubes cannot cooperate.
pub(super) fn cluster(
    work: &Workload,
    hardware: &Hardware,
    plane: Option<u32>,
) -> Option<Schedule> {
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
    // A sum and its round are published as one word of 8 bytes.
    let can_meet = hardware.inter_cube_atomics && work.accumulation() == 4;
    let has_sums = work.reduces && work.column_sums > 0 && work.segments == 1;
    if cubes == 1 || !can_meet || !has_sums {
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
