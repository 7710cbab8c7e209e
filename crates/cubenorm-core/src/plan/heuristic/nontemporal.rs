//! Threshold of non-temporal stores on a CPU.

use super::load_mode;
use super::vector_width::steps_of_segment;
use crate::plan::blueprint::{AccessBlueprint, LoadMode, Staging};
use crate::plan::hardware::Hardware;
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;
use crate::problem::{Access, NormProblem};

/// Bytes of the narrowest non-temporal vector store.
const LEAST_STORE: usize = 16;

/// Minimum length of a segment in vectors. Cache lines at its head and tail are written twice, in
/// part, and first read from memory.
const LEAST_BEFORE_TAIL: usize = 32;

/// True if the call moves at least half the CPU's caches, in vectors that are wide enough. With
/// fewer bytes, the output is still cached when the next kernel reads it.
/// 24 MiB and more AVX2, 32 MiB cache, one norm and two copies: 1.04x to 1.09x faster.
fn exceeds_threshold(work: &Workload, hardware: &Hardware) -> bool {
    let is_wide = work.vector * work.dtype.size() >= LEAST_STORE;
    // Broadcast elements count every time they occur, so the product may overflow.
    let elements = work.rows.saturating_mul(work.cols);
    let moved = elements.saturating_mul((work.reads + 1) * work.dtype.size());
    let threshold = hardware.nontemporal_threshold;
    is_wide && threshold.is_some_and(|it| moved >= it / 2)
}

/// True if an output may use non-temporal stores although its segments have tails. They cover each
/// segment except its head and tail, and need parameters that are constant along it.
fn may_precede_tail(
    output: AccessBlueprint,
    work: &Workload,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    output.has_tail()
        && output.mode == LoadMode::Unaligned
        && work.segment_len >= LEAST_BEFORE_TAIL * work.vector
        && same_params
        && exceeds_threshold(work, hardware)
}

/// True if the output of a forward pass may use non-temporal stores, by any schedule.
pub(super) fn may_apply(problem: &NormProblem, work: &Workload, hardware: &Hardware) -> bool {
    let output = load_mode::access(&problem.output, work);
    let is_constant = |param: &Access| param.col.is_empty();
    let same_params =
        steps_of_segment(problem.params(), work).is_some() || problem.params().all(is_constant);
    output.mode == LoadMode::Vector && exceeds_threshold(work, hardware)
        || may_precede_tail(output, work, same_params, hardware)
}

/// True if an output of whole vectors uses non-temporal stores: its lines are written in order.
///
/// Partly written lines occupy the few fill buffers of a core, and interleaved rows evict each
/// other's. Tiles continue each other's lines, and staged rows are written one after another.
/// Four interleaved rows of 4 KiB AVX2, cached -> non-temporal stores: 2.3x slower.
pub(in crate::plan) fn applies(
    output: AccessBlueprint,
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
) -> bool {
    let is_staged = schedule.staging != Staging::Reload;
    let in_order = schedule.rows_per_unit == 1 || schedule.team.is_tile() || is_staged;
    in_order && output.mode == LoadMode::Vector && exceeds_threshold(work, hardware)
}

/// True if an output with tails uses non-temporal stores: a unit owns its row, reloads it, and
/// processes one row at a time.
pub(in crate::plan) fn applies_before_tail(
    output: AccessBlueprint,
    schedule: &Schedule,
    work: &Workload,
    same_params: bool,
    hardware: &Hardware,
) -> bool {
    let is_alone = schedule.rows_per_unit == 1
        && schedule.staging == Staging::Reload
        && schedule.team.level() == Level::Unit;
    is_alone && may_precede_tail(output, work, same_params, hardware)
}
