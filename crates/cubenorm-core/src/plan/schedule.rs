//! The schedule of rows: a strategy, its team, the staging of a row and the launch sizes.

use super::blueprint::Staging;
use super::grid::Grid;
use super::hardware::Hardware;
use super::knobs::Knobs;
use super::result::{Combine, Plan};
use super::strategy::Strategy;
use super::team::{
    Assignment, Division, Execution, Guards, Level, ParamLoads, Tail, Team, Tile, Unit,
    Vectorization,
};
use super::workload::Workload;

/// The schedule of a workload on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub strategy: Strategy,
    pub team: Team,
    pub grid: Grid,
    /// Staging of a row between its passes.
    pub staging: Staging,
    /// Staging of a unit's column sums from row to row.
    pub staged_columns: Staging,
    /// Rows that a unit processes together; the most of them before [`Self::distribute`].
    pub rows_per_unit: usize,
    /// Maximum number of teams in a launch; a team processes several groups if there are more.
    pub max_teams: usize,
    pub reason: &'static str,
}

/// Knobs to try instead of those of a schedule, best first.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    pub knobs: Vec<Knobs>,
    /// True if a schedule that stages nothing is no alternative.
    pub must_stage: bool,
}

impl Schedule {
    /// Whole rows for teams of a level in cubes of `cube_dim` units, without any staging.
    pub(super) fn new(work: &Workload, level: Level, cube_dim: [u32; 3]) -> Self {
        let [x, y, _] = cube_dim;
        let execution = match level {
            Level::Unit => Execution::Unit(Unit {
                lanes: work.lanes,
                assignment: Assignment::Striped,
                tail: match work.has_tail {
                    true => Tail::Segments,
                    false => Tail::None,
                },
                params: ParamLoads::PerStep,
                prefetch_next_row: false,
            }),
            Level::Plane => Execution::Plane { size: x },
            Level::Cube => Execution::Cube {
                size: x,
                plane_size: None,
            },
            Level::Perpendicular => Execution::Perpendicular {
                size: y,
                columns: x,
            },
        };
        let vectors_of_segment = work.vectors_of_segment();
        Self {
            strategy: Strategy::Unit,
            team: Team {
                vector: work.vector,
                merge: work.merge,
                execution,
                division: Division::Whole,
                guards: Guards::After(0),
            },
            grid: Grid {
                cube_dim,
                cube_count: 1,
                groups: work.groups_of_launch,
                steps: work.steps,
                groups_per_team: 1,
                splits: 1,
                steps_per_split: work.steps,
                segment_steps: match work.has_tail {
                    true => vectors_of_segment,
                    false => work.steps,
                },
                overlap: match work.has_tail {
                    true => vectors_of_segment * work.vector - work.segment_len,
                    false => 0,
                },
                segments: work.segments,
            },
            staging: Staging::Reload,
            staged_columns: Staging::Reload,
            rows_per_unit: 1,
            max_teams: usize::MAX,
            reason: "",
        }
    }

    /// The same with each row in parts, for several teams.
    pub(super) fn in_parts(mut self, splits: usize) -> Self {
        self.grid.splits = splits;
        self
    }

    /// Distributes row groups and their parts over teams and cubes.
    pub(super) fn distribute(mut self, work: &Workload, hardware: &Hardware) -> Self {
        let staged = self.staged(work);
        let Self {
            team,
            grid,
            staging,
            rows_per_unit,
            max_teams,
            ..
        } = &mut self;
        let (groups, steps) = (work.groups_of_launch, work.steps);
        grid.groups = groups;
        let teams_per_cube = (grid.cube_dim.iter().product::<u32>() / team.size()) as usize;
        grid.steps_per_split = steps.div_ceil(grid.splits).max(1);
        let items = match team.cluster_size() {
            1 => {
                // Rounding up may leave the last parts empty: only count the others.
                grid.splits = steps.div_ceil(grid.steps_per_split).max(1);
                groups * grid.splits
            }
            // Each cube of a team has its own part, even if it is empty.
            _ => groups,
        };
        // The rows of a tile have the same part.
        if let Execution::Unit(unit) = team.execution
            && work.tile > 1
            && *staging == Staging::Reload
        {
            team.execution = Execution::Tile(Tile {
                dynamic: false,
                has_tail: unit.tail != Tail::None,
                folded: false,
            });
        }
        *rows_per_unit = match grid.splits {
            _ if team.is_tile() => work.tile,
            1 => work.rows_per_unit.min(*rows_per_unit),
            _ => 1,
        };
        let max_cubes = (hardware.max_cubes / team.cluster_size()) as usize;
        let max_teams = (*max_teams).min(max_cubes.saturating_mul(teams_per_cube));
        let teams = items.div_ceil(*rows_per_unit).min(max_teams).max(1);
        grid.groups_per_team = items.div_ceil(teams).next_multiple_of(*rows_per_unit);
        let cubes = items
            .div_ceil(grid.groups_per_team)
            .div_ceil(teams_per_cube);
        grid.cube_count = cubes as u32 * team.cluster_size();

        let (members, per_split) = (team.size() as usize, grid.steps_per_split);
        let is_even =
            grid.splits == team.cluster_size() as usize && grid.splits * per_split == steps;
        let staged = staged.vectors().filter(|_| is_even);
        team.guards = match staged {
            Some(vectors) if vectors * members == per_split => Guards::Exact(vectors),
            Some(vectors) => Guards::After(vectors.min(per_split / members)),
            None => Guards::After(0),
        };
        match &mut team.execution {
            Execution::Cube { plane_size, .. } => {
                *plane_size = hardware.plane(work.knobs.plane_size);
            }
            // Striped if vectors lie along the kept axis, or on a GPU: units that run at the same
            // time access adjacent memory.
            Execution::Unit(unit)
                if unit.lanes == Vectorization::Parallel || hardware.cpu_cores.is_some() =>
            {
                unit.assignment = Assignment::Blocked;
            }
            _ => {}
        }
        let has_parts = grid.splits > 1;
        team.division = match team.division {
            Division::Cluster(cubes) => Division::Cluster(cubes),
            _ if work.segments == 1 && has_parts => Division::Part,
            _ if work.segments == 1 => Division::Whole,
            _ if has_parts => Division::SegmentPart,
            _ if has_whole_rows(team, *rows_per_unit, work.segments) => Division::AllSegments,
            _ => Division::Segment,
        };
        self
    }

    /// Staging of the values that a team keeps: its column sums if there are any, else its row.
    pub(super) fn staged(&self, work: &Workload) -> Staging {
        match work.column_sums {
            0 => self.staging,
            _ => self.staged_columns,
        }
    }

    /// The plan with a blueprint, and with what is between two launches.
    pub(super) fn plan<B>(self, blueprint: B, between: (usize, Option<Combine>)) -> Plan<B> {
        let (workspace, combine) = between;
        Plan {
            strategy: self.strategy,
            blueprint,
            grid: self.grid,
            workspace,
            combine,
            reason: self.reason,
        }
    }
}

/// True if a unit processes all segments of its rows as one tile.
fn has_whole_rows(team: &Team, rows_per_unit: usize, segments: usize) -> bool {
    team.is_tile() && (rows_per_unit * team.vector).is_multiple_of(segments)
}
