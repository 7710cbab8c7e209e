//! One cube per row: its units, and the vectors per unit.

use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::heuristic::column_sums::{SHORT_HALVES, STAGED_SUMS, staged_columns};
use crate::plan::heuristic::cpu_vulkan;
use crate::plan::heuristic::staging::{
    STAGED_VECTORS, UNITS_WITH_SUMS, holds, is_staged, registers, room, size, slots,
};
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Maximum columns of a row that one cube takes with column sums. Clusters take longer rows: see
/// [`cluster`](mod@crate::plan::heuristic::cluster).
pub(in crate::plan::heuristic) const COLUMNS_OF_CUBE: usize = 1 << 14;

/// Maximum units per cube if nothing is reduced.
/// 100,352 and 200,704 f32 H200, batch norm with provided statistics, 1,024 -> 512 units: 1.09x
/// faster.
const UNITS_WITHOUT_SUMS: usize = 512;

/// Vectors in flight per unit above which a cube gets more units. Enough to hide memory latency,
/// few enough for registers.
pub(in crate::plan::heuristic) const CUBE_VECTORS: usize = 4;

/// Bytes of such a vector in the accumulation dtype. Units take more of narrower vectors.
/// 2,025 f32 in single lanes H200, 4 -> 16 vectors per unit: 1.59x faster.
const CUBE_VECTOR_BYTES: usize = 16;

/// Maximum vectors per unit if a cube takes half its units: see [`with_fewer_idle`]. More vectors
/// per unit keep more rows in flight.
/// 7,168 and 14,336 f16/bf16 H200, layer norm, 3.5 -> 7 vectors per unit: 1.11x to 1.25x faster.
const FILLING_VECTORS: usize = 8;

/// Units of a cube before they take more vectors of a row that [fills registers](Workload::fills_registers).
const UNITS_WITH_LATE: usize = 64;

/// Minimum columns of f32 per unit of a cube with column sums. Units take more only if
/// [`UNITS_WITH_SUMS`] of them do not cover the row.
/// 512 to 2,048 f32 H200, backward, 8 -> 4 columns per unit: 1.05x to 1.08x faster.
const FLOATS_OF_UNIT: usize = 4;
/// [`FLOATS_OF_UNIT`] for f16/bf16. Doubled for two sums and rows longer than [`SHORT_HALVES`].
const HALVES_OF_UNIT: usize = 8;

/// Schedules one cube for `steps` steps of a row.
pub(in crate::plan::heuristic) fn cube(
    work: &Workload,
    hardware: &Hardware,
    steps: usize,
    plane: Option<u32>,
) -> Schedule {
    let units = units(work, hardware, steps, plane);
    let per_unit = steps.div_ceil(units as usize);
    let slots = slots(units, plane);
    let staging = match hardware.cpu_cores {
        // Shared memory of a CPU is its cache, which already holds the row.
        Some(_) => registers(work, hardware, per_unit),
        None => holds(work, hardware, per_unit)
            .find(|&staging| room(work, hardware, staging, units, slots) > 0)
            .unwrap_or(Staging::Reload),
    };
    let (staged_columns, max_teams) = staged_columns(work, hardware, Level::Cube, per_unit, units);
    Schedule {
        staging,
        staged_columns,
        rows_per_unit: room(work, hardware, staging, units, slots),
        max_teams,
        ..Schedule::new(work, Level::Cube, [units, 1, 1])
    }
}

/// Units of a cube for `steps` steps of a row: at least one plane, and at least two.
fn units(work: &Workload, hardware: &Hardware, steps: usize, plane: Option<u32>) -> u32 {
    let largest = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
    let largest = 1 << largest.ilog2();
    let few = cpu_vulkan::smallest_cube(hardware).unwrap_or(32);
    let smallest = plane.unwrap_or(few).min(largest);
    let wanted = steps.div_ceil(vectors_per_unit(work, hardware, steps));
    let wanted = wanted.next_power_of_two();
    let wanted = match work.column_sums == 0 && wanted as u32 >= 2 * smallest {
        true => with_fewer_idle(work, steps, wanted),
        false => wanted,
    };
    let columns = steps * work.vector;
    let units = match work.knobs.units {
        Some(units) => {
            let units = units.clamp(1, largest).next_power_of_two();
            return units.max(smallest);
        }
        // Few units leave registers for the next row of f16/bf16 and for the scale.
        None if work.is_half() && work.column_sums > 0 && columns <= COLUMNS_OF_CUBE => {
            wanted.min(UNITS_WITH_SUMS)
        }
        // Units need no barrier, and smaller cubes shorten the last wave.
        None if !work.reduces => wanted.min(UNITS_WITHOUT_SUMS),
        None => wanted,
    };
    let units = (units.min(largest as usize) as u32).max(smallest);
    if work.column_sums == 0 {
        return units;
    }
    match filled_by_columns(work, columns, smallest) {
        Some(units) => units.min(largest),
        None => units.max(units_with_sums(work, columns).min(largest)),
    }
}

/// Maximum vectors per unit.
fn vectors_per_unit(work: &Workload, hardware: &Hardware, steps: usize) -> usize {
    // A vector's column sums, in 4-byte values. They bound the vectors per unit.
    let sums = work.vector * work.column_sums * work.accumulation() / 4;
    let narrow = CUBE_VECTOR_BYTES / (work.vector * work.accumulation());
    // Long rows with two reductions (mean, then squares) take few units, which leaves registers for
    // other cubes. Rows with squares alone are faster without it.
    let most = match is_staged(work, hardware, steps) && work.merge == Merge::Moments {
        _ if work.fills_registers(hardware) => {
            (steps / UNITS_WITH_LATE).clamp(CUBE_VECTORS, FILLING_VECTORS)
        }
        true => STAGED_VECTORS,
        false if work.column_sums > 0 => CUBE_VECTORS,
        false if work.is_half() => (CUBE_VECTORS * narrow).clamp(CUBE_VECTORS, STAGED_VECTORS),
        false => (CUBE_VECTORS * narrow / work.reads).clamp(CUBE_VECTORS, STAGED_VECTORS),
    };
    (STAGED_SUMS / sums.max(1)).clamp(1, most)
}

/// Units of a cube for few columns with column sums each.
fn units_with_sums(work: &Workload, columns: usize) -> u32 {
    let is_crowded = work.is_half() && work.column_sums == 2 && columns > *SHORT_HALVES.end();
    let of_unit = match (work.is_half(), is_crowded) {
        (false, _) => FLOATS_OF_UNIT,
        (true, false) => HALVES_OF_UNIT,
        (true, true) => 2 * HALVES_OF_UNIT,
    };
    let units = columns.div_ceil(of_unit).next_power_of_two();
    units.min(UNITS_WITH_SUMS) as u32
}

/// Returns half of `units` if fewer vectors idle then, or if three per unit would wait for two
/// reductions. Returns `units` otherwise.
fn with_fewer_idle(work: &Workload, steps: usize, units: usize) -> usize {
    let places = |units: usize| units * size(steps.div_ceil(units)).unwrap_or(usize::MAX / units);
    let (many, few) = (units, units / 2);
    let waits_twice = work.merge == Merge::Moments && steps == 3 * many;
    let fits = steps.div_ceil(few) <= FILLING_VECTORS;
    match fits && (places(few) < places(many) || waits_twice) {
        true => few,
        false => many,
    }
}

/// Units of a cube that all have the same number of columns. `None` unless there are 3, 5 or 7
/// times a power of two columns.
///
/// 768 to 7,168 f16/bf16 H200, backward, with 20 to 28 columns per unit: 1.05x to 1.33x faster.
fn filled_by_columns(work: &Workload, columns: usize, smallest: u32) -> Option<u32> {
    let odd = columns >> columns.trailing_zeros();
    let is_light = !work.is_half() && work.column_sums == 1;
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
    match work.is_half() && odd == 3 {
        true => units(2 * FLOATS_OF_UNIT * odd).or(short),
        false => short,
    }
}
