//! All rules for a CPU's Vulkan driver, such as lavapipe and SwiftShader. Units of a cube are SIMD
//! lanes of a core there, so plans resemble neither a GPU's nor a CPU's.
//!
//! Functions that return an `Option` return `None` on other devices.

use super::parts::SPLIT_ELEMENTS;
use crate::dtype::DType;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::{Knobs, StagingPreference};
use crate::plan::strategy::Strategy;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;

/// Units that a core runs in one instruction.
const LANES: u32 = 8;

/// Most adjacent rows per unit: one cache line of f32.
/// 128 channels channels-last f32 lavapipe, instance norm, vectors of 4 -> 16: 5.6x faster.
const MAX_ROW_LANES: usize = 16;

/// Cubes per core, enough that an uneven last round does not matter.
const CUBES_PER_CORE: usize = 16;

/// Maximum steps per unit. lavapipe silently ends a shader's loops after 65,535 iterations in
/// total. A unit iterates over its steps twice, once four at a time.
const MOST_STEPS: usize = 1 << 14;

/// Rows per core below which rows are split between units.
const ROWS_PER_CORE: usize = 4;

/// Minimum steps per part that fill the cores, and per lane if rows are fewer than lanes.
/// One row lavapipe, forward and backward, two and four -> eight parts: 1.0x to 1.25x faster.
const STEPS_OF_PART: usize = 256;
const STEPS_OF_LANE: usize = 32;

/// Teams with column sums per core, one for each lane of four vectors.
const SUMMING_TEAMS: usize = 32;

/// Units per cube if each unit owns a row.
const UNITS_OF_ROWS: std::ops::RangeInclusive<u32> = 8..=64;

/// Maximum vectors of a row that a unit stages. The driver reloads spilled vectors whole, but reads
/// memory lane by lane. SwiftShader exhausts memory while it compiles some kernels with 15 vectors.
/// 3 and 16 f32 lavapipe, reloaded -> staged: 1.67x faster.
const STAGED_VECTORS: usize = 4;

/// Maximum rows per unit; more save little more of the shared loads.
const MAX_ROWS_PER_UNIT: usize = 4;

/// Bytes of the rows that a unit processes together. With the rows of seven neighbouring units,
/// they should stay in a core's second-level cache. Longer rows leave that cache in any case.
/// Rows of 1 KiB lavapipe, 1 -> 4 rows per unit: 1.43x faster.
const ROWS_PER_UNIT_BYTES: usize = 32 << 10;

/// Minimum vectors of units per core that more rows per unit must leave. Fewer vectors gain little.
/// The bound also lets calls with similar row counts share a kernel.
const VECTORS_OF_CORE: usize = 8;

/// Bytes of input and dy per row from which no cache holds it; more rows per unit then cost
/// nothing.
/// Rows of 128 KiB lavapipe, backward, 4 -> 8 rows per unit: 1.25x to 1.54x faster.
const CACHED_BYTES: usize = 128 << 10;

/// Candidates for autotuning.
const CANDIDATES: usize = 6;

/// Units that all cores run at once.
pub(in crate::plan) fn lanes(hardware: &Hardware) -> Option<usize> {
    let cores = hardware.cpu_vulkan_cores?;
    Some((cores * LANES) as usize)
}

/// Lanes of the widest vector along `segment` adjacent rows, which the units of a core divide among
/// themselves.
pub(super) fn widest_of_rows(segment: usize, hardware: &Hardware) -> Option<usize> {
    let of_unit = (segment / LANES as usize).clamp(1, MAX_ROW_LANES);
    hardware.is_cpu_vulkan().then(|| 1 << of_unit.ilog2())
}

/// True if f16 elements are packed in pairs; the driver would load and store them one by one.
pub(super) fn packs_half2(dtype: DType, vector: usize, hardware: &Hardware) -> bool {
    dtype == DType::F16 && hardware.is_cpu_vulkan() && vector > 1
}

/// Strategy and its reason.
pub(super) fn strategy(work: &Workload, hardware: &Hardware) -> Option<(Strategy, &'static str)> {
    let few = ROWS_PER_CORE * hardware.cpu_vulkan_cores? as usize;
    let long = work.elements() >= SPLIT_ELEMENTS;
    Some(match work.groups < few && long {
        _ if work.steps > MOST_STEPS => (
            Strategy::Split,
            "longer than a CPU Vulkan driver's loops allow",
        ),
        true => (
            Strategy::Split,
            "too few rows for the CPU's cores and lanes",
        ),
        false if let Some(shared) = among_lanes(work, hardware) => shared,
        false if work.lanes == Vectorization::Perpendicular => {
            (Strategy::Perpendicular, "the kept axis is contiguous")
        }
        false => (Strategy::Unit, "units are the lanes of a CPU's vectors"),
    })
}

/// Strategy that lets lanes share rows, if there are fewer rows than lanes. `None` if one lane per
/// row is faster.
/// One row of 2,048 and more, lavapipe with AVX-512, backward, in parts: 1.25x to 1.67x faster.
fn among_lanes(work: &Workload, hardware: &Hardware) -> Option<(Strategy, &'static str)> {
    let columns = work.steps * work.vector;
    match work.column_sums > 0 {
        _ if work.lanes == Vectorization::Perpendicular => None,
        true => (work.groups <= LANES as usize / 2 && columns >= 1 << 11)
            .then_some((Strategy::Split, "fewer rows than a CPU has lanes")),
        false if work.groups > 1 || !work.reduces || columns < 1 << 10 => None,
        false if work.steps >= 1 << 12 => Some((Strategy::Split, "one row for several cores")),
        false => hardware
            .shares_memory
            .then_some((Strategy::Cube, "one row, shared by all lanes")),
    }
}

/// True if a unit would take more steps than the driver's loops allow.
pub(super) fn exceeds_loops(steps: usize, hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan() && steps > 2 * MOST_STEPS
}

/// Units per cube and maximum number of teams if each unit owns a row.
///
/// Each team with column sums writes a row of partials, so few are better. A team's loop may not
/// exceed [`MOST_STEPS`].
pub(super) fn units_of_rows(work: &Workload, hardware: &Hardware) -> Option<(u32, usize)> {
    let cores = hardware.cpu_vulkan_cores? as usize;
    let most = match work.column_sums > 0 {
        true => {
            let rounds = (MOST_STEPS / work.steps.max(1)).max(1);
            (SUMMING_TEAMS * cores).max(work.groups.div_ceil(work.rows_per_unit * rounds))
        }
        false => usize::MAX,
    };
    let teams = work.groups.min(most);
    let fill = teams.div_ceil(cores * CUBES_PER_CORE);
    let (least, most) = UNITS_OF_ROWS.into_inner();
    Some(((fill.next_power_of_two() as u32).clamp(least, most), teams))
}

/// True if a unit that owns a row reloads it.
pub(super) fn reloads_row(work: &Workload, hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan() && (work.column_sums > 0 || work.steps > STAGED_VECTORS)
}

/// True if the units of a plane reload their row.
pub(super) fn reloads_row_of_plane(hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan()
}

/// True if each column has one unit, unless the strategy is forced. More would share memory and
/// wait at barriers, which costs a hundred times more than further reads.
pub(super) fn has_unit_columns(work: &Workload, hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan() && work.knobs.strategy.is_none()
}

/// Knobs of a cube that is not forced: one vector of units. More units wait for each other, and a
/// cache already holds what they would stage.
pub(super) fn cube_knobs(knobs: Knobs, hardware: &Hardware) -> Option<Knobs> {
    hardware.is_cpu_vulkan().then_some(Knobs {
        units: knobs.units.or(Some(LANES)),
        row: knobs.row.or(Some(StagingPreference::Reload)),
        ..knobs
    })
}

/// Minimum units of a cube.
pub(super) fn smallest_cube(hardware: &Hardware) -> Option<u32> {
    hardware.is_cpu_vulkan().then_some(LANES)
}

/// Parts of a split row.
pub(super) fn splits(work: &Workload, hardware: &Hardware) -> Option<usize> {
    let cubes = cubes_to_fill(hardware)?;
    let of_cores = cubes.div_ceil(work.groups.max(1));
    let of_cores = of_cores.min(work.steps.div_ceil(STEPS_OF_PART));
    let of_lanes = (LANES as usize / work.groups.max(1)).min(work.steps / STEPS_OF_LANE);
    let least = work.steps.div_ceil(MOST_STEPS);
    Some(of_cores.max(of_lanes).max(least))
}

/// Cubes that fill the device.
pub(super) fn cubes_to_fill(hardware: &Hardware) -> Option<usize> {
    let cores = hardware.cpu_vulkan_cores?;
    Some(cores as usize * CUBES_PER_CORE)
}

/// True if units take one row at a time. Loops over several rows are unrolled less, which would
/// exceed lavapipe's iteration limit.
pub(super) fn takes_single_rows(work: &Workload, hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan() && work.steps > MOST_STEPS
}

/// Rows per unit, forward.
pub(super) fn rows_per_unit(work: &Workload, hardware: &Hardware) -> Option<usize> {
    let lanes = lanes(hardware)?;
    let cached = match ROWS_PER_UNIT_BYTES / work.row_bytes().max(1) {
        0 => MAX_ROWS_PER_UNIT,
        rows => rows.clamp(2, MAX_ROWS_PER_UNIT),
    };
    Some(cached.min(work.groups / (VECTORS_OF_CORE * lanes)))
}

/// Rows per unit, backward; at most `most`.
pub(super) fn backward_rows_per_unit(
    work: &Workload,
    most: usize,
    hardware: &Hardware,
) -> Option<usize> {
    let lanes = lanes(hardware)?;
    let most = match work.reads * work.row_bytes() < CACHED_BYTES {
        true => MAX_ROWS_PER_UNIT,
        false => most,
    };
    let spare = (work.groups / lanes).checked_ilog2();
    Some(spare.map_or(1, |power| most.min(1 << power)))
}

/// True if a unit that owns a row loads several steps ahead. It has neither other rows nor a cache
/// to hide latency.
pub(super) fn loads_ahead(hardware: &Hardware) -> bool {
    hardware.is_cpu_vulkan()
}

/// Candidates for autotuning; the driver compiles each in tens of milliseconds.
pub(in crate::plan) fn candidates(hardware: &Hardware) -> Option<usize> {
    hardware.is_cpu_vulkan().then_some(CANDIDATES)
}

/// Units per cube for autotuning, from one vector of lanes on.
pub(in crate::plan) fn units_to_try(hardware: &Hardware) -> Option<Vec<u32>> {
    hardware.is_cpu_vulkan().then(|| vec![8, 16, 32, 64])
}
