//! Who works on a row, and how their partial statistics meet.
//!
//! | level | team | member | merges through | merged statistics are known to |
//! | --- | --- | --- | --- | --- |
//! | [`unit`] | a unit | 0 | nothing | the unit |
//! | [`plane`] | a plane | position in the plane | plane sums | every unit of the plane |
//! | [`cube`] | a cube | position in the cube | shared memory, planes first where there are any | every unit of the cube |
//! | [`column`] | the units of a cube that share their x | y | shared memory | every unit with that x |
//!
//! [`split`] is not a level: it cuts rows for teams of any level and carries what they find from
//! one launch to the next, and [`strands`] joins it where several rows are one. [`peers`] carries it between cubes of one
//! launch, while they run.

pub(crate) mod column;
pub(crate) mod cube;
pub(crate) mod exchange;
pub(crate) mod peers;
pub(crate) mod plane;
pub(crate) mod split;
pub(crate) mod strands;
pub(crate) mod unit;

use cubecl::prelude::*;
use cubenorm_core::{Lanes, Level, Merge, Team};

use crate::moments::{Moments, fold_lanes, same};
use crate::types::One;

/// The number of this unit's team within the launch.
#[cube]
pub(crate) fn team_index(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => unit::index(),
        Level::Plane => plane::index(),
        Level::Cube => cube::index(team),
        Level::Column => column::index(),
    }
}

/// Teams of the launch.
#[cube]
pub(crate) fn team_count(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => unit::count(),
        Level::Plane => plane::count(),
        Level::Cube => cube::count(team),
        Level::Column => column::count(),
    }
}

/// This unit's number within its team.
#[cube]
pub(crate) fn member(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => 0usize.runtime(),
        Level::Plane => UNIT_POS_X as usize,
        Level::Cube => UNIT_POS as usize,
        Level::Column => UNIT_POS_Y as usize,
    }
}

/// Merges what the members of a team have found; every member gets the result, in all lanes.
///
/// Called by all units of a cube alike, since it may wait for them.
#[cube]
pub(crate) fn merge_team<A: Float, N: Size>(
    mine: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    if comptime!(team.lanes == Lanes::Columns) {
        let folded = fold_lanes::<A, N>(mine, team);
        merge_folded::<A, N>(&folded, team)
    } else if comptime!(team.level == Level::Column) {
        column::merge_units::<A, N>(mine, team)
    } else {
        same::<A, N>(mine)
    }
}

/// The sum of what the members of a team have of each row; every member gets it, in all lanes of the row.
///
/// Called as [`merge_team`].
#[cube]
pub(crate) fn team_sum<A: Float, N: Size>(
    mine: Vector<A, N>,
    #[comptime] team: Team,
) -> Vector<A, N> {
    let summing = comptime!(Team {
        merge: Merge::Sum,
        ..team
    });
    let mine = Moments::<A, N> {
        count: A::new(0.0),
        mean: Vector::new(A::new(0.0)),
        m2: mine,
    };
    merge_team::<A, N>(&mine, summing).m2
}

/// Merges what the members of a team have found, where all lanes belong to one row.
#[cube]
pub(crate) fn merge_folded<A: Float, N: Size>(
    folded: &Moments<A, One>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let merged = match comptime!(team.level) {
        Level::Unit | Level::Column => same::<A, One>(folded),
        Level::Plane => plane::merge_units::<A>(folded, team),
        Level::Cube => cube::merge_units::<A>(folded, team),
    };
    Moments::<A, N> {
        count: merged.count,
        mean: Vector::new(merged.mean.extract(0usize)),
        m2: Vector::new(merged.m2.extract(0usize)),
    }
}
