//! One unit per row.

use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::heuristic::staging::{registers, room};
use crate::plan::heuristic::{cpu_vulkan, occupancy};
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;

/// Units per cube if each unit owns a row.
const UNITS_OF_ROWS: u32 = 64;

/// Schedules one unit per row.
pub(in crate::plan::heuristic) fn unit(work: &Workload, hardware: &Hardware) -> Schedule {
    let cores = hardware
        .cpu_cores
        .zip(occupancy::cores_worth_waking(work, hardware));
    let of_cpu_vulkan = cpu_vulkan::units_of_rows(work, hardware);
    let (units, most, max_teams) = match cores {
        // CPU: one cube with a unit per core, which processes a contiguous block of rows.
        Some((cores, busy)) => (busy, cores, None),
        None => {
            let (units, teams) = of_cpu_vulkan.unwrap_or((UNITS_OF_ROWS, usize::MAX));
            (units, hardware.max_units_per_cube, Some(teams))
        }
    };
    let units = work.knobs.units.unwrap_or(units).max(1).min(most);
    let staging = match cpu_vulkan::reloads_row(work, hardware) {
        true => Staging::Reload,
        false => registers(work, hardware, work.steps),
    };
    Schedule {
        staging,
        rows_per_unit: room(work, hardware, staging, 1, 0),
        max_teams: max_teams.unwrap_or((units as usize).max(work.least_teams())),
        ..Schedule::new(work, Level::Unit, [units, 1, 1])
    }
}
