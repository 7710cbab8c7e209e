//! Vectorization perpendicular to the reduction. Vectors of adjacent rows run along x. The units
//! along y share the reduced axis. Each lane is a row of its own, so lanes are never merged.

use cubecl::prelude::*;
use cubenorm_core::Team;

use crate::reduce::exchange::merge_rows;
use crate::reduce::moments::{Moments, same};

#[cube]
pub(crate) fn merge_units<A: Float, N: Size>(
    mine: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let rows = comptime!(team.size() as usize);
    let columns = comptime!(team.columns() as usize);
    if comptime!(rows == 1) {
        same::<A, N>(mine)
    } else {
        let (row, column) = (UNIT_POS_Y as usize, UNIT_POS_X as usize);
        merge_rows::<A, N>(mine, row, column, true.runtime(), rows, columns, team)
    }
}
