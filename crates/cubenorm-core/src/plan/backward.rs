//! Plans of a backward launch, with the strategies of the forward pass.

use super::backward_blueprint::{BackwardBlueprint, GateBlueprint, RowBuffering, RowSums};
use super::blueprint::AccessBlueprint;
use super::combine::between_launches;
use super::hardware::Hardware;
use super::heuristic::row_buffering::{is_wide, row_buffering, staged_scale};
use super::heuristic::vector_width::Tensors;
use super::heuristic::{
    column_sums, load_mode, loads_in_flight, narrow_vectors, nontemporal, rows_per_unit,
    segment_sums,
};
use super::knobs::{Knobs, StrategyChoice};
use super::limits::check_limits;
use super::planner::{self, Pass, Refinement};
use super::result::{BackwardPlan, PlanError};
use super::schedule::Schedule;
use super::team::{Execution, Guards, Level, ParamLoads};
use super::workload::Workload;
use super::workspace::channel_sums;
use crate::backward::{BackwardProblem, ColumnSums};
use crate::desc::Offset;
use crate::dtype::DType;
use crate::problem::Access;
use crate::statistics::Merge;

/// Plans a launch of the backward pass.
///
/// Column sums are fused if few teams process many rows each. This holds on a CPU, and on a GPU
/// whose registers or shared memory hold the sums of a row. Otherwise the plan omits them, and they
/// need a launch over the columns.
///
/// # Errors
///
/// [`PlanError`], as [`plan_forward`](crate::plan_forward).
pub fn plan_backward(
    problem: &BackwardProblem,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<BackwardPlan, PlanError> {
    let (work, mut schedule) = planner::schedule(problem, hardware, choice.knobs())?;
    let row = row_buffering(&work, &schedule);
    skip_guards(&mut schedule, &work, row);
    let segment = segment_sums::steps(problem, &schedule);
    if let Some(segment) = segment {
        schedule.grid.segment_steps = segment;
    }
    let mut blueprint = blueprint(problem, &schedule, &work, row, hardware);
    if row.reloads() {
        pack(&mut blueprint, problem, &work, hardware);
    }
    let between = match blueprint.split() {
        true => between_launches(&work, &schedule, 0, hardware)?,
        false if blueprint.combines_within() => {
            (channel_sums(&schedule.team, &schedule.grid), None)
        }
        false => (0, None),
    };
    let plan = schedule.plan(blueprint, between);
    check_limits(&plan.footprint(problem), hardware)?;
    Ok(plan)
}

impl Pass for BackwardProblem {
    const REFINEMENTS: [Refinement<Self>; 2] = [
        |_, schedule, work, hardware, knobs| {
            narrow_vectors::backward(schedule, work, hardware, knobs)
        },
        |problem, schedule, work, _, knobs| segment_sums::planes(problem, schedule, work, knobs),
    ];

    fn workload(&self, knobs: Knobs) -> Workload {
        Workload {
            param_dtype: self.param_dtype,
            staged: self.dtype.accumulation(),
            reduces: self.reduces(),
            merge: Merge::Sums,
            column_sums: self.column_sums.count(),
            reads: 2 + usize::from(self.gate.is_some()),
            segments: self.segments,
            params_by_step: self.params().any(|param| !param.col.is_empty()),
            ..Workload::new(self.rows, self.cols, self.dtype, knobs)
        }
    }

    fn tensors(&self) -> Tensors<'_> {
        Tensors {
            input: &self.input,
            whole: self.whole().collect(),
            params: self.params().collect(),
        }
    }

    fn rows_per_unit(&self, work: &Workload, hardware: &Hardware) -> usize {
        rows_per_unit::backward(work, hardware)
    }
}

/// True if a core processes its row segment by segment, each with its own parameters and sums.
pub(super) fn sums_segments(
    problem: &BackwardProblem,
    schedule: &Schedule,
    hardware: &Hardware,
) -> bool {
    segment_sums::steps(problem, schedule).is_some()
        && hardware.cpu_cores.is_some()
        && schedule.team.level() == Level::Unit
        && problem.has_whole_segments()
}

/// Leaves out bounds checks only if the values that they would drop fit the registers.
fn skip_guards(schedule: &mut Schedule, work: &Workload, row: RowBuffering) {
    let is_wide = is_wide(work, schedule);
    let guards = &mut schedule.team.guards;
    if !row.is_double() && is_wide {
        *guards = Guards::After(0);
    }
    // The compiler keeps vectors without bounds checks converted between the passes. For f32 rows
    // with one sum at most this exceeds the registers.
    // 3,072 f32 H200, with -> without bounds checks: 1.05x to 1.1x slower.
    let is_light = !work.is_half() && work.column_sums < 2;
    let guards_more = row.is_double() || is_wide || is_light;
    if guards_more && matches!(guards, Guards::After(_)) {
        *guards = Guards::After(0);
    }
}

/// The compile-time parameters of a schedule.
fn blueprint(
    problem: &BackwardProblem,
    schedule: &Schedule,
    work: &Workload,
    row: RowBuffering,
    hardware: &Hardware,
) -> BackwardBlueprint {
    let access = |access: &Access| load_mode::access(access, work);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    let reads_scale = problem.input_gradient.is_some() || problem.has_slope();
    let has_segment = segment_sums::steps(problem, schedule).is_some();
    let mut input_gradient = optional(&problem.input_gradient);
    if let Some(gradient) = &mut input_gradient {
        gradient.nontemporal = nontemporal::applies(*gradient, schedule, work, hardware);
    }
    let mut team = schedule.team;
    if sums_segments(problem, schedule, hardware)
        && let Execution::Unit(unit) = &mut team.execution
    {
        unit.params = ParamLoads::PerSegment;
    }
    BackwardBlueprint {
        team,
        statistics: problem.statistics,
        epsilon_in_sqrt: problem.epsilon.is_inside_sqrt(),
        activation: problem.activation.kind(),
        gate: problem.gate.as_ref().map(|gate| GateBlueprint {
            access: access(&gate.access),
            is_of_input: gate.is_of_input,
            writes_gradient: gate.wants_gradient,
        }),
        input: access(&problem.input),
        output_gradient: access(&problem.output_gradient),
        saved: optional(&problem.saved),
        provides_sums: problem.provides_sums,
        scale: optional(&problem.scale).filter(|_| reads_scale),
        offset: match reads_scale {
            true => problem.offset,
            false => Offset::ZERO,
        },
        bias: optional(&problem.bias).filter(|_| problem.reads_bias()),
        adds_sum_gradient: problem.sum_gradient.is_some(),
        input_gradient,
        sums: match work.reduces {
            true if problem.weights() => RowSums::Weighted,
            true => RowSums::Plain,
            false => RowSums::None,
        },
        row_sums: problem
            .row_sums
            .as_ref()
            .filter(|access| access.col.is_empty() || has_segment)
            .map(|access| AccessBlueprint::of_numbers(access.row.len(), access.col.len())),
        column_sums: match column_sums::are_fused(schedule, hardware) {
            true => problem.column_sums,
            false => ColumnSums::default(),
        },
        staged_columns: schedule.staged_columns,
        row: match row {
            RowBuffering::Reload { .. } => RowBuffering::Reload {
                loads_in_flight: loads_in_flight::backward(problem, schedule, work, hardware),
            },
            RowBuffering::DoubleBuffer { .. } if reads_scale => RowBuffering::DoubleBuffer {
                scale: staged_scale(problem.scale.as_ref(), work, schedule, hardware),
            },
            row => row,
        },
        rows_per_unit: schedule.rows_per_unit,
        // With provided sums, other devices may have more elements of the row.
        has_one_element: work.cols * work.segments == 1
            && problem.statistics.reduces_mean()
            && !problem.provides_sums,
    }
}

/// Packs f16 pairs.
fn pack(
    blueprint: &mut BackwardBlueprint,
    problem: &BackwardProblem,
    work: &Workload,
    hardware: &Hardware,
) {
    let BackwardBlueprint {
        input,
        output_gradient,
        input_gradient,
        gate,
        ..
    } = blueprint;
    let of_gate = problem.gate.as_ref().map(|gate| gate.dtype);
    let is_one = |dtype: DType| dtype == problem.dtype;
    if is_one(problem.output_dtype) && of_gate.is_none_or(is_one) {
        let gate = gate.as_mut().map(|gate| &mut gate.access);
        let of_input = input_gradient.as_mut();
        let tensors = [Some(input), Some(output_gradient), of_input, gate];
        load_mode::pack(problem.dtype, work, hardware, tensors);
    }
    let params = [&mut blueprint.scale, &mut blueprint.bias].map(Option::as_mut);
    load_mode::pack(problem.param_dtype, work, hardware, params);
}
