//! One plane per row.

use super::staging::{registers, room, staged_columns};
use super::{Shape, Work};
use crate::plan::{Hardware, Level, Staging, Strategy};

/// Vectors in flight per unit of a plane above which a cube pays off.
pub(super) const PLANE_VECTORS: usize = 8;

/// Units per cube of planes: few, so that a finished plane waits for few others. Enough to fill a
/// multiprocessor with few cubes.
const UNITS_OF_PLANES: u32 = 128;

pub(super) fn planes(work: &Work, hardware: &Hardware, plane: u32) -> Shape {
    let units = work.knobs.units.unwrap_or(UNITS_OF_PLANES);
    let planes = (units.min(hardware.max_units_per_cube) / plane).max(1);
    let per_unit = work.steps.div_ceil(plane as usize);
    let (staged_columns, max_teams) = staged_columns(work, hardware, Level::Plane, per_unit, plane);
    let staging = match hardware.is_cpu_vulkan() {
        true => Staging::Reload,
        false => registers(work, hardware, per_unit),
    };
    Shape {
        room: room(work, hardware, staging, plane, 0),
        strategy: Strategy::Plane,
        level: Level::Plane,
        cube_dim: [plane, planes, 1],
        teams_per_cube: planes,
        staging,
        splits: 1,
        cluster_size: 1,
        max_teams,
        staged_columns,
        reason: "",
    }
}
