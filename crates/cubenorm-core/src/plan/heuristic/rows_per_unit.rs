//! Rows per unit.

use super::are_even;
use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{AccessBlueprint, Hardware, Knobs, Level, Merge, Staging, Team, Vectorization};
use crate::{NormProblem, StatisticsKind};

/// Maximum elements of the short f16/bf16 rows that a plane processes together. f32 rows gain
/// nothing.
/// 256 f16/bf16 H200, layer norm, 1 -> 4 rows per unit: 1.25x to 1.33x faster.
const SHORT_ROWS: usize = 1024;

/// Planes that a multiprocessor runs at once.
const PLANES_OF_MULTIPROCESSOR: usize = 32;

/// CPU and CPU Vulkan: maximum rows per unit. More rows save little more of the shared loads.
const MAX_ROWS_PER_UNIT: usize = 4;

/// Maximum rows per unit on any device: code grows with them.
pub(in crate::plan) const MOST_ROWS_PER_UNIT: usize = 8;

/// [`MOST_ROWS_PER_UNIT`] for rows with an overlapping tail vector. With AVX-512, eight rows are as fast
/// as four and take two seconds to compile.
const MOST_ROWS_WITH_TAIL: usize = 4;

/// Bits of registers per such row.
const TAIL_BITS: u32 = 1 << 11;

/// CPU Vulkan: bytes of the rows that a unit processes together. With the rows of seven
/// neighbouring units, they should stay in a core's second-level cache. Longer rows leave that
/// cache in any case.
/// Rows of 1 KiB lavapipe, 1 -> 4 rows per unit: 1.43x faster.
const ROWS_PER_UNIT_BYTES: usize = 32 << 10;

/// CPU: minimum rows that fit the registers for staging two at a time. One row proceeds while the
/// other waits for its sums.
/// 64 to 96 f16/bf16 AVX-512, 1 -> 2 rows per unit: 1.11x to 1.25x faster.
const SHORT_ROWS_OF_REGISTERS: usize = 5;

/// CPU: maximum staged f16/bf16 rows per unit if a mean is computed, which makes a row wait for two
/// reductions.
/// 192 and 256 f16/bf16 AVX-512, layer norm, 1 -> 2 rows per unit: 1.25x to 1.33x faster.
const MOST_HALF_ROWS_PER_UNIT: usize = 4;

/// CPU Vulkan: minimum vectors of units per core that more rows per unit must leave. Fewer vectors
/// gain little. The bound also lets calls with similar row counts share a kernel.
const VECTORS_OF_SOFTWARE_CORE: usize = 8;

/// Maximum vectors in a core's tile of adjacent rows: their state must fit the first-level cache. A
/// tile with only some of the adjacent rows is slower unless it saves a launch.
/// Group norm, channels-last AVX-512, forward, 1 -> 2 to 8 vectors: 1.20x to 1.64x faster.
const MOST_ROWS_OF_TILE: usize = 20;

/// [`MOST_ROWS_OF_TILE`] if nothing is reduced, which leaves less state per row.
/// Batch norm, channels-last f16/bf16, provided statistics, 2 to 8 vectors: 1.01x to 1.41x faster.
const MOST_OF_PROVIDED: usize = 64;

/// Maximum rows per unit for rows with an overlapping tail vector.
pub(in crate::plan) fn most_rows_with_tail(hardware: &Hardware) -> usize {
    ((hardware.register_bits / TAIL_BITS) as usize).clamp(1, MOST_ROWS_WITH_TAIL)
}

/// Minimum vectors in a tile of segments that holds whole rows and needs one launch instead of
/// three.
/// Group norm, channels-last f32 AVX2, three launches -> one with four vectors: 1.25x to 2.22x
/// faster.
const LEAST_OF_SEGMENTS: usize = 4;

/// Maximum segments in such a tile: a core keeps six values of each.
/// 480 segments f16/bf16 AVX2, three launches -> one: 1.05x to 1.32x slower.
const MOST_SEGMENTS: usize = 320;

/// Maximum bytes of a line of segments that a tile covers as a whole, if lines balance over cores.
/// Memory is then read and written contiguously.
/// Lines of 128 to 768 bytes AVX2, group norm, forward: 1.05x to 1.41x faster.
const WHOLE_LINE: usize = 768;

/// Vectors in a core's tile of adjacent rows. A tile takes all `run` contiguous vectors, so that
/// each step continues the one before in memory, or one vector. A tile of segments takes a short
/// line, or the fewest vectors with whole rows.
pub(in crate::plan) fn tile(
    groups: usize,
    run: usize,
    vector: usize,
    task: &Task,
    cores: u32,
    knobs: Knobs,
) -> usize {
    let segments = task.segments;
    let most = match task.reduces || task.merge == Merge::Sums {
        true => MOST_ROWS_OF_TILE,
        false => MOST_OF_PROVIDED,
    };
    let fits = |vectors: &usize| {
        *vectors <= most && run.is_multiple_of(*vectors) && groups.is_multiple_of(*vectors)
    };
    let has_whole_rows = |vectors: &usize| (vectors * vector).is_multiple_of(segments);
    let is_short = run * vector * task.dtype.size() <= WHOLE_LINE;
    let of_segments = || {
        let are_even = |lines| are_even(lines, cores);
        let line = (is_short && groups.checked_div(run).is_some_and(are_even)).then_some(run);
        let few = LEAST_OF_SEGMENTS..=MOST_SEGMENTS / vector;
        let mut vectors = line.into_iter().chain(few);
        vectors.find(|vectors| segments > 1 && has_whole_rows(vectors) && fits(vectors))
    };
    let wanted = knobs
        .rows_per_unit
        .or_else(of_segments)
        .unwrap_or(run)
        .max(1);
    if fits(&wanted) { wanted } else { 1 }
}

/// Rows per unit, if all rows share the parameters that vary along them; else 1.
///
/// CPU: rows that exceed the first-level cache share loads of parameters from the second level. One
/// row at a time if [`may_be_nontemporal`](super::may_be_nontemporal) allows non-temporal stores, which
/// interleaved rows slow down.
/// 2,048 f32 AVX-512, 32 KiB of first-level cache, 1 -> 4 rows per unit: 1.09x to 1.64x faster.
///
/// Provided statistics: short rows are the channels of one spatial position in channels-last
/// layout. Rows shorter than a vector share a square root and a division.
pub(in crate::plan) fn rows_per_unit(
    groups: usize,
    task: &Task,
    params: &[Option<AccessBlueprint>],
    is_nontemporal: bool,
    hardware: &Hardware,
    knobs: Knobs,
) -> usize {
    let mut given = params.iter().flatten();
    let shares = given.clone().all(|p| p.row_dims == 0) && given.any(|p| p.col_dims > 0);
    if !shares {
        return 1;
    }
    if let Some(rows) = knobs.rows_per_unit {
        return rows.clamp(1, MOST_ROWS_PER_UNIT).min(groups.max(1));
    }
    let is_half = task.dtype.is_half();
    let row_bytes = task.cols * task.dtype.size();
    let by_step = params.iter().flatten().filter(|p| p.col_dims > 0).count();
    let rows = match (hardware.cpu_cores, hardware.cpu_vulkan_lanes()) {
        (Some(cores), _) => {
            let computed = (task.cols * task.dtype.accumulation().size()).max(1);
            let fit = hardware.register_bits as usize / 8 / computed;
            // Bytes per row that pass through a core's first-level cache, output included.
            let params = by_step * task.cols * task.param_dtype.size();
            let passing = (task.reads + 1) * row_bytes + params;
            let of_register = hardware.widest_vector(task.dtype.accumulation().size());
            let most = match passing < hardware.max_shared_memory {
                // One square root and one division serve all rows.
                true if !task.reduces && task.cols < of_register => MAX_ROWS_PER_UNIT,
                true if !task.reduces && is_nontemporal => 1,
                true if is_half && task.merge.takes_means() => fit.min(MOST_HALF_ROWS_PER_UNIT),
                true if fit >= SHORT_ROWS_OF_REGISTERS => 2,
                true => 1,
                false if is_nontemporal => 1,
                false => MAX_ROWS_PER_UNIT,
            };
            most.min(groups / cores as usize)
        }
        (None, Some(lanes)) => {
            let cached = match ROWS_PER_UNIT_BYTES / row_bytes.max(1) {
                0 => MAX_ROWS_PER_UNIT,
                rows => rows.clamp(2, MAX_ROWS_PER_UNIT),
            };
            cached.min(groups / (VECTORS_OF_SOFTWARE_CORE * lanes))
        }
        (None, None) if is_half => {
            let processors = hardware.processors();
            let spare = groups / (processors * PLANES_OF_MULTIPROCESSOR);
            spare
                .min(SHORT_ROWS * 2 / row_bytes.max(1))
                .min(MOST_ROWS_PER_UNIT)
        }
        (None, None) => 1,
    };
    match rows {
        0 => 1,
        rows => 1 << rows.ilog2(),
    }
}

/// Maximum steps whose parameters a core keeps. Eight vectors of each of three fill most registers
/// of AVX-512.
const MOST_KEPT: usize = 8;

/// Steps of a row with provided statistics whose parameters a core keeps; `None` to reload them.
/// Requires that all rows share them. It saves a square root and a division at each step of each
/// row.
/// Batch norm, 3 channels-last f32 AVX-512: 1.75x faster.
pub(in crate::plan) fn params_kept(
    problem: &NormProblem,
    cut: &Cut,
    hardware: &Hardware,
) -> Option<usize> {
    let Team {
        level,
        lanes,
        parts,
        has_tail,
        ..
    } = cut.team;
    let is_row_of_core = hardware.cpu_cores.is_some()
        && (level, lanes) == (Level::Unit, Vectorization::Parallel)
        && !parts
        && !has_tail
        && cut.staging == Staging::Reload;
    let is_provided = problem.statistics == StatisticsKind::Provided;
    let are_same = problem.params().all(|param| param.row.is_empty());
    let by_step = problem.params().any(|param| !param.col.is_empty());
    let keeps = is_row_of_core && is_provided && are_same && by_step;
    (keeps && cut.grid.steps <= MOST_KEPT).then_some(cut.grid.steps)
}
