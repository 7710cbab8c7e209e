//! One unit for each row.

use super::device::CUBES_PER_SOFTWARE_CORE;
use super::hold::{registers, room};
use super::{Shape, Work};
use crate::plan::{Hardware, Hold, Level, Strategy};

/// Vectors of a row that a software driver's unit holds: it has no registers for many, but what is written to a stack
/// by vectors comes back by vectors, and what is in memory lane by lane. Measured on Mesa's driver beside rows that are
/// read again: rows of 3 and 16 floats take 0.6 of the time, of 32 halves 0.7; those of 16 vectors 0.75 to 0.95, but of
/// 15 SwiftShader compiled some until there was no memory left.
const SOFTWARE_HELD_VECTORS: usize = 4;

/// Units of a cube where each has a row of its own.
const UNITS_OF_ROWS: u32 = 64;

pub(super) fn unit(work: &Work, hardware: &Hardware) -> Shape {
    let cores = hardware.cpu_cores.zip(work.busy_cores(hardware));
    let (units, max_teams) = match (cores, hardware.software_cores) {
        // One cube: its units are cores, and each takes a block of rows from end to end.
        (Some((cores, busy)), _) => {
            let units = work.knobs.units.unwrap_or(busy).clamp(1, cores);
            (units, (units as usize).max(work.least_teams()))
        }
        (None, Some(cores)) => {
            let teams = work.groups.min(work.software_teams(cores as usize));
            let fill = teams.div_ceil(cores as usize * CUBES_PER_SOFTWARE_CORE);
            let filled = (fill.next_power_of_two() as u32).clamp(8, UNITS_OF_ROWS);
            let units = work.knobs.units.unwrap_or(filled).max(1);
            (units.min(hardware.max_units_per_cube), teams)
        }
        (None, None) => {
            let units = work.knobs.units.unwrap_or(UNITS_OF_ROWS).max(1);
            (units.min(hardware.max_units_per_cube), usize::MAX)
        }
    };
    let hold = match hardware.is_software() {
        true if work.column_sums > 0 || work.steps > SOFTWARE_HELD_VECTORS => Hold::Reread,
        _ => registers(work, hardware, work.steps),
    };
    Shape {
        room: room(work, hardware, hold, 1, 0),
        strategy: Strategy::Unit,
        level: Level::Unit,
        cube_dim: [units, 1, 1],
        teams_per_cube: units,
        hold,
        splits: 1,
        peers: 1,
        max_teams,
        held_columns: Hold::Reread,
        reason: "",
    }
}
