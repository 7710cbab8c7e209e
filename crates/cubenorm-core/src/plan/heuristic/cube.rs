//! One cube for each row: its units, and what each of them has.

use super::hold::{
    FLOATS_OF_UNIT, HALVES_OF_UNIT, HELD_SUMS, HELD_VECTORS, SHORT_HALVES, UNITS_WITH_SUMS,
    held_columns, holds, is_staged, registers, room, size, slots,
};
use super::{Shape, Work};
use crate::plan::hardware::LANES;
use crate::plan::{Hardware, Hold, Level, Merge, Strategy};

/// Columns of a row that one cube takes alone at most where it holds sums of them; what several gain is measured in
/// [`super::peers`].
pub(super) const COLUMNS_OF_CUBE: usize = 1 << 14;

/// Units of a cube that reduces nothing, at most. Measured on an H200: batch norm by given statistics in rows of
/// 100,352 and 200,704 floats takes 0.92 of the time of 1,024.
const UNITS_WITHOUT_SUMS: usize = 512;

/// Vectors that a unit should have in flight before a cube gets more units: enough to cover the
/// latency of memory, few enough to stay in registers.
pub(super) const CUBE_VECTORS: usize = 4;

/// Bytes of such a vector, as computed: of narrower ones a unit has more. Measured on an H200: rows of 2,025 floats
/// that no vector divides take 0.63 of the time with 16 of them in a unit instead of 4; backward, where two tensors are
/// read, those of halves 0.9 with 16 instead of 8, which is what floats have.
const CUBE_VECTOR_BYTES: usize = 16;

/// Vectors that a unit has where half the units have fewer of them idle, and those of three that half the units share
/// where they wait twice for each other: the more a unit has, the more rows are under way. Measured on an H200, layer
/// norm of halves: rows of 1,280, 2,560 and 5,120 take 0.85 to 0.9 of the time with 5 of them in each unit instead of
/// 2.5, of 7,168 and 14,336 0.8 to 0.9 with 7 instead of 3.5, of 12,288 0.8 with 6 instead of 3.
const FILLING_VECTORS: usize = 8;

/// A cube for `steps` steps of a row.
pub(super) fn cube(work: &Work, hardware: &Hardware, steps: usize, plane: Option<u32>) -> Shape {
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
    let few = if hardware.is_software() { LANES } else { 32 };
    let smallest = plane.unwrap_or(few).min(largest);
    let per_unit = (HELD_SUMS / sums.max(1)).clamp(1, most);
    let wanted = steps.div_ceil(per_unit).next_power_of_two();
    let wanted = match work.column_sums == 0 && wanted as u32 >= 2 * smallest {
        true => with_fewer_idle(work, steps, wanted),
        false => wanted,
    };
    let units = match work.knobs.units {
        Some(units) => units.clamp(1, largest).next_power_of_two(),
        // Few units have registers for the next row of halves and for the scale.
        None if work.is_half && work.column_sums > 0 && steps * work.vector <= COLUMNS_OF_CUBE => {
            (wanted.min(UNITS_WITH_SUMS) as u32).min(largest)
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
    let slots = slots(units, plane);
    let hold = match hardware.cpu_cores {
        // Shared memory is a CPU's cache, and the row is there already.
        Some(_) => registers(work, hardware, per_unit),
        None => holds(work, hardware, per_unit)
            .find(|&hold| room(work, hardware, hold, units, slots) > 0)
            .unwrap_or(Hold::Reread),
    };
    let (held_columns, max_teams) = held_columns(work, hardware, Level::Cube, per_unit, units);
    Shape {
        room: room(work, hardware, hold, units, slots),
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
