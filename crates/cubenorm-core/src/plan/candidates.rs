//! Candidates for autotuning: a short list of plans for a problem, chosen from all knobs of a
//! device.

use super::cost::{Outline, cost};
use super::{
    BackwardPlan, Hardware, Knobs, Plan, PlanError, RowBuffering, Staging, StagingPreference,
    Strategy, StrategyChoice, plan_backward, plan_forward,
};
use crate::{BackwardProblem, NormProblem};

/// Candidates of a device that compiles and runs fast.
const MANY: usize = 10;

/// Candidates of a CPU Vulkan driver, which compiles each in tens of milliseconds.
const FEW: usize = 6;

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
    let nothing = Knobs::default();
    let mut knobs = vec![nothing];
    let of = |strategy: Strategy| Knobs::from(strategy);
    if !hardware.is_gpu() {
        knobs.extend([1, 2, 4, 8].map(|rows_per_unit| Knobs {
            rows_per_unit: Some(rows_per_unit),
            ..nothing
        }));
        let widest = hardware.widest_vector(1);
        let narrower = (1..4).map(|halvings| widest >> halvings);
        knobs.extend(narrower.filter(|&vector| vector > 0).map(|vector| Knobs {
            vector: Some(vector),
            ..nothing
        }));
        // One core starts sooner than all cores. On a CPU Vulkan driver, 8 units are one vector.
        let units = match hardware.cpu_cores {
            Some(cores) => vec![1, cores],
            None => vec![8, 16, 32, 64],
        };
        knobs.extend(units.into_iter().map(|units| Knobs {
            units: Some(units),
            ..nothing
        }));
        knobs.extend([of(Strategy::Unit), of(Strategy::Split)]);
        return knobs;
    }
    for units in [64, 128, 256] {
        for row in [None, Some(StagingPreference::Reload)] {
            knobs.push(Knobs {
                units: Some(units),
                row,
                ..of(Strategy::Plane)
            });
        }
    }
    for rows_per_unit in [1, 2, 4] {
        knobs.push(Knobs {
            units: Some(64),
            vector: Some(4),
            rows_per_unit: Some(rows_per_unit),
            ..of(Strategy::Plane)
        });
    }
    for units in [64, 128, 256, 512, 1024] {
        let rows = [
            StagingPreference::Registers,
            StagingPreference::Shared,
            StagingPreference::Mixed,
            StagingPreference::Reload,
        ]
        .map(Some);
        for row in [None].into_iter().chain(rows) {
            knobs.push(Knobs {
                units: Some(units),
                row,
                ..of(Strategy::Cube)
            });
        }
    }
    for units in [4, 8, 16, 32] {
        knobs.push(Knobs {
            units: Some(units),
            ..of(Strategy::Perpendicular)
        });
    }
    knobs.push(Knobs {
        row: Some(StagingPreference::Reload),
        ..of(Strategy::Perpendicular)
    });
    for vector in [2, 4] {
        knobs.push(Knobs {
            row: Some(StagingPreference::Registers),
            vector: Some(vector),
            ..of(Strategy::Perpendicular)
        });
    }
    for splits in [2, 4, 8, 16, 32] {
        for strategy in [Strategy::Split, Strategy::Perpendicular] {
            knobs.push(Knobs {
                splits: Some(splits),
                ..of(strategy)
            });
        }
    }
    if hardware.inter_cube_atomics {
        knobs.extend([1, 2, 4, 8].map(|cluster_size| Knobs {
            cluster_size: Some(cluster_size),
            ..of(Strategy::Cube)
        }));
    }
    for units in [32, 128] {
        knobs.push(Knobs {
            units: Some(units),
            ..of(Strategy::Unit)
        });
    }
    for vector in [1, 2, 4, 8] {
        knobs.push(Knobs {
            vector: Some(vector),
            ..nothing
        });
    }
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
        let plan = plan_forward(problem, hardware, StrategyChoice::Forced(knobs))?;
        let outline = outline(&plan);
        Ok((outline, (plan.blueprint, plan.grid)))
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
        let plan = plan_backward(problem, hardware, StrategyChoice::Forced(knobs))?;
        Ok((gradient_outline(&plan), (plan.blueprint, plan.grid)))
    })
}

fn shortlist<P: PartialEq>(
    hardware: &Hardware,
    plan: impl Fn(Knobs) -> Result<(Outline, P), PlanError>,
) -> Result<Vec<usize>, PlanError> {
    let (outline, analytic) = plan(Knobs::default())?;
    let (most, dearest) = match hardware.cpu_cores {
        Some(_) if outline.team.segmented => (ALONE, f64::INFINITY),
        Some(_) => (FEWEST, PROMISING * cost(&outline, hardware)),
        None if hardware.is_cpu_vulkan() => (FEW, f64::INFINITY),
        None => (MANY, f64::INFINITY),
    };
    let mut seen = vec![analytic];
    let mut others = Vec::new();
    for (place, knobs) in knobs(hardware).into_iter().enumerate().skip(1) {
        if let Ok((outline, plan)) = plan(knobs)
            && !seen.contains(&plan)
        {
            seen.push(plan);
            others.push((cost(&outline, hardware), place));
        }
    }
    others.retain(|&(cost, _)| cost <= dearest);
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places = others.into_iter().map(|(_, place)| place);
    Ok([0].into_iter().chain(places).take(most).collect())
}

fn outline(plan: &Plan) -> Outline {
    Outline {
        team: plan.blueprint.team,
        grid: plan.grid,
        // The writing pass reads provided statistics.
        passes: if plan.blueprint.statistics.reduces() {
            2
        } else {
            1
        },
        staging: plan.blueprint.staging,
        split: plan.blueprint.split,
        reads: 1 + usize::from(plan.blueprint.residual.is_some()),
        writes: 1 + usize::from(plan.blueprint.writes_sum),
    }
}

fn gradient_outline(plan: &BackwardPlan) -> Outline {
    Outline {
        team: plan.blueprint.team,
        grid: plan.grid,
        passes: if plan.blueprint.reduces { 2 } else { 1 },
        staging: match plan.blueprint.row {
            RowBuffering::Reload => Staging::Reload,
            RowBuffering::Single | RowBuffering::Prefetch | RowBuffering::DoubleBuffer => {
                Staging::Registers(plan.blueprint.staged_vectors())
            }
        },
        split: plan.blueprint.split,
        reads: 2,
        writes: usize::from(plan.blueprint.input_gradient.is_some()),
    }
}
