//! Rows that a unit takes side by side.

use super::are_even;
use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{AccessBlueprint, Hardware, Hold, Knobs, Lanes, Level, Merge, Team};
use crate::{NormProblem, StatisticsKind};

/// Elements of short rows of halves that a unit's plane takes side by side. Measured on an H200: two rows of 512
/// take 0.9 to 0.95 of the time of one after another in layer norm, four of 256 0.75 to 0.8; floats gain nothing.
const SHORT_ROWS: usize = 1024;

/// Planes that a multiprocessor has side by side.
const PLANES_OF_MULTIPROCESSOR: usize = 32;

/// Rows that a unit takes side by side at most where a CPU does the work: more of them save little more of
/// what they share.
const MAX_ABREAST: usize = 4;

/// Rows that any unit takes side by side at most: code grows with them.
pub(in crate::plan) const MOST_ABREAST: usize = 8;

/// The same of rows whose last vector has some lanes of the one before again. With AVX-512 eight of 1,021 halves take
/// the time of four, and two seconds to compile; with AVX2, which has a quarter of the registers, four rows of 333 to
/// 16,411 numbers take 0.94 to 1.14 times the time of two, and a candidate more to compile.
const MOST_RAGGED_ABREAST: usize = 4;

/// Bits of registers for each of those.
const RAGGED_BITS: u32 = 1 << 11;

/// Bytes of the rows that a unit takes side by side: it comes back to them, and with those of the
/// seven units beside it they should still be in a core's second-level cache, which longer rows leave
/// anyway. Measured on Mesa's driver, beside one at a time: 4 rows of 1 KiB take 0.7 of the time, 2 rows
/// of 16 KiB 0.8, 4 of them 0.8 to 1; 4 rows of 128 and 256 KiB 0.85 to 1.
const ABREAST_BYTES: usize = 32 << 10;

/// Rows of which its registers have room for so many are held there two at a time: one goes on while the other waits
/// for its sums. Measured with AVX-512, two beside one: rows of 64 to 96 halves take 0.8 to 0.9 of the time, of 64 and 96
/// floats 0.92 to 1, of 112 and 128 floats 1.08 to 1.25, of 256 1.5 times that.
const SHORT_ROWS_OF_REGISTERS: usize = 5;

/// Rows of halves that are held side by side at most where a mean is taken off them first, as many as fit: two numbers
/// are waited for. Measured with AVX-512, layer norm, two rows of 192 and 256 beside one take 0.75 to 0.8 of the time, four of
/// 32 to 128 beside two 0.85 to 1.
const MOST_HALVES_ABREAST: usize = 4;

/// Vectors of units for each core of a software driver below which none are given up for rows abreast: few gain little,
/// and calls with a few rows more or less should come to one kernel.
const VECTORS_OF_SOFTWARE_CORE: usize = 8;

/// Vectors of rows that lie side by side that a core takes at most: what it knows of more has no room in its first-level
/// cache. Channels last, beside one vector at a time. Measured with AVX-512: group norm of 2 to 8 vectors takes 0.61 to 0.83 of
/// the time forward and 0.71 to 0.90 back, of 10 to 20 vectors of floats 0.70 to 0.95, of halves 0.70 to 1.35, batch norm of 32 of
/// floats 1.05 to 1.4; instance norm of two 0.36 to 0.79. With AVX2: of 10 to 20 vectors of halves group norm takes 0.77 to 1.15
/// forward and 0.86 to 1.03 back, instance norm 0.83 and 0.91. A part of those that lie side by side takes 0.9 to 1.3 times
/// the time, where it saves no launch.
const MOST_SIDE_BY_SIDE: usize = 20;

/// The same where nothing is reduced, and a core knows less of each. Measured with AVX2 and AVX-512, batch norm of halves by given
/// statistics with channels last, beside rows of a pixel: 2 to 8 vectors take 0.71 to 0.99 of the time, of 16 to 64 0.71 to 1.03;
/// of floats, which wait for memory, 0.96 to 1.17.
const MOST_OF_GIVEN: usize = 64;

/// Rows that a unit takes side by side at most, where a row's last vector has some lanes of the one before again.
pub(in crate::plan) fn most_ragged_abreast(hardware: &Hardware) -> usize {
    ((hardware.register_bits / RAGGED_BITS) as usize).clamp(1, MOST_RAGGED_ABREAST)
}

/// Vectors of strands that a core takes at least, where so many are whole rows, which one launch does. Measured with AVX2, group norm
/// with channels last, beside three launches: of floats one takes 0.94 to 1.31 times the time, four 0.45 to 0.80, five 0.43 to
/// 0.73; of halves five take 0.62 to 1.14, ten 0.84 to 1.3.
const LEAST_OF_STRANDS: usize = 4;

/// Strands that a core takes as few of as have whole rows, at most: it keeps six numbers of each. Measured with AVX2, beside three
/// launches: 15 vectors of 32 halves take 1.05 to 1.32 times the time, of 16 floats 0.63.
const MOST_STRANDS: usize = 320;

/// Bytes of a line of strands that a core takes as a whole at most, where lines come out even among cores, so that memory is read
/// and written from end to end. Measured with AVX2, group norm with channels last, beside as few vectors as have whole rows: lines
/// of 128 to 768 bytes take 0.71 to 0.95 of the time forward and 0.79 to 0.94 back, 1.02 and 1.04 in two runs; of 896
/// 0.74 in halves and 1.07 in floats, of 1,024 and 1,280 1.04 to 1.27.
const WHOLE_LINE: usize = 768;

/// Vectors of rows that a core takes side by side where `run` of them lie end to end: all, so that each step begins where
/// the one before ended, or one; of strands short lines, or as few as have whole rows.
pub(in crate::plan) fn side_by_side(
    groups: usize,
    run: usize,
    vector: usize,
    task: &Task,
    cores: u32,
    knobs: Knobs,
) -> usize {
    let strands = task.strands;
    let most = match task.reduces || task.merge == Merge::Sums {
        true => MOST_SIDE_BY_SIDE,
        false => MOST_OF_GIVEN,
    };
    let fits = |vectors: &usize| {
        *vectors <= most && run.is_multiple_of(*vectors) && groups.is_multiple_of(*vectors)
    };
    let has_whole_rows = |vectors: &usize| (vectors * vector).is_multiple_of(strands);
    let is_short = run * vector * task.dtype.size() <= WHOLE_LINE;
    let of_strands = || {
        let are_even = |lines| are_even(lines, cores);
        let line = (is_short && groups.checked_div(run).is_some_and(are_even)).then_some(run);
        let few = LEAST_OF_STRANDS..=MOST_STRANDS / vector;
        let mut vectors = line.into_iter().chain(few);
        vectors.find(|vectors| strands > 1 && has_whole_rows(vectors) && fits(vectors))
    };
    let wanted = knobs.abreast.or_else(of_strands).unwrap_or(run).max(1);
    if fits(&wanted) { wanted } else { 1 }
}

/// Rows that a unit takes side by side, where all of them share what they are scaled, shifted and
/// normalized by along the row.
///
/// A core of a CPU takes those together that its first-level cache has no room for: what they share comes from the second
/// once for all of them. Measured with AVX-512, rows from memory, four beside one: with 32 KiB of it (Zen 4) layer norm of 2,048 floats or
/// 4,096 halves and more takes 0.61 to 0.92 of the time, of 768 floats 1.3 to 1.6, of 3,072 halves 1.03; with 48 KiB (Zen 5) 2,048
/// floats take 1.2, 4,096 and more 0.95 to 1.04. From a cache four take 0.8 to 0.95 of the time of one. One at a time
/// where its result may [pass](super::may_pass_caches) the caches: measured with AVX2, rows of 4,096 to 65,536 take 0.66 to 0.87
/// of the time of four that do not, two of them 0.68 to 1.01.
///
/// By given statistics short rows are the channels of a pixel, last in memory. Measured with AVX-512, beside two abreast: one whose
/// result passes the caches takes 0.72 to 0.88 of the time with 16, 32 and 64 channels of floats; four of 3 to 12 channels, less
/// than a vector, 0.66 to 0.97.
pub(in crate::plan) fn abreast(
    groups: usize,
    task: &Task,
    params: &[Option<AccessBlueprint>],
    passes_caches: bool,
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
    let is_half = task.dtype.is_half();
    let row_bytes = task.cols * task.dtype.size();
    let by_step = params.iter().flatten().filter(|p| p.col_dims > 0).count();
    let rows = match (hardware.cpu_cores, hardware.software_lanes()) {
        (Some(cores), _) => {
            let computed = (task.cols * task.dtype.accumulation().size()).max(1);
            let fit = hardware.register_bits as usize / 8 / computed;
            // What passes through a core's first-level cache for one row, with the result.
            let params = by_step * task.cols * task.param_dtype.size();
            let passing = (task.reads + 1) * row_bytes + params;
            let of_register = hardware.widest_vector(task.dtype.accumulation().size());
            let most = match passing < hardware.max_shared_memory {
                // Whose deviations are rooted and divided by once for all of them.
                true if !task.reduces && task.cols < of_register => MAX_ABREAST,
                true if !task.reduces && passes_caches => 1,
                true if is_half && task.merge.takes_means() => fit.min(MOST_HALVES_ABREAST),
                true if fit >= SHORT_ROWS_OF_REGISTERS => 2,
                true => 1,
                false if passes_caches => 1,
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
            let processors = hardware.processors();
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

/// Steps of a row whose parameters a core keeps, at most: eight vectors of each of three fill most registers of AVX-512.
const MOST_KEPT: usize = 8;

/// Steps of a row by given statistics whose parameters a core keeps from row to row, where all rows have the same: it would
/// root and divide at each step of each row. Measured with AVX-512, batch norm with channels last: 3 channels take 0.57 of the time in
/// floats and 0.53 in halves, 12 and 16 of halves 0.99 and 0.90, 16 to 64 of floats 0.89 to 0.96, of 128, which are eight
/// steps, 1.02.
pub(in crate::plan) fn params_kept(
    problem: &NormProblem,
    cut: &Cut,
    hardware: &Hardware,
) -> Option<usize> {
    let Team {
        level,
        lanes,
        parts,
        ragged,
        ..
    } = cut.team;
    let is_row_of_core = hardware.cpu_cores.is_some()
        && (level, lanes) == (Level::Unit, Lanes::Columns)
        && !parts
        && !ragged
        && cut.hold == Hold::Reread;
    let is_given = problem.statistics == StatisticsKind::Given;
    let are_same = problem.params().all(|param| param.row.is_empty());
    let by_step = problem.params().any(|param| !param.col.is_empty());
    let keeps = is_row_of_core && is_given && are_same && by_step;
    (keeps && cut.grid.steps <= MOST_KEPT).then_some(cut.grid.steps)
}
