//! Candidates for autotuning: a short list of plans for a problem, chosen from all knobs of a
//! device.

use super::backward::plan_backward;
use super::blueprint::RowBlueprint;
use super::cost::cost;
use super::forward::plan_forward;
use super::hardware::Hardware;
use super::heuristic::cpu_vulkan;
use super::knobs::{Knobs, StagingPreference};
use super::result::{Plan, PlanError};
use super::strategy::Strategy;
use crate::backward::BackwardProblem;
use crate::problem::NormProblem;

/// Candidates of a device that compiles and runs fast.
const MANY: usize = 10;

/// Candidates of a CPU, which compiles each in a quarter of a second on a core that also runs
/// kernels.
const FEWEST: usize = 4;

/// Candidates of a CPU with segments: one, because its three kernels compile in a second.
/// Channels-last group norm, AVX-512: the analytic plan takes at most 1.02 of the fastest
/// candidate's time.
const ALONE: usize = 1;

/// Largest estimated cost of a CPU candidate, relative to the analytic plan. Compiling is too slow
/// to try unlikely candidates.
const PROMISING: f64 = 1.2;

/// All useful knobs of a device, for any problem, starting with the analytic plan. Equal hardware
/// yields an equal list, so an index identifies a candidate.
pub fn knobs(hardware: &Hardware) -> Vec<Knobs> {
    let mut knobs = vec![Knobs::default()];
    match hardware.is_gpu() {
        true => knobs.extend(gpu_knobs(hardware)),
        false => knobs.extend(cpu_knobs(hardware)),
    }
    knobs
}

/// Knobs of a CPU or a CPU Vulkan driver.
fn cpu_knobs(hardware: &Hardware) -> impl Iterator<Item = Knobs> {
    let of_rows = [1, 2, 4, 8].map(|rows_per_unit| Knobs {
        rows_per_unit: Some(rows_per_unit),
        ..Knobs::default()
    });
    let widest = hardware.widest_vector(1);
    let narrower = (1..4).map(move |halvings| widest >> halvings);
    let of_vectors = narrower.filter(|&vector| vector > 0).map(of_vector);
    // One core starts sooner than all cores.
    let of_cores = || vec![1, hardware.cpu_cores.unwrap_or(1)];
    let units = cpu_vulkan::units_to_try(hardware).unwrap_or_else(of_cores);
    let of_units = units.into_iter().map(|units| Knobs {
        units: Some(units),
        ..Knobs::default()
    });
    let strategies = [Strategy::Unit, Strategy::Split].map(Knobs::from);
    of_rows
        .into_iter()
        .chain(of_vectors)
        .chain(of_units)
        .chain(strategies)
}

fn of_vector(vector: usize) -> Knobs {
    Knobs {
        vector: Some(vector),
        ..Knobs::default()
    }
}

/// Knobs of a GPU.
fn gpu_knobs(hardware: &Hardware) -> Vec<Knobs> {
    let of = |strategy: Strategy, units: u32| Knobs {
        units: Some(units),
        ..Knobs::from(strategy)
    };
    let staged = |row: StagingPreference, knobs: Knobs| Knobs {
        row: Some(row),
        ..knobs
    };
    let mut knobs = Vec::new();
    for units in [64, 128, 256] {
        let plane = of(Strategy::Plane, units);
        knobs.extend([plane, staged(StagingPreference::Reload, plane)]);
    }
    knobs.extend([1, 2, 4].map(|rows_per_unit| Knobs {
        vector: Some(4),
        rows_per_unit: Some(rows_per_unit),
        ..of(Strategy::Plane, 64)
    }));
    for units in [64, 128, 256, 512, 1024] {
        let cube = of(Strategy::Cube, units);
        let rows = [
            StagingPreference::Registers,
            StagingPreference::Shared,
            StagingPreference::Mixed,
            StagingPreference::Reload,
        ];
        knobs.push(cube);
        knobs.extend(rows.map(|row| staged(row, cube)));
    }
    let perpendicular = Knobs::from(Strategy::Perpendicular);
    knobs.extend([4, 8, 16, 32].map(|units| of(Strategy::Perpendicular, units)));
    knobs.push(staged(StagingPreference::Reload, perpendicular));
    knobs.extend([2, 4].map(|vector| Knobs {
        vector: Some(vector),
        ..staged(StagingPreference::Registers, perpendicular)
    }));
    for splits in [2, 4, 8, 16, 32] {
        knobs.extend(
            [Strategy::Split, Strategy::Perpendicular].map(|strategy| Knobs {
                splits: Some(splits),
                ..Knobs::from(strategy)
            }),
        );
    }
    if hardware.inter_cube_atomics {
        knobs.extend([1, 2, 4, 8].map(|cluster_size| Knobs {
            cluster_size: Some(cluster_size),
            ..Knobs::from(Strategy::Cube)
        }));
    }
    knobs.extend([32, 128].map(|units| of(Strategy::Unit, units)));
    knobs.extend([1, 2, 4, 8].map(of_vector));
    knobs
}

/// The most promising knobs for a normalization, as indices into [`knobs`]: the analytic plan
/// first, then others by estimated cost. Knobs that yield equal plans are listed once.
///
/// # Errors
///
/// [`PlanError`] if there is no analytic plan.
pub fn forward_candidates(
    problem: &NormProblem,
    hardware: &Hardware,
) -> Result<Vec<usize>, PlanError> {
    shortlist(hardware, |knobs| {
        plan_forward(problem, hardware, knobs.into())
    })
}

/// The most promising knobs for a backward pass.
///
/// # Errors
///
/// As [`forward_candidates`].
pub fn backward_candidates(
    problem: &BackwardProblem,
    hardware: &Hardware,
) -> Result<Vec<usize>, PlanError> {
    shortlist(hardware, |knobs| {
        plan_backward(problem, hardware, knobs.into())
    })
}

fn shortlist<B: RowBlueprint + PartialEq>(
    hardware: &Hardware,
    plan: impl Fn(Knobs) -> Result<Plan<B>, PlanError>,
) -> Result<Vec<usize>, PlanError> {
    let analytic = plan(Knobs::default())?;
    let (most, dearest) = match hardware.cpu_cores {
        Some(_) if analytic.blueprint.team().is_segmented() => (ALONE, f64::INFINITY),
        Some(_) => (FEWEST, PROMISING * cost(&analytic, hardware)),
        None => (
            cpu_vulkan::candidates(hardware).unwrap_or(MANY),
            f64::INFINITY,
        ),
    };
    let mut seen = vec![(analytic.blueprint, analytic.grid)];
    let mut others = Vec::new();
    for (place, knobs) in knobs(hardware).into_iter().enumerate().skip(1) {
        let Ok(plan) = plan(knobs) else {
            continue;
        };
        let cost = cost(&plan, hardware);
        let plan = (plan.blueprint, plan.grid);
        if !seen.contains(&plan) {
            seen.push(plan);
            others.push((cost, place));
        }
    }
    others.retain(|&(cost, _)| cost <= dearest);
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places = others.into_iter().map(|(_, place)| place);
    Ok([0].into_iter().chain(places).take(most).collect())
}
