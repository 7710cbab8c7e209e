//! Reduction strategies: the units that form a team, and the merge of their partial statistics.
//!
//! | level | team | member | merges through | result is known to |
//! | --- | --- | --- | --- | --- |
//! | [`unit`] | a unit | 0 | nothing | the unit |
//! | [`plane`] | a plane | position in the plane | plane sums | every unit of the plane |
//! | [`cube`] | a cube | position in the cube | plane sums if available, then shared memory | every unit of the cube |
//! | [`column`] | the units of a cube that share their x | y | shared memory | every unit with that x |
//!
//! Three modules carry partial statistics between teams of any level:
//!
//! - [`split`]: parts of a row, from one launch to the next.
//! - [`segments`]: statistics of segments (channels), combined into statistics of a group.
//! - [`cluster_size`]: parts of a row, between cooperating cubes of one launch.

pub(crate) mod accumulate;
pub(crate) mod cluster;
pub(crate) mod cube;
pub(crate) mod exchange;
pub(crate) mod moments;
pub(crate) mod perpendicular;
pub(crate) mod plane;
pub(crate) mod scaled;
pub(crate) mod segments;
pub(crate) mod split;
pub(crate) mod unit;

use cubecl::prelude::*;
use cubenorm_core::{Level, Merge, Team, Vectorization};

use crate::reduce::moments::{Moments, reduce_lanes, same};
use crate::types::One;

/// Index of this unit's team in the launch.
#[cube]
pub(crate) fn team_index(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => unit::index(),
        Level::Plane => plane::index(),
        Level::Cube => cube::index(team),
        Level::Perpendicular => perpendicular::index(),
    }
}

/// Number of teams in the launch.
#[cube]
pub(crate) fn team_count(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => unit::count(),
        Level::Plane => plane::count(),
        Level::Cube => cube::count(team),
        Level::Perpendicular => perpendicular::count(),
    }
}

/// Index of this unit in its team.
#[cube]
pub(crate) fn member(#[comptime] team: Team) -> usize {
    match comptime!(team.level) {
        Level::Unit => 0usize.runtime(),
        Level::Plane => UNIT_POS_X as usize,
        Level::Cube => UNIT_POS as usize,
        Level::Perpendicular => UNIT_POS_Y as usize,
    }
}

/// Merges the partial statistics of a team. Every member gets the result, in all lanes of the row.
///
/// All units of a cube call this: it may contain barriers.
#[cube]
pub(crate) fn merge_team<A: Float, N: Size>(
    mine: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    if comptime!(team.lanes == Vectorization::Parallel) {
        let folded = reduce_lanes::<A, N>(mine, team);
        merge_reduced::<A, N>(&folded, team)
    } else if comptime!(team.level == Level::Perpendicular) {
        perpendicular::merge_units::<A, N>(mine, team)
    } else {
        same::<A, N>(mine)
    }
}

/// Sums a value over the members of a team. Every member gets the sum, in all lanes of the row.
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

/// Merges the partial statistics of a team after the lanes of a vector have been merged.
#[cube]
pub(crate) fn merge_reduced<A: Float, N: Size>(
    folded: &Moments<A, One>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let merged = match comptime!(team.level) {
        Level::Unit | Level::Perpendicular => same::<A, One>(folded),
        Level::Plane => plane::merge_units::<A>(folded, team),
        Level::Cube => cube::merge_units::<A>(folded, team),
    };
    Moments::<A, N> {
        count: merged.count,
        mean: Vector::new(merged.mean.extract(0usize)),
        m2: Vector::new(merged.m2.extract(0usize)),
    }
}
