//! Vectors along the kept axis, units along the reduced axis.

use super::cube::CUBE_VECTORS;
use super::unit::unit;
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::heuristic::column_sums::STAGED_SUMS;
use crate::plan::heuristic::cpu_vulkan;
use crate::plan::heuristic::occupancy::cubes_to_fill;
use crate::plan::heuristic::parts::{MAX_SPLITS, parts};
use crate::plan::heuristic::staging::{MERGED_OF_UNIT, registers, size};
use crate::plan::knobs::StagingPreference;
use crate::plan::schedule::Schedule;
use crate::plan::shared_memory::merged_bytes;
use crate::plan::team::Level;
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Units per cube that reduces columns.
const UNITS_OF_COLUMNS: usize = 256;

/// [`UNITS_OF_COLUMNS`] for segmented rows, except for backward sums of f16/bf16.
/// Group norm, channels-last bf16 H200, 256 -> 128 units: 43% -> 47% of copy bandwidth (1.09x).
const UNITS_OF_SEGMENTS: usize = 128;

/// Maximum units per cube if there are few such cubes: 1,024 are no faster and spill registers.
const MOST_UNITS_OF_COLUMNS: usize = 512;
/// Cubes of columns per multiprocessor that keep it busy.
const CUBES_OF_COLUMNS: usize = 4;

/// Maximum steps of a column that [`times_of_steps`] counts as few. More units per cube pay off for
/// long columns, and sooner if units load one element at a time.
/// 768 f32 of 14 x 14 H100, layer norm over channels, 256 -> 512 units: 46% -> 75% of copy
/// bandwidth (1.63x).
const FEW_STEPS: usize = 256;
/// Maximum steps of a column of medium length.
const MANY_STEPS: usize = 512;
/// Maximum steps of a column that [`times_of_steps`] applies to; measurements end there.
const MOST_STEPS: usize = 2048;

/// Minimum rows per team with column sums, unless there are too few to fill the device.
const ROUNDS_OF_COLUMNS: usize = 4;

/// Maximum adjacent columns per cube, in vectors. Long columns take fewer, which leaves more units
/// for each.
/// 768 f16/bf16 H200, layer norm over channels, 32 -> 8 adjacent columns: 1.06x to 1.10x faster.
const COLUMNS_OF_CUBE: usize = 32;
/// Minimum adjacent columns per cube, in vectors.
const LEAST_COLUMNS_OF_CUBE: usize = 8;
/// Steps per unit above which a cube takes fewer adjacent columns.
const STEPS_OF_COLUMN: usize = 24;

/// Maximum bytes of an f32 vector for which a cube takes fewer adjacent columns in order to stage
/// them. f16/bf16 columns gain nothing: scale and bias cost the same as a unit's share of the row.
/// 192 f32 H200, layer norm over channels, 16 adjacent columns, staged: 1.41x faster.
const LIGHT_COLUMNS: usize = 8;

/// Maximum bytes of a row staged per unit if [`Knobs::row`](crate::Knobs::row) prefers
/// registers. Half a unit's registers if a multiprocessor runs two cubes.
/// 384 f32 H100, layer norm over channels, vectors of four: 64% -> 76% of copy bandwidth (1.19x).
const ASKED_OF_COLUMN: usize = 256;

/// Schedules columns of several units each; of one unit each on a CPU and, unless forced, on CPU
/// Vulkan.
pub(in crate::plan::heuristic) fn perpendicular(work: &Workload, hardware: &Hardware) -> Schedule {
    if hardware.cpu_cores.is_some() || cpu_vulkan::has_unit_columns(work, hardware) {
        return unit(work, hardware);
    }
    let tile = work.groups.next_power_of_two().min(COLUMNS_OF_CUBE);
    let halvings = (tile / LEAST_COLUMNS_OF_CUBE).checked_ilog2();
    let of = |times: usize, halvings: u32| columns(work, hardware, tile >> halvings, times);
    let halvings = 0..=halvings.unwrap_or(0);
    let all = halvings.clone().map(|halvings| of(1, halvings));
    if work.column_sums > 0 {
        // Twice the units have half of a row each, for rows whose column sums do not fit otherwise.
        let larger = halvings.map(|halvings| of(2, halvings));
        let larger = larger.filter(|schedule| {
            fills(
                hardware,
                work.groups.div_ceil(schedule.grid.cube_dim[0] as usize),
            )
        });
        let mut schedules = all.clone().chain(larger);
        if let Some(schedule) = schedules.find_map(|schedule| summing(work, hardware, schedule)) {
            return schedule;
        }
    }
    let widest = of(1, 0);
    // Backward reloads every row with column sums, and parts have all their loads in flight.
    let is_whole =
        work.reduces && work.merge != Merge::Sums && widest.grid.splits == 1 && work.segments == 1;
    let is_open = hardware.is_gpu() && work.knobs.units.is_none();
    if widest.staging != Staging::Reload || !is_whole || !is_open {
        return widest;
    }
    let is_single = work.is_single() && (FEW_STEPS + 1..=MANY_STEPS).contains(&work.steps);
    let is_light =
        is_single || !work.is_half() && work.vector * work.accumulation() <= LIGHT_COLUMNS;
    let may_hold = is_light || asks_for_registers(work);
    let is_staged_row = |schedule: &Schedule| may_hold && schedule.staging != Staging::Reload;
    let is_short = |schedule: &Schedule| {
        let units = schedule.grid.cube_dim[1] as usize;
        work.steps.div_ceil(units) <= STEPS_OF_COLUMN
    };
    let staged = all.clone().skip(1).find(is_staged_row);
    let short = || all.clone().find(is_short);
    let least = || columns(work, hardware, tile.min(LEAST_COLUMNS_OF_CUBE), 1);
    staged.or_else(short).unwrap_or_else(least)
}

/// Adds column sums in registers to `schedule`; `None` if they do not fit.
fn summing(work: &Workload, hardware: &Hardware, schedule: Schedule) -> Option<Schedule> {
    let [teams, members, _] = schedule.grid.cube_dim.map(|units| units as usize);
    let vectors = size(work.steps.div_ceil(members))?;
    // A cube reduces one kind of column sum at a time in shared memory, which also holds the merge
    // tables.
    let table = vectors * members * teams * work.accumulation();
    let merged = MERGED_OF_UNIT * teams * members * work.vector * work.accumulation();
    let fits = schedule.grid.splits == 1
        && vectors * work.column_sums * work.accumulation() / 4 <= STAGED_SUMS
        && table + merged <= hardware.max_shared_memory;
    let resident = cubes_to_fill(hardware, CUBES_OF_COLUMNS) * teams;
    let max_teams = resident
        .max(work.groups / ROUNDS_OF_COLUMNS)
        .max(work.least_teams());
    fits.then_some(Schedule {
        staged_columns: Staging::Registers(vectors),
        max_teams,
        ..schedule
    })
}

/// True if staging in registers is preferred, by autotuning or by the caller.
fn asks_for_registers(work: &Workload) -> bool {
    work.knobs.row == Some(StagingPreference::Registers)
}

/// Staging of `vectors` vectors per unit.
fn staged(work: &Workload, hardware: &Hardware, vectors: usize) -> Staging {
    let bytes = vectors * work.vector * work.staged.size();
    let is_read_twice =
        work.reduces && work.merge != Merge::Sums && !work.has_column_tail() && work.segments == 1;
    let fits = is_read_twice && bytes <= ASKED_OF_COLUMN;
    let asked = size(vectors).filter(|_| fits && asks_for_registers(work));
    asked.map_or_else(|| registers(work, hardware, vectors), Staging::Registers)
}

/// True if `cubes` cubes keep the device busy without splitting rows.
fn fills(hardware: &Hardware, cubes: usize) -> bool {
    cubes >= cubes_to_fill(hardware, CUBES_OF_COLUMNS)
}

/// Schedule with `x` adjacent columns per cube and `times` the usual units.
fn columns(work: &Workload, hardware: &Hardware, x: usize, times: usize) -> Schedule {
    let cubes = work.groups.div_ceil(x);
    let limit = match work.knobs.units {
        Some(_) => UNITS_OF_COLUMNS,
        None if work.segments > 1 && !(work.is_half() && work.merge == Merge::Sums) => {
            UNITS_OF_SEGMENTS
        }
        None => times * units_of_columns(work, hardware, cubes),
    };
    let limit = limit.min(hardware.max_units_per_cube as usize);
    let wanted = work.knobs.units.map_or(work.steps, |units| units as usize);
    let y = wanted.min(work.steps).max(1).next_power_of_two();
    // Also a power of two, since each step of the merge divides the number of units by two.
    let most = (limit / x).min(hardware.max_cube_dim[1] as usize);
    let y = y.min(1 << most.max(1).ilog2());
    let splits = |y: usize| match (work.reduces, work.knobs.splits) {
        (true, Some(splits)) => splits.clamp(1, MAX_SPLITS).min(work.steps).max(1),
        (true, None) => {
            let wanted = cubes_to_fill(hardware, CUBES_OF_COLUMNS);
            parts(wanted, cubes, work, y * CUBE_VECTORS)
        }
        (false, _) => 1,
    };
    let staging = |y: usize| {
        let splits = splits(y);
        match splits > 1 {
            true => Staging::Reload,
            false => staged(work, hardware, work.steps.div_ceil(splits).div_ceil(y)),
        }
    };
    let fits = |y: usize| {
        let (merge, is_staged_row) = (work.merge, staging(y) != Staging::Reload);
        let merged = merged_bytes(
            x * y,
            work.vector,
            merge,
            is_staged_row,
            false,
            work.accumulation(),
            hardware,
        );
        y == 1 || !work.reduces || merged <= hardware.max_shared_memory
    };
    let mut y = y;
    while !fits(y) {
        y /= 2;
    }
    Schedule {
        staging: staging(y),
        ..Schedule::new(work, Level::Perpendicular, [x as u32, y as u32, 1]).in_parts(splits(y))
    }
}

/// Factor on [`UNITS_OF_COLUMNS`] for the number of steps.
fn times_of_steps(work: &Workload) -> usize {
    let sums = work.merge == Merge::Sums;
    let (few, many) = (work.steps <= FEW_STEPS, work.steps <= MANY_STEPS);
    match work.is_single() {
        false if many || sums || work.is_half() && !work.params_by_step => 1,
        false => 2,
        true if few && work.is_half() => 1,
        true if few || sums || many && work.is_half() => 2,
        true => 4,
    }
}

/// Units per cube that reduces columns. More if splitting rows cannot fill the device, up to the
/// capacity of shared memory for the merge tables.
fn units_of_columns(work: &Workload, hardware: &Hardware, cubes: usize) -> usize {
    let is_whole = work.reduces && work.segments == 1 && fills(hardware, cubes);
    if is_whole && work.steps <= MOST_STEPS {
        return times_of_steps(work) * UNITS_OF_COLUMNS;
    }
    if cubes * MAX_SPLITS >= cubes_to_fill(hardware, CUBES_OF_COLUMNS) {
        return UNITS_OF_COLUMNS;
    }
    let of_unit = MERGED_OF_UNIT * work.vector * work.accumulation();
    let room = (hardware.max_shared_memory / of_unit).max(1);
    (1 << room.ilog2()).clamp(UNITS_OF_COLUMNS, MOST_UNITS_OF_COLUMNS)
}
