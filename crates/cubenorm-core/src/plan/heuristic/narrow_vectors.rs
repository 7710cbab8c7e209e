//! Narrow vectors: fewer lanes than a load brings, if registers or shared memory gain by it.

use super::row_buffering::{CROWDED, row_buffering};
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::Knobs;
use crate::plan::schedule::{Alternatives, Schedule};
use crate::plan::team::{Level, Vectorization};
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// GPU: bytes of a narrow vector in the accumulation dtype. Neighbouring units then hit different
/// banks of shared memory with column sums. Long rows that are reloaded need fewer registers.
/// 8,192 and 16,384 f16/bf16 H200, twice the width -> narrow: 1.05x to 1.33x faster.
const NARROW_VECTOR: usize = 16;

/// Units of a cube that takes all registers of a multiprocessor, 64 per unit.
const FULL_CUBE: u32 = 1024;

/// Minimum bytes of a unit's adjacent columns: a plane then covers a whole cache line.
const LEAST_OF_COLUMNS: usize = 4;

/// Vectors live across the steps of a pass that computes mean and squares at once: two sums of a
/// block, two next addends, and the shift.
const KEPT_FOR_MOMENTS: usize = 5;

/// Elements of a row up to which two column sums leave registers for narrow vectors only.
/// 2,048 and fewer f16 H200, backward, wide -> narrow: 1.25x to 1.33x faster.
const SHORT_ROW: usize = 2048;

/// Steps per unit from which a row is long for a cube.
const LONG_STEPS: usize = 4;

/// Forward: narrow vectors for f16/bf16 rows.
pub(in crate::plan) fn of_halves(
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
    knobs: Knobs,
) -> Alternatives {
    let may_narrow = work.is_half() && knobs.vector.is_none();
    let bytes = narrow_vector(schedule, work, hardware).filter(|_| may_narrow);
    let narrow = bytes.map(|bytes| Knobs {
        vector: Some(bytes / work.accumulation()),
        ..knobs
    });
    Alternatives {
        knobs: narrow.into_iter().collect(),
        // Narrow vectors may be too many to stage.
        must_stage: schedule.staging != Staging::Reload,
    }
}

/// Bytes of the vectors to compute in, if narrower than a load brings; `None` for the width of a
/// load.
///
/// CPU: rows staged in registers, and moments that would spill. GPU: short rows of a plane, means
/// of rows that take all registers, and reloaded columns.
/// 320 to 512 f16/bf16 AVX-512, reloaded -> staged in narrow vectors: 1.02x to 1.32x faster.
fn narrow_vector(schedule: &Schedule, work: &Workload, hardware: &Hardware) -> Option<usize> {
    match hardware.cpu_cores {
        Some(_) => {
            let is_staged_row = schedule.staging != Staging::Reload;
            let bits = 8 * schedule.team.vector * work.accumulation();
            let takes_both = schedule.team.lanes() == Vectorization::Parallel
                && schedule.team.merge == Merge::Moments;
            let is_full = takes_both && KEPT_FOR_MOMENTS * bits > hardware.register_bits as usize;
            (is_staged_row || is_full).then_some(hardware.load_width as usize / 8)
        }
        // Units of a plane have at most two vectors of a short row.
        None => {
            let of_two = 2 * schedule.team.size() as usize;
            let is_short = schedule.team.level() == Level::Plane && schedule.grid.steps <= of_two;
            let is_full = matches!(schedule.staging, Staging::Mixed { .. })
                && schedule.team.size() >= FULL_CUBE
                && schedule.team.merge.takes_means();
            let is_tall = work.reduces
                && schedule.team.level() == Level::Perpendicular
                && schedule.staging == Staging::Reload;
            (is_short || is_full || is_tall).then_some(NARROW_VECTOR)
        }
    }
}

/// Forward: narrower vectors, widest first, for staging columns of f32 that do not fit a GPU's cube
/// otherwise. f16/bf16 columns gain nothing.
/// 96 channels f32 H200, layer norm, four reloaded -> two staged lanes: 1.32x faster.
pub(in crate::plan) fn of_columns(
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
    knobs: Knobs,
) -> Alternatives {
    let is_reloaded = schedule.staging == Staging::Reload && schedule.grid.splits == 1;
    let gains = schedule.team.level() == Level::Perpendicular
        && hardware.is_gpu()
        && work.reduces
        && is_reloaded
        && !work.is_half()
        && knobs.vector.is_none();
    let wide = work.vector;
    let least = LEAST_OF_COLUMNS.div_ceil(work.dtype.size());
    let halvings = (wide / least).checked_ilog2().filter(|_| gains);
    let narrow = (1..=halvings.unwrap_or(0)).map(|halvings| Knobs {
        vector: Some(wide >> halvings),
        ..knobs
    });
    Alternatives {
        knobs: narrow.collect(),
        must_stage: true,
    }
}

/// Backward: narrow vectors for column sums in shared memory, and for rows that need registers.
pub(in crate::plan) fn backward(
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
    knobs: Knobs,
) -> Alternatives {
    let team = &schedule.team;
    let holds_many = schedule.staged_columns.places().1 > 0;
    let is_crowded = holds_many && team.size() >= CROWDED && !work.is_half();
    let narrowings = match is_crowded && row_buffering(work, schedule).reloads() {
        true => 2,
        false => 1,
    };
    let widest = NARROW_VECTOR / narrowings / work.accumulation();
    let is_narrow = match schedule.staged_columns {
        _ if holds_many => true,
        _ if !hardware.is_gpu() || knobs.vector.is_some() => false,
        // Staged rows along the kept axis are read once, with fewer loads in wide vectors.
        staged if team.lanes() == Vectorization::Perpendicular => staged == Staging::Reload,
        // Narrow vectors occupy all units evenly, unlike these.
        Staging::Registers(_)
            if team.exact_vectors().is_none()
                && work.cols.is_multiple_of(widest * team.size() as usize) =>
        {
            true
        }
        // Units of a cube reload a row in several steps each.
        Staging::Reload => {
            let steps = schedule.grid.steps.div_ceil(team.size() as usize);
            team.level() == Level::Cube && steps >= LONG_STEPS
        }
        _ => work.column_sums == 2 && work.cols <= SHORT_ROW,
    };
    if !is_narrow || work.vector <= widest {
        return Alternatives::default();
    }
    // The same units with more vectors each, if nothing is staged.
    let has_more = team.level() == Level::Cube && work.column_sums == 0;
    let narrow = Knobs {
        vector: Some(widest),
        units: knobs.units.or(has_more.then_some(team.size())),
        ..knobs
    };
    Alternatives {
        knobs: vec![narrow],
        // Narrow vectors may be too many to stage.
        must_stage: holds_many,
    }
}
