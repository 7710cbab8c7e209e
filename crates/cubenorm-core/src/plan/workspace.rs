//! Workspace sizes: device memory between two launches of one pass. Each formula follows the
//! addresses of the kernels.

use super::blueprint::RowBlueprint;
use super::grid::Grid;
use super::result::{BackwardPlan, Plan};
use super::team::{Level, Team, Vectorization};

/// Rows per workspace value: along the kept axis each lane of a vector has its own value.
pub(super) fn lanes_of_rows(team: &Team) -> usize {
    match team.lanes() {
        Vectorization::Perpendicular => team.vector,
        Vectorization::Parallel => 1,
    }
}

/// Elements of the partial statistics of a split row. Each part of each row group has two vectors,
/// part after part. Then each row group has `shifts` vectors.
///
/// Row groups with a tail cover some rows twice, so their vectors have more lanes than rows.
pub(super) fn partial_statistics(team: &Team, grid: &Grid, shifts: usize) -> usize {
    (2 * grid.splits + shifts) * grid.groups * lanes_of_rows(team)
}

/// Elements of combined statistics: two values for each row, and its shift if there is one.
pub(super) fn combined_statistics(rows: usize, shifts: usize) -> usize {
    (2 + shifts) * rows
}

/// Elements of the channel sums of a launch that combines segments itself: two for each lane of
/// each row group.
pub(super) fn channel_sums(team: &Team, grid: &Grid) -> usize {
    2 * grid.groups * lanes_of_rows(team)
}

/// Partial sums per column that a fused launch writes. There is one per team, one per cube at
/// [`Level::Perpendicular`], or one per row that several teams share. A core that has parts of all
/// vectors of rows writes each of its columns once.
pub(super) fn parts_of_columns(grid: &Grid, team: &Team) -> usize {
    match team.level() {
        Level::Perpendicular => grid.cube_count as usize,
        _ if team.has_parts() && team.lanes() == Vectorization::Perpendicular => 1,
        _ if team.has_parts() && team.cluster_size() == 1 => grid.groups,
        _ => grid.teams(team),
    }
}

/// Slots of the ring through which the cubes of a cluster publish their sums.
///
/// A cube publishes round r only after it has read every peer's round r-2. A slow peer may still
/// read r-3 but nothing older.
pub const ROUNDS: usize = 4;

/// Sums that a cube publishes in a round.
pub const SUMS: usize = 2;

impl BackwardPlan {
    /// Partial sums per column that are left to reduce, if the plan computes them.
    pub fn parts_of_columns(&self) -> usize {
        parts_of_columns(&self.grid, &self.blueprint.team)
    }

    /// Elements of each partial sum of `columns` columns, in whole vectors.
    pub fn columns_of_part(&self, columns: usize) -> usize {
        (columns * self.lanes_of_column()).next_multiple_of(self.blueprint.team.vector)
    }

    /// Adjacent elements per column of a partial sum: one per lane if a unit's vectors run along
    /// rows, else one.
    pub fn lanes_of_column(&self) -> usize {
        let team = &self.blueprint.team;
        match (team.level(), team.lanes()) {
            (Level::Unit, Vectorization::Perpendicular) => team.vector,
            _ => 1,
        }
    }

    /// Elements of the partial column sums, if the plan computes them: for each team one row of
    /// each requested kind.
    pub fn column_sums(&self, cols: usize) -> usize {
        let kinds = self.blueprint.column_sums.count();
        self.parts_of_columns() * kinds * self.columns_of_part(cols)
    }
}

impl<B: RowBlueprint> Plan<B> {
    /// Words through which the cubes of a cluster publish their sums; 0 without a cluster.
    pub fn cluster_words(&self) -> usize {
        let team = self.blueprint.team();
        match team.cluster_size() {
            1 => 0,
            cluster => self.grid.teams(team) * cluster as usize * ROUNDS * SUMS,
        }
    }
}
