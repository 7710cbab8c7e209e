//! Non-temporal stores and prefetch on a CPU.

use crate::plan::grid::Cut;
use crate::plan::lanes::Vectors;
use crate::plan::task::Task;
use crate::plan::{AccessBlueprint, Hardware, Level, LoadMode, Staging, Vectorization};

/// Bytes of the narrowest non-temporal vector store.
const LEAST_STORE: usize = 16;

/// True if an output with this access may use non-temporal stores: the call moves at least half the
/// CPU's caches.
///
/// With fewer bytes, the output is still cached when the next kernel reads it.
/// 24 MiB and more AVX2, 32 MiB cache, one norm and two copies: 1.04x to 1.09x faster.
pub(in crate::plan) fn may_be_nontemporal(
    result: AccessBlueprint,
    vector: usize,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    result.mode == LoadMode::Vector && exceeds_threshold(vector, task, hardware)
}

/// Minimum length of a segment in vectors. Cache lines at its head and tail are written twice, in
/// part, and first read from memory.
const LEAST_BEFORE_TAIL: usize = 32;

/// True if the call moves enough for non-temporal stores, in vectors of `vector` lanes.
fn exceeds_threshold(vector: usize, task: &Task, hardware: &Hardware) -> bool {
    let is_wide = vector * task.dtype.size() >= LEAST_STORE;
    // Broadcast elements count every time they occur, so the product may overflow.
    let elements = task.rows.saturating_mul(task.cols);
    let moved = elements.saturating_mul((task.reads + 1) * task.dtype.size());
    is_wide
        && hardware
            .nontemporal_threshold
            .is_some_and(|it| moved >= it / 2)
}

/// True if an output may use non-temporal stores although its segments have tails. They cover each
/// segment except its head and tail, and need parameters that are constant along it.
pub(in crate::plan) fn may_be_nontemporal_before_tail(
    result: AccessBlueprint,
    vectors: Vectors,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    result.has_tail
        && result.mode == LoadMode::Unaligned
        && vectors.run >= LEAST_BEFORE_TAIL * vectors.width
        && same_params
        && exceeds_threshold(vectors.width, task, hardware)
}

/// True if such an output uses non-temporal stores: a unit owns its row, reloads it, and processes
/// one row at a time.
pub(in crate::plan) fn is_nontemporal_before_tail(
    result: AccessBlueprint,
    cut: &Cut,
    vectors: Vectors,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    let is_alone =
        cut.rows_per_unit == 1 && cut.staging == Staging::Reload && cut.team.level == Level::Unit;
    is_alone && may_be_nontemporal_before_tail(result, vectors, task, same_params, hardware)
}

/// True if an output uses non-temporal stores: [`may_be_nontemporal`] allows them, and the lines are
/// written in order.
///
/// Partly written lines occupy the few fill buffers of a core, and interleaved rows evict each
/// other's. Tiles continue each other's lines, and staged rows are written one after another.
/// Four interleaved rows of 4 KiB AVX2, cached -> non-temporal stores: 2.3x slower.
pub(in crate::plan) fn is_nontemporal(
    result: AccessBlueprint,
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let in_order = cut.rows_per_unit == 1 || cut.team.tile || cut.staging != Staging::Reload;
    in_order && may_be_nontemporal(result, cut.team.vector, task, hardware)
}

/// Bytes of the longest row that is prefetched. A core's second-level cache must hold it and the
/// row before it.
/// 64 and 127 KiB, 2 MiB of second-level cache: 1.03x to 1.25x faster.
const LONGEST_PREFETCHED: usize = 128 << 10;

/// True if a core prefetches its next row while it normalizes one that it reloads.
///
/// Memory only takes stores in that pass, and the hardware prefetcher starts with the next row's
/// first load. Prefetching the output as well gains nothing.
/// 20 shapes AVX2, mean: 1.04x faster.
pub(in crate::plan) fn prefetch_next_row(
    input: AccessBlueprint,
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> bool {
    let team = &cut.team;
    hardware.nontemporal_threshold.is_some()
        && task.cols * task.dtype.size() <= LONGEST_PREFETCHED
        && matches!(input.mode, LoadMode::Vector | LoadMode::Unaligned)
        && task.reduces
        && team.level == Level::Unit
        && team.lanes == Vectorization::Parallel
        && !team.parts
        && !team.segmented
        && cut.staging == Staging::Reload
        && cut.rows_per_unit == 1
}
