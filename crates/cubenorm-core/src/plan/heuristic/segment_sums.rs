//! Sums of column segments, backward: dgamma and dbeta of the channels of a group.

use super::vector_width::LEAST_SEGMENT;
use crate::backward::BackwardProblem;
use crate::plan::accuracy::MOST_BLOCKS;
use crate::plan::knobs::Knobs;
use crate::plan::schedule::{Alternatives, Schedule};
use crate::plan::team::{Level, Vectorization};
use crate::plan::workload::Workload;

/// Minimum units of a cube whose planes sum column segments; all of them write the row.
/// 16 channels of 1,024 f32 H200, group norm, one -> two planes per channel: 1.18x slower.
const LEAST_UNITS_OF_SEGMENTS: u32 = 256;

/// One plane per summed segment, if a cube has more units than that.
pub(in crate::plan) fn planes(
    problem: &BackwardProblem,
    schedule: &Schedule,
    work: &Workload,
    knobs: Knobs,
) -> Alternatives {
    let team = &schedule.team;
    let units = problem.summed_segment().map(|segment| {
        let count = (work.cols / segment).next_power_of_two() as u32;
        let units = count.saturating_mul(team.plane_size());
        units.max(LEAST_UNITS_OF_SEGMENTS)
    });
    let has_more = team.level() == Level::Cube && team.plane_size() > 0;
    let fewer = units.filter(|&units| has_more && units < team.size());
    let fewer = fewer.map(|units| Knobs {
        units: knobs.units.or(Some(units)),
        vector: work.knobs.vector,
        ..knobs
    });
    Alternatives {
        knobs: fewer.into_iter().collect(),
        must_stage: false,
    }
}

/// Steps of a summed segment if a unit or plane may sum each of a row's segments by itself.
pub(in crate::plan) fn steps(problem: &BackwardProblem, schedule: &Schedule) -> Option<usize> {
    let columns = problem.summed_segment()?;
    let team = &schedule.team;
    let least = match team.level() {
        // Shorter segments do not pay for a loop of their own.
        Level::Unit => LEAST_SEGMENT,
        // At least half of a plane's units have a step.
        Level::Plane | Level::Cube => (team.plane_size() as usize).div_ceil(2),
        Level::Perpendicular => 0,
    };
    let steps = columns.div_ceil(team.vector);
    let by_itself = team.lanes() == Vectorization::Parallel && !team.has_parts();
    let is_whole = match team.has_tail() {
        true => schedule.grid.segment_steps == steps,
        false => columns.is_multiple_of(team.vector),
    };
    // Segment sums are added like block sums; more of them would lose precision.
    let keeps_digits = problem.cols / columns <= MOST_BLOCKS;
    (by_itself && is_whole && keeps_digits && least > 0 && steps >= least).then_some(steps)
}
