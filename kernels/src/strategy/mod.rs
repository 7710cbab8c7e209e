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
//! one launch to the next.

pub(crate) mod column;
pub(crate) mod cube;
pub(crate) mod exchange;
pub(crate) mod plane;
pub(crate) mod split;
pub(crate) mod unit;

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Lanes, Level};

use crate::moments::{Moments, fold_lanes, same};
use crate::types::One;

/// The number of this unit's team within the launch.
#[cube]
pub(crate) fn team(#[comptime] blueprint: Blueprint) -> usize {
    match comptime!(blueprint.level) {
        Level::Unit => unit::team(),
        Level::Plane => plane::team(),
        Level::Cube => cube::team(),
        Level::Column => column::team(),
    }
}

/// Teams of the launch.
#[cube]
pub(crate) fn teams(#[comptime] blueprint: Blueprint) -> usize {
    match comptime!(blueprint.level) {
        Level::Unit => unit::teams(),
        Level::Plane => plane::teams(),
        Level::Cube => cube::teams(),
        Level::Column => column::teams(),
    }
}

/// This unit's number within its team.
#[cube]
pub(crate) fn member(#[comptime] blueprint: Blueprint) -> usize {
    match comptime!(blueprint.level) {
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
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    if comptime!(blueprint.lanes == Lanes::Columns) {
        let folded = fold_lanes::<A, N>(mine, blueprint);
        merge_folded::<A, N>(&folded, blueprint)
    } else if comptime!(blueprint.level == Level::Column) {
        column::merge_units::<A, N>(mine, blueprint)
    } else {
        same::<A, N>(mine)
    }
}

/// Merges what the members of a team have found, where all lanes belong to one row.
#[cube]
pub(crate) fn merge_folded<A: Float, N: Size>(
    folded: &Moments<A, One>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let merged = match comptime!(blueprint.level) {
        Level::Unit | Level::Column => same::<A, One>(folded),
        Level::Plane => plane::merge_units::<A>(folded, blueprint),
        Level::Cube => cube::merge_units::<A>(folded, blueprint),
    };
    Moments::<A, N> {
        count: merged.count,
        mean: Vector::new(merged.mean.extract(0usize)),
        m2: Vector::new(merged.m2.extract(0usize)),
    }
}
