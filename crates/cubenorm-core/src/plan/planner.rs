//! The planning that forward and backward passes share: vectors, rows per unit, a schedule, and a
//! better schedule for other vectors or units.

use super::hardware::Hardware;
use super::heuristic::vector_width::{self, Tensors};
use super::heuristic::{rows_per_unit, strategy, tile};
use super::knobs::Knobs;
use super::result::PlanError;
use super::schedule::{Alternatives, Schedule};
use super::workload::Workload;
use crate::plan::blueprint::Staging;

/// What differs between a forward and a backward problem for its schedule.
pub(super) trait Pass: Sized {
    /// Rules that improve a schedule, in turn.
    const REFINEMENTS: [Refinement<Self>; 2];

    /// The properties of the problem. Its vectors are chosen later.
    fn workload(&self, knobs: Knobs) -> Workload;

    /// The tensors that vectors must suit.
    fn tensors(&self) -> Tensors<'_>;

    /// Rows that a unit may process together.
    fn rows_per_unit(&self, work: &Workload, hardware: &Hardware) -> usize;
}

/// A rule that proposes knobs for a schedule. The last argument has the caller's knobs.
pub(super) type Refinement<P> = fn(&P, &Schedule, &Workload, &Hardware, Knobs) -> Alternatives;

/// Schedules a problem on a device.
///
/// # Errors
///
/// [`PlanError`] if the problem is empty or a forced strategy does not apply.
pub(super) fn schedule<P: Pass>(
    problem: &P,
    hardware: &Hardware,
    knobs: Knobs,
) -> Result<(Workload, Schedule), PlanError> {
    let with = |knobs: Knobs| {
        let work = problem.workload(knobs);
        if work.rows == 0 || work.cols == 0 {
            return Err(PlanError::Empty);
        }
        let mut work = vector_width::choose(work, &problem.tensors(), hardware);
        work.tile = tile::tile(&work, hardware);
        let rows = problem.rows_per_unit(&work, hardware);
        work.rows_per_unit = rows_per_unit::limited(rows, &work, hardware);
        Ok((work, strategy::schedule(&work, hardware)?))
    };
    let (mut work, mut schedule) = with(knobs)?;
    for refine in P::REFINEMENTS {
        let alternatives = refine(problem, &schedule, &work, hardware, knobs);
        for knobs in alternatives.knobs {
            let (other_work, other) = with(knobs)?;
            if !alternatives.must_stage || other.staged(&other_work) != Staging::Reload {
                (work, schedule) = (other_work, other);
                break;
            }
        }
    }
    Ok((work, schedule))
}
