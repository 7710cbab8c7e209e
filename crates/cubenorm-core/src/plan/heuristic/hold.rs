//! Where a row stays between its passes, and the sums of its columns from row to row.

use super::Work;
use super::plane_size;
use crate::plan::footprint::merged_bytes;
use crate::plan::{Hardware, Hold, Level, Merge, RowHeld};

/// Values of 4 bytes that a unit may hold: half of the 64 registers that a CUDA unit has in a cube of 1024,
/// which leaves the rest for addresses and sums. Halves count as much: measured on an H200, rows of 65,536
/// that are held as they are in memory take 1.2 to 1.5 times the time of those that are read again.
const HELD_ELEMENTS: usize = 32;

/// The same where means are taken of rows that have a multiprocessor for themselves: scale and bias, which come while
/// such a row is written, need registers too. Measured on an H100, percent of a copy, with 32, 24, 16 and 12 of them,
/// layer norm of 65,536: floats 88 and 89, 94, 92, 85; bf16 89 and 90, 94, 87, 85; f16 93 and 89, 93, 91, 84. RMS norm
/// gains nothing: floats 98 and 94, 97, 92, 87; bf16 94 and 96, 91, 98, 100; f16 97 and 97, 89, 95, 96.
const HELD_BESIDE_BIAS: usize = 24;

/// Vectors that a unit holds at most: loops over them are unrolled, and code grows with them.
pub(super) const HELD_VECTORS: usize = 16;

/// Sums of columns of 4 bytes that a unit may hold from row to row, beside what it works with.
pub(super) const HELD_SUMS: usize = 32;

/// The same of all units of a cube: an eighth of a multiprocessor's registers, and a quarter where shared
/// memory does not suffice. Measured on an H200: rows of 16,384 with one sum each take 1.4 to 1.6 times the time
/// of shared memory; those of 8,192 as long.
const HELD_SUMS_OF_CUBE: usize = 1 << 13;
const MOST_HELD_SUMS_OF_CUBE: usize = 1 << 14;

/// Columns of halves with two sums, of which registers have room for the sums but not for the next row beside them.
/// Measured on an H200, with the sums in shared memory rows of 1,024 take 0.92 of the time, of 512 0.9 to 1.07.
pub(super) const SHORT_HALVES: std::ops::RangeInclusive<usize> = 512..=1024;

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
pub(super) const FLOATS_OF_UNIT: usize = 4;
pub(super) const HALVES_OF_UNIT: usize = 8;
pub(super) const UNITS_WITH_SUMS: usize = 512;

/// Elements of a row from which a cube holds it in shared memory rather than in registers, and rows that there
/// must be room for then.
const STAGED_ELEMENTS: usize = 1 << 14;
const SIDE_BY_SIDE: usize = 2;

/// Numbers of a unit that a cube merges in shared memory: count, mean and squares.
pub(in crate::plan) const MERGED_OF_UNIT: usize = 3;

/// Units of a multiprocessor that stay and hold sums of columns. More hide more latency, and leave more
/// sums to add up.
const RESIDENT_UNITS: u32 = 1024;

/// Rows below which a team that stays leaves more sums than it saves reads.
const ROWS_OF_A_RESIDENT: usize = 4;

/// Rows that fit at the same time if a team of `members` units holds each of them, of which `slots` leave what they found in
/// a table in shared memory; 0 if not even one does.
pub(super) fn room(
    work: &Work,
    hardware: &Hardware,
    hold: Hold,
    members: u32,
    slots: usize,
) -> usize {
    let members = members as usize;
    let (registers, shared) = hold.places();
    let of_registers = match registers * work.vector * work.accumulation / 4 {
        0 => usize::MAX,
        numbers => (registers_of_unit(hardware) / numbers).max(1),
    };
    let is_held = hold != Hold::Reread;
    let merged = merged_bytes(slots, 1, work.merge, is_held, work.accumulation, hardware);
    let of_row = match members * shared * work.vector * work.held {
        0 if hardware.reuses_shared_memory => 0,
        0 => merged,
        row => row + merged.max(MERGED_OF_UNIT * members * work.accumulation),
    };
    let of_shared = match of_row {
        0 => usize::MAX,
        row => hardware.max_shared_memory / row,
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

/// Units of a cube that leave what they found in shared memory: one of each plane if planes can sum, else all.
pub(super) fn slots(units: u32, plane: Option<u32>) -> usize {
    (units / plane.unwrap_or(1)).max(1) as usize
}

/// Whether a cube holds a row of so many steps in shared memory rather than in registers.
pub(super) fn is_staged(work: &Work, hardware: &Hardware, steps: usize) -> bool {
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
pub(super) fn holds(
    work: &Work,
    hardware: &Hardware,
    vectors: usize,
) -> impl Iterator<Item = Hold> {
    let elements = work.steps * work.vector;
    let is_staged = is_staged(work, hardware, work.steps);
    let is_alone = elements >= STAGED_ELEMENTS && !is_staged;
    let numbers = match is_alone && work.merge == Merge::Moments {
        true => HELD_BESIDE_BIAS,
        false => HELD_ELEMENTS,
    };
    let in_registers = numbers * 4 / (work.vector * work.accumulation);
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
    let order = match is_staged {
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
pub(super) fn registers(work: &Work, hardware: &Hardware, vectors: usize) -> Hold {
    let elements = vectors * work.vector * work.accumulation / 4;
    let may_hold = matches!(work.knobs.row, None | Some(RowHeld::Registers));
    if !may_hold
        || !work.reduces
        || work.run.is_some()
        || work.strands > 1
        || vectors > HELD_VECTORS
        || elements > registers_of_unit(hardware)
    {
        return Hold::Reread;
    }
    size(vectors).map_or(Hold::Reread, Hold::Registers)
}

/// Vectors that a unit is compiled to hold when it needs so many. Few sizes, so that few kernels are
/// compiled: what is too much is masked.
pub(super) fn size(vectors: usize) -> Option<usize> {
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, HELD_VECTORS];
    sizes.into_iter().find(|&size| size >= vectors)
}

/// Numbers of 4 bytes that the sums of so many vectors of columns are.
fn sums_of_columns(work: &Work, per_unit: usize) -> usize {
    per_unit * work.vector * work.column_sums * work.accumulation / 4
}

/// Where the sums of a unit's columns stay from row to row, and the teams that there may be then; no limit
/// where they do not stay, or the rows are too few for teams that do.
pub(super) fn held_columns(
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
    let slots = slots(members, plane_size(hardware, work.knobs));
    let tables = merged_bytes(slots, 1, Merge::Sums, false, work.accumulation, hardware);
    let merged = tables.max(members as usize * MERGED_OF_UNIT * work.accumulation);
    let bytes = |vectors: usize| members as usize * sums_of_columns(work, vectors) * 4 + merged;
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
    let processors = hardware.processors();
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
