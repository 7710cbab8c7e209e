//! Relative cost of plans of the same problem. It only ranks candidates for measurement: no number
//! here is a time.

use super::blueprint::{RowBlueprint, Staging};
use super::hardware::Hardware;
use super::heuristic::{cpu_vulkan, occupancy};
use super::result::Plan;
use super::team::Level;

/// Units that keep a multiprocessor's memory system busy.
const BUSY_UNITS: usize = 512;

/// Cost of reading a row again from a cache, relative to the first read. A second launch reads from
/// memory, because all other rows were read in between.
const CACHED_READ: f64 = 0.35;

/// Cost of one more launch, in passes over a problem of a million elements.
const LAUNCH: f64 = 0.3;

/// Cost of cubes that wait for each other, relative to no wait.
const CLUSTER: f64 = 1.25;

/// Relative cost; less is better.
pub(super) fn cost<B: RowBlueprint>(plan: &Plan<B>, hardware: &Hardware) -> f64 {
    let (team, grid) = (plan.blueprint.team(), &plan.grid);
    let (staging, is_split) = (plan.blueprint.staging(), plan.blueprint.split());
    let (reads, writes) = plan.blueprint.tensors();
    let second = if plan.blueprint.reduces() { 1.0 } else { 0.0 };
    let again = match staging {
        Staging::Reload if is_split => second,
        Staging::Reload => second * CACHED_READ,
        Staging::Registers(_) | Staging::Shared(_) | Staging::Mixed { .. } => 0.0,
    };
    // Shared memory adds a write and a read.
    let staged = match staging {
        Staging::Shared(_) | Staging::Mixed { .. } => 0.1,
        _ => 0.0,
    };
    let traffic = reads as f64 * (1.0 + again + staged) + writes as f64;

    let members = team.size() as usize;
    let per_unit = grid.steps_per_split.div_ceil(members).max(1);
    // Units without work in the last step wait for the others.
    let idle = (per_unit * members) as f64 / grid.steps_per_split.max(1) as f64;
    let elements = grid.groups * grid.steps * team.vector;
    let cores = occupancy::busy_cores(reads * grid.groups, grid.steps * team.vector, hardware);
    let busy = match (cores, cpu_vulkan::lanes(hardware)) {
        (Some(cores), _) => cores as usize,
        (None, Some(lanes)) => lanes,
        (None, None) => hardware.processors() * BUSY_UNITS,
    };
    let units = grid.teams(team) * members * team.cluster_size() as usize;
    let starved = (busy as f64 / units.max(1) as f64).max(1.0).sqrt();
    // Narrow accesses need more instructions for the same bytes.
    let widest = hardware.widest_vector(4).max(1);
    let narrow = 1.0 + 0.15 * (widest as f64 / team.vector as f64).log2().max(0.0);
    // Larger teams synchronize longer. A unit with a single step hides no latency.
    let waits = match team.level() {
        Level::Unit => 1.0,
        Level::Plane => 1.02,
        Level::Cube if team.cluster_size() > 1 => CLUSTER,
        Level::Cube | Level::Perpendicular => 1.02 + 0.01 * (members as f64).log2(),
    };
    let shallow = if per_unit < 2 { 1.05 } else { 1.0 };
    let launches = match is_split {
        false => 0.0,
        true => LAUNCH * (1e6 / elements.max(1) as f64).min(4.0),
    };
    traffic * idle * starved * narrow * waits * shallow + launches
}
