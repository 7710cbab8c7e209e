//! The launch between reducing and writing that combines per-segment statistics into per-group
//! statistics.

use super::hardware::Hardware;
use super::heuristic::strategy;
use super::knobs::Knobs;
use super::result::{Combine, PlanError};
use super::schedule::Schedule;
use super::strategy::Strategy;
use super::workload::Workload;
use super::workspace::{combined_statistics, partial_statistics};

/// Workspace elements of the first of two launches, and the launch that combines segments if there
/// are any. Each segment adds `shifts` values to its statistics.
pub(super) fn between_launches(
    work: &Workload,
    schedule: &Schedule,
    shifts: usize,
    hardware: &Hardware,
) -> Result<(usize, Option<Combine>), PlanError> {
    let Schedule { team, grid, .. } = schedule;
    if work.segments == 1 {
        return Ok((partial_statistics(team, grid, 0), None));
    }
    let plane_size = work.knobs.plane_size;
    let has_planes = hardware.is_gpu() && hardware.plane(plane_size).is_some();
    let knobs = Knobs {
        plane_size,
        planned_groups: work.knobs.planned_groups,
        ..Knobs::from(match has_planes {
            true => Strategy::Plane,
            false => Strategy::Unit,
        })
    };
    let (rows, cols) = (work.rows / work.segments, work.segments * grid.splits);
    let dtype = work.dtype.accumulation();
    let segments = Workload {
        merge: work.merge,
        reads: work.reads,
        groups: work.knobs.planned_groups.unwrap_or(rows),
        ..Workload::new(rows, cols, dtype, knobs)
    };
    let combine = strategy::schedule(&segments, hardware)?;
    let combine = Combine {
        team: combine.team,
        grid: combine.grid,
        workspace: combined_statistics(rows, shifts),
    };
    Ok((partial_statistics(team, grid, shifts), Some(combine)))
}
