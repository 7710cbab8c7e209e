//! One unit per row.

use super::device::CUBES_PER_SOFTWARE_CORE;
use super::staging::{registers, room};
use super::{Shape, Work};
use crate::plan::{Hardware, Level, Staging, Strategy};

/// CPU Vulkan: maximum vectors of a row that a unit stages. The driver reloads spilled vectors
/// whole, but reads memory lane by lane. SwiftShader exhausts memory while it compiles some kernels
/// with 15 vectors.
/// 3 and 16 f32 lavapipe, reloaded -> staged: 1.67x faster.
const SOFTWARE_STAGED_VECTORS: usize = 4;

/// Units per cube if each unit owns a row; on CPU Vulkan a maximum.
const UNITS_OF_ROWS: u32 = 64;

pub(super) fn unit(work: &Work, hardware: &Hardware) -> Shape {
    let cores = hardware.cpu_cores.zip(work.busy_cores(hardware));
    let (units, max_teams) = match (cores, hardware.cpu_vulkan_cores) {
        // CPU: one cube with a unit per core, which processes a contiguous block of rows.
        (Some((cores, busy)), _) => {
            let units = work.knobs.units.unwrap_or(busy).clamp(1, cores);
            (units, (units as usize).max(work.least_teams()))
        }
        (None, Some(cores)) => {
            let teams = work.groups.min(work.cpu_vulkan_teams(cores as usize));
            let fill = teams.div_ceil(cores as usize * CUBES_PER_SOFTWARE_CORE);
            let exact_vectors = (fill.next_power_of_two() as u32).clamp(8, UNITS_OF_ROWS);
            let units = work.knobs.units.unwrap_or(exact_vectors).max(1);
            (units.min(hardware.max_units_per_cube), teams)
        }
        (None, None) => {
            let units = work.knobs.units.unwrap_or(UNITS_OF_ROWS).max(1);
            (units.min(hardware.max_units_per_cube), usize::MAX)
        }
    };
    let staging = match hardware.is_cpu_vulkan() {
        true if work.column_sums > 0 || work.steps > SOFTWARE_STAGED_VECTORS => Staging::Reload,
        _ => registers(work, hardware, work.steps),
    };
    Shape {
        room: room(work, hardware, staging, 1, 0),
        strategy: Strategy::Unit,
        level: Level::Unit,
        cube_dim: [units, 1, 1],
        teams_per_cube: units,
        staging,
        splits: 1,
        cluster_size: 1,
        max_teams,
        staged_columns: Staging::Reload,
        reason: "",
    }
}
