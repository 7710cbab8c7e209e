//! Buffering of a row in registers while its column sums are staged, backward.

use super::column_sums::merged_of_cube;
use crate::plan::backward_blueprint::RowBuffering;
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::StagingPreference;
use crate::plan::schedule::Schedule;
use crate::plan::team::Level;
use crate::plan::workload::Workload;
use crate::problem::Access;

/// 32-bit values that the units of a cube may stage, of columns and rows: half of a
/// multiprocessor's registers. The other half remains for computation.
const STAGED_OF_CUBE: usize = 1 << 15;

/// The same for double-buffered rows and a scale, if column sums are in shared memory.
const ROWS_AND_SCALE: usize = 40 << 10;

/// Units of a cube, and columns per unit, that leave too few registers for a converted f16/bf16
/// row.
/// 16,384 f16 H200, one pass -> both passes convert the row: 1.18x faster.
pub(super) const CROWDED: u32 = 1024;
const COLUMNS_IN_FLIGHT: usize = 16;

/// The buffering of rows for units that stage column sums, before loads in flight and the staging
/// of the scale are chosen.
pub(in crate::plan) fn row_buffering(work: &Workload, schedule: &Schedule) -> RowBuffering {
    let preference = work.knobs.row;
    let vectors = schedule.staged_columns.vectors();
    let Some(vectors) = vectors.filter(|_| work.reduces) else {
        return RowBuffering::RELOAD;
    };
    let columns = vectors * schedule.team.vector;
    let is_column = schedule.team.level() == Level::Perpendicular;
    let (in_registers, _) = schedule.staged_columns.places();
    // Lanes along rows share one sum.
    let of_vector = if is_column { 1 } else { schedule.team.vector };
    let sums = in_registers * of_vector * work.column_sums;
    let sums = sums * work.accumulation() / 4;
    let row = work.reads * columns * work.dtype.size() / 4;
    let units = (schedule.team.size() * schedule.team.columns()) as usize;
    let fits = |numbers: usize| numbers * units <= STAGED_OF_CUBE;
    // Two sums leave no registers for the next row.
    // 4,096 f32 H200, without -> with prefetch: 1.05x to 1.1x slower.
    let has_two_sums =
        work.column_sums == 2 && matches!(schedule.staged_columns, Staging::Registers(2..));
    let is_half = work.is_half();
    match preference {
        // Prefetch would load the saved statistics of one row only.
        // 96 to 384 channels f32 H100, layer norm, reloaded -> staged: 1.20x to 1.30x faster.
        _ if is_column => match fits(sums + row) && preference != Some(StagingPreference::Reload) {
            true => RowBuffering::Single,
            false => RowBuffering::RELOAD,
        },
        None if has_two_sums && !is_half && fits(sums + row) => RowBuffering::Single,
        // One vector cannot be double-buffered in SPIR-V: CubeCL 0.11.3 panics at its index, a
        // constant zero.
        None | Some(StagingPreference::Shared) if fits(sums + 2 * row) => {
            match vectors > 1 && (schedule.team.cluster_size() > 1 || is_wide(work, schedule)) {
                true => RowBuffering::DoubleBuffer {
                    scale: Staging::Reload,
                },
                false => RowBuffering::Prefetch,
            }
        }
        Some(StagingPreference::Reload) => RowBuffering::RELOAD,
        _ if fits(sums + row) => RowBuffering::Single,
        _ => RowBuffering::RELOAD,
    }
}

/// True if the converted values of an f16/bf16 row leave a unit no registers for computation.
pub(in crate::plan) fn is_wide(work: &Workload, schedule: &Schedule) -> bool {
    let columns = schedule.staged_columns.vectors().unwrap_or(0) * schedule.team.vector;
    let is_crowded = schedule.team.size() >= CROWDED;
    work.is_half() && (is_crowded || columns > COLUMNS_IN_FLIGHT)
}

/// Staging of the scale from row to row. A load behind a row in flight would wait for that row.
pub(in crate::plan) fn staged_scale(
    scale: Option<&Access>,
    work: &Workload,
    schedule: &Schedule,
    hardware: &Hardware,
) -> Staging {
    let is_same = |scale: &Access| scale.row.is_empty() && !scale.col.is_empty();
    let Some(vectors) = schedule.staged_columns.vectors() else {
        return Staging::Reload;
    };
    if !scale.is_some_and(is_same) {
        return Staging::Reload;
    }
    let (_, sums) = schedule.staged_columns.times(work.column_sums).places();
    let columns = sums * work.accumulation() + vectors * work.param_dtype.size();
    let units = schedule.team.size() as usize;
    let merged = merged_of_cube(work, schedule.team.size(), hardware);
    // Two buffers of all tensors, and the scale as one more. An f32 scale of f16/bf16 rows is larger
    // than that.
    let numbers = (2 * work.reads + 1) * vectors * schedule.team.vector * work.dtype.size() / 4;
    let has_room = schedule.team.size() < CROWDED
        && work.param_dtype.size() <= work.dtype.size()
        && numbers * schedule.team.size() as usize <= ROWS_AND_SCALE;
    match units * schedule.team.vector * columns + merged <= hardware.max_shared_memory {
        _ if has_room => Staging::Registers(vectors),
        true => Staging::Shared(vectors),
        false => Staging::Reload,
    }
}
