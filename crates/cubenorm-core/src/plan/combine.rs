//! The launch between reducing and writing that combines per-segment statistics into per-group
//! statistics.

use super::footprint::{combined_statistics, partial_statistics};
use super::grid::{Cut, Grid, cut};
use super::lanes::Vectors;
use super::task::Task;
use super::{Hardware, Knobs, PlanError, Strategy, StrategyChoice, Team, Vectorization, heuristic};

/// The launch that combines the statistics of segments. One team combines the segments of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combine {
    /// The team of a group.
    pub team: Team,
    /// The launch sizes.
    pub grid: Grid,
    /// Elements of the accumulation dtype that it writes: a few values per group.
    pub workspace: usize,
}

/// Workspace elements of the first of two launches, and the launch that combines segments if there
/// are any. Each segment adds `shifts` values to its statistics.
pub(super) fn between_launches(
    task: &Task,
    of: &Cut,
    shifts: usize,
    hardware: &Hardware,
    knobs: Knobs,
) -> Result<(usize, Option<Combine>), PlanError> {
    if task.segments == 1 {
        return Ok((partial_statistics(&of.team, &of.grid, 0), None));
    }
    let of_parts = partial_statistics(&of.team, &of.grid, shifts);
    let segments = Task {
        rows: task.rows / task.segments,
        cols: task.segments * of.grid.splits,
        dtype: task.dtype.accumulation(),
        staged: task.dtype.accumulation(),
        reduces: true,
        segments: 1,
        ..*task
    };
    let one_by_one = Vectors {
        lanes: Vectorization::Parallel,
        width: 1,
        run: segments.cols,
        has_tail: false,
        cols: segments.cols,
    };
    let has_planes = heuristic::plane_size(hardware, knobs).is_some() && hardware.is_gpu();
    let choice = StrategyChoice::Forced(Knobs {
        strategy: Some(match has_planes {
            true => Strategy::Plane,
            false => Strategy::Unit,
        }),
        plane_size: knobs.plane_size,
        ..Knobs::default()
    });
    let combine = cut(&segments, one_by_one, hardware, choice, |_| 1)?;
    let combine = Combine {
        team: combine.team,
        grid: combine.grid,
        workspace: combined_statistics(segments.rows, shifts),
    };
    Ok((of_parts, Some(combine)))
}
