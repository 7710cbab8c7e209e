//! One row per cube. Partial statistics merge in shared memory: one per plane if planes can sum,
//! else one per unit.

use cubecl::prelude::*;
use cubenorm_core::Team;

use crate::reduce::exchange::merge_rows;
use crate::reduce::moments::{Moments, same};
use crate::reduce::plane;
use crate::types::One;

#[cube]
pub(crate) fn merge_units<A: Float>(
    mine: &Moments<A, One>,
    #[comptime] team: Team,
) -> Moments<A, One> {
    let has_planes = comptime!(team.plane_size() > 0);
    let plane = comptime!(team.plane_size().max(1));
    let rows = comptime!((team.size() / plane) as usize);
    let part = if has_planes {
        plane::merge_units::<A>(mine, team)
    } else {
        same::<A, One>(mine)
    };
    let row = (UNIT_POS / plane) as usize;
    let lane = UNIT_POS % plane;
    let is_leader = lane == 0;
    merge_rows::<A, One>(&part, row, 0usize.runtime(), is_leader, rows, 1usize, team)
}
