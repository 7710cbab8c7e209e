//! Launch sizes, common to all kernels that process rows.

use super::footprint::Footprint;
use super::heuristic::{self, Shape, Work};
use super::lanes::Vectors;
use super::task::Task;
use super::{Hardware, Level, PlanError, Staging, Strategy, StrategyChoice, Team, Vectorization};

/// The sizes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Units of a cube along x, y and z.
    pub cube_dim: [u32; 3],
    /// Cubes of a launch, all along x.
    pub cube_count: u32,
    /// Row groups: rows, or vectors of rows if lanes run along the kept axis.
    pub groups: usize,
    /// Steps through a row: vectors of columns, or columns if lanes run along the kept axis.
    pub steps: usize,
    /// Row groups that a team processes one after another. With a [dynamic schedule](Team::dynamic),
    /// row groups per request to the work counter.
    pub groups_per_team: usize,
    /// Parts that the steps of a row are split into; 1 if one launch processes whole rows.
    pub splits: usize,
    /// Steps of one part.
    pub steps_per_split: usize,
    /// Steps of a column segment that is contiguous with a tail, or has constant parameters; else
    /// steps of the row. If vectors run along rows and have a tail, row groups of a segment of
    /// rows.
    pub run: usize,
    /// Lanes that the tail vector of a segment shares with the vector before it.
    pub overlap: usize,
    /// Consecutive rows that share their statistics.
    pub segments: usize,
}

impl Grid {
    /// Teams of the launch, including idle ones.
    pub fn teams(&self, team: &Team) -> usize {
        let units: u32 = self.cube_dim.iter().product();
        (self.cube_count / team.cluster_size) as usize * (units / team.size) as usize
    }

    pub(super) fn describe(&self, team: &Team) -> String {
        let [x, y, z] = self.cube_dim;
        format!(
            "{} cubes of {x}x{y}x{z} units, vectors of {} along {}{}, {} row group{} per {}",
            self.cube_count,
            team.vector,
            match team.lanes {
                Vectorization::Parallel => "the reduced axes",
                Vectorization::Perpendicular => "the kept axes",
            },
            match team.has_tail || team.has_row_tail {
                true => format!(
                    ", tails of {} vectors overlap by {}",
                    self.run, self.overlap
                ),
                false => String::new(),
            },
            self.groups_per_team,
            if self.groups_per_team == 1 { "" } else { "s" },
            if team.dynamic { "chunk" } else { "team" },
        )
    }

    pub(super) fn describe_splits(&self, team: &Team) -> String {
        let of_peers = match team.cluster_size {
            1 => "",
            _ => ", one per cube of a cluster",
        };
        let segments = match self.segments {
            1 => String::new(),
            segments => format!(", {segments} segments combined"),
        };
        match self.splits {
            1 => segments,
            splits => format!(
                ", each row in {splits} parts of {} steps{of_peers}{segments}",
                self.steps_per_split
            ),
        }
    }
}

/// The chosen schedule.
pub(super) struct Cut {
    pub strategy: Strategy,
    pub team: Team,
    pub staging: Staging,
    pub grid: Grid,
    pub rows_per_unit: usize,
    /// The staging of a unit's column sums from row to row.
    pub staged_columns: Staging,
    pub reason: &'static str,
}

impl Cut {
    /// True if one launch reduces and another writes, because several teams share a row or segments
    /// are combined in between.
    pub fn takes_two_launches(&self, reduces: bool) -> bool {
        let in_parts = self.grid.splits > 1 && self.team.cluster_size == 1;
        (in_parts || self.team.segmented && !self.has_whole_rows()) && reduces
    }

    /// True if a unit processes all segments of its rows as one tile.
    fn has_whole_rows(&self) -> bool {
        let lanes = self.rows_per_unit * self.team.vector;
        self.team.tile && lanes.is_multiple_of(self.grid.segments)
    }
}

/// Chooses the schedule of a task. `rows_per_unit` maps a number of row groups to the most that a unit
/// may process together.
pub(super) fn cut(
    task: &Task,
    vectors: Vectors,
    hardware: &Hardware,
    choice: StrategyChoice,
    rows_per_unit: impl Fn(usize) -> usize,
) -> Result<Cut, PlanError> {
    let Vectors {
        lanes,
        width: vector,
        run,
        has_tail,
        ..
    } = vectors;
    let vectors_of_run = run.div_ceil(vector);
    let vectors_of = |elements: usize| match has_tail {
        true => elements / run * vectors_of_run,
        false => elements / vector,
    };
    let (groups, steps) = match lanes {
        Vectorization::Parallel => (task.rows, vectors_of(task.cols)),
        Vectorization::Perpendicular => (vectors_of(task.rows), task.cols),
    };
    let has_column_tail = has_tail && lanes == Vectorization::Parallel;
    let knobs = choice.knobs();
    let work = Work {
        groups,
        steps,
        vector,
        lanes,
        reduces: task.reduces,
        accumulation: task.dtype.accumulation().size(),
        staged: task.staged.size(),
        is_half: task.dtype.is_half(),
        merge: task.merge,
        column_sums: task.column_sums,
        reads: task.reads,
        segments: task.segments,
        params_by_step: task.params_by_step,
        run: has_column_tail.then_some(vectors_of_run),
        tile: match (lanes, hardware.cpu_cores) {
            (Vectorization::Perpendicular, Some(cores)) => {
                heuristic::tile(groups, vectors_of_run, vector, task, cores, knobs)
            }
            _ => 1,
        },
        rows_per_unit: match has_column_tail {
            // Loops over several rows per unit are unrolled less, which would exceed lavapipe's
            // iteration limit.
            _ if hardware.is_cpu_vulkan() && steps > heuristic::CPU_VULKAN_STEPS => 1,
            true => rows_per_unit(groups).min(heuristic::most_rows_with_tail(hardware)),
            false => rows_per_unit(groups),
        },
        is_single: lanes == Vectorization::Perpendicular && vector == 1 && !run.is_multiple_of(2),
        knobs,
        cluster_size: 1,
    };
    let Shape {
        strategy,
        level,
        cube_dim,
        teams_per_cube,
        staging,
        splits,
        cluster_size,
        max_teams,
        staged_columns,
        room,
        reason,
    } = heuristic::shape(&work, hardware)?;

    let steps_per_split = steps.div_ceil(splits).max(1);
    let (splits, items) = match cluster_size {
        // Rounding up may leave the last parts empty: only count the others.
        1 => {
            let splits = steps.div_ceil(steps_per_split).max(1);
            (splits, groups * splits)
        }
        // Each cube of a team has its own part, even if it is empty.
        _ => (splits, groups),
    };
    // The rows of a tile have the same part.
    let tile = work.tile > 1 && staging == Staging::Reload;
    let rows_per_unit = match splits {
        _ if tile => work.tile,
        1 => work.rows_per_unit.min(room),
        _ => 1,
    };
    let members = heuristic::members(level, cube_dim);
    let staged = match task.column_sums {
        0 => staging,
        _ => staged_columns,
    };
    let staged = staged.vectors();
    let is_even = splits == cluster_size as usize && splits * steps_per_split == steps;
    let unguarded_vectors = match staged {
        Some(vectors) if is_even => vectors.min(steps_per_split / members as usize),
        _ => 0,
    };
    let exact_vectors =
        staged.filter(|&vectors| is_even && vectors * members as usize == steps_per_split);
    let teams = items.div_ceil(rows_per_unit).min(max_teams).max(1);
    let groups_per_team = items.div_ceil(teams).next_multiple_of(rows_per_unit);
    let cubes = items
        .div_ceil(groups_per_team)
        .div_ceil(teams_per_cube as usize);
    Ok(Cut {
        strategy,
        team: Team {
            level,
            lanes,
            vector,
            size: members,
            columns: match level {
                Level::Perpendicular => cube_dim[0],
                _ => 1,
            },
            plane_size: match level {
                Level::Plane => cube_dim[0],
                Level::Cube => heuristic::plane_size(hardware, work.knobs).unwrap_or(0),
                _ => 0,
            },
            merge: task.merge,
            parts: splits > 1,
            segmented: task.segments > 1,
            cluster_size,
            // Striped if vectors lie along the kept axis, or on a GPU: units that run at the same
            // time access adjacent memory.
            blocked: level == Level::Unit
                && (lanes == Vectorization::Parallel || hardware.cpu_cores.is_some()),
            dynamic: false,
            tile,
            has_tail: has_column_tail,
            has_row_tail: has_tail && lanes == Vectorization::Perpendicular,
            exact_vectors,
            unguarded_vectors,
        },
        staging,
        grid: Grid {
            cube_dim,
            cube_count: cubes as u32 * cluster_size,
            groups,
            steps,
            groups_per_team,
            splits,
            steps_per_split,
            run: match has_tail {
                true => vectors_of_run,
                false => steps,
            },
            overlap: match has_tail {
                true => run.next_multiple_of(vector) - run,
                false => 0,
            },
            segments: task.segments,
        },
        rows_per_unit,
        staged_columns,
        reason,
    })
}

/// Checks the launches against the limits of a device.
pub(super) fn check_limits(launches: &[Footprint], hardware: &Hardware) -> Result<(), PlanError> {
    for launch in launches {
        let Footprint {
            bindings, cube_dim, ..
        } = *launch;
        if bindings > hardware.max_bindings {
            return Err(PlanError::Bindings {
                needed: bindings,
                available: hardware.max_bindings,
            });
        }
        let units: u64 = cube_dim.iter().map(|&units| u64::from(units)).product();
        let (allowed, most) = (hardware.max_cube_dim, hardware.max_units_per_cube);
        let mut dims = cube_dim.iter().zip(allowed);
        if units > u64::from(most) || dims.any(|(&units, most)| units > most) {
            return Err(PlanError::Units {
                needed: cube_dim,
                allowed,
                most,
            });
        }
        let needed = launch.shared_memory.needed(hardware);
        // A CPU reports a cache size, which is not a limit.
        if needed > hardware.max_shared_memory && hardware.cpu_cores.is_none() {
            return Err(PlanError::SharedMemory {
                needed,
                available: hardware.max_shared_memory,
            });
        }
    }
    Ok(())
}
