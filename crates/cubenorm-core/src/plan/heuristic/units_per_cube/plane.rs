//! One plane per row.

use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::heuristic::column_sums::staged_columns;
use crate::plan::heuristic::cpu_vulkan;
use crate::plan::heuristic::staging::{registers, room};
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;

/// Vectors in flight per unit of a plane above which a cube pays off.
pub(in crate::plan::heuristic) const PLANE_VECTORS: usize = 8;

/// Units per cube of planes: few, so that a finished plane waits for few others. Enough to fill a
/// multiprocessor with few cubes.
const UNITS_OF_PLANES: u32 = 128;

/// Schedules one plane of `plane` units per row.
pub(in crate::plan::heuristic) fn planes(
    work: &Workload,
    hardware: &Hardware,
    plane: u32,
) -> Schedule {
    let units = work.knobs.units.unwrap_or(UNITS_OF_PLANES);
    let planes = (units.min(hardware.max_units_per_cube) / plane).max(1);
    let per_unit = work.steps.div_ceil(plane as usize);
    let (staged_columns, max_teams) = staged_columns(work, hardware, Level::Plane, per_unit, plane);
    let staging = match cpu_vulkan::reloads_row_of_plane(hardware) {
        true => Staging::Reload,
        false => registers(work, hardware, per_unit),
    };
    Schedule {
        staging,
        staged_columns,
        rows_per_unit: room(work, hardware, staging, plane, 0),
        max_teams,
        ..Schedule::new(work, Level::Plane, [plane, planes, 1])
    }
}
