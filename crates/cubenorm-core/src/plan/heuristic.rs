//! The analytic choice: numbers only, each with its reason. No kernel and no device calls here.

use super::grid::{Cut, Task};
use super::{
    AccessBlueprint, Hardware, Hold, Knobs, Lanes, Level, Merge, PlanError, RowHeld, Strategy,
};

/// Values of 4 bytes that a unit may hold: half of the 64 registers that a CUDA unit has in a cube of 1024,
/// which leaves the rest for addresses and sums. Halves count as much: measured on an H200, rows of 65,536
/// that are held as they are in memory take 1.2 to 1.5 times the time of those that are read again.
const HELD_ELEMENTS: usize = 32;

/// Vectors that a unit holds at most: loops over them are unrolled, and code grows with them.
const HELD_VECTORS: usize = 16;

/// Sums of columns of 4 bytes that a unit may hold from row to row, beside what it works with.
const HELD_SUMS: usize = 32;

/// The same of all units of a cube: an eighth of a multiprocessor's registers, and a quarter where shared
/// memory does not suffice. Measured on an H200: rows of 16,384 with one sum each take 1.4 to 1.6 times the time
/// of shared memory; those of 8,192 as long.
const HELD_SUMS_OF_CUBE: usize = 1 << 13;
const MOST_HELD_SUMS_OF_CUBE: usize = 1 << 14;

/// Columns of halves with two sums, of which registers have room for the sums but not for the next row beside them.
/// Measured on an H200, with the sums in shared memory rows of 1,024 take 0.92 of the time, of 512 0.9 to 1.07.
const SHORT_HALVES: std::ops::RangeInclusive<usize> = 512..=1024;

/// Columns of halves with one sum, from which on the next row comes too late where registers hold the sums. Measured on
/// an H200: with them in shared memory rows of 8,192 take 0.87 to 0.9 of the time, of 7,168 0.83, of 4,096 1.0 to 1.05.
const LONG_HALVES: usize = 7168;

/// Sums that a unit holds in registers where shared memory has no room for all of them.
const HELD_SUMS_BESIDE_SHARED: usize = 16;

/// Columns of floats and of halves that a unit has at least where its cube holds sums of them, and units of such a
/// cube, unless there are more columns than so many hold. Measured on an H200, backward, beside twice the columns for
/// each unit: rows of 512 to 2,048 floats take 0.93 to 0.95 of the time, RMS norm of 4,096 halves 0.9. Of halves with
/// two sums rows of 2,048 and more take 1.1 to 1.25 times the time with so many units, and twice the columns are a
/// unit's there.
const FLOATS_OF_UNIT: usize = 4;
const HALVES_OF_UNIT: usize = 8;
const UNITS_WITH_SUMS: usize = 512;

/// Elements of a row from which a cube holds it in shared memory rather than in registers, and rows that there
/// must be room for then.
const STAGED_ELEMENTS: usize = 1 << 14;
const SIDE_BY_SIDE: usize = 2;

/// Bytes that a vector of a GPU's unit accumulates at most where sums of columns lie in shared memory, so that its
/// neighbours find other banks, and where long rows are read again, so that it needs fewer registers. Measured on
/// an H200, beside vectors twice as wide: rows of 8,192 and 16,384 halves take 0.75 to 0.95 of the time, longer
/// ones, and the launch over their columns, 0.7. Short rows of halves that a plane holds take 0.9 to 0.95.
pub(super) const NARROW_VECTOR: usize = 16;

/// Units of a cube that reduces nothing, at most. Measured on an H200: batch norm by given statistics in rows of
/// 100,352 and 200,704 floats takes 0.92 of the time of 1,024.
const UNITS_WITHOUT_SUMS: usize = 512;

/// Cubes for each multiprocessor where nothing is reduced, so that the last of them leave few idle, and steps of each
/// that are worth one. Measured on an H200, batch norm by given statistics of 2,048 channels of 7 x 7: 668 rows in 16
/// parts each take 0.87 to 0.92 of the time of one cube for each.
const CUBES_WITHOUT_SUMS: usize = 64;
const STEPS_WITHOUT_SUMS: usize = 1024;

/// Units of a cube that has all registers of a multiprocessor, 64 for each.
const FULL_CUBE: u32 = 1024;

/// Elements of short rows of halves that a unit's plane takes side by side. Measured on an H200: two rows of 512
/// take 0.9 to 0.95 of the time of one after another in layer norm, four of 256 0.75 to 0.8; floats gain nothing.
const SHORT_ROWS: usize = 1024;

/// Numbers of a unit that a cube merges in shared memory: count, mean and squares.
pub(super) const MERGED_OF_UNIT: usize = 3;

/// Columns of a row that one cube takes alone at most, and columns of floats of each of several that share it: as many
/// as leave room for the next row. Measured on an H200, backward, beside one cube for a row: rows of 32,768 halves take
/// 0.84 to 0.93 of the time; rows of floats 0.78 (32,768) and 0.6 to 0.65 (65,536) with 16,384 columns for each cube,
/// and 0.88 to 0.96 of that with 8,192; rows of 20,480 in two cubes 0.9 of the time of four. Halves take 1.2 to 1.3
/// times the time with so few, and rows of 16,384 floats 1.03 to 1.1 in two cubes.
const COLUMNS_OF_CUBE: usize = 1 << 14;
const FLOATS_OF_PEER: usize = 1 << 13;

/// Cubes that share rows at most: each row is as long as the slowest of them takes.
const MOST_PEERS: u32 = 8;

/// Units of such a cube, at most and at least, of which a multiprocessor has one, so that all of them run at once.
/// Fewer have more registers for what they hold, and wait less for each other: measured there, of four cubes for rows
/// of 32,768 floats 256 units each take 1.02 to 1.07 times the time of 512, of eight for rows of 65,536 floats 512 take
/// 1.05 to 1.06 times that of 256. Of halves 512 were the best, or level with 256.
const MOST_UNITS_OF_PEER: u32 = 512;
const LEAST_UNITS_OF_PEER: u32 = 256;

/// Units of a multiprocessor that stay and hold sums of columns. More hide more latency, and leave more
/// sums to add up.
const RESIDENT_UNITS: u32 = 1024;

/// Planes that a multiprocessor has side by side.
const PLANES_OF_MULTIPROCESSOR: usize = 32;

/// Rows below which a team that stays leaves more sums than it saves reads.
const ROWS_OF_A_RESIDENT: usize = 4;

/// Vectors in flight that a unit of a plane should have before a cube pays off.
const PLANE_VECTORS: usize = 8;

/// Units of a cube that runs planes side by side: small enough that a plane that is done does not
/// wait for many others, large enough to fill a multiprocessor with few cubes.
const UNITS_OF_PLANES: u32 = 128;

/// Vectors that a unit should have in flight before a cube gets more units: enough to cover the
/// latency of memory, few enough to stay in registers.
const CUBE_VECTORS: usize = 4;

/// Bytes of such a vector, as computed: of narrower ones a unit has more. Measured on an H200: rows of 2,025 floats
/// that no vector divides take 0.63 of the time with 16 of them in a unit instead of 4; backward, where two tensors are
/// read, those of halves 0.9 with 16 instead of 8, which is what floats have.
const CUBE_VECTOR_BYTES: usize = 16;

/// Vectors that a unit has where half the units have fewer of them idle, and those of three that half the units share
/// where they wait twice for each other: the more a unit has, the more rows are under way. Measured on an H200, layer
/// norm of halves: rows of 1,280, 2,560 and 5,120 take 0.85 to 0.9 of the time with 5 of them in each unit instead of
/// 2.5, of 7,168 and 14,336 0.8 to 0.9 with 7 instead of 3.5, of 12,288 0.8 with 6 instead of 3.
const FILLING_VECTORS: usize = 8;

/// Steps of a row that is read again which a unit of a team asks for before it writes the first. Measured on an H200,
/// forward, beside one at a time: batch norm of floats takes 0.88 to 0.97 of the time, with channels last 0.87 to 0.94,
/// of halves 0.67 to 0.97, layer norm over channels of halves 0.5 to 0.75, rows of 131,072 halves 0.82; eight of them
/// are level. Where nothing is reduced, and the first read is the only one, it takes 1.03 to 1.3 times the time.
pub(super) const STEPS_UNDER_WAY: usize = 4;

/// Elements below which splitting a row between cores costs more than it saves: the second launch
/// alone is worth about this many.
const SPLIT_ELEMENTS: usize = 1 << 15;

/// Parts of one row. Every team of the second launch reads the partial statistics of all.
const MAX_SPLITS: usize = 256;

/// Blocks of a row that one unit sums up at most. Their sums go into one, one after another: of so many that is off
/// by less than 1.3e-4 even if all of them round one way, while of 2^24 float32 takes no more in.
pub(super) const MOST_BLOCKS: usize = 1 << 12;

/// Steps of a block, where no run of columns ends before.
const BLOCK: usize = 64;

/// Rows that one team adds to its sums of columns at most: 5e-4 in the same terms.
const LONGEST_COLUMN_SUM: usize = 1 << 14;

/// Bytes of a unit's columns side by side at least: those of a plane are a line of memory then.
const LEAST_OF_COLUMNS: usize = 4;

/// Units of a cube that reduces columns, and such cubes that keep a multiprocessor busy.
const UNITS_OF_COLUMNS: usize = 256;
/// The same where there are few such cubes. Measured on an H200: batch norm with 64 channels last takes as long with
/// 1,024, of which some registers are spilled, with 256 of them 0.9 to 0.95 of the time.
const MOST_UNITS_OF_COLUMNS: usize = 512;
const CUBES_OF_COLUMNS: usize = 4;

/// Columns that lie side by side in a cube, vectors of them, at most and at least; and steps of a unit from which on
/// fewer of them leave more units for each. Measured on an H200, layer norm over channels of halves: 384 of them take
/// 0.94 of the time with 16 side by side, 768 0.91 to 0.94 with 8.
const COLUMNS_SIDE_BY_SIDE: usize = 32;
const LEAST_SIDE_BY_SIDE: usize = 8;
const STEPS_OF_COLUMN: usize = 24;

/// Bytes of a vector of floats of which fewer lie side by side where only so few are held. Measured there: 192 channels
/// take 0.71 of the time with 16 vectors side by side that are held, 384 with 8 of them 0.87 to 0.96. Of halves 192 take
/// 1.07 times the time so: each unit has so little of them that scale and bias are as much work.
const LIGHT_COLUMNS: usize = 8;

/// What a part of a long row adds to the time of all, as a share of it: measured on an H200, batch norm of 64 channels
/// of a million floats each, whose two parts are 128 cubes for 132 multiprocessors and take 0.97 of the time of four,
/// 0.9 of eight, and 0.82 of three or nine, which do not come out even.
const COST_OF_PART: f64 = 0.02;

/// Multiprocessors where the runtime does not say: a mid-range GPU.
const MULTIPROCESSORS: usize = 32;

/// Cubes for each core where a driver runs cubes on a CPU: enough that an uneven last one does not
/// matter.
const CUBES_PER_SOFTWARE_CORE: usize = 16;

/// Rows for each such core below which a row is split between units.
const ROWS_PER_SOFTWARE_CORE: usize = 4;

/// Steps that a unit takes at most where a driver runs units on a CPU. Mesa's driver ends the loops of
/// a shader, silently, after 65,535 iterations in all; a unit goes over its steps twice, once of
/// them four at a time.
pub(super) const SOFTWARE_STEPS: usize = 1 << 14;

/// Steps that share their parameters from which on those are read once for all of them: a loop of its own for fewer
/// would be more than that, and a software driver's loops end somewhere.
pub(super) const LEAST_RUN: usize = 4;

/// Teams for each such core that sum up columns: the lanes of four of its vectors.
const SUMMING_TEAMS: usize = 32;

/// Rows that a unit takes side by side at most where a CPU does the work: more of them save little more of
/// what they share.
const MAX_ABREAST: usize = 4;

/// Rows that any unit takes side by side at most: code grows with them.
pub(super) const MOST_ABREAST: usize = 8;

/// The same of rows whose last vector has some lanes of the one before again. Eight of 1,021 halves take the time of
/// four, and two seconds to compile.
pub(super) const MOST_RAGGED_ABREAST: usize = 4;

/// Bytes of the rows that a unit takes side by side: it comes back to them, and with those of the
/// seven units beside it they should still be in a core's second-level cache, which longer rows leave
/// anyway. Measured on Mesa's driver, beside one at a time: 4 rows of 1 KiB take 0.7 of the time, 2 rows
/// of 16 KiB 0.8, 4 of them 0.8 to 1; 4 rows of 128 and 256 KiB 0.85 to 1.
const ABREAST_BYTES: usize = 32 << 10;

/// Bytes of a row from which a core of a CPU takes rows side by side. Measured with AVX-512, four beside one at a
/// time: rows of 8 KiB take 0.95 of the time, of 16 to 256 KiB 0.8 to 0.9; eight take 1.1 to 1.2 times the time of
/// four, with AVX2 as well.
const CORE_ABREAST_BYTES: usize = 8 << 10;

/// Rows that fit its registers this many times are held there two at a time: one goes on while the other waits
/// for its sums. Measured with AVX-512: two rows of 64 to 128 halves take 0.8 to 0.9 of the time of one, two of 256
/// floats 1.5 times that.
const SHARE_OF_SHORT_ROWS: usize = 2;

/// Vectors of units for each such core below which none are given up for rows abreast: few gain little, and
/// calls with a few rows more or less should come to one kernel.
const VECTORS_OF_SOFTWARE_CORE: usize = 8;

/// Vectors of a row that a software driver's unit holds: it has no registers for many, but what is written to a stack
/// by vectors comes back by vectors, and what is in memory lane by lane. Measured on Mesa's driver beside rows that are
/// read again: rows of 3 and 16 floats take 0.6 of the time, of 32 halves 0.7; those of 16 vectors 0.75 to 0.95, but of
/// 15 SwiftShader compiled some until there was no memory left.
const SOFTWARE_HELD_VECTORS: usize = 4;

/// Units of a cube where each has a row of its own.
const UNITS_OF_ROWS: u32 = 64;

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
    /// Tensors of that many elements that are read.
    pub reads: usize,
    /// Steps of a run of columns, where vectors do not divide it.
    pub run: Option<usize>,
    /// What is decided already.
    pub knobs: Knobs,
    /// Cubes that share a row.
    pub peers: u32,
}

impl Work {
    fn elements(&self) -> usize {
        self.groups * self.steps * self.vector
    }

    /// Cores of a CPU that are worth waking.
    fn busy_cores(&self, hardware: &Hardware) -> Option<u32> {
        hardware.busy_cores(self.reads * self.elements())
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

/// Units of a plane that a plan may count on.
pub(super) fn plane_size(hardware: &Hardware, knobs: Knobs) -> Option<u32> {
    knobs.plane_size.or(hardware.plane_size)
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
        Strategy::Cube => {
            peers(work, hardware, plane).unwrap_or_else(|| cube(work, hardware, work.steps, plane))
        }
        Strategy::Column => column(work, hardware, is_forced),
        Strategy::Split => split(work, hardware, plane, is_forced),
    };
    shape.strategy = strategy;
    shape.reason = reason;
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
            _ if work.reduces && work.steps > work.longest_sum() => {
                (Strategy::Split, "longer than one sum keeps its digits")
            }
            Lanes::Rows => (Strategy::Column, "the kept axis is contiguous"),
            Lanes::Columns => (Strategy::Unit, "a plane has one unit on a CPU"),
        };
    }
    if let Some(cores) = hardware.software_cores {
        return match work.groups < ROWS_PER_SOFTWARE_CORE * cores as usize && long {
            _ if work.steps > SOFTWARE_STEPS => {
                (Strategy::Split, "longer than a software driver's loops")
            }
            true => (Strategy::Split, "fewer rows than a CPU has lanes and cores"),
            false if work.lanes == Lanes::Rows => (Strategy::Column, "the kept axis is contiguous"),
            false => (Strategy::Unit, "units are the lanes of a CPU's vectors"),
        };
    }
    if work.lanes == Lanes::Rows {
        return (Strategy::Column, "the kept axis is contiguous");
    }
    let target = multiprocessors(hardware);
    if long && work.groups < target && work.steps >= 4 * hardware.max_units_per_cube as usize {
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
    match hardware.plane_size.map(|plane| plane as usize) {
        Some(plane) if work.steps <= plane * PLANE_VECTORS && is_held(plane) => {
            (Strategy::Plane, "a row fits the registers of a plane")
        }
        None if work.steps <= 4 => (Strategy::Unit, "a row fits the registers of a unit"),
        _ => (Strategy::Cube, "a row is longer than a plane holds"),
    }
}

fn unit(work: &Work, hardware: &Hardware) -> Shape {
    let cores = hardware.cpu_cores.zip(work.busy_cores(hardware));
    let (units, max_teams) = match (cores, hardware.software_cores) {
        // One cube: its units are cores, and each takes a block of rows from end to end.
        (Some((cores, busy)), _) => {
            let units = work.knobs.units.unwrap_or(busy).clamp(1, cores);
            (units, (units as usize).max(work.least_teams()))
        }
        (None, Some(cores)) => {
            let teams = work.groups.min(work.software_teams(cores as usize));
            let fill = teams.div_ceil(cores as usize * CUBES_PER_SOFTWARE_CORE);
            let filled = (fill.next_power_of_two() as u32).clamp(8, UNITS_OF_ROWS);
            let units = work.knobs.units.unwrap_or(filled).max(1);
            (units.min(hardware.max_units_per_cube), teams)
        }
        (None, None) => {
            let units = work.knobs.units.unwrap_or(UNITS_OF_ROWS).max(1);
            (units.min(hardware.max_units_per_cube), usize::MAX)
        }
    };
    let hold = match hardware.is_software() {
        true if work.column_sums > 0 || work.steps > SOFTWARE_HELD_VECTORS => Hold::Reread,
        _ => registers(work, hardware, work.steps),
    };
    Shape {
        room: room(work, hardware, hold, 1),
        strategy: Strategy::Unit,
        level: Level::Unit,
        cube_dim: [units, 1, 1],
        teams_per_cube: units,
        hold,
        splits: 1,
        peers: 1,
        max_teams,
        held_columns: Hold::Reread,
        reason: "",
    }
}

fn planes(work: &Work, hardware: &Hardware, plane: u32) -> Shape {
    let units = work.knobs.units.unwrap_or(UNITS_OF_PLANES);
    let planes = (units.min(hardware.max_units_per_cube) / plane).max(1);
    let per_unit = work.steps.div_ceil(plane as usize);
    let (held_columns, max_teams) = held_columns(work, hardware, Level::Plane, per_unit, plane);
    let hold = match hardware.is_software() {
        true => Hold::Reread,
        false => registers(work, hardware, per_unit),
    };
    Shape {
        room: room(work, hardware, hold, plane),
        strategy: Strategy::Plane,
        level: Level::Plane,
        cube_dim: [plane, planes, 1],
        teams_per_cube: planes,
        hold,
        splits: 1,
        peers: 1,
        max_teams,
        held_columns,
        reason: "",
    }
}

/// A cube for `steps` steps of a row.
fn cube(work: &Work, hardware: &Hardware, steps: usize, plane: Option<u32>) -> Shape {
    let largest = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
    let largest = 1 << largest.ilog2();
    // As many units as it takes for each to hold the sums of its columns.
    let sums = work.vector * work.column_sums * work.accumulation / 4;
    // Few units for long rows whose teams wait twice, for a mean and for what is left of squares, which leaves room for
    // other cubes: measured on an H200, those of which squares alone are taken are 0.93 to 0.98 of the time without it.
    let narrow = CUBE_VECTOR_BYTES / (work.vector * work.accumulation);
    let most = match is_staged(work, hardware, steps) && work.merge == Merge::Moments {
        true => HELD_VECTORS,
        false if work.column_sums > 0 => CUBE_VECTORS,
        false if work.is_half => (CUBE_VECTORS * narrow).clamp(CUBE_VECTORS, HELD_VECTORS),
        false => (CUBE_VECTORS * narrow / work.reads).clamp(CUBE_VECTORS, HELD_VECTORS),
    };
    // At least a plane, and at least two units, so that a cube is one.
    let smallest = plane.unwrap_or(32).min(largest);
    let per_unit = (HELD_SUMS / sums.max(1)).clamp(1, most);
    let wanted = steps.div_ceil(per_unit).next_power_of_two();
    let wanted = match work.column_sums == 0 && wanted as u32 >= 2 * smallest {
        true => with_fewer_idle(work, steps, wanted),
        false => wanted,
    };
    let units = match work.knobs.units {
        Some(units) => units.max(1).next_power_of_two().min(largest),
        // Few units have registers for the next row of halves and for the scale.
        None if work.is_half && work.column_sums > 0 && steps * work.vector <= COLUMNS_OF_CUBE => {
            wanted.min(UNITS_WITH_SUMS) as u32
        }
        // Nobody waits for the others of a cube, and what is left over at the end is less.
        None if !work.reduces => (wanted.min(UNITS_WITHOUT_SUMS) as u32).min(largest),
        None => wanted.min(largest as usize) as u32,
    };
    let with_sums = match (work.column_sums, work.knobs.units) {
        (0, _) | (_, Some(_)) => smallest,
        _ => {
            let columns = steps * work.vector;
            let is_crowded = work.is_half && work.column_sums == 2 && columns > *SHORT_HALVES.end();
            let of_unit = match (work.is_half, is_crowded) {
                (false, _) => FLOATS_OF_UNIT,
                (true, false) => HALVES_OF_UNIT,
                (true, true) => 2 * HALVES_OF_UNIT,
            };
            let units = columns.div_ceil(of_unit).next_power_of_two();
            (units.min(UNITS_WITH_SUMS) as u32).min(largest)
        }
    };
    let of_columns = match work.knobs.units {
        None if work.column_sums > 0 => filled_by_columns(work, steps * work.vector, smallest),
        _ => None,
    };
    let units = match of_columns {
        Some(units) => units.min(largest),
        None => units.max(smallest).max(with_sums),
    };
    let per_unit = steps.div_ceil(units as usize);
    let hold = match hardware.cpu_cores {
        // Shared memory is a CPU's cache, and the row is there already.
        Some(_) => registers(work, hardware, per_unit),
        None => holds(work, hardware, per_unit)
            .find(|&hold| room(work, hardware, hold, units) > 0)
            .unwrap_or(Hold::Reread),
    };
    let (held_columns, max_teams) = held_columns(work, hardware, Level::Cube, per_unit, units);
    Shape {
        room: room(work, hardware, hold, units),
        strategy: Strategy::Cube,
        level: Level::Cube,
        cube_dim: [units, 1, 1],
        teams_per_cube: 1,
        hold,
        splits: 1,
        peers: 1,
        max_teams,
        held_columns,
        reason: "",
    }
}

/// So many units, or half of them where fewer of those have no vector.
fn with_fewer_idle(work: &Work, steps: usize, units: usize) -> usize {
    let places = |units: usize| units * size(steps.div_ceil(units)).unwrap_or(usize::MAX / units);
    let (many, few) = (units, units / 2);
    let waits_twice = work.merge == Merge::Moments && steps == 3 * many;
    let fits = steps.div_ceil(few) <= FILLING_VECTORS;
    match fits && (places(few) < places(many) || waits_twice) {
        true => few,
        false => many,
    }
}

/// Units of a cube that all have as many of so many columns, where these are three, five or seven times a power of two.
///
/// Measured on an H200, backward: rows of 768 to 7,168 halves take 0.75 to 0.95 of the time with 20 to 28 columns in
/// each unit, all of them filled, and of floats 0.85 to 0.95 with 12 and 20 where there are two sums; where there is
/// one, those of 2,560 to 5,120 floats take 1.02 to 1.05 times the time, of 7,168 0.75.
fn filled_by_columns(work: &Work, columns: usize, smallest: u32) -> Option<u32> {
    let odd = columns >> columns.trailing_zeros();
    let is_light = !work.is_half && work.column_sums == 1;
    let most = match is_light && odd != 7 {
        true => FLOATS_OF_UNIT * UNITS_WITH_SUMS,
        false => COLUMNS_OF_CUBE,
    };
    if columns > most || !matches!(odd, 3 | 5 | 7) {
        return None;
    }
    let units = |of_unit: usize| {
        let units = (columns / of_unit) as u32;
        (columns.is_multiple_of(of_unit) && units >= smallest).then_some(units)
    };
    let short = units(FLOATS_OF_UNIT * odd);
    match work.is_half && odd == 3 {
        true => units(2 * FLOATS_OF_UNIT * odd).or(short),
        false => short,
    }
}

/// Several cubes for each row, where its columns are so many that one could not hold the sums of all.
fn peers(work: &Work, hardware: &Hardware, plane: Option<u32>) -> Option<Shape> {
    let columns = work.steps * work.vector;
    let cubes = match work.knobs.peers {
        Some(cubes) => [cubes as usize; 2],
        // Who shares rows should run at once, and how many cubes do is not known.
        None if hardware.multiprocessors.is_none() => [1; 2],
        None if columns <= COLUMNS_OF_CUBE => [1; 2],
        None if work.is_half => [columns.div_ceil(COLUMNS_OF_CUBE); 2],
        // A few more columns for each, where there is room.
        None => [columns / FLOATS_OF_PEER, columns.div_ceil(FLOATS_OF_PEER)],
    };
    let cubes = cubes.map(|cubes| cubes.max(1).next_power_of_two() as u32);
    cubes
        .into_iter()
        .find_map(|cubes| sharing(work, hardware, cubes.min(MOST_PEERS), plane))
}

/// So many cubes for each row, where those can hold the sums of its columns.
fn sharing(work: &Work, hardware: &Hardware, cubes: u32, plane: Option<u32>) -> Option<Shape> {
    // A sum and the round that it belongs to are one number of 8 bytes.
    let can_meet = hardware.cubes_talk && work.accumulation == 4;
    if cubes == 1 || !can_meet || !work.reduces || work.column_sums == 0 {
        return None;
    }
    let units = match work.is_half {
        true => MOST_UNITS_OF_PEER,
        false => (4 * MOST_UNITS_OF_PEER / cubes).clamp(LEAST_UNITS_OF_PEER, MOST_UNITS_OF_PEER),
    };
    let parts = Work {
        peers: cubes,
        knobs: Knobs {
            units: work.knobs.units.or(Some(units)),
            // Sums in registers would leave none for the next row.
            row: work.knobs.row.or(Some(RowHeld::Shared)),
            ..work.knobs
        },
        ..*work
    };
    let shape = cube(&parts, hardware, work.steps.div_ceil(cubes as usize), plane);
    (shape.held_columns != Hold::Reread).then_some(Shape {
        splits: cubes as usize,
        peers: cubes,
        ..shape
    })
}

/// Columns of several units each, or of one where a CPU runs the units: they would share memory and
/// wait for each other, which a software driver makes a hundred times dearer than reading more.
fn column(work: &Work, hardware: &Hardware, is_forced: bool) -> Shape {
    if hardware.cpu_cores.is_some() || hardware.is_software() && !is_forced {
        return unit(work, hardware);
    }
    let side_by_side = work.groups.next_power_of_two().min(COLUMNS_SIDE_BY_SIDE);
    let widest = columns(work, hardware, side_by_side);
    // What a gradient sums up is read again wherever it has columns, and in parts all of it is under way.
    let is_whole = work.reduces && work.merge != Merge::Sums && widest.splits == 1;
    let is_open = hardware.is_gpu() && work.knobs.units.is_none();
    if widest.hold != Hold::Reread || !is_whole || !is_open {
        return widest;
    }
    let halvings = (side_by_side / LEAST_SIDE_BY_SIDE).checked_ilog2();
    let narrow = (1..=halvings.unwrap_or(0))
        .map(|halvings| columns(work, hardware, side_by_side >> halvings));
    let is_light = !work.is_half && work.vector * work.accumulation <= LIGHT_COLUMNS;
    let is_held = |shape: &Shape| is_light && shape.hold != Hold::Reread;
    let is_short = |shape: &Shape| {
        let units = shape.cube_dim[1] as usize;
        work.steps.div_ceil(units) <= STEPS_OF_COLUMN
    };
    let all = std::iter::once(widest).chain(narrow.clone());
    let held = narrow.clone().find(is_held);
    let short = || all.clone().find(is_short);
    let least = || columns(work, hardware, side_by_side.min(LEAST_SIDE_BY_SIDE));
    held.or_else(short).unwrap_or_else(least)
}

/// So many columns side by side in a cube.
fn columns(work: &Work, hardware: &Hardware, x: usize) -> Shape {
    let cubes = work.groups.div_ceil(x);
    let limit = match work.knobs.units {
        Some(_) => UNITS_OF_COLUMNS,
        None => units_of_columns(work, hardware, cubes),
    };
    let limit = limit.min(hardware.max_units_per_cube as usize);
    let wanted = work.knobs.units.map_or(work.steps, |units| units as usize);
    let y = wanted
        .min(work.steps)
        .max(1)
        .next_power_of_two()
        .min(limit / x)
        .min(hardware.max_cube_dim[1] as usize)
        .max(1);
    let splits = match (work.reduces, work.knobs.splits) {
        (true, Some(splits)) => splits.clamp(1, MAX_SPLITS).min(work.steps).max(1),
        (true, None) => {
            let wanted = cubes_to_fill(hardware, CUBES_OF_COLUMNS);
            parts(wanted, cubes, work, y * CUBE_VECTORS)
        }
        (false, _) => 1,
    };
    let per_unit = work.steps.div_ceil(splits).div_ceil(y);
    Shape {
        strategy: Strategy::Column,
        level: Level::Column,
        cube_dim: [x as u32, y as u32, 1],
        teams_per_cube: x as u32,
        hold: match splits > 1 {
            true => Hold::Reread,
            false => registers(work, hardware, per_unit),
        },
        splits,
        peers: 1,
        max_teams: usize::MAX,
        held_columns: Hold::Reread,
        room: 1,
        reason: "",
    }
}

/// Several teams for each row. A forced split takes at least two parts wherever there are two steps.
fn split(work: &Work, hardware: &Hardware, plane: Option<u32>, is_forced: bool) -> Shape {
    let at_least = if is_forced { 2 } else { 1 };
    let limit = |splits: usize| {
        let splits = work
            .knobs
            .splits
            .unwrap_or(splits)
            .min(MAX_SPLITS.max(splits));
        splits.max(at_least).min(work.steps).max(1)
    };
    let of_units = |splits: usize| {
        let cores = work.busy_cores(hardware);
        let parts = Work {
            groups: work.groups * splits,
            abreast: 1,
            // The parts have no more elements than the rows.
            knobs: Knobs {
                units: work.knobs.units.or(cores),
                ..work.knobs
            },
            ..*work
        };
        Shape {
            splits,
            ..unit(&parts, hardware)
        }
    };
    let mut shape = match (
        work.lanes,
        work.busy_cores(hardware),
        hardware.software_cores,
    ) {
        (_, Some(cores), _) => {
            let busy = (cores as usize).div_ceil(work.groups.max(1));
            of_units(limit(busy.max(work.steps.div_ceil(work.longest_sum()))))
        }
        (_, None, Some(cores)) => {
            let cubes = cores as usize * CUBES_PER_SOFTWARE_CORE;
            let wanted = cubes.div_ceil(work.groups.max(1));
            let filled = wanted.min(work.steps.div_ceil(CUBE_VECTORS * 64));
            of_units(limit(filled.max(work.steps.div_ceil(SOFTWARE_STEPS))))
        }
        (Lanes::Rows, None, None) => {
            let shape = column(work, hardware, is_forced);
            Shape {
                splits: limit(shape.splits),
                ..shape
            }
        }
        (Lanes::Columns, None, None) => {
            let least = CUBE_VECTORS * 64;
            let most = work.steps.div_ceil(least);
            let wanted = match work.reduces {
                true => even_parts(hardware, work, most),
                false => {
                    let cubes = cubes_to_fill(hardware, CUBES_WITHOUT_SUMS);
                    parts(cubes, work.groups, work, STEPS_WITHOUT_SUMS)
                }
            };
            let splits = limit(wanted);
            let parts = Work {
                column_sums: 0,
                ..*work
            };
            Shape {
                splits,
                ..cube(&parts, hardware, work.steps.div_ceil(splits), plane)
            }
        }
    };
    // Between the two launches nothing is held.
    shape.hold = Hold::Reread;
    shape.room = 1;
    shape
}

/// Cubes that fill the device, where so many do a multiprocessor.
fn cubes_to_fill(hardware: &Hardware, of_multiprocessor: usize) -> usize {
    match hardware.software_cores {
        Some(cores) => cores as usize * CUBES_PER_SOFTWARE_CORE,
        None => multiprocessors(hardware) * of_multiprocessor,
    }
}

fn multiprocessors(hardware: &Hardware) -> usize {
    hardware
        .multiprocessors
        .map_or(MULTIPROCESSORS, |n| n as usize)
}

/// Parts of a row that come to `wanted` cubes when `cubes` cubes alone do not, of at least `least` steps.
fn parts(wanted: usize, cubes: usize, work: &Work, least: usize) -> usize {
    match work.elements() < SPLIT_ELEMENTS {
        true => 1,
        false => wanted
            .div_ceil(cubes.max(1))
            .min(work.steps.div_ceil(least.max(1)))
            .clamp(1, MAX_SPLITS),
    }
}

/// Parts of long rows, a cube for each, of at most so many: those that leave the fewest multiprocessors idle at the
/// end.
fn even_parts(hardware: &Hardware, work: &Work, most: usize) -> usize {
    let processors = multiprocessors(hardware);
    let cost = |parts: usize| {
        let cubes = work.groups * parts;
        let rounds = cubes.div_ceil(processors) as f64;
        rounds * processors as f64 / cubes as f64 * (1.0 + COST_OF_PART * parts as f64)
    };
    let most = match work.elements() < SPLIT_ELEMENTS {
        true => 1,
        false => most.clamp(1, processors.min(MAX_SPLITS)),
    };
    let cheapest = (1..=most).min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
    cheapest.unwrap_or(1)
}

/// Units of a cube that reduces columns: more where rows cannot be split in parts enough to fill the device, as far as
/// shared memory has room for what they merge.
fn units_of_columns(work: &Work, hardware: &Hardware, cubes: usize) -> usize {
    if cubes * MAX_SPLITS >= cubes_to_fill(hardware, CUBES_OF_COLUMNS) {
        return UNITS_OF_COLUMNS;
    }
    let of_unit = MERGED_OF_UNIT * work.vector * work.accumulation;
    let room = (hardware.max_shared_memory / of_unit).max(1);
    (1 << room.ilog2()).clamp(UNITS_OF_COLUMNS, MOST_UNITS_OF_COLUMNS)
}

/// Rows that a unit takes side by side, where all of them share what they are scaled, shifted and
/// normalized by along the row.
pub(super) fn abreast(
    groups: usize,
    row_bytes: usize,
    is_half: bool,
    params: &[Option<AccessBlueprint>],
    hardware: &Hardware,
    knobs: Knobs,
) -> usize {
    let mut given = params.iter().flatten();
    let shares = given.clone().all(|p| p.row_dims == 0) && given.any(|p| p.col_dims > 0);
    if !shares {
        return 1;
    }
    if let Some(rows) = knobs.abreast {
        return rows.clamp(1, MOST_ABREAST).min(groups.max(1));
    }
    let rows = match (hardware.cpu_cores, hardware.software_lanes()) {
        (Some(cores), _) => {
            let most = match row_bytes < CORE_ABREAST_BYTES {
                true => {
                    let computed = row_bytes * if is_half { 2 } else { 1 };
                    let registers = hardware.register_bits as usize / 8;
                    (registers / (SHARE_OF_SHORT_ROWS * computed).max(1)).min(2)
                }
                false => MAX_ABREAST,
            };
            most.min(groups / cores as usize)
        }
        (None, Some(lanes)) => {
            let cached = match ABREAST_BYTES / row_bytes.max(1) {
                0 => MAX_ABREAST,
                rows => rows.clamp(2, MAX_ABREAST),
            };
            cached.min(groups / (VECTORS_OF_SOFTWARE_CORE * lanes))
        }
        (None, None) if is_half => {
            let processors = multiprocessors(hardware);
            let spare = groups / (processors * PLANES_OF_MULTIPROCESSOR);
            spare
                .min(SHORT_ROWS * 2 / row_bytes.max(1))
                .min(MOST_ABREAST)
        }
        (None, None) => 1,
    };
    match rows {
        0 => 1,
        rows => 1 << rows.ilog2(),
    }
}

/// Bytes of the vectors that short rows of halves are computed in, where those are fewer than a load brings; and long
/// ones that leave a GPU's units no registers, where means are taken off, or columns are read again. Measured
/// with AVX-512: what is held in vectors of 16 halves takes 0.85 to 0.95 of the time of 32; on an H200: layer norm of
/// 65,536 halves 0.93, batch norm of halves with channels last 0.87 to 0.92, layer norm over 192 channels 0.9.
pub(super) fn narrow_vector(cut: &Cut, task: &Task, hardware: &Hardware) -> Option<usize> {
    match hardware.cpu_cores {
        Some(_) => (cut.hold != Hold::Reread).then_some(hardware.load_width as usize / 8),
        // The units of a plane have two vectors of a row each, or fewer.
        None => {
            let of_two = 2 * cut.team.members as usize;
            let is_short = cut.team.level == Level::Plane && cut.grid.steps <= of_two;
            let is_full = matches!(cut.hold, Hold::Both { .. })
                && cut.team.members >= FULL_CUBE
                && cut.team.merge.takes_means();
            let is_tall =
                task.reduces && cut.team.level == Level::Column && cut.hold == Hold::Reread;
            (is_short || is_full || is_tall).then_some(NARROW_VECTOR)
        }
    }
}

/// Steps that a unit asks for at once of a row that it reads again.
pub(super) fn under_way(cut: &Cut, reduces: bool) -> usize {
    match cut.hold == Hold::Reread && cut.team.level != Level::Unit && reduces {
        true => (STEPS_UNDER_WAY / cut.abreast).max(1),
        false => 1,
    }
}

/// Lanes of narrower vectors that a GPU's cubes may hold columns of floats in, where they do not hold those of so many,
/// widest first. Measured on an H200: layer norm over 96 channels of floats takes 0.76 of the time where each unit holds
/// two lanes, beside four that are read again; of halves two lanes that are held take 1.08 times the time of four.
pub(super) fn narrower_columns(
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> impl Iterator<Item = usize> + use<> {
    let reads_again = task.reduces && cut.hold == Hold::Reread && cut.grid.splits == 1;
    let is_float = !task.dtype.is_half();
    let wide = cut.team.vector;
    let least = LEAST_OF_COLUMNS.div_ceil(task.dtype.size());
    let may_hold = is_float && reads_again && hardware.is_gpu();
    let halvings = match cut.team.level == Level::Column && may_hold {
        true => (wide / least).checked_ilog2().unwrap_or(0),
        false => 0,
    };
    (1..=halvings).map(move |halvings| wide >> halvings)
}

/// Rows that fit side by side where a team of so many units holds each of them; 0 where not even one does.
fn room(work: &Work, hardware: &Hardware, hold: Hold, members: u32) -> usize {
    let members = members as usize;
    let (registers, shared) = hold.places();
    let of_registers = match registers * work.vector * work.accumulation / 4 {
        0 => usize::MAX,
        numbers => (registers_of_unit(hardware) / numbers).max(1),
    };
    let of_shared = match members * shared * work.vector * work.held {
        0 => usize::MAX,
        row => hardware.max_shared_memory / (row + MERGED_OF_UNIT * members * work.accumulation),
    };
    match hold {
        // What is read again has room in memory; but units that wait for each other wait for one row, and of
        // one at a time sums of columns are taken where they are held.
        Hold::Reread if members > 1 => 1,
        Hold::Reread => usize::MAX,
        _ if work.column_sums > 0 => of_shared.min(1),
        _ => of_registers.min(of_shared),
    }
}

/// Whether a cube holds a row of so many steps in shared memory rather than in registers.
fn is_staged(work: &Work, hardware: &Hardware, steps: usize) -> bool {
    let elements = steps * work.vector;
    let merged = MERGED_OF_UNIT * UNITS_WITH_SUMS * work.accumulation;
    let bytes = elements * work.held + merged;
    elements >= STAGED_ELEMENTS && bytes * SIDE_BY_SIDE < hardware.max_shared_memory
}

/// Where so many vectors of each unit of a cube may stay, best first.
///
/// Measured on an H200: rows of 32 to 64 KiB that units of a large cube hold in shared memory leave it room for
/// other cubes, and take 0.8 to 0.95 of the time of registers; those of 16,384 take 0.9 to 0.95 of that where a unit
/// has 16 vectors of them, some in registers. Where one row takes all that there is, those of 128 KiB take 0.8 to
/// 0.9 of the time of shared memory alone.
fn holds(work: &Work, hardware: &Hardware, vectors: usize) -> impl Iterator<Item = Hold> {
    let in_registers = HELD_ELEMENTS * 4 / (work.vector * work.accumulation);
    let vectors = size(vectors).filter(|_| work.reduces);
    let shared = vectors.map(Hold::Shared);
    let both = vectors
        .filter(|&vectors| (1..vectors).contains(&in_registers))
        .map(|vectors| Hold::Both {
            registers: in_registers,
            shared: vectors - in_registers,
        });
    let registers = vectors.map(|vectors| registers(work, hardware, vectors));
    let registers = registers.filter(|&hold| hold != Hold::Reread);
    let elements = work.steps * work.vector;
    let order = match is_staged(work, hardware, work.steps) {
        true if elements < 2 * STAGED_ELEMENTS => [both, shared, registers],
        true => [shared, registers, both],
        false => [registers, both, shared],
    };
    let wish = work.knobs.row;
    order.into_iter().flatten().filter(move |hold| match hold {
        Hold::Reread => false,
        Hold::Registers(_) => matches!(wish, None | Some(RowHeld::Registers)),
        Hold::Shared(_) => matches!(wish, None | Some(RowHeld::Shared)),
        Hold::Both { .. } => matches!(wish, None | Some(RowHeld::Both)),
    })
}

/// Numbers of 4 bytes that a unit may hold: on a CPU it is a core.
fn registers_of_unit(hardware: &Hardware) -> usize {
    match hardware.cpu_cores {
        Some(_) => hardware.register_bits as usize / 32,
        None => HELD_ELEMENTS,
    }
}

/// Registers for so many vectors of a unit, where they fit and there is something to read twice.
fn registers(work: &Work, hardware: &Hardware, vectors: usize) -> Hold {
    let elements = vectors * work.vector * work.accumulation / 4;
    let may_hold = matches!(work.knobs.row, None | Some(RowHeld::Registers));
    if !may_hold
        || !work.reduces
        || work.run.is_some()
        || vectors > HELD_VECTORS
        || elements > registers_of_unit(hardware)
    {
        return Hold::Reread;
    }
    size(vectors).map_or(Hold::Reread, Hold::Registers)
}

/// Vectors that a unit is compiled to hold when it needs so many. Few sizes, so that few kernels are
/// compiled: what is too much is masked.
fn size(vectors: usize) -> Option<usize> {
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, HELD_VECTORS];
    sizes.into_iter().find(|&size| size >= vectors)
}

/// Numbers of 4 bytes that the sums of so many vectors of columns are.
fn sums_of_columns(work: &Work, per_unit: usize) -> usize {
    per_unit * work.vector * work.column_sums * work.accumulation / 4
}

/// Where the sums of a unit's columns stay from row to row, and the teams that there may be then; no limit
/// where they do not stay, or the rows are too few for teams that do.
fn held_columns(
    work: &Work,
    hardware: &Hardware,
    level: Level,
    per_unit: usize,
    members: u32,
) -> (Hold, usize) {
    let none = (Hold::Reread, usize::MAX);
    let Some(vectors) = size(per_unit).filter(|_| work.column_sums > 0) else {
        return none;
    };
    let numbers = sums_of_columns(work, per_unit);
    let of_cube = numbers * members as usize;
    let fits_registers = numbers <= HELD_SUMS && of_cube <= MOST_HELD_SUMS_OF_CUBE;
    // What the units merge lies there too.
    let bytes = |vectors: usize| {
        members as usize * (sums_of_columns(work, vectors) * 4 + MERGED_OF_UNIT * work.accumulation)
    };
    let fits_shared =
        |vectors: usize| level == Level::Cube && bytes(vectors) <= hardware.max_shared_memory;
    let columns = work.steps * work.vector;
    let makes_room = work.is_half
        && match work.column_sums {
            1 => columns >= LONG_HALVES,
            _ => SHORT_HALVES.contains(&columns),
        };
    let wants_shared = match work.knobs.row {
        Some(row) => row == RowHeld::Shared,
        None => of_cube > HELD_SUMS_OF_CUBE || makes_room,
    };
    let registers = HELD_SUMS_BESIDE_SHARED / sums_of_columns(work, 1);
    let hold = match fits_registers && !(wants_shared && fits_shared(vectors)) {
        true => Hold::Registers(vectors),
        false if fits_shared(vectors) => Hold::Shared(vectors),
        false if (1..vectors).contains(&registers) && fits_shared(vectors - registers) => {
            Hold::Both {
                registers,
                shared: vectors - registers,
            }
        }
        false => return none,
    };
    let side_by_side = match hold.places() {
        (_, 0) => usize::MAX,
        (_, shared) => hardware.max_shared_memory / bytes(shared).max(1),
    };
    let peers = work.peers as usize;
    let processors = multiprocessors(hardware);
    let of_processor = match peers {
        1 => (RESIDENT_UNITS / members).max(1) as usize,
        _ => 1,
    };
    let resident = processors * of_processor.min(side_by_side).max(1) / peers;
    let resident = resident.max(work.least_teams());
    let teams = resident.min(work.groups / ROWS_OF_A_RESIDENT);
    // As many as make whole teams of peers.
    match teams > 0 && (teams + 1) * peers > processors {
        true => (hold, teams),
        false => none,
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
