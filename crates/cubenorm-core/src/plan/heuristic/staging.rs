//! Staging of a row between its passes: registers, shared memory or both.

use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::StagingPreference;
use crate::plan::shared_memory::merged_bytes;
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Maximum 4-byte values that a unit stages: half the 64 registers of a CUDA unit in a cube of
/// 1,024. The rest is for addresses and sums. An f16/bf16 value counts like an f32 one.
/// 65,536 f16/bf16 H200, reloaded -> staged without conversion: 1.2x to 1.5x slower.
const STAGED_NUMBERS: usize = 32;

/// [`STAGED_NUMBERS`] for a row that takes a multiprocessor and needs a mean. Scale and bias are
/// loaded while such a row is written and need registers too. RMS norm gains nothing.
/// 65,536 f32 H100, layer norm, 32 -> 24 values: 88% -> 94% of copy bandwidth (1.07x).
const STAGED_WITH_BIAS: usize = 24;

/// Maximum vectors that a unit stages. Loops over them are unrolled, and code grows with them.
pub(super) const STAGED_VECTORS: usize = 16;

/// Minimum elements of a row that a cube stages in shared memory rather than in registers.
const STAGED_ELEMENTS: usize = 1 << 14;

/// Rows that shared memory must hold at once for such staging.
const ROWS_IN_SHARED_MEMORY: usize = 2;

/// Values per unit that a cube merges in shared memory: count, mean and squares.
pub(in crate::plan) const MERGED_OF_UNIT: usize = 3;

/// Maximum units that the minimum columns per unit ask for.
pub(super) const UNITS_WITH_SUMS: usize = 512;

/// Rows that fit at the same time if a team of `members` units stages each; 0 if none fits. `slots`
/// units of a team write partial results to a table in shared memory.
pub(super) fn room(
    work: &Workload,
    hardware: &Hardware,
    staging: Staging,
    members: u32,
    slots: usize,
) -> usize {
    let members = members as usize;
    let (registers, shared) = staging.places();
    let of_registers = match registers * work.vector * work.accumulation() / 4 {
        0 => usize::MAX,
        numbers => (registers_of_unit(hardware) / numbers).max(1),
    };
    let is_staged_row = staging != Staging::Reload;
    let merged = merged_bytes(
        slots,
        1,
        work.merge,
        is_staged_row,
        work.quantizes,
        work.accumulation(),
        hardware,
    );
    let of_row = match members * shared * work.vector * work.staged.size() {
        0 if hardware.reuses_shared_memory => 0,
        0 => merged,
        row => row + merged.max(MERGED_OF_UNIT * members * work.accumulation()),
    };
    let of_shared = match of_row {
        0 => usize::MAX,
        row => hardware.max_shared_memory / row,
    };
    match staging {
        // A reloaded row needs no space, but a team synchronizes on one row at a time. Staged
        // column sums also take one row at a time.
        Staging::Reload if members > 1 => 1,
        Staging::Reload => usize::MAX,
        _ if work.column_sums > 0 => of_shared.min(1),
        _ => of_registers.min(of_shared),
    }
}

/// Units of a cube that write partial results to shared memory: one per plane with plane
/// operations, else all.
pub(super) fn slots(units: u32, plane: Option<u32>) -> usize {
    (units / plane.unwrap_or(1)).max(1) as usize
}

/// True if a cube stages a row of `steps` steps in shared memory rather than in registers.
pub(super) fn is_staged(work: &Workload, hardware: &Hardware, steps: usize) -> bool {
    let elements = steps * work.vector;
    let merged = MERGED_OF_UNIT * UNITS_WITH_SUMS * work.accumulation();
    let bytes = elements * work.staged.size() + merged;
    elements >= STAGED_ELEMENTS && bytes * ROWS_IN_SHARED_MEMORY < hardware.max_shared_memory
}

/// Possible stagings of `vectors` vectors per unit of a cube, best first.
///
/// Shared memory leaves registers for a second cube on the multiprocessor. A row that takes a whole
/// multiprocessor uses registers first.
/// Rows of 32 to 64 KiB H200, registers -> shared memory: 1.05x to 1.25x faster.
pub(super) fn holds(
    work: &Workload,
    hardware: &Hardware,
    vectors: usize,
) -> impl Iterator<Item = Staging> {
    let elements = work.steps * work.vector;
    // Each cube of a cluster has a multiprocessor.
    let is_part = work.cluster_size > 1 && work.column_sums == 0;
    let is_staged = !is_part && is_staged(work, hardware, work.steps);
    let is_alone = is_part || elements >= STAGED_ELEMENTS && !is_staged;
    let numbers = match is_alone && work.merge == Merge::Moments {
        true => STAGED_WITH_BIAS,
        false => STAGED_NUMBERS,
    };
    let in_registers = numbers * 4 / (work.vector * work.accumulation());
    let vectors = size(vectors).filter(|_| work.reduces);
    let shared = vectors.map(Staging::Shared);
    let both = vectors
        .filter(|&vectors| (1..vectors).contains(&in_registers))
        .map(|vectors| Staging::Mixed {
            registers: in_registers,
            shared: vectors - in_registers,
        });
    let registers = vectors.map(|vectors| registers(work, hardware, vectors));
    let fits = |staging: &Staging| !is_part || staging.places().0 <= in_registers;
    let registers = registers.filter(|&staging| staging != Staging::Reload && fits(&staging));
    let order = match is_staged {
        _ if work.fills_registers(hardware) => [shared, registers, both],
        true if elements < 2 * STAGED_ELEMENTS => [both, shared, registers],
        true => [shared, registers, both],
        false => [registers, both, shared],
    };
    let wish = work.knobs.row;
    order
        .into_iter()
        .flatten()
        .filter(move |staging| match staging {
            Staging::Reload => false,
            Staging::Registers(_) => matches!(wish, None | Some(StagingPreference::Registers)),
            Staging::Shared(_) => matches!(wish, None | Some(StagingPreference::Shared)),
            Staging::Mixed { .. } => matches!(wish, None | Some(StagingPreference::Mixed)),
        })
}

/// 4-byte values that a unit may stage; a CPU's unit is a core.
fn registers_of_unit(hardware: &Hardware) -> usize {
    match hardware.cpu_cores {
        Some(_) => hardware.register_bits as usize / 32,
        None => STAGED_NUMBERS,
    }
}

/// Stages `vectors` vectors per unit in registers. Reloads if they do not fit, if nothing is
/// reduced, or if rows have tails or segments.
pub(super) fn registers(work: &Workload, hardware: &Hardware, vectors: usize) -> Staging {
    let elements = vectors * work.vector * work.accumulation() / 4;
    let may_hold = matches!(work.knobs.row, None | Some(StagingPreference::Registers));
    if !may_hold
        || !work.reduces
        || work.has_column_tail()
        || work.segments > 1
        || vectors > STAGED_VECTORS
        || elements > registers_of_unit(hardware)
    {
        return Staging::Reload;
    }
    size(vectors).map_or(Staging::Reload, Staging::Registers)
}

/// Vectors that a kernel is compiled to stage if a unit needs `vectors`. Few sizes keep the number
/// of kernels low, and surplus vectors are masked. `None` above [`STAGED_VECTORS`].
pub(super) fn size(vectors: usize) -> Option<usize> {
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, STAGED_VECTORS];
    sizes.into_iter().find(|&size| size >= vectors)
}
