//! Which results a CPU stores past its caches.

use crate::plan::grid::Cut;
use crate::plan::lanes::Vectors;
use crate::plan::task::Task;
use crate::plan::{AccessBlueprint, Hardware, Hold, Lanes, Level, LoadMode};

/// Bytes of the narrowest vector that a processor stores past its caches.
const LEAST_STORE: usize = 16;

/// Whether a result that is accessed like this may go past the caches of a CPU, since what the call moves is half of them
/// or more.
///
/// Whoever reads the result next finds it there only if all that is worked on meanwhile fits as well. Measured with AVX2 and
/// 32 MiB, a norm and two copies after one another: with results of the norm past the caches they take 1.3 to 1.9 times the time
/// where it moves 2 to 12 MiB, 1.0 at 16, 0.92 to 0.96 at 24 and more. At 16, four norms alone take 0.84 of the time.
pub(in crate::plan) fn may_pass_caches(
    result: AccessBlueprint,
    vector: usize,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    result.mode == LoadMode::Vector && is_beyond(vector, task, hardware)
}

/// Vectors of the shortest run that has them: at its ends a line is written twice, in part, and read from memory for that.
const LEAST_BETWEEN_ENDS: usize = 32;

/// Whether the results of a call may go past the caches, in vectors of so many lanes.
fn is_beyond(vector: usize, task: &Task, hardware: &Hardware) -> bool {
    let is_wide = vector * task.dtype.size() >= LEAST_STORE;
    // A repeated element counts as often as it is there, which may be more than a number holds.
    let elements = task.rows.saturating_mul(task.cols);
    let moved = elements.saturating_mul((task.reads + 1) * task.dtype.size());
    is_wide && hardware.passable_caches.is_some_and(|it| moved >= it / 2)
}

/// Whether a result may whose vectors do not divide its runs: all but the ends of each, where parameters are the same
/// along it.
pub(in crate::plan) fn may_pass_between_ends(
    result: AccessBlueprint,
    vectors: Vectors,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    result.ragged
        && result.mode == LoadMode::Adjacent
        && vectors.run >= LEAST_BETWEEN_ENDS * vectors.width
        && same_params
        && is_beyond(vectors.width, task, hardware)
}

/// Whether it does.
pub(in crate::plan) fn passes_between_ends(
    result: AccessBlueprint,
    cut: &Cut,
    vectors: Vectors,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    let is_alone = cut.abreast == 1 && cut.hold == Hold::Reread && cut.team.level == Level::Unit;
    is_alone && may_pass_between_ends(result, vectors, task, same_params, hardware)
}

/// Whether it does.
///
/// Lines that a core fills so have buffers of their own, and rows that it goes through abreast take each other's: measured with
/// AVX2, four rows of 4 KiB abreast take 2.3 times the time that they take through the caches, one 0.76. Rows side by side
/// continue each other's lines, and rows that are held are written one after another.
pub(in crate::plan) fn passes_caches(
    result: AccessBlueprint,
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let in_order = cut.abreast == 1 || cut.team.side_by_side || cut.hold != Hold::Reread;
    in_order && may_pass_caches(result, cut.team.vector, task, hardware)
}

/// Bytes of the longest row that is fetched while the one before it is normalized: both have to be in a core's second-level
/// cache. Measured with 2 MiB of it, rows of 256 KiB to 2 MiB take 1.06 to 1.18 times the time, of 64 and 127 KiB 0.8 to 0.97.
const LONGEST_FETCHED: usize = 128 << 10;

/// Whether a core fetches its next row while it normalizes one that it reads again.
///
/// Memory has nothing to do then but to take results: what a core's prefetcher asks for by itself begins with the row.
/// Measured with AVX2, twenty shapes in one order and eleven of them in the other: 0.96 and 0.90 of the time in the mean, RMS norm
/// of 4,096 and 8,192 halves 0.78 to 0.81, single ones of halves 1.25 and, where both were slow, 1.84 in one order; with AVX-512 0.79 to
/// 1.03 up to 128 KiB. To fetch what is written, too, takes 0.9 to 1.19 times
/// the time of that.
pub(in crate::plan) fn fetches_next(
    input: AccessBlueprint,
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let team = &cut.team;
    hardware.passable_caches.is_some()
        && task.cols * task.dtype.size() <= LONGEST_FETCHED
        && matches!(input.mode, LoadMode::Vector | LoadMode::Adjacent)
        && task.reduces
        && team.level == Level::Unit
        && team.lanes == Lanes::Columns
        && !team.parts
        && !team.joined
        && cut.hold == Hold::Reread
        && cut.abreast == 1
}
