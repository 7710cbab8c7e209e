//! How a launch is cut, the same for every kernel that works through rows.

use super::footprint::Footprint;
use super::heuristic::{self, Shape, Work};
use super::lanes::Vectors;
use super::task::Task;
use super::{Hardware, Hold, Lanes, Level, PlanError, Strategy, StrategyChoice, Team};

/// The sizes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Units of a cube along x, y and z.
    pub cube_dim: [u32; 3],
    /// Cubes of a launch, all along x.
    pub cube_count: u32,
    /// Row groups: rows, or vectors of rows where lanes run along the kept axis.
    pub groups: usize,
    /// Steps through a row: vectors of columns, or columns where lanes run along the kept axis.
    pub steps: usize,
    /// Row groups that a team works through, one after another; at a time, where it [claims](Team::claims) them.
    pub groups_per_team: usize,
    /// Parts that the steps of a row are split in; 1 where one launch does it all.
    pub splits: usize,
    /// Steps of one part.
    pub steps_per_split: usize,
    /// Steps of a run of columns: of those that lie side by side, where vectors do not divide them, or that share
    /// their parameters; else of the row. Row groups of a run of rows that vectors do not divide.
    pub run: usize,
    /// Lanes of the last vector of a run that the vector before it has too.
    pub overlap: usize,
    /// Rows that have their statistics in common.
    pub strands: usize,
}

impl Grid {
    /// Teams of the launch, those without work counted in.
    pub fn teams(&self, team: &Team) -> usize {
        let units: u32 = self.cube_dim.iter().product();
        (self.cube_count / team.peers) as usize * (units / team.members) as usize
    }

    pub(super) fn describe(&self, team: &Team) -> String {
        let [x, y, z] = self.cube_dim;
        format!(
            "{} cubes of {x}x{y}x{z} units, vectors of {} along {}{}, {} row group{} per {}",
            self.cube_count,
            team.vector,
            match team.lanes {
                Lanes::Columns => "the reduced axes",
                Lanes::Rows => "the kept axes",
            },
            match team.ragged || team.ragged_rows {
                true => format!(", the last of {} having {} again", self.run, self.overlap),
                false => String::new(),
            },
            self.groups_per_team,
            if self.groups_per_team == 1 { "" } else { "s" },
            if team.claims { "claim" } else { "team" },
        )
    }

    pub(super) fn describe_splits(&self, team: &Team) -> String {
        let of_peers = match team.peers {
            1 => "",
            _ => ", one for each cube of a team",
        };
        let strands = match self.strands {
            1 => String::new(),
            strands => format!(", {strands} strands joined"),
        };
        match self.splits {
            1 => strands,
            splits => format!(
                ", each row in {splits} parts of {} steps{of_peers}{strands}",
                self.steps_per_split
            ),
        }
    }
}

/// How it is cut.
pub(super) struct Cut {
    pub strategy: Strategy,
    pub team: Team,
    pub hold: Hold,
    pub grid: Grid,
    pub abreast: usize,
    /// Where the sums of a unit's columns stay from row to row.
    pub held_columns: Hold,
    pub reason: &'static str,
}

impl Cut {
    /// Whether a launch finds what rows come to and another writes: each part of a row is another team's, or strands are
    /// joined between the two.
    pub fn takes_two_launches(&self, reduces: bool) -> bool {
        let in_parts = self.grid.splits > 1 && self.team.peers == 1;
        (in_parts || self.team.joined && !self.has_whole_rows()) && reduces
    }

    /// Whether a unit has all strands of its rows side by side.
    fn has_whole_rows(&self) -> bool {
        let lanes = self.abreast * self.team.vector;
        self.team.side_by_side && lanes.is_multiple_of(self.grid.strands)
    }
}

/// Cuts a task. `abreast` says how many of so many row groups a team may take side by side.
pub(super) fn cut(
    task: &Task,
    vectors: Vectors,
    hardware: &Hardware,
    choice: StrategyChoice,
    abreast: impl Fn(usize) -> usize,
) -> Result<Cut, PlanError> {
    let Vectors {
        lanes,
        width: vector,
        run,
        ragged,
        ..
    } = vectors;
    let vectors_of_run = run.div_ceil(vector);
    let vectors_of = |elements: usize| match ragged {
        true => elements / run * vectors_of_run,
        false => elements / vector,
    };
    let (groups, steps) = match lanes {
        Lanes::Columns => (task.rows, vectors_of(task.cols)),
        Lanes::Rows => (vectors_of(task.rows), task.cols),
    };
    let ragged_columns = ragged && lanes == Lanes::Columns;
    let knobs = choice.knobs();
    let work = Work {
        groups,
        steps,
        vector,
        lanes,
        reduces: task.reduces,
        accumulation: task.dtype.accumulation().size(),
        held: task.held.size(),
        is_half: task.dtype.is_half(),
        merge: task.merge,
        column_sums: task.column_sums,
        reads: task.reads,
        strands: task.strands,
        params_by_step: task.params_by_step,
        run: ragged_columns.then_some(vectors_of_run),
        side_by_side: match (lanes, hardware.cpu_cores) {
            (Lanes::Rows, Some(cores)) => {
                heuristic::side_by_side(groups, vectors_of_run, vector, task, cores, knobs)
            }
            _ => 1,
        },
        abreast: match ragged_columns {
            // Of rows abreast a loop takes one step at a time, of which Mesa's driver has no more left.
            _ if hardware.is_software() && steps > heuristic::SOFTWARE_STEPS => 1,
            true => abreast(groups).min(heuristic::most_ragged_abreast(hardware)),
            false => abreast(groups),
        },
        is_single: lanes == Lanes::Rows && vector == 1 && !run.is_multiple_of(2),
        knobs,
        peers: 1,
    };
    let Shape {
        strategy,
        level,
        cube_dim,
        teams_per_cube,
        hold,
        splits,
        peers,
        max_teams,
        held_columns,
        room,
        reason,
    } = heuristic::shape(&work, hardware)?;

    let steps_per_split = steps.div_ceil(splits).max(1);
    let (splits, items) = match peers {
        // Rounding up may leave the last parts empty: count those that are not.
        1 => {
            let splits = steps.div_ceil(steps_per_split).max(1);
            (splits, groups * splits)
        }
        // Each cube of a team has its own, with nothing in it or not.
        _ => (splits, groups),
    };
    // Those that lie side by side have the same part.
    let side_by_side = work.side_by_side > 1 && hold == Hold::Reread;
    let abreast = match splits {
        _ if side_by_side => work.side_by_side,
        1 => work.abreast.min(room),
        _ => 1,
    };
    let members = heuristic::members(level, cube_dim);
    let held = match task.column_sums {
        0 => hold,
        _ => held_columns,
    };
    let held = held.vectors();
    let is_even = splits == peers as usize && splits * steps_per_split == steps;
    let full = match held {
        Some(vectors) if is_even => vectors.min(steps_per_split / members as usize),
        _ => 0,
    };
    let filled = held.filter(|&vectors| is_even && vectors * members as usize == steps_per_split);
    let teams = items.div_ceil(abreast).min(max_teams).max(1);
    let groups_per_team = items.div_ceil(teams).next_multiple_of(abreast);
    let cubes = items
        .div_ceil(groups_per_team)
        .div_ceil(teams_per_cube as usize);
    Ok(Cut {
        strategy,
        team: Team {
            level,
            lanes,
            vector,
            members,
            columns: match level {
                Level::Column => cube_dim[0],
                _ => 1,
            },
            plane_size: match level {
                Level::Plane => cube_dim[0],
                Level::Cube => heuristic::plane_size(hardware, work.knobs).unwrap_or(0),
                _ => 0,
            },
            merge: task.merge,
            parts: splits > 1,
            joined: task.strands > 1,
            peers,
            // Neighbouring units take neighbouring vectors where they lie along the kept axis, and the teams of a GPU rows
            // that lie side by side: what is under way at a time lies close together.
            in_blocks: level == Level::Unit
                && (lanes == Lanes::Columns || hardware.cpu_cores.is_some()),
            claims: false,
            side_by_side,
            ragged: ragged_columns,
            ragged_rows: ragged && lanes == Lanes::Rows,
            filled,
            full,
        },
        hold,
        grid: Grid {
            cube_dim,
            cube_count: cubes as u32 * peers,
            groups,
            steps,
            groups_per_team,
            splits,
            steps_per_split,
            run: match ragged {
                true => vectors_of_run,
                false => steps,
            },
            overlap: match ragged {
                true => run.next_multiple_of(vector) - run,
                false => 0,
            },
            strands: task.strands,
        },
        abreast,
        held_columns,
        reason,
    })
}

/// Checks that a device has what each launch takes.
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
        // What a CPU reports is the size of a cache, which limits nothing.
        if needed > hardware.max_shared_memory && hardware.cpu_cores.is_none() {
            return Err(PlanError::SharedMemory {
                needed,
                available: hardware.max_shared_memory,
            });
        }
    }
    Ok(())
}
