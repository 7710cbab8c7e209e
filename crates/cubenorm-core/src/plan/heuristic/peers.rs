//! Several cubes for each row, in one launch.

use super::cube::{COLUMNS_OF_CUBE, cube};
use super::{Shape, Work};
use crate::plan::{Hardware, Hold, Knobs, RowHeld};

/// Columns of floats of each of several cubes that share a row: as many as leave room for the next row. Measured on an H200, backward, beside one cube for a row: rows of 32,768 halves take
/// 0.84 to 0.93 of the time; rows of floats 0.78 (32,768) and 0.6 to 0.65 (65,536) with 16,384 columns for each cube,
/// and 0.88 to 0.96 of that with 8,192; rows of 20,480 in two cubes 0.9 of the time of four. Halves take 1.2 to 1.3
/// times the time with so few, and rows of 16,384 floats 1.03 to 1.1 in two cubes.
const FLOATS_OF_PEER: usize = 1 << 13;

/// Cubes that share rows at most: each row is as long as the slowest of them takes.
const MOST_PEERS: u32 = 8;

/// Units of such a cube, at most and at least, of which a multiprocessor has one, so that all of them run at once.
/// Fewer have more registers for what they hold, and wait less for each other: measured there, of four cubes for rows
/// of 32,768 floats 256 units each take 1.02 to 1.07 times the time of 512, of eight for rows of 65,536 floats 512 take
/// 1.05 to 1.06 times that of 256. Of halves 512 were the best, or level with 256.
const MOST_UNITS_OF_PEER: u32 = 512;
const LEAST_UNITS_OF_PEER: u32 = 256;

/// Several cubes for each row, where its columns are so many that one could not hold the sums of all.
pub(super) fn peers(work: &Work, hardware: &Hardware, plane: Option<u32>) -> Option<Shape> {
    let columns = work.steps * work.vector;
    let cubes = match work.knobs.peers {
        Some(cubes) => [cubes.clamp(1, MOST_PEERS) as usize; 2],
        // Who shares rows should run at once, and how many cubes do is not known.
        None if hardware.multiprocessors.is_none() => [1; 2],
        None if columns <= COLUMNS_OF_CUBE => [1; 2],
        None if work.is_half => [columns.div_ceil(COLUMNS_OF_CUBE); 2],
        // A few more columns for each, where there is room.
        None => [columns / FLOATS_OF_PEER, columns.div_ceil(FLOATS_OF_PEER)],
    };
    let cubes = cubes.map(|cubes| cubes.clamp(1, MOST_PEERS as usize).next_power_of_two() as u32);
    cubes
        .into_iter()
        .find_map(|cubes| sharing(work, hardware, cubes, plane))
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
