//! The analytic choice: numbers only, each with its reason. No kernel and no device calls here.
//!
//! A file for each strategy, as in the kernels; what a row and its sums are held in is in [`hold`], what a device has
//! room for in [`device`], which vectors are too wide in [`vectors`], how many rows a unit takes in [`abreast`], and in
//! how many parts rows are cut in [`parts`]; which results go past a CPU's caches in [`caches`].

mod abreast;
mod caches;
mod claims;
mod column;
mod cube;
mod device;
mod hold;
mod parts;
mod peers;
mod plane;
mod split;
mod unit;
mod vectors;

pub(super) use abreast::{MOST_ABREAST, abreast, most_ragged_abreast, params_kept, side_by_side};
pub(super) use caches::{
    fetches_next, may_pass_between_ends, may_pass_caches, passes_between_ends, passes_caches,
};
pub(super) use claims::claimed;
pub(super) use device::{SOFTWARE_STEPS, plane_size};
pub(super) use hold::MERGED_OF_UNIT;
pub(super) use vectors::{
    LEAST_RUN, NARROW_VECTOR, STEPS_UNDER_WAY, is_one_block, narrow_vector, narrower_columns,
    under_way,
};

use super::hardware::LANES;
use super::{Hardware, Hold, Knobs, Lanes, Level, Merge, PlanError, RowHeld, Strategy};
use column::column;
use cube::cube;
use hold::registers;
use parts::SPLIT_ELEMENTS;
use peers::peers;
use plane::{PLANE_VECTORS, planes};
use split::{CUBES_WITHOUT_SUMS, STEPS_WITHOUT_SUMS, split};
use unit::unit;

/// Blocks of a row that one unit sums up at most. Their sums go into one, one after another: of so many that is off
/// by less than 1.3e-4 even if all of them round one way, while of 2^24 float32 takes no more in.
pub(super) const MOST_BLOCKS: usize = 1 << 12;

/// Steps of a row that a kernel sums up from one origin before it goes on from another, where no run of columns ends
/// before: sums of so few keep their digits, and more would save merges. Plans count on it.
pub const BLOCK: usize = 64;

/// Rows that one team adds to its sums of columns at most: 5e-4 in the same terms.
pub(super) const LONGEST_COLUMN_SUM: usize = 1 << 14;

/// Rows for each core that a software driver runs on, below which a row is split between units.
const ROWS_PER_SOFTWARE_CORE: usize = 4;

/// Rounds of a core after which it does not matter whether all have as many.
const ROUNDS_OF_CORE: usize = 4;

/// Teams for each such core that sum up columns: the lanes of four of its vectors.
const SUMMING_TEAMS: usize = 32;

/// What there is to do, in the units that the launch is cut in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub groups: usize,
    pub steps: usize,
    pub vector: usize,
    pub lanes: Lanes,
    pub reduces: bool,
    /// Bytes of an element as accumulated.
    pub accumulation: usize,
    /// Bytes of an element as held.
    pub held: usize,
    /// Whether an element is a half in memory.
    pub is_half: bool,
    /// How partial results become one.
    pub merge: Merge,
    /// Sums of each column that a team takes of its rows.
    pub column_sums: usize,
    /// Rows that a unit takes side by side, where it has a row of its own.
    pub abreast: usize,
    /// Rows that a core takes together where vectors lie along them and they are read again.
    pub side_by_side: usize,
    /// Tensors of that many elements that are read.
    pub reads: usize,
    /// Rows whose statistics are joined between two launches.
    pub strands: usize,
    /// Whether scale or bias change along a row.
    pub params_by_step: bool,
    /// Steps of a run of columns, where vectors do not divide it.
    pub run: Option<usize>,
    /// Whether no vector divides the rows that lie side by side, and each unit reads one number at a time.
    pub is_single: bool,
    /// What is decided already.
    pub knobs: Knobs,
    /// Cubes that share a row.
    pub peers: u32,
}

impl Work {
    fn elements(&self) -> usize {
        self.groups * self.steps * self.vector
    }

    /// Parts of rows that come out even among so many cores.
    fn even_among(&self, cores: u32) -> usize {
        let blocks = self.groups / self.side_by_side;
        let mut parts = 1..cores as usize;
        let even = parts.find(|parts| are_even(blocks * parts, cores));
        even.unwrap_or(cores as usize)
    }

    /// Cores of a CPU that are worth waking.
    fn busy_cores(&self, hardware: &Hardware) -> Option<u32> {
        hardware.busy_cores_of_rows(self.reads * self.groups, self.steps * self.vector)
    }

    /// Steps that one unit sums up at most.
    fn longest_sum(&self) -> usize {
        MOST_BLOCKS * self.run.map_or(BLOCK, |run| run.min(BLOCK))
    }

    /// Teams below which sums of columns lose digits.
    fn least_teams(&self) -> usize {
        match self.column_sums > 0 {
            true => self.groups.div_ceil(LONGEST_COLUMN_SUM),
            false => 1,
        }
    }

    /// Teams that the work may have where so many cores play a GPU. Each that sums up columns leaves a row
    /// of sums, so there should be few; but a team's loops end somewhere.
    fn software_teams(&self, cores: usize) -> usize {
        match self.column_sums > 0 {
            true => {
                let rounds = (SOFTWARE_STEPS / self.steps.max(1)).max(1);
                (SUMMING_TEAMS * cores).max(self.groups.div_ceil(self.abreast * rounds))
            }
            false => usize::MAX,
        }
    }
}

/// Whether so many items come out even among so many cores.
fn are_even(items: usize, cores: u32) -> bool {
    let cores = cores as usize;
    items.is_multiple_of(cores) || items >= ROUNDS_OF_CORE * cores
}

/// How the work is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub strategy: Strategy,
    pub level: Level,
    pub cube_dim: [u32; 3],
    pub teams_per_cube: u32,
    pub hold: Hold,
    pub splits: usize,
    /// Cubes of a team, which share each row in as many parts.
    pub peers: u32,
    /// Teams that a launch may have; with more work than that, a team takes several groups.
    pub max_teams: usize,
    /// Where the sums of a unit's columns stay from row to row.
    pub held_columns: Hold,
    /// Rows that a team has room for side by side.
    pub room: usize,
    pub reason: &'static str,
}

pub(super) fn shape(work: &Work, hardware: &Hardware) -> Result<Shape, PlanError> {
    let plane = plane_size(hardware, work.knobs);
    let is_forced = work.knobs.strategy.is_some();
    let (strategy, reason) = match work.knobs.strategy {
        None => infer(work, hardware),
        Some(strategy) => (strategy, "forced"),
    };
    let refuse = |reason| Err(PlanError::Strategy { strategy, reason });
    if work.lanes == Lanes::Rows && matches!(strategy, Strategy::Plane | Strategy::Cube) {
        return refuse("vectors run along the kept axis, so units of a plane or cube share no row");
    }
    if work.lanes == Lanes::Columns && strategy == Strategy::Column {
        return refuse("the reduced axis is innermost: there is no kept axis to run vectors along");
    }
    let mut shape = match strategy {
        Strategy::Unit => unit(work, hardware),
        Strategy::Plane => match plane {
            None => return refuse("the device reports no plane operations of one size"),
            Some(plane) => planes(work, hardware, plane),
        },
        // One vector of a core's: more of them wait for each other, and what they would hold is in a cache.
        Strategy::Cube if hardware.is_software() && !is_forced => {
            let knobs = Knobs {
                units: work.knobs.units.or(Some(LANES)),
                row: work.knobs.row.or(Some(RowHeld::Reread)),
                ..work.knobs
            };
            cube(&Work { knobs, ..*work }, hardware, work.steps, plane)
        }
        Strategy::Cube => {
            peers(work, hardware, plane).unwrap_or_else(|| cube(work, hardware, work.steps, plane))
        }
        Strategy::Column => column(work, hardware, is_forced),
        Strategy::Split => split(work, hardware, plane, is_forced),
    };
    shape.strategy = strategy;
    shape.reason = reason;
    // Where nothing is added up, units of a cube have nothing for each other.
    let adds = work.reduces || work.column_sums > 0;
    let merges = adds && matches!(shape.level, Level::Cube | Level::Column);
    if (merges || shape.hold.places().1 > 0) && !hardware.shares_memory {
        return refuse("units of the device cannot share memory");
    }
    let members = members(shape.level, shape.cube_dim) as usize;
    let steps = work.steps.div_ceil(shape.splits).div_ceil(members);
    if hardware.is_software() && steps > 2 * SOFTWARE_STEPS {
        return refuse("a unit would take more steps than a software driver's loops have");
    }
    if is_forced && work.reduces && steps > work.longest_sum() {
        return refuse("a unit would sum up more steps than float32 keeps the digits of");
    }
    shape.max_teams = shape
        .max_teams
        .min((hardware.max_cubes as usize).saturating_mul(shape.teams_per_cube as usize));
    Ok(shape)
}

fn infer(work: &Work, hardware: &Hardware) -> (Strategy, &'static str) {
    let long = work.elements() >= SPLIT_ELEMENTS;
    if let Some(cores) = work.busy_cores(hardware) {
        return match work.lanes {
            _ if work.groups < cores as usize => (Strategy::Split, "fewer rows than cores"),
            _ if work.side_by_side > 1 && long && work.even_among(cores) > 1 => (
                Strategy::Split,
                "rows that lie side by side do not come out even",
            ),
            _ if work.reduces && work.steps > work.longest_sum() => {
                (Strategy::Split, "longer than one sum keeps its digits")
            }
            Lanes::Rows => (Strategy::Column, "the kept axis is contiguous"),
            Lanes::Columns => (Strategy::Unit, "a plane has one unit on a CPU"),
        };
    }
    if let Some(cores) = hardware.software_cores {
        let few = ROWS_PER_SOFTWARE_CORE * cores as usize;
        return match work.groups < few && long {
            _ if work.steps > SOFTWARE_STEPS => {
                (Strategy::Split, "longer than a software driver's loops")
            }
            true => (Strategy::Split, "fewer rows than a CPU has lanes and cores"),
            false if let Some(shared) = among_lanes(work, hardware) => shared,
            false if work.lanes == Lanes::Rows => (Strategy::Column, "the kept axis is contiguous"),
            false => (Strategy::Unit, "units are the lanes of a CPU's vectors"),
        };
    }
    if work.lanes == Lanes::Rows {
        return (Strategy::Column, "the kept axis is contiguous");
    }
    let target = hardware.processors();
    let of_cubes = 4 * hardware.max_units_per_cube as usize;
    if long && work.groups < target && work.steps >= of_cubes && is_worth_parts(work, target) {
        return (Strategy::Split, "fewer rows than multiprocessors");
    }
    let idles = work.groups < target * CUBES_WITHOUT_SUMS && work.steps > STEPS_WITHOUT_SUMS;
    if !work.reduces && work.merge != Merge::Sums && idles {
        return (
            Strategy::Split,
            "nothing is reduced, and parts cost nothing",
        );
    }
    // What a plane would read again a cube holds: measured on an H200, rows of 2048 halves take 0.83 of
    // the time so. The same goes for sums of columns: 0.62 to 0.72 of the time for rows of 1024.
    let is_held = |plane: usize| {
        let per_unit = work.steps.div_ceil(plane);
        let row = !work.reduces || registers(work, hardware, per_unit) != Hold::Reread;
        // Of a row with sums of columns a unit should have one vector.
        row && (work.column_sums == 0 || work.steps <= plane)
    };
    match plane_size(hardware, Knobs::default()).map(|plane| plane as usize) {
        Some(plane) if work.steps <= plane * PLANE_VECTORS && is_held(plane) => {
            (Strategy::Plane, "a row fits the registers of a plane")
        }
        None if work.steps <= 4 => (Strategy::Unit, "a row fits the registers of a unit"),
        _ => (Strategy::Cube, "a row is longer than a plane holds"),
    }
}

/// Whether rows that are fewer than a GPU's multiprocessors are worth a second launch, which reads them again: one cube for
/// each takes the longer the longer they are, and parts of them the less the more there are of each. Measured on an H200, the
/// kernels of layer norm by its own clock: 4 to 64 rows of 128 KiB take a cube each 0.56 to 0.65 of the time of parts, 256 KiB
/// 0.67 to 0.89, 512 KiB 1.25 to 1.34 where there are 4 and 16 of them, and 0.77 of 64, of which 1 MiB 0.83.
fn is_worth_parts(work: &Work, processors: usize) -> bool {
    let element = if work.is_half { 2 } else { work.accumulation };
    let kibibytes = (work.steps * work.vector * element) >> 10;
    let least = match processors / work.groups.max(1) {
        ..=2 => 2048,
        3 => 768,
        _ => 384,
    };
    !work.reduces || kibibytes >= least
}

/// How a software driver's lanes share rows that are fewer than they, where one lane takes longer than it costs.
/// Measured on Mesa's driver, with AVX-512, beside a lane for each row. Back, with sums of the columns: one row takes 0.6
/// to 0.8 of the time in parts from 2,048 columns on, four rows 0.8 to 0.9. Else a cube of one row takes 0.65 to 0.9 of
/// the time from 1,024 columns on, of 384 as long, and parts of 4,096 steps and more 0.8 of a cube's; two rows in cubes
/// 0.8 to 1.5.
fn among_lanes(work: &Work, hardware: &Hardware) -> Option<(Strategy, &'static str)> {
    let columns = work.steps * work.vector;
    match work.column_sums > 0 {
        _ if work.lanes == Lanes::Rows => None,
        true => (work.groups <= LANES as usize / 2 && columns >= 1 << 11)
            .then_some((Strategy::Split, "fewer rows than a CPU has lanes")),
        false if work.groups > 1 || !work.reduces || columns < 1 << 10 => None,
        false if work.steps >= 1 << 12 => {
            Some((Strategy::Split, "one row, and more than one core"))
        }
        false => hardware
            .shares_memory
            .then_some((Strategy::Cube, "one row, which all lanes share")),
    }
}

/// Units that share a row.
pub(super) fn members(level: Level, cube_dim: [u32; 3]) -> u32 {
    match level {
        Level::Unit => 1,
        Level::Plane | Level::Cube => cube_dim[0],
        Level::Column => cube_dim[1],
    }
}
