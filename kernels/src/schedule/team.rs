//! Teams: the units that work on a row together.
//!
//! | level | team | member | units of a cube |
//! | --- | --- | --- | --- |
//! | unit | a unit | 0 | any |
//! | plane | a plane | position in the plane | planes are stacked along y |
//! | cube | a cube; cubes of a cluster share a row | position in the cube | one team |
//! | perpendicular | the units of a cube that share their x | y | vectors of adjacent rows run along x |
//!
//! Unit is the only level of the CPU runtime, where a plane has one unit and a cube has one unit
//! per core. On GPUs it is the level of rows of a few vectors.

use cubecl::prelude::*;
use cubenorm_core::{Level, Team};

/// Index of this unit's team in the launch. Cubes with another y have another tensor.
#[cube]
pub(crate) fn team_index(#[comptime] team: Team) -> usize {
    match comptime!(team.level()) {
        Level::Unit => ABSOLUTE_POS_X as usize,
        Level::Plane => CUBE_POS_X as usize * CUBE_DIM_Y as usize + UNIT_POS_Y as usize,
        Level::Cube => CUBE_POS_X as usize / comptime!(team.cluster_size() as usize),
        Level::Perpendicular => CUBE_POS_X as usize * CUBE_DIM_X as usize + UNIT_POS_X as usize,
    }
}

/// Number of teams in the launch.
#[cube]
pub(crate) fn team_count(#[comptime] team: Team) -> usize {
    match comptime!(team.level()) {
        Level::Unit => CUBE_COUNT_X as usize * CUBE_DIM as usize,
        Level::Plane => CUBE_COUNT_X as usize * CUBE_DIM_Y as usize,
        Level::Cube => CUBE_COUNT_X as usize / comptime!(team.cluster_size() as usize),
        Level::Perpendicular => CUBE_COUNT_X as usize * CUBE_DIM_X as usize,
    }
}

/// Index of this unit in its team.
#[cube]
pub(crate) fn member(#[comptime] team: Team) -> usize {
    match comptime!(team.level()) {
        Level::Unit => 0usize.runtime(),
        Level::Plane => UNIT_POS_X as usize,
        Level::Cube => UNIT_POS as usize,
        Level::Perpendicular => UNIT_POS_Y as usize,
    }
}

/// Part of each row that this unit's cube owns in a cluster; 0 without a cluster.
#[cube]
pub(crate) fn own_part(#[comptime] team: Team) -> usize {
    if comptime!(team.cluster_size() > 1) {
        CUBE_POS_X as usize % comptime!(team.cluster_size() as usize)
    } else {
        0usize.runtime()
    }
}
