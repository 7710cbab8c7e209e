//! Vectors narrower than a load, how many of them are under way, and whether a row's are one block.

use super::BLOCK;
use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{Hardware, Hold, Lanes, Level, Merge};

/// Bytes that a vector of a GPU's unit accumulates at most where sums of columns lie in shared memory, so that its
/// neighbours find other banks, and where long rows are read again, so that it needs fewer registers. Measured on
/// an H200, beside vectors twice as wide: rows of 8,192 and 16,384 halves take 0.75 to 0.95 of the time, longer
/// ones, and the launch over their columns, 0.7. Short rows of halves that a plane holds take 0.9 to 0.95.
pub(in crate::plan) const NARROW_VECTOR: usize = 16;

/// Units of a cube that has all registers of a multiprocessor, 64 for each.
const FULL_CUBE: u32 = 1024;

/// Steps of a row that is read again which a unit of a team asks for before it writes the first. Measured on an H200,
/// forward, beside one at a time: batch norm of floats takes 0.88 to 0.97 of the time, with channels last 0.87 to 0.94,
/// of halves 0.67 to 0.97, layer norm over channels of halves 0.5 to 0.75, rows of 131,072 halves 0.82; eight of them
/// are level. Where nothing is reduced, and the first read is the only one, it takes 1.03 to 1.3 times the time.
pub(in crate::plan) const STEPS_UNDER_WAY: usize = 4;

/// Bytes of a unit's columns side by side at least: those of a plane are a line of memory then.
const LEAST_OF_COLUMNS: usize = 4;

/// Steps that share their parameters from which on those are read once for all of them: a loop of its own for fewer
/// would be more than that, and a software driver's loops end somewhere.
pub(in crate::plan) const LEAST_RUN: usize = 4;

/// Vectors that a pass over a row keeps from step to step where it takes the mean and squares at once: two sums of a
/// block, two of what is added to them next, and where deviations are taken from.
const KEPT_FOR_MOMENTS: usize = 5;

/// Bytes of the vectors that short rows of halves are computed in, where those are fewer than a load brings; and long
/// ones that leave a unit no registers, where means are taken off, or columns are read again. Measured
/// with AVX-512: what is held in vectors of 16 halves takes 0.85 to 0.95 of the time of 32, but rows of 320 to 512 are held in
/// those alone, and take 0.76 to 0.98 of the time of being read again; with AVX2, whose registers
/// are a quarter of those, norms of halves with a mean that are read again 0.76 to 1.08, 0.93 in the mean, and RMS norm 1.07 and 1.53;
/// on an H200: layer norm of 65,536 halves 0.93, batch norm of halves with channels last 0.87 to 0.92, layer norm over
/// 192 channels 0.9.
pub(in crate::plan) fn narrow_vector(cut: &Cut, task: &Task, hardware: &Hardware) -> Option<usize> {
    match hardware.cpu_cores {
        Some(_) => {
            let is_held = cut.hold != Hold::Reread;
            let bits = 8 * cut.team.vector * task.dtype.accumulation().size();
            let takes_both = cut.team.lanes == Lanes::Columns && cut.team.merge == Merge::Moments;
            let is_full = takes_both && KEPT_FOR_MOMENTS * bits > hardware.register_bits as usize;
            (is_held || is_full).then_some(hardware.load_width as usize / 8)
        }
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

/// Steps that a unit asks for at once of a row that it reads again: one of a team, and one of a software driver's that
/// has a row for itself, where several steps have the same parameters.
///
/// Measured on Mesa's driver: batch norm by given statistics takes 0.76 to 0.96 of the time, group norm 0.88 to 0.94,
/// instance norm 0.94 to 0.98; with parameters of each step norms are level.
pub(in crate::plan) fn under_way(
    cut: &Cut,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> usize {
    let pays = match cut.team.level {
        Level::Unit => same_params && hardware.is_software(),
        Level::Plane | Level::Cube | Level::Column => task.reduces,
    };
    match cut.hold == Hold::Reread && pays {
        true => (STEPS_UNDER_WAY / cut.abreast).max(1),
        false => 1,
    }
}

/// Whether rows are so short that a core should sum them up as one block: two blocks are merged with two divisions, and then
/// the lanes are summed up twice, the second time around the mean, for all of which it would wait. Measured with AVX-512, layer
/// norm of 640 to 1,024 halves takes 0.84 to 1 times the time, of 2,048 0.76 to 1.1; of 384 to 1,024 floats, which wait for
/// memory, 0.97 to 1.14; RMS norm, which has nothing to divide, 0.98 and 0.99.
pub(in crate::plan) fn is_one_block(cut: &Cut, task: &Task, hardware: &Hardware) -> bool {
    let team = &cut.team;
    let is_read_whole = !team.parts && !team.joined && !team.ragged;
    hardware.cpu_cores.is_some()
        && task.dtype.is_half()
        && task.merge.takes_means()
        && team.lanes == Lanes::Columns
        && cut.hold == Hold::Reread
        && is_read_whole
        && cut.grid.steps <= BLOCK
}

/// Lanes of narrower vectors that a GPU's cubes may hold columns of floats in, where they do not hold those of so many,
/// widest first. Measured on an H200: layer norm over 96 channels of floats takes 0.76 of the time where each unit holds
/// two lanes, beside four that are read again; of halves two lanes that are held take 1.08 times the time of four.
pub(in crate::plan) fn narrower_columns(
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
