//! Rows per unit: rows that a unit processes together, sharing the loads of parameters.

use super::{cpu_vulkan, nontemporal};
use crate::plan::hardware::Hardware;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;
use crate::problem::{Access, NormProblem};

/// Maximum elements of the short f16/bf16 rows that a plane processes together. f32 rows gain
/// nothing.
/// 256 f16/bf16 H200, layer norm, 1 -> 4 rows per unit: 1.25x to 1.33x faster.
const SHORT_ROWS: usize = 1024;

/// Planes that a multiprocessor runs at once.
const PLANES_OF_MULTIPROCESSOR: usize = 32;

/// CPU: maximum rows per unit. More rows save little more of the shared loads.
const MAX_ROWS_PER_UNIT: usize = 4;

/// Maximum rows per unit on any device: code grows with them.
const MOST_ROWS_PER_UNIT: usize = 8;

/// [`MOST_ROWS_PER_UNIT`] for rows with an overlapping tail vector. With AVX-512, eight rows are as
/// fast as four and take two seconds to compile.
const MOST_ROWS_WITH_TAIL: usize = 4;

/// Bits of registers per such row.
const TAIL_BITS: u32 = 1 << 11;

/// CPU: minimum rows that fit the registers for staging two at a time. One row proceeds while the
/// other waits for its sums.
/// 64 to 96 f16/bf16 AVX-512, 1 -> 2 rows per unit: 1.11x to 1.25x faster.
const SHORT_ROWS_OF_REGISTERS: usize = 5;

/// CPU: maximum staged f16/bf16 rows per unit if a mean is computed, which makes a row wait for two
/// reductions.
/// 192 and 256 f16/bf16 AVX-512, layer norm, 1 -> 2 rows per unit: 1.25x to 1.33x faster.
const MOST_HALF_ROWS_PER_UNIT: usize = 4;

/// Bytes of input and dy per row from which it is long for a CPU core.
const LONG_ROW_BYTES: usize = 16 << 10;

/// Bytes of column sums up to which a core processes one row at a time, because they stay in its
/// first-level cache.
/// 320 to 1,280 f32 AVX-512, backward, 4 -> 1 rows per unit: 1.09x to 1.47x faster.
const SUMS_NEARBY: usize = 8 << 10;

/// Rows per CPU unit if no vector divides them; the compiler then vectorizes loops itself.
/// 1,021 f32 AVX-512, layer norm, backward, 2 -> 1 rows per unit: 1.04x to 1.25x faster.
const WITHOUT_VECTORS: usize = 1;

/// Vectors that a core has in use per row, for short and for long rows.
/// 96 to 768 f32 AVX2, backward, 4 -> 1 rows per unit: 1.25x to 2x faster.
const CORE_VECTORS: usize = 8;
const CORE_VECTORS_OF_LONG_ROW: usize = 4;

/// Limits the rows per unit of any pass.
pub(in crate::plan) fn limited(rows: usize, work: &Workload, hardware: &Hardware) -> usize {
    match work.has_column_tail() {
        _ if cpu_vulkan::takes_single_rows(work, hardware) => 1,
        true => {
            let most = (hardware.register_bits / TAIL_BITS) as usize;
            rows.min(most.clamp(1, MOST_ROWS_WITH_TAIL))
        }
        false => rows,
    }
}

/// Forward: rows per unit, if all rows share the parameters that vary along them; else 1.
///
/// CPU: rows that exceed the first-level cache share loads of parameters from the second level. One
/// row at a time if the output may use non-temporal stores, which interleaved rows slow down.
/// 2,048 f32 AVX-512, 32 KiB of first-level cache, 1 -> 4 rows per unit: 1.09x to 1.64x faster.
///
/// Provided statistics: short rows are the channels of one spatial position in channels-last
/// layout. Rows shorter than a vector share a square root and a division.
pub(in crate::plan) fn forward(
    problem: &NormProblem,
    work: &Workload,
    hardware: &Hardware,
) -> usize {
    let is_shared = |param: &Access| param.row.is_empty();
    let by_step = problem
        .params()
        .filter(|param| !param.col.is_empty())
        .count();
    if !problem.params().all(is_shared) || by_step == 0 {
        return 1;
    }
    let groups = work.groups;
    if let Some(rows) = work.knobs.rows_per_unit {
        return rows.clamp(1, MOST_ROWS_PER_UNIT).min(groups.max(1));
    }
    let rows = match (
        hardware.cpu_cores,
        cpu_vulkan::rows_per_unit(work, hardware),
    ) {
        (Some(cores), _) => {
            let computed = (work.cols * work.accumulation()).max(1);
            let fit = hardware.register_bits as usize / 8 / computed;
            // Bytes per row that pass through a core's first-level cache, output included.
            let params = by_step * work.cols * work.param_dtype.size();
            let passing = (work.reads + 1) * work.row_bytes() + params;
            let of_register = hardware.widest_vector(work.accumulation());
            let is_nontemporal = nontemporal::may_apply(problem, work, hardware);
            let most = match passing < hardware.max_shared_memory {
                // One square root and one division serve all rows.
                true if !work.reduces && work.cols < of_register => MAX_ROWS_PER_UNIT,
                true if !work.reduces && is_nontemporal => 1,
                true if work.is_half() && work.merge.takes_means() => {
                    fit.min(MOST_HALF_ROWS_PER_UNIT)
                }
                true if fit >= SHORT_ROWS_OF_REGISTERS => 2,
                true => 1,
                false if is_nontemporal => 1,
                false => MAX_ROWS_PER_UNIT,
            };
            most.min(groups / cores as usize)
        }
        (None, Some(rows)) => rows,
        (None, None) if work.is_half() => {
            let spare = groups / (hardware.processors() * PLANES_OF_MULTIPROCESSOR);
            let short = SHORT_ROWS * 2 / work.row_bytes().max(1);
            spare.min(short).min(MOST_ROWS_PER_UNIT)
        }
        (None, None) => 1,
    };
    1 << rows.max(1).ilog2()
}

/// Backward: rows per unit, which share one read and write of the column sums. 1 on a GPU and
/// without column sums.
/// 56 x 56 AVX-512, layer norm over channels, 1 -> 4 vectors: 1.05x slower to 1.32x faster.
pub(in crate::plan) fn backward(work: &Workload, hardware: &Hardware) -> usize {
    if work.column_sums == 0 || hardware.is_gpu() {
        return 1;
    }
    let vector_bytes = work.vector * work.accumulation();
    let sums_bytes = work.column_sums * work.cols * work.accumulation();
    let most = match work.vector {
        1 => WITHOUT_VECTORS,
        _ => MAX_ROWS_PER_UNIT,
    };
    let in_registers = |vectors: usize| {
        let fit = hardware.register_bits as usize / (8 * vectors * vector_bytes);
        most.min(fit.max(1))
    };
    let of_cpu_vulkan = || cpu_vulkan::backward_rows_per_unit(work, MOST_ROWS_PER_UNIT, hardware);
    let rows = match work.knobs.rows_per_unit {
        Some(rows) => rows.min(MOST_ROWS_PER_UNIT),
        None if let Some(rows) = of_cpu_vulkan() => rows,
        None if work.lanes == Vectorization::Perpendicular => most,
        None if sums_bytes <= SUMS_NEARBY => 1,
        // Input and dy of a row.
        None if work.reads * work.row_bytes() < LONG_ROW_BYTES => in_registers(CORE_VECTORS),
        None => in_registers(CORE_VECTORS_OF_LONG_ROW),
    };
    rows.min(work.groups).max(1)
}
