//! One plane per row.

use super::hold::{held_columns, registers, room};
use super::{Shape, Work};
use crate::plan::{Hardware, Hold, Level, Strategy};

/// Vectors in flight per unit of a plane above which a cube pays off.
pub(super) const PLANE_VECTORS: usize = 8;

/// Units per cube of planes: few, so that a finished plane waits for few others. Enough to fill a
/// multiprocessor with few cubes.
const UNITS_OF_PLANES: u32 = 128;

pub(super) fn planes(work: &Work, hardware: &Hardware, plane: u32) -> Shape {
    let units = work.knobs.units.unwrap_or(UNITS_OF_PLANES);
    let planes = (units.min(hardware.max_units_per_cube) / plane).max(1);
    let per_unit = work.steps.div_ceil(plane as usize);
    let (held_columns, max_teams) = held_columns(work, hardware, Level::Plane, per_unit, plane);
    let hold = match hardware.is_software() {
        true => Hold::Reread,
        false => registers(work, hardware, per_unit),
    };
    Shape {
        room: room(work, hardware, hold, plane, 0),
        strategy: Strategy::Plane,
        level: Level::Plane,
        cube_dim: [plane, planes, 1],
        teams_per_cube: planes,
        hold,
        splits: 1,
        cluster_size: 1,
        max_teams,
        held_columns,
        reason: "",
    }
}
