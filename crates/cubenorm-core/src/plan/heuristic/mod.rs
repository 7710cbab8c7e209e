//! Analytic plan: the sizes of a launch from numbers alone, each with its reason. No kernel and no
//! device call here.
//!
//! One file per strategy, as in the kernels. [`staging`] chooses the staging of rows and column sums.
//! [`device`] computes the capacity of a device. [`vectors`] narrows vectors, [`mod@rows_per_unit`] sets
//! the rows per unit, and [`parts`] splits rows. [`nontemporal`] decides on non-temporal stores and
//! prefetch, [`dynamic`] on the dynamic schedule.

mod cluster;
mod cube;
mod device;
mod dynamic;
mod nontemporal;
mod parts;
mod perpendicular;
mod plane;
mod rows_per_unit;
mod split;
mod staging;
mod unit;
mod vectors;

pub(super) use device::{CPU_VULKAN_STEPS, plane_size};
pub(super) use dynamic::dynamic_items;
pub(super) use nontemporal::{
    is_nontemporal, is_nontemporal_before_tail, may_be_nontemporal, may_be_nontemporal_before_tail,
    prefetch_next_row,
};
pub(super) use rows_per_unit::{
    MOST_ROWS_PER_UNIT, most_rows_with_tail, params_kept, rows_per_unit, tile,
};
pub(super) use staging::MERGED_OF_UNIT;
pub(super) use vectors::{
    LEAST_RUN, MAX_LOADS_IN_FLIGHT, NARROW_VECTOR, is_one_block, loads_in_flight, narrow_vector,
    narrower_columns,
};

use super::hardware::LANES;
use super::{
    Hardware, Knobs, Level, Merge, PlanError, Staging, StagingPreference, Strategy, Vectorization,
};
use cluster::cluster;
use cube::cube;
use parts::SPLIT_ELEMENTS;
use perpendicular::perpendicular;
use plane::{PLANE_VECTORS, planes};
use split::{CUBES_WITHOUT_SUMS, STEPS_WITHOUT_SUMS, split};
use staging::registers;
use unit::unit;

/// Maximum number of blocks in one unit's sum, which are added one after another. 2^12 of them are
/// off by less than 1.3e-4 even if every addition rounds the same way. At 2^24 an f32 sum stops
/// growing.
pub(super) const MOST_BLOCKS: usize = 1 << 12;

/// Steps that a kernel accumulates from one shift before it merges them and takes the next. A block
/// also ends with its segment. Shorter blocks keep more digits; longer ones would save merges.
/// Plans rely on this value.
pub const BLOCK: usize = 64;

/// Maximum number of rows in a team's column sums: off by less than 5e-4, by the bound of
/// [`MOST_BLOCKS`].
pub(super) const LONGEST_COLUMN_SUM: usize = 1 << 14;

/// CPU Vulkan: rows per core below which rows are split between units.
const ROWS_PER_SOFTWARE_CORE: usize = 4;

/// Items per core from which an uneven last round no longer matters.
const ROUNDS_OF_CORE: usize = 4;

/// CPU Vulkan: teams with column sums per core, one for each lane of four vectors.
const SUMMING_TEAMS: usize = 32;

/// Input of the heuristic: a problem in row groups and steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub groups: usize,
    pub steps: usize,
    pub vector: usize,
    pub lanes: Vectorization,
    pub reduces: bool,
    /// Bytes of an element in the accumulation dtype.
    pub accumulation: usize,
    /// Bytes of a staged element.
    pub staged: usize,
    /// True if the input is f16 or bf16.
    pub is_half: bool,
    /// Merge rule of partial statistics.
    pub merge: Merge,
    /// Sums per column (dgamma, dbeta) that a team accumulates over its rows.
    pub column_sums: usize,
    /// Rows per unit, if each unit owns whole rows.
    pub rows_per_unit: usize,
    /// Row groups in a core's tile of adjacent rows, if vectors run along the kept axis; else 1.
    pub tile: usize,
    /// Tensors of the input's size that are read.
    pub reads: usize,
    /// Segments of a row whose statistics are combined; 1 if rows are not segmented.
    pub segments: usize,
    /// True if scale or bias vary along a row.
    pub params_by_step: bool,
    /// Steps per segment, if its length is not a multiple of the vector width.
    pub run: Option<usize>,
    /// True if an odd number of adjacent rows leaves vectors of one lane.
    pub is_single: bool,
    /// Choices fixed by the caller or by autotuning.
    pub knobs: Knobs,
    /// Cluster size: cubes that cooperate on each row.
    pub cluster_size: u32,
}

impl Work {
    fn elements(&self) -> usize {
        self.groups * self.steps * self.vector
    }

    /// Fewest parts per row that balance over `cores`; one part per core if fewer do not.
    fn even_among(&self, cores: u32) -> usize {
        let blocks = self.groups / self.tile;
        let mut parts = 1..cores as usize;
        let even = parts.find(|parts| are_even(blocks * parts, cores));
        even.unwrap_or(cores as usize)
    }

    /// CPU cores worth waking; `None` unless a CPU runtime runs the units.
    fn busy_cores(&self, hardware: &Hardware) -> Option<u32> {
        hardware.busy_cores_of_rows(self.reads * self.groups, self.steps * self.vector)
    }

    /// Maximum number of steps in one unit's sum.
    fn longest_sum(&self) -> usize {
        MOST_BLOCKS * self.run.map_or(BLOCK, |run| run.min(BLOCK))
    }

    /// Minimum number of teams that keeps column sums within [`LONGEST_COLUMN_SUM`] rows.
    fn least_teams(&self) -> usize {
        match self.column_sums > 0 {
            true => self.groups.div_ceil(LONGEST_COLUMN_SUM),
            false => 1,
        }
    }

    /// CPU Vulkan: maximum number of teams. Each team with column sums writes a row of partials, so
    /// few are better. A team's loop may not exceed [`CPU_VULKAN_STEPS`].
    fn cpu_vulkan_teams(&self, cores: usize) -> usize {
        match self.column_sums > 0 {
            true => {
                let rounds = (CPU_VULKAN_STEPS / self.steps.max(1)).max(1);
                (SUMMING_TEAMS * cores).max(self.groups.div_ceil(self.rows_per_unit * rounds))
            }
            false => usize::MAX,
        }
    }
}

/// True if `items` balance over `cores`: a multiple, or at least [`ROUNDS_OF_CORE`] items per core.
fn are_even(items: usize, cores: u32) -> bool {
    let cores = cores as usize;
    items.is_multiple_of(cores) || items >= ROUNDS_OF_CORE * cores
}

/// Schedule that the heuristic chooses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub strategy: Strategy,
    pub level: Level,
    pub cube_dim: [u32; 3],
    pub teams_per_cube: u32,
    pub staging: Staging,
    pub splits: usize,
    /// Cluster size: cubes per team, each with one part of every row.
    pub cluster_size: u32,
    /// Maximum number of teams in a launch; a team processes several groups if there are more.
    pub max_teams: usize,
    /// Staging of a unit's column sums from row to row.
    pub staged_columns: Staging,
    /// Rows that a team can process together.
    pub room: usize,
    pub reason: &'static str,
}

pub(super) fn shape(work: &Work, hardware: &Hardware) -> Result<Shape, PlanError> {
    let plane = plane_size(hardware, work.knobs);
    let is_forced = work.knobs.strategy.is_some();
    let (strategy, reason) = match work.knobs.strategy {
        None => infer(work, hardware),
        Some(strategy) => (strategy, "forced"),
    };
    let refuse = |reason| Err(PlanError::Strategy { strategy, reason });
    if work.lanes == Vectorization::Perpendicular
        && matches!(strategy, Strategy::Plane | Strategy::Cube)
    {
        return refuse("vectors run along the kept axis, so units of a plane or cube share no row");
    }
    if work.lanes == Vectorization::Parallel && strategy == Strategy::Perpendicular {
        return refuse("the reduced axis is innermost: there is no kept axis to run vectors along");
    }
    let mut shape = match strategy {
        Strategy::Unit => unit(work, hardware),
        Strategy::Plane => match plane {
            None => return refuse("the device reports no plane operations of one size"),
            Some(plane) => planes(work, hardware, plane),
        },
        // CPU Vulkan: one vector of units per cube. More units wait for each other, and a cache
        // already holds what they would stage.
        Strategy::Cube if hardware.is_cpu_vulkan() && !is_forced => {
            let knobs = Knobs {
                units: work.knobs.units.or(Some(LANES)),
                row: work.knobs.row.or(Some(StagingPreference::Reload)),
                ..work.knobs
            };
            cube(&Work { knobs, ..*work }, hardware, work.steps, plane)
        }
        Strategy::Cube => cluster(work, hardware, plane)
            .unwrap_or_else(|| cube(work, hardware, work.steps, plane)),
        Strategy::Perpendicular => perpendicular(work, hardware, is_forced),
        Strategy::Split => split(work, hardware, plane, is_forced),
    };
    shape.strategy = strategy;
    shape.reason = reason;
    // Units of a cube exchange nothing if nothing is summed.
    let adds = work.reduces || work.column_sums > 0;
    let merges = adds && matches!(shape.level, Level::Cube | Level::Perpendicular);
    if (merges || shape.staging.places().1 > 0) && !hardware.shares_memory {
        return refuse("units of the device cannot share memory");
    }
    let members = members(shape.level, shape.cube_dim) as usize;
    let steps = work.steps.div_ceil(shape.splits).div_ceil(members);
    if hardware.is_cpu_vulkan() && steps > 2 * CPU_VULKAN_STEPS {
        return refuse("a unit would take more steps than a CPU Vulkan driver's loops allow");
    }
    if is_forced && work.reduces && steps > work.longest_sum() {
        return refuse("a unit would sum more steps than an f32 sum keeps the digits of");
    }
    shape.max_teams = shape
        .max_teams
        .min((hardware.max_cubes as usize).saturating_mul(shape.teams_per_cube as usize));
    Ok(shape)
}

fn infer(work: &Work, hardware: &Hardware) -> (Strategy, &'static str) {
    let long = work.elements() >= SPLIT_ELEMENTS;
    if let Some(cores) = work.busy_cores(hardware) {
        return match work.lanes {
            _ if work.groups < cores as usize => (Strategy::Split, "fewer rows than cores"),
            _ if work.tile > 1 && long && work.even_among(cores) > 1 => (
                Strategy::Split,
                "tiles of adjacent rows do not balance over the cores",
            ),
            _ if work.reduces && work.steps > work.longest_sum() => {
                (Strategy::Split, "longer than one accurate sum")
            }
            Vectorization::Perpendicular => {
                (Strategy::Perpendicular, "the kept axis is contiguous")
            }
            Vectorization::Parallel => (Strategy::Unit, "a plane has one unit on a CPU"),
        };
    }
    if let Some(cores) = hardware.cpu_vulkan_cores {
        let few = ROWS_PER_SOFTWARE_CORE * cores as usize;
        return match work.groups < few && long {
            _ if work.steps > CPU_VULKAN_STEPS => (
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
        };
    }
    if work.lanes == Vectorization::Perpendicular {
        return (Strategy::Perpendicular, "the kept axis is contiguous");
    }
    let target = hardware.processors();
    let of_cubes = 4 * hardware.max_units_per_cube as usize;
    if long && work.groups < target && work.steps >= of_cubes && is_worth_parts(work, target) {
        return (Strategy::Split, "fewer rows than multiprocessors");
    }
    let idles = work.groups < target * CUBES_WITHOUT_SUMS && work.steps > STEPS_WITHOUT_SUMS;
    if !work.reduces && work.merge != Merge::Sums && idles {
        return (
            Strategy::Split,
            "nothing is reduced, so parts need no second launch",
        );
    }
    // A cube stages rows that a plane would reload, and column sums that do not fit a plane.
    // 2,048 f16/bf16 H200, plane -> cube: 1.20x faster.
    let is_staged_row = |plane: usize| {
        let per_unit = work.steps.div_ceil(plane);
        let row = !work.reduces || registers(work, hardware, per_unit) != Staging::Reload;
        // With column sums, a unit should have one vector of the row.
        row && (work.column_sums == 0 || work.steps <= plane)
    };
    match plane_size(hardware, Knobs::default()).map(|plane| plane as usize) {
        Some(plane) if work.steps <= plane * PLANE_VECTORS && is_staged_row(plane) => {
            (Strategy::Plane, "a row fits the registers of a plane")
        }
        None if work.steps <= 4 => (Strategy::Unit, "a row fits the registers of a unit"),
        _ => (
            Strategy::Cube,
            "a row does not fit the registers of a plane",
        ),
    }
}

/// True if splitting rows pays for the second launch, which reloads them. Expects fewer rows than
/// multiprocessors. The threshold on the row size falls as more multiprocessors share each row.
/// 4 and 16 rows of 512 KiB H200, layer norm, one cube per row -> parts: 1.25x to 1.34x faster.
fn is_worth_parts(work: &Work, processors: usize) -> bool {
    let element = if work.is_half { 2 } else { work.accumulation };
    let kibibytes = (work.steps * work.vector * element) >> 10;
    let least = match processors / work.groups.max(1) {
        ..=2 => 2048,
        3 => 768,
        _ => 384,
    };
    !work.reduces || kibibytes >= least
}

/// CPU Vulkan: strategy that lets lanes share rows, if there are fewer rows than lanes. `None` if
/// one lane per row is faster.
/// One row of 2,048 and more, lavapipe with AVX-512, backward, in parts: 1.25x to 1.67x faster.
fn among_lanes(work: &Work, hardware: &Hardware) -> Option<(Strategy, &'static str)> {
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

/// Team size: units that share a row.
pub(super) fn members(level: Level, cube_dim: [u32; 3]) -> u32 {
    match level {
        Level::Unit => 1,
        Level::Plane | Level::Cube => cube_dim[0],
        Level::Perpendicular => cube_dim[1],
    }
}
