//! The strategy: unit, plane, cube, split or perpendicular.

use super::cluster::{cluster, cubes_of_rows};
use super::parts::SPLIT_ELEMENTS;
use super::splits::{CUBES_WITHOUT_SUMS, STEPS_WITHOUT_SUMS, split};
use super::staging::registers;
use super::units_per_cube::cube::cube;
use super::units_per_cube::perpendicular::perpendicular;
use super::units_per_cube::plane::{PLANE_VECTORS, planes};
use super::units_per_cube::unit::unit;
use super::{cpu_vulkan, occupancy};
use crate::plan::blueprint::Staging;
use crate::plan::hardware::Hardware;
use crate::plan::result::PlanError;
use crate::plan::schedule::Schedule;
use crate::plan::strategy::Strategy;
use crate::plan::team::{Level, Vectorization};
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Schedules a workload with the forced strategy, or with the one that suits it.
///
/// # Errors
///
/// [`PlanError::Strategy`] if the strategy does not apply.
pub(in crate::plan) fn schedule(
    work: &Workload,
    hardware: &Hardware,
) -> Result<Schedule, PlanError> {
    let hardware = &for_tables(work, hardware);
    let (strategy, reason) = match work.knobs.strategy {
        None => match infer(work, hardware) {
            (Strategy::Split, _) if work.quantizes => (whole(hardware), "quantised rows are whole"),
            inferred => inferred,
        },
        Some(strategy) => (strategy, "forced"),
    };
    let refuse = |reason| PlanError::Strategy { strategy, reason };
    if let Some(obstacle) = axis_obstacle(strategy, work.lanes) {
        return Err(refuse(obstacle));
    }
    if work.quantizes && strategy == Strategy::Split {
        return Err(refuse(
            "the codes of a row need the largest of all its elements",
        ));
    }
    let plane = hardware.plane(work.knobs.plane_size);
    let mut schedule = match strategy {
        Strategy::Unit => unit(work, hardware),
        Strategy::Plane => match plane {
            None => return Err(refuse("the device reports no plane operations of one size")),
            Some(plane) => planes(work, hardware, plane),
        },
        Strategy::Cube => cube_or_cluster(work, hardware, plane),
        Strategy::Perpendicular => perpendicular(work, hardware),
        Strategy::Split => split(work, hardware, plane),
    };
    schedule.strategy = strategy;
    schedule.reason = reason;
    match limit_obstacle(&schedule, work, hardware) {
        Some(obstacle) => Err(refuse(obstacle)),
        None => Ok(schedule.distribute(work, hardware)),
    }
}

fn cube_or_cluster(work: &Workload, hardware: &Hardware, plane: Option<u32>) -> Schedule {
    let of_cpu_vulkan = cpu_vulkan::cube_knobs(work.knobs, hardware);
    if let Some(knobs) = of_cpu_vulkan.filter(|_| work.knobs.strategy.is_none()) {
        return cube(&Workload { knobs, ..*work }, hardware, work.steps, plane);
    }
    cluster(work, hardware, plane).unwrap_or_else(|| cube(work, hardware, work.steps, plane))
}

/// The reason that a strategy does not suit the axis of vectors.
fn axis_obstacle(strategy: Strategy, lanes: Vectorization) -> Option<&'static str> {
    match (lanes, strategy) {
        (Vectorization::Perpendicular, Strategy::Plane | Strategy::Cube) => {
            Some("vectors run along the kept axis, so units of a plane or cube share no row")
        }
        (Vectorization::Parallel, Strategy::Perpendicular) => {
            Some("the reduced axis is innermost: there is no kept axis to run vectors along")
        }
        _ => None,
    }
}

/// The reason that a schedule exceeds what units of the device can do.
fn limit_obstacle(
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
) -> Option<&'static str> {
    // Units of a cube exchange nothing if nothing is summed.
    let adds = work.reduces || work.column_sums > 0;
    let level = schedule.team.level();
    let merges = adds && matches!(level, Level::Cube | Level::Perpendicular);
    if (merges || schedule.staging.places().1 > 0) && !hardware.shares_memory {
        return Some("units of the device cannot share memory");
    }
    let steps = work.steps.div_ceil(schedule.grid.splits);
    let steps = steps.div_ceil(schedule.team.size() as usize);
    if cpu_vulkan::exceeds_loops(steps, hardware) {
        return Some("a unit would take more steps than a CPU Vulkan driver's loops allow");
    }
    if work.knobs.strategy.is_some() && work.reduces && steps > work.longest_sum() {
        return Some("a unit would sum more steps than an f32 sum keeps the digits of");
    }
    None
}

/// The hardware with cubes whose tables fit shared memory: the largest magnitude of a quantised row has one more. Without
/// planes, each unit has a slot.
fn for_tables(work: &Workload, hardware: &Hardware) -> Hardware {
    let has_planes = hardware.plane(work.knobs.plane_size).is_some();
    let most = match work.quantizes && !has_planes && hardware.cpu_cores.is_none() {
        true => hardware.max_units_per_cube.div_ceil(2),
        false => hardware.max_units_per_cube,
    };
    Hardware {
        max_units_per_cube: most,
        ..hardware.clone()
    }
}

/// The strategy for whole rows of any length.
fn whole(hardware: &Hardware) -> Strategy {
    match hardware.cpu_cores {
        Some(_) => Strategy::Unit,
        None => Strategy::Cube,
    }
}

fn infer(work: &Workload, hardware: &Hardware) -> (Strategy, &'static str) {
    let long = work.elements() >= SPLIT_ELEMENTS;
    if let Some(cores) = occupancy::cores_worth_waking(work, hardware) {
        return match work.lanes {
            _ if work.groups < cores as usize => (Strategy::Split, "fewer rows than cores"),
            _ if work.tile > 1 && long && occupancy::even_parts(work, cores) > 1 => (
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
    if let Some(chosen) = cpu_vulkan::strategy(work, hardware) {
        return chosen;
    }
    if work.lanes == Vectorization::Perpendicular {
        return (Strategy::Perpendicular, "the kept axis is contiguous");
    }
    infer_on_gpu(work, hardware)
}

/// The strategy for rows with vectors along the reduced axis.
fn infer_on_gpu(work: &Workload, hardware: &Hardware) -> (Strategy, &'static str) {
    if cubes_of_rows(work, hardware) > 1 {
        return (
            Strategy::Cube,
            "fewer rows than multiprocessors, which share them",
        );
    }
    let long = work.elements() >= SPLIT_ELEMENTS;
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
    match hardware.plane(None).map(|plane| plane as usize) {
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
fn is_worth_parts(work: &Workload, processors: usize) -> bool {
    let element = if work.is_half() {
        2
    } else {
        work.accumulation()
    };
    let kibibytes = (work.steps * work.vector * element) >> 10;
    let least = match processors / work.groups.max(1) {
        ..=2 => 2048,
        3 => 768,
        _ => 384,
    };
    !work.reduces || kibibytes >= least
}
