//! Loads in flight of a row that is reloaded.

use super::cpu_vulkan;
use crate::backward::BackwardProblem;
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;

/// Loads in flight per unit of a team for a row that is reloaded, issued before the first store. If
/// nothing is reduced, the first read is the only one, and more loads in flight are slower.
/// Batch norm f16/bf16 H200, 1 -> 4 loads in flight: 1.03x to 1.49x faster.
const MAX_LOADS_IN_FLIGHT: usize = 4;

/// 32-bit values of loads in flight per unit that reloads its row.
/// Batch norm f16 H200, backward, 1 -> 4 steps in flight: 1.08x to 1.25x faster.
const NUMBERS_IN_FLIGHT: usize = 16;

/// Loads in flight per unit of a row that is reloaded; 1 if more do not pay off.
///
/// They pay off for teams that reduce. On CPU Vulkan they pay off for a unit that owns its row, if
/// steps share their parameters.
/// Batch norm lavapipe, provided statistics: 1.04x to 1.32x faster.
pub(in crate::plan) fn forward(
    schedule: &Schedule,
    work: &Workload,
    same_params: bool,
    hardware: &Hardware,
) -> usize {
    let pays = match schedule.team.level() {
        Level::Unit => same_params && cpu_vulkan::loads_ahead(hardware),
        Level::Plane | Level::Cube | Level::Perpendicular => work.reduces,
    };
    match schedule.staging == Staging::Reload && pays {
        true => (MAX_LOADS_IN_FLIGHT / schedule.rows_per_unit).max(1),
        false => 1,
    }
}

/// Loads in flight of a reloaded row, in steps. A unit that owns a row hides latency with other
/// rows or with a CPU's cache.
///
/// A unit of a CPU Vulkan driver has neither.
/// Batch norm lavapipe, backward, 1 -> 4 steps in flight: 1.16x to 1.39x faster.
pub(in crate::plan) fn backward(
    problem: &BackwardProblem,
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
) -> usize {
    let is_perpendicular = schedule.team.level() == Level::Perpendicular;
    let is_alone = schedule.team.level() == Level::Unit;
    if is_alone && cpu_vulkan::loads_ahead(hardware) && !problem.weights() {
        return (MAX_LOADS_IN_FLIGHT / schedule.rows_per_unit).max(1);
    }
    // 96 channels f32 H200, layer norm, backward, 1 -> 2 steps in flight: 1.05x to 1.15x slower.
    let is_short = is_perpendicular && schedule.grid.splits == 1;
    let has_others = is_alone || is_short && !work.is_half();
    let holds_sums = schedule.staged_columns != Staging::Reload && !is_perpendicular;
    if holds_sums || !has_others && work.reduces {
        let numbers = work.reads * work.vector * work.dtype.size() / 4;
        return (NUMBERS_IN_FLIGHT / numbers.max(1)).clamp(1, MAX_LOADS_IN_FLIGHT);
    }
    1
}
