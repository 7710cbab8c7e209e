//! Merge of the partial statistics of a team, at each level.
//!
//! | level | merges through | result is known to |
//! | --- | --- | --- |
//! | unit | nothing | the unit |
//! | [`plane`] | plane sums | every unit of the plane |
//! | [`cube`] | plane sums if available, then shared memory | every unit of the cube |
//! | [`perpendicular`] | shared memory | every unit with that x |

use cubecl::prelude::*;
use cubenorm_core::{Level, Merge, Team, Vectorization};

use crate::reduce::moments::{Moments, reduce_lanes, same};
use crate::reduce::{cube, perpendicular, plane};
use crate::types::One;

/// Merges the partial statistics of a team. Every member gets the result, in all lanes of the row.
///
/// All units of a cube call this: it may contain barriers.
#[cube]
pub(crate) fn merge_team<A: Float, N: Size>(
    mine: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    if comptime!(team.lanes() == Vectorization::Parallel) {
        let folded = reduce_lanes::<A, N>(mine, team);
        merge_reduced::<A, N>(&folded, team)
    } else if comptime!(team.level() == Level::Perpendicular) {
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
    let merged = match comptime!(team.level()) {
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
