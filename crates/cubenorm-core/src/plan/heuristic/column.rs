//! Vectors along the kept axis, units along the reduced one.

use super::cube::CUBE_VECTORS;
use super::device::cubes_to_fill;
use super::hold::{HELD_SUMS, MERGED_OF_UNIT, registers, size};
use super::parts::{MAX_SPLITS, parts};
use super::unit::unit;
use super::{Shape, Work};
use crate::plan::footprint::merged_bytes;
use crate::plan::{Hardware, Hold, Level, Merge, RowHeld, Strategy};

/// Units of a cube that reduces columns, and such cubes that keep a multiprocessor busy.
const UNITS_OF_COLUMNS: usize = 256;

/// The same where strands are joined, but for sums of halves. Measured on an H200 and an H100, percent of a copy with twice
/// as many and with so many: group norm with channels last, forward, bf16 43 → 47 and 48 → 52, f32 54 → 59 and 58 → 63,
/// backward, f32 53 → 56 and 54 → 57; batch norm in maps of 7 x 7, forward, bf16 48 → 55 and 55 → 59, f32 56 → 61 and 59 → 63.
const UNITS_OF_STRANDS: usize = 128;

/// The same where there are few such cubes. Measured on an H200: batch norm with 64 channels last takes as long with
/// 1,024, of which some registers are spilled, with 256 of them 0.9 to 0.95 of the time.
const MOST_UNITS_OF_COLUMNS: usize = 512;
const CUBES_OF_COLUMNS: usize = 4;

/// Steps of a column that are few and many, and that the following is known of. Measured on an H100, layer norm over
/// channels, percent of a copy with 256, 512 and 1,024 units of a cube.
///
/// Where no vector divides the rows that lie side by side, as the pixels of 7 x 7, a unit reads one number at a time.
/// Forward, floats: 256 channels 57, 69, 63; 512 42, 59, 75; 768 26, 47, 66; 2,048 21, 23, 47. Halves: 192 54, 53, 29; 512 38,
/// 59, 47; 768 29, 44, 47; 2,048 14, 20, 35. Backward, floats: 192 65, 82, 79; 768 31, 51, 42; 1,536 30, 28, 34. Halves: 192
/// 63, 52, 46; 384 47, 53, 33; 768 23, 43, 29.
///
/// In vectors, forward, floats: 512 channels of 28 x 28 97, 95, 77; 640 of 32 x 32 61, 71, 89; 768 of 14 x 14 46, 75, 69; 1,024
/// of 16 x 16 63, 61, 53. Halves: 76, 76, 68; 71, 75, 69; 39, 50, 63; 63, 75, 70. Backward, floats: 61, 46, 29; 39, 69, 35; 35, 56,
/// 32; 42, 48, 29. Halves: 51, 44, 31; 34, 53, 30; 29, 57, 35; 35, 47, 34. Instance norm with channels last, which has one scale
/// for each row, with 256 and 512: floats 320 x 25 x 25 68, 96; bf16 65, 50; f16 67, 73; 640 x 28 x 28 65, 82; 63, 41; 61, 63.
const FEW_STEPS: usize = 256;
const MANY_STEPS: usize = 512;
const MOST_STEPS: usize = 2048;

/// Rows that a column of units goes through at least where it sums up what it finds of each of their columns, unless
/// there are too few to fill the device.
const ROUNDS_OF_COLUMNS: usize = 4;

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

/// Bytes of a row, as it is held, that each unit has in registers where that is asked for: half of what a unit has of
/// them where a multiprocessor runs two cubes. Measured on an H100, percent of a copy, held so and as it is inferred:
/// layer norm over 384 channels of floats in vectors of four 76 and 64, of bf16 69 and 54, of f16 45 and 54; over 192
/// channels of halves in vectors of two 76 and 69; over 96 of floats in vectors of four 87 and 100.
const ASKED_OF_COLUMN: usize = 256;

/// Columns of several units each, or of one where a CPU runs the units: they would share memory and
/// wait for each other, which a software driver makes a hundred times dearer than reading more.
pub(super) fn column(work: &Work, hardware: &Hardware, is_forced: bool) -> Shape {
    if hardware.cpu_cores.is_some() || hardware.is_software() && !is_forced {
        return unit(work, hardware);
    }
    let side_by_side = work.groups.next_power_of_two().min(COLUMNS_SIDE_BY_SIDE);
    let halvings = (side_by_side / LEAST_SIDE_BY_SIDE).checked_ilog2();
    let of = |times: usize, halvings: u32| columns(work, hardware, side_by_side >> halvings, times);
    let halvings = 0..=halvings.unwrap_or(0);
    let all = halvings.clone().map(|halvings| of(1, halvings));
    if work.column_sums > 0 {
        // Units of a cube twice as large have half as much of a row that is too long for the sums of others.
        let larger = halvings.map(|halvings| of(2, halvings));
        let larger = larger
            .filter(|shape| fills(hardware, work.groups.div_ceil(shape.cube_dim[0] as usize)));
        let mut shapes = all.clone().chain(larger);
        if let Some(shape) = shapes.find_map(|shape| summing(work, hardware, shape)) {
            return shape;
        }
    }
    let widest = of(1, 0);
    // What a gradient sums up is read again wherever it has columns, and in parts all of it is under way.
    let is_whole =
        work.reduces && work.merge != Merge::Sums && widest.splits == 1 && work.strands == 1;
    let is_open = hardware.is_gpu() && work.knobs.units.is_none();
    if widest.hold != Hold::Reread || !is_whole || !is_open {
        return widest;
    }
    let is_single = work.is_single && (FEW_STEPS + 1..=MANY_STEPS).contains(&work.steps);
    let is_light = is_single || !work.is_half && work.vector * work.accumulation <= LIGHT_COLUMNS;
    let may_hold = is_light || asks_for_registers(work);
    let is_held = |shape: &Shape| may_hold && shape.hold != Hold::Reread;
    let is_short = |shape: &Shape| {
        let units = shape.cube_dim[1] as usize;
        work.steps.div_ceil(units) <= STEPS_OF_COLUMN
    };
    let held = all.clone().skip(1).find(is_held);
    let short = || all.clone().find(is_short);
    let least = || columns(work, hardware, side_by_side.min(LEAST_SIDE_BY_SIDE), 1);
    held.or_else(short).unwrap_or_else(least)
}

/// The same with the sums that each unit takes over rows in registers, where they leave room.
fn summing(work: &Work, hardware: &Hardware, shape: Shape) -> Option<Shape> {
    let [teams, members, _] = shape.cube_dim.map(|units| units as usize);
    let vectors = size(work.steps.div_ceil(members))?;
    // A cube adds up one kind of its teams' sums at a time, in shared memory, where its teams merge as well.
    let table = vectors * members * teams * work.accumulation;
    let merged = MERGED_OF_UNIT * teams * members * work.vector * work.accumulation;
    let fits = shape.splits == 1
        && vectors * work.column_sums * work.accumulation / 4 <= HELD_SUMS
        && table + merged <= hardware.max_shared_memory;
    let resident = cubes_to_fill(hardware, CUBES_OF_COLUMNS) * teams;
    let max_teams = resident
        .max(work.groups / ROUNDS_OF_COLUMNS)
        .max(work.least_teams());
    fits.then_some(Shape {
        held_columns: Hold::Registers(vectors),
        max_teams,
        ..shape
    })
}

/// Whether a tuner wants to know what registers make of it.
fn asks_for_registers(work: &Work) -> bool {
    work.knobs.row == Some(RowHeld::Registers)
}

/// Where so many vectors of a unit stay.
fn held(work: &Work, hardware: &Hardware, vectors: usize) -> Hold {
    let bytes = vectors * work.vector * work.held;
    let is_read_twice =
        work.reduces && work.merge != Merge::Sums && work.run.is_none() && work.strands == 1;
    let fits = is_read_twice && bytes <= ASKED_OF_COLUMN;
    let asked = size(vectors).filter(|_| fits && asks_for_registers(work));
    asked.map_or_else(|| registers(work, hardware, vectors), Hold::Registers)
}

/// Whether so many cubes keep the device busy without parts of rows.
fn fills(hardware: &Hardware, cubes: usize) -> bool {
    cubes >= cubes_to_fill(hardware, CUBES_OF_COLUMNS)
}

/// So many columns side by side in a cube, which has so many times the units that it has by itself.
fn columns(work: &Work, hardware: &Hardware, x: usize, times: usize) -> Shape {
    let cubes = work.groups.div_ceil(x);
    let limit = match work.knobs.units {
        Some(_) => UNITS_OF_COLUMNS,
        None if work.strands > 1 && !(work.is_half && work.merge == Merge::Sums) => {
            UNITS_OF_STRANDS
        }
        None => times * units_of_columns(work, hardware, cubes),
    };
    let limit = limit.min(hardware.max_units_per_cube as usize);
    let wanted = work.knobs.units.map_or(work.steps, |units| units as usize);
    let y = wanted.min(work.steps).max(1).next_power_of_two();
    // A power of two as well: who merges them halves their number.
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
    let hold = |y: usize| {
        let splits = splits(y);
        match splits > 1 {
            true => Hold::Reread,
            false => held(work, hardware, work.steps.div_ceil(splits).div_ceil(y)),
        }
    };
    let fits = |y: usize| {
        let (merge, is_held) = (work.merge, hold(y) != Hold::Reread);
        let merged = merged_bytes(
            x * y,
            work.vector,
            merge,
            is_held,
            work.accumulation,
            hardware,
        );
        y == 1 || !work.reduces || merged <= hardware.max_shared_memory
    };
    let mut y = y;
    while !fits(y) {
        y /= 2;
    }
    Shape {
        strategy: Strategy::Column,
        level: Level::Column,
        cube_dim: [x as u32, y as u32, 1],
        teams_per_cube: x as u32,
        hold: hold(y),
        splits: splits(y),
        peers: 1,
        max_teams: usize::MAX,
        held_columns: Hold::Reread,
        room: 1,
        reason: "",
    }
}

/// How many times the usual units a cube has whose columns go through so many steps.
fn times_of_steps(work: &Work) -> usize {
    let sums = work.merge == Merge::Sums;
    let (few, many) = (work.steps <= FEW_STEPS, work.steps <= MANY_STEPS);
    match work.is_single {
        false if many || sums || work.is_half && !work.params_by_step => 1,
        false => 2,
        true if few && work.is_half => 1,
        true if few || sums || many && work.is_half => 2,
        true => 4,
    }
}

/// Units of a cube that reduces columns: more where rows cannot be split in parts enough to fill the device, as far as
/// shared memory has room for what they merge.
fn units_of_columns(work: &Work, hardware: &Hardware, cubes: usize) -> usize {
    let is_whole = work.reduces && work.strands == 1 && fills(hardware, cubes);
    if is_whole && work.steps <= MOST_STEPS {
        return times_of_steps(work) * UNITS_OF_COLUMNS;
    }
    if cubes * MAX_SPLITS >= cubes_to_fill(hardware, CUBES_OF_COLUMNS) {
        return UNITS_OF_COLUMNS;
    }
    let of_unit = MERGED_OF_UNIT * work.vector * work.accumulation;
    let room = (hardware.max_shared_memory / of_unit).max(1);
    (1 << room.ilog2()).clamp(UNITS_OF_COLUMNS, MOST_UNITS_OF_COLUMNS)
}
