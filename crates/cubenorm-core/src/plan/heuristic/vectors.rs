//! Vectors narrower than a load, loads in flight, and rows that are one block.

use super::BLOCK;
use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{Hardware, Level, Merge, Staging, Vectorization};

/// GPU: bytes of a narrow vector in the accumulation dtype. Neighbouring units then hit different
/// banks of shared memory with column sums. Long rows that are reloaded need fewer registers.
/// 8,192 and 16,384 f16/bf16 H200, twice the width -> narrow: 1.05x to 1.33x faster.
pub(in crate::plan) const NARROW_VECTOR: usize = 16;

/// Units of a cube that takes all registers of a multiprocessor, 64 per unit.
const FULL_CUBE: u32 = 1024;

/// Loads in flight per unit of a team for a row that is reloaded, issued before the first store. If
/// nothing is reduced, the first read is the only one, and more loads in flight are slower.
/// Batch norm f16/bf16 H200, 1 -> 4 loads in flight: 1.03x to 1.49x faster.
pub(in crate::plan) const MAX_LOADS_IN_FLIGHT: usize = 4;

/// Minimum bytes of a unit's adjacent columns: a plane then covers a whole cache line.
const LEAST_OF_COLUMNS: usize = 4;

/// Minimum steps of a segment for loading its parameters once. A separate loop over fewer steps
/// costs more. It also counts towards lavapipe's limit on loop iterations.
pub(in crate::plan) const LEAST_RUN: usize = 4;

/// Vectors live across the steps of a pass that computes mean and squares at once: two sums of a
/// block, two next addends, and the shift.
const KEPT_FOR_MOMENTS: usize = 5;

/// Bytes of the vectors to compute in, if narrower than a load brings; `None` for the width of a
/// load.
///
/// CPU: rows staged in registers, and moments that would spill. GPU: short rows of a plane, means
/// of rows that take all registers, and reloaded columns.
/// 320 to 512 f16/bf16 AVX-512, reloaded -> staged in narrow vectors: 1.02x to 1.32x faster.
pub(in crate::plan) fn narrow_vector(cut: &Cut, task: &Task, hardware: &Hardware) -> Option<usize> {
    match hardware.cpu_cores {
        Some(_) => {
            let is_staged_row = cut.staging != Staging::Reload;
            let bits = 8 * cut.team.vector * task.dtype.accumulation().size();
            let takes_both =
                cut.team.lanes == Vectorization::Parallel && cut.team.merge == Merge::Moments;
            let is_full = takes_both && KEPT_FOR_MOMENTS * bits > hardware.register_bits as usize;
            (is_staged_row || is_full).then_some(hardware.load_width as usize / 8)
        }
        // Units of a plane have at most two vectors of a short row.
        None => {
            let of_two = 2 * cut.team.size as usize;
            let is_short = cut.team.level == Level::Plane && cut.grid.steps <= of_two;
            let is_full = matches!(cut.staging, Staging::Mixed { .. })
                && cut.team.size >= FULL_CUBE
                && cut.team.merge.takes_means();
            let is_tall = task.reduces
                && cut.team.level == Level::Perpendicular
                && cut.staging == Staging::Reload;
            (is_short || is_full || is_tall).then_some(NARROW_VECTOR)
        }
    }
}

/// Loads in flight per unit of a row that is reloaded; 1 if more do not pay off.
///
/// They pay off for teams that reduce. On CPU Vulkan they pay off for a unit that owns its row, if
/// steps share their parameters.
/// Batch norm lavapipe, provided statistics: 1.04x to 1.32x faster.
pub(in crate::plan) fn loads_in_flight(
    cut: &Cut,
    task: &Task,
    same_params: bool,
    hardware: &Hardware,
) -> usize {
    let pays = match cut.team.level {
        Level::Unit => same_params && hardware.is_cpu_vulkan(),
        Level::Plane | Level::Cube | Level::Perpendicular => task.reduces,
    };
    match cut.staging == Staging::Reload && pays {
        true => (MAX_LOADS_IN_FLIGHT / cut.rows_per_unit).max(1),
        false => 1,
    }
}

/// True if a core sums a short row as one block. Merging two blocks takes two divisions, and their
/// lanes are then reduced twice, the second time around the mean. The core would wait for all of
/// it. f32 rows wait for memory instead, and RMS norm has nothing to divide.
/// 640 to 1,024 f16/bf16 AVX-512, layer norm: 1.0x to 1.19x faster.
pub(in crate::plan) fn is_one_block(cut: &Cut, task: &Task, hardware: &Hardware) -> bool {
    let team = &cut.team;
    let is_read_whole = !team.parts && !team.segmented && !team.has_tail;
    hardware.cpu_cores.is_some()
        && task.dtype.is_half()
        && task.merge.takes_means()
        && team.lanes == Vectorization::Parallel
        && cut.staging == Staging::Reload
        && is_read_whole
        && cut.grid.steps <= BLOCK
}

/// Lanes of narrower vectors, widest first, for staging columns of f32 that do not fit a GPU's cube
/// otherwise. f16/bf16 columns gain nothing.
/// 96 channels f32 H200, layer norm, four reloaded -> two staged lanes: 1.32x faster.
pub(in crate::plan) fn narrower_columns(
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
) -> impl Iterator<Item = usize> + use<> {
    let reads_again = task.reduces && cut.staging == Staging::Reload && cut.grid.splits == 1;
    let is_float = !task.dtype.is_half();
    let wide = cut.team.vector;
    let least = LEAST_OF_COLUMNS.div_ceil(task.dtype.size());
    let may_hold = is_float && reads_again && hardware.is_gpu();
    let halvings = match cut.team.level == Level::Perpendicular && may_hold {
        true => (wide / least).checked_ilog2().unwrap_or(0),
        false => 0,
    };
    (1..=halvings).map(move |halvings| wide >> halvings)
}
