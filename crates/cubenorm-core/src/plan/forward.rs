//! Plans of a forward pass.

use super::blueprint::{Blueprint, LoadMode, Residual, Shift, Staging};
use super::combine::between_launches;
use super::hardware::Hardware;
use super::heuristic::vector_width::{Tensors, steps_of_segment};
use super::heuristic::{
    dynamic_schedule, load_mode, loads_in_flight, narrow_vectors, nontemporal, one_block,
    params_kept, prefetch, rows_per_unit,
};
use super::knobs::{Knobs, StrategyChoice};
use super::limits::check_limits;
use super::planner::{self, Pass, Refinement};
use super::result::{Plan, PlanError};
use super::schedule::Schedule;
use super::team::{Assignment, Execution, Level, ParamLoads, Tail, Team, Tile, Unit};
use super::workload::Workload;
use crate::problem::{Access, NormProblem};

/// Plans a forward normalization.
///
/// # Errors
///
/// [`PlanError`] if a forced strategy does not apply, or the kernel exceeds the device's limits.
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc, plan_forward,
/// };
///
/// let input = TensorDesc::contiguous([2048, 4096], DType::F32);
/// let problem = NormDesc::new(input, [1], Statistics::MeanSquare).problem()?;
/// let plan = plan_forward(&problem, &Hardware::cpu(8, 512), StrategyChoice::Inferred)?;
/// assert!(plan.to_string().starts_with("unit: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_forward(
    problem: &NormProblem,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<Plan, PlanError> {
    let (work, mut schedule) = planner::schedule(problem, hardware, choice.knobs())?;
    let segment = steps_of_segment(problem.params(), &work);
    let reloads = schedule.team.level() == Level::Unit && schedule.staging == Staging::Reload;
    let segment = segment.filter(|_| reloads);
    if let Some(segment) = segment {
        schedule.grid.segment_steps = segment;
    }
    if let Some(items) = dynamic_schedule::dynamic_items(&schedule, &work, hardware) {
        match &mut schedule.team.execution {
            Execution::Tile(tile) => tile.dynamic = true,
            Execution::Unit(unit) => unit.assignment = Assignment::Dynamic,
            _ => {}
        }
        schedule.grid.groups_per_team = items;
    }
    let mut blueprint = blueprint(problem, &schedule, &work, segment.is_some(), hardware);
    pack(&mut blueprint, problem, &work, hardware);
    let between = match blueprint.split() {
        true => between_launches(&work, &schedule, usize::from(blueprint.shifts()), hardware)?,
        false => (0, None),
    };
    let plan = schedule.plan(blueprint, between);
    check_limits(&plan.footprint(problem), hardware)?;
    Ok(plan)
}

impl Pass for NormProblem {
    const REFINEMENTS: [Refinement<Self>; 2] = [
        |_, schedule, work, hardware, knobs| {
            narrow_vectors::of_halves(schedule, work, hardware, knobs)
        },
        |_, schedule, work, hardware, knobs| {
            narrow_vectors::of_columns(schedule, work, hardware, knobs)
        },
    ];

    fn workload(&self, knobs: Knobs) -> Workload {
        let most = self.rotation.as_ref().map(|(_, turn)| turn.most_lanes());
        let knobs = Knobs {
            vector: knobs.vector.into_iter().chain(most).min(),
            ..knobs
        };
        Workload {
            rotates: self.rotation.is_some(),
            quantizes: self.quantization.is_some(),
            param_dtype: self.param_dtype,
            staged: match added_first(self) {
                Some(_) => self.dtype.accumulation(),
                None => self.dtype,
            },
            reduces: self.statistics.reduces(),
            merge: self.statistics.merge(),
            reads: 1 + usize::from(self.residual.is_some()),
            reads_late: self.residual.is_some() && !self.residual_place.is_in_front(),
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
        rows_per_unit::forward(self, work, hardware)
    }
}

/// The residual, if the tensor that is reduced is made with it.
fn added_first(problem: &NormProblem) -> Option<&Access> {
    let is_first = problem.residual_place.is_in_front();
    problem.residual.as_ref().filter(|_| is_first)
}

/// The compile-time parameters of a schedule. `has_segment` if parameters are read once per segment.
fn blueprint(
    problem: &NormProblem,
    schedule: &Schedule,
    work: &Workload,
    has_segment: bool,
    hardware: &Hardware,
) -> Blueprint {
    let access = |access: &Access| load_mode::access(access, work);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    let are_constant = problem.params().all(|param| param.col.is_empty());
    let same_params = has_segment || are_constant;
    let (input, mut output) = (access(&problem.input), access(&problem.output));
    let nontemporal = nontemporal::applies(output, schedule, work, hardware)
        || nontemporal::applies_before_tail(output, schedule, work, same_params, hardware);
    output.nontemporal = nontemporal && problem.writes_output;
    let quantization = problem.quantization.as_ref().map(|(format, scale)| {
        output.mode = LoadMode::PackedByte4;
        output.nontemporal = false;
        (*format, scale.as_ref().map(|scale| scale.row.len()))
    });
    Blueprint {
        team: Team {
            execution: execution(problem, schedule, work, has_segment, hardware),
            ..schedule.team
        },
        staging: schedule.staging,
        statistics: problem.statistics,
        shift: problem
            .statistics
            .reduces_mean()
            .then(|| shift(schedule, work, hardware)),
        epsilon_in_sqrt: problem.epsilon.is_inside_sqrt(),
        activation: problem.activation.kind(),
        rows_per_unit: schedule.rows_per_unit,
        loads_in_flight: loads_in_flight::forward(schedule, work, same_params, hardware),
        input,
        residual: optional(&problem.residual).map(|access| Residual {
            access,
            place: problem.residual_place,
        }),
        scale: optional(&problem.scale),
        offset: problem.offset,
        rounding: problem.rounding,
        bias: optional(&problem.bias),
        mean: optional(&problem.mean),
        variance: optional(&problem.variance),
        rotation: problem
            .rotation
            .as_ref()
            .map(|(table, turn)| (access(table), *turn)),
        quantization,
        output,
        writes_output: problem.writes_output,
        writes_sum: problem.writes_sum,
        written_statistics: problem
            .written_statistics
            .as_ref()
            .map(|(written, access)| (*written, access.row.len())),
    }
}

/// The shift of a reduced mean.
fn shift(schedule: &Schedule, work: &Workload, hardware: &Hardware) -> Shift {
    match one_block::is_one_block(schedule, work, hardware) {
        true => Shift::OneBlock,
        false if work.is_half() && schedule.team.level() == Level::Unit => Shift::FirstElement,
        false => Shift::Mean,
    }
}

/// The execution model with what only the forward pass chooses. `has_segment` if parameters are read
/// once per segment.
fn execution(
    problem: &NormProblem,
    schedule: &Schedule,
    work: &Workload,
    has_segment: bool,
    hardware: &Hardware,
) -> Execution {
    let team = &schedule.team;
    let are_constant = problem.params().all(|param| param.col.is_empty());
    let mut reduced = [&problem.input].into_iter().chain(added_first(problem));
    match team.execution {
        Execution::Tile(tile) => Execution::Tile(Tile {
            folded: are_constant && problem.folds(),
            ..tile
        }),
        Execution::Unit(unit) => {
            let kept = params_kept::params_kept(problem, schedule, hardware);
            let has_tails = team.has_tail() && schedule.staging == Staging::Reload;
            let is_one_segment =
                team.has_tail() && !team.has_parts() && reduced.all(Access::is_one_segment);
            let input = load_mode::access(&problem.input, work);
            Execution::Unit(Unit {
                params: match kept {
                    Some(steps) => ParamLoads::Kept(steps),
                    None if has_segment || has_tails && are_constant => ParamLoads::PerSegment,
                    None => ParamLoads::PerStep,
                },
                tail: if is_one_segment { Tail::Row } else { unit.tail },
                prefetch_next_row: prefetch::prefetch_next_row(input, schedule, work, hardware),
                ..unit
            })
        }
        of_several => of_several,
    }
}

/// Packs f16 pairs, unless they would be staged in shared memory: packed pairs are staged in the
/// accumulation dtype, for which it has no space.
fn pack(blueprint: &mut Blueprint, problem: &NormProblem, work: &Workload, hardware: &Hardware) {
    if blueprint.staging.places().1 > 0 {
        return;
    }
    let Blueprint {
        input,
        residual,
        output,
        ..
    } = blueprint;
    let tensors = [
        Some(input),
        residual.as_mut().map(|residual| &mut residual.access),
        Some(output),
    ];
    let mixed = [problem.residual_dtype, problem.output_dtype];
    if mixed == [problem.dtype; 2] {
        load_mode::pack(problem.dtype, work, hardware, tensors);
    }
    let params = [blueprint.scale.as_mut(), blueprint.bias.as_mut()];
    load_mode::pack(problem.param_dtype, work, hardware, params);
    let provided = [blueprint.mean.as_mut(), blueprint.variance.as_mut()];
    load_mode::pack(problem.provided_dtype, work, hardware, provided);
}
