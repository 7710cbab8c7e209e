//! Strategies and knobs that a device can run.

use cubenorm_core::{
    BackwardDesc, Hardware, Knobs, Level, NormDesc, Staging, Strategy, StrategyChoice, Team, knobs,
};
use cubenorm_kernels::{hardware, plan_backward_for, plan_for};

use crate::device::TestDevice;

/// All knobs to test on a device: each strategy, and the autotuner's candidates for this device and
/// for a GPU.
pub fn all_knobs(device: &TestDevice) -> Vec<Knobs> {
    let strategies = strategies(device);
    let here = knobs(&hardware(&device.client));
    let on_a_gpu = knobs(&Hardware::webgpu());
    strategies
        .into_iter()
        .chain(here)
        .chain(on_a_gpu)
        .map(|knobs| Knobs {
            plane_size: device.plane_size,
            ..knobs
        })
        .collect()
}

/// Each strategy, on all cores of a CPU. Problems as small as these would otherwise use one core.
fn strategies(device: &TestDevice) -> [Knobs; Strategy::ALL.len()] {
    let units = hardware(&device.client).cpu_cores;
    Strategy::ALL.map(|strategy| Knobs {
        plane_size: device.plane_size,
        units,
        ..strategy.into()
    })
}

/// True if units of a team share memory, which some drivers get wrong.
fn shares(team: &Team, staging: Staging) -> bool {
    matches!(team.level(), Level::Cube | Level::Perpendicular) || staging.places().1 > 0
}

/// True if a choice can run a description on a device.
pub fn runs(device: &TestDevice, desc: &NormDesc, choice: StrategyChoice) -> bool {
    plan_for(&device.client, desc, choice).is_ok_and(|plan| {
        let blueprint = plan.blueprint;
        device.shares_memory() || !shares(&blueprint.team, blueprint.staging)
    })
}

/// Backward counterpart of [`runs`].
pub fn gradient_runs(device: &TestDevice, desc: &BackwardDesc, choice: StrategyChoice) -> bool {
    plan_backward_for(&device.client, desc, choice)
        .is_ok_and(|plan| device.shares_memory() || !shares(&plan.blueprint.team, Staging::Reload))
}

/// The analytic choice and each strategy that a device can run.
pub fn choices(device: &TestDevice, runs: impl Fn(StrategyChoice) -> bool) -> Vec<StrategyChoice> {
    [StrategyChoice::Inferred]
        .into_iter()
        .chain(strategies(device).map(StrategyChoice::Forced))
        .filter(|&choice| runs(choice))
        .collect()
}
