//! Two normalizations in one launch.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint, Hardware, NormProblem, Plan};

use super::LaunchError;
use super::forward::{ForwardHandles, ForwardTensors, Launch, PlannedForward, of_means};

/// Two normalizations in one launch, if their plans allow it.
#[derive(Debug)]
pub(crate) struct PlannedPair {
    pub(crate) planned: [PlannedForward; 2],
    /// True if one launch runs both.
    pub(crate) is_one: bool,
}

impl PlannedPair {
    pub(crate) fn new(planned: [PlannedForward; 2], hardware: &Hardware) -> Self {
        let is_one = match planned.each_ref().map(|it| it.plan.as_ref()) {
            [Some(first), Some(second)] => {
                let problems = planned.each_ref().map(|it| &it.problem);
                fits_one_launch(problems, [first, second], hardware)
            }
            _ => false,
        };
        Self { planned, is_one }
    }

    /// Launches both.
    pub(crate) fn launch(
        &self,
        client: &Client,
        tensors: [&ForwardTensors; 2],
    ) -> Result<[ForwardHandles; 2], LaunchError> {
        let [first, second] = &self.planned;
        let plans = first.plan.as_ref().zip(second.plan.as_ref());
        let Some(plans) = plans.filter(|_| self.is_one) else {
            return Ok([
                first.launch(client, tensors[0])?,
                second.launch(client, tensors[1])?,
            ]);
        };
        let outputs = [
            first.outputs(client, tensors[0])?,
            second.outputs(client, tensors[1])?,
        ];
        let launch = Launch::new(client, &first.problem, plans.0, tensors[0], &outputs[0])?;
        let other = Launch::new(client, &second.problem, plans.1, tensors[1], &outputs[1])?;
        launch.run_with(&other);
        Ok(outputs)
    }
}

/// True if two plans differ in nothing that one kernel has once: types, widths, the size of a cube and scalars.
pub(super) fn fits_one_launch(
    problems: [&NormProblem; 2],
    plans: [&Plan; 2],
    hardware: &Hardware,
) -> bool {
    let dtypes = |it: &NormProblem| {
        [
            it.dtype,
            it.residual_dtype,
            it.output_dtype,
            it.param_dtype,
            it.provided_dtype,
        ]
    };
    let blueprints = plans.map(|plan| plan.blueprint);
    let kinds = |blueprint: &Blueprint| {
        let mode = |access: Option<AccessBlueprint>| access.map(|access| access.mode);
        (
            blueprint.team.vector,
            [
                mode(Some(blueprint.input)),
                mode(blueprint.scale),
                mode(blueprint.bias),
                mode(of_means(blueprint)),
                mode(Some(blueprint.output)),
            ],
        )
    };
    let is_plain = |it: &Blueprint| {
        let is_whole = !it.split() && !it.team.is_dynamic() && !it.team.is_segmented();
        let is_alone = it.team.cluster_size() == 1;
        let writes_one = !it.writes_sum && it.written_statistics.is_none();
        let is_norm = it.residual.is_none() && it.variance.is_none() && it.quantization.is_none();
        is_whole && is_alone && writes_one && is_norm
    };
    let shared_memory = |plan: &Plan, problem: &NormProblem| {
        let launches = plan.footprint(problem);
        let bytes = launches.iter().map(|launch| launch.shared_memory.all);
        bytes.max().unwrap_or(0)
    };
    let [first, second] = blueprints;
    let memory = shared_memory(plans[0], problems[0]) + shared_memory(plans[1], problems[1]);
    // Both count the buffer of CubeCL's metadata.
    let bindings = first.bindings() + second.bindings() - 1;
    let scalars = |it: &NormProblem| (it.epsilon, it.activation);
    [&first, &second].into_iter().all(is_plain)
        && dtypes(problems[0]) == dtypes(problems[1])
        && kinds(&first) == kinds(&second)
        && plans[0].grid.cube_dim == plans[1].grid.cube_dim
        && scalars(problems[0]) == scalars(problems[1])
        && bindings <= hardware.max_bindings
        && memory <= hardware.max_shared_memory
}
