//! Chooses the kernel and the launch sizes of a problem on a device, with a reason.

mod backward;
mod blueprint;
mod candidates;
mod combine;
mod cost;
mod footprint;
mod grid;
mod hardware;
mod heuristic;
mod knobs;
mod lanes;
mod on;
mod schedule;
mod task;

use std::fmt;
use std::time::Duration;

pub use backward::{BackwardBlueprint, BackwardPlan, RowBuffering, plan_backward};
pub use blueprint::{
    AccessBlueprint, Blueprint, Level, LoadMode, Merge, Staging, Team, Vectorization,
};
pub use candidates::{backward_candidates, forward_candidates, knobs};
pub use combine::Combine;
pub use footprint::{Buffer, Extent, Footprint, Kernel, ROUNDS, SUMS, SharedMemory};
pub use grid::Grid;
pub use hardware::Hardware;
pub use heuristic::BLOCK;
pub use knobs::{Knobs, StagingPreference};
pub use on::{input_problem_on, problem_on, sums_on};
pub use schedule::{
    BackwardError, BackwardLaunch, BackwardSchedule, ParamReduce, Partials, schedule_backward,
};

use serde::{Deserialize, Serialize};

use crate::{Access, DType, NormProblem};
use blueprint::is_added_first;
use combine::between_launches;
use grid::{check_limits, cut};
use lanes::Vectors;
use task::Task;

/// The units that share a row. See the table in the [crate documentation](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strategy {
    /// One unit for each row.
    Unit,
    /// One plane for each row.
    Plane,
    /// One cube for each row, or a cluster of cooperating cubes.
    Cube,
    /// Several cubes for each row, in two launches.
    Split,
    /// Vectors along the kept axis, units along the reduced one.
    Perpendicular,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 5] = [
        Self::Unit,
        Self::Plane,
        Self::Cube,
        Self::Split,
        Self::Perpendicular,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "unit",
            Self::Plane => "plane",
            Self::Cube => "cube",
            Self::Split => "split",
            Self::Perpendicular => "perpendicular",
        })
    }
}

/// The source of the launch parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StrategyChoice {
    /// The analytic choice for this problem on this hardware.
    #[default]
    Inferred,
    /// The fastest measured plan for similar problems. Planning itself measures nothing:
    /// [`plan_forward`] and [`plan_backward`] treat it as [`Inferred`](Self::Inferred).
    Tuned,
    /// As [`Tuned`](Self::Tuned), with a budget for all measurements of the process. After that,
    /// problems without a cached result use [`Inferred`](Self::Inferred).
    TunedWithin(Duration),
    /// The knobs that the caller sets; the analytic choice decides the others.
    Forced(Knobs),
}

impl StrategyChoice {
    /// The knobs that the caller sets.
    pub fn knobs(self) -> Knobs {
        match self {
            Self::Inferred | Self::Tuned | Self::TunedWithin(_) => Knobs::default(),
            Self::Forced(knobs) => knobs,
        }
    }

    /// The time that measurements may take; `None` without autotuning.
    pub fn budget(self) -> Option<Duration> {
        match self {
            Self::Tuned => Some(Duration::MAX),
            Self::TunedWithin(budget) => Some(budget),
            Self::Inferred | Self::Forced(_) => None,
        }
    }
}

impl From<Strategy> for StrategyChoice {
    fn from(strategy: Strategy) -> Self {
        Self::Forced(strategy.into())
    }
}

impl From<Knobs> for StrategyChoice {
    fn from(knobs: Knobs) -> Self {
        Self::Forced(knobs)
    }
}

/// A reason that a problem has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A forced strategy does not apply to the problem.
    #[error("the {strategy} strategy cannot run this problem: {reason}")]
    Strategy {
        /// The strategy.
        strategy: Strategy,
        /// The obstacle.
        reason: &'static str,
    },
    /// The tensor is empty.
    #[error("an empty tensor has nothing to plan")]
    Empty,
    /// The kernel binds more buffers than the device allows.
    #[error("the kernel binds {needed} buffers, the device takes {available}")]
    Bindings {
        /// Buffers of the kernel.
        needed: u32,
        /// Buffers that the device allows.
        available: u32,
    },
    /// A cube of the kernel needs more shared memory than the device has.
    #[error("a cube takes {needed} bytes of shared memory, the device has {available}")]
    SharedMemory {
        /// Bytes that a cube needs.
        needed: usize,
        /// Bytes that a cube of the device may use.
        available: usize,
    },
    /// A cube of the kernel has more units than the device allows.
    #[error("a cube has {needed:?} units, the device allows {allowed:?} and {most} in all")]
    Units {
        /// Units along x, y and z.
        needed: [u32; 3],
        /// Units that the device allows along x, y and z.
        allowed: [u32; 3],
        /// Units that it allows in total.
        most: u32,
    },
}

/// An executable plan: the comptime half ([`Blueprint`]) and the launch sizes.
///
/// A plan is a value. Its text is one line that describes the launch and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The strategy.
    pub strategy: Strategy,
    /// The compile-time parameters of the kernel.
    pub blueprint: Blueprint,
    /// The launch sizes.
    pub grid: Grid,
    /// Elements of the accumulation dtype for partial statistics between two launches.
    pub workspace: usize,
    /// The launch that combines segments between the two others; `None` without segments.
    pub combine: Option<Combine>,
    /// The reason for the strategy, in words.
    pub reason: &'static str,
}

impl Plan {
    /// Bytes that any implementation must move: each element read once, each result written once.
    pub fn minimum_bytes(problem: &NormProblem) -> usize {
        let elements = problem.rows.saturating_mul(problem.cols);
        let tensors = 2 + usize::from(problem.residual.is_some()) + usize::from(problem.writes_sum);
        let bytes = |params: [&Option<Access>; 2], dtype: DType| {
            let elements = params.into_iter().flatten().map(Access::elements);
            elements.sum::<usize>() * dtype.size()
        };
        let params = bytes([&problem.scale, &problem.bias], problem.param_dtype)
            + bytes([&problem.mean, &problem.variance], problem.provided_dtype);
        elements
            .saturating_mul(tensors * problem.dtype.size())
            .saturating_add(params)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.strategy,
            self.grid.describe(&self.blueprint.team)
        )?;
        if self.blueprint.rows_per_unit > 1 {
            write!(f, ", {} rows per unit", self.blueprint.rows_per_unit)?;
        }
        write!(f, ", row {}", self.blueprint.staging)?;
        if self.blueprint.output.nontemporal {
            write!(f, ", non-temporal stores")?;
        }
        if self.blueprint.prefetch_next_row {
            write!(f, ", next row prefetched")?;
        }
        write!(
            f,
            "{} ({})",
            self.grid.describe_splits(&self.blueprint.team),
            self.reason
        )
    }
}

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
    if problem.is_empty() {
        return Err(PlanError::Empty);
    }
    let task = Task {
        rows: problem.rows,
        cols: problem.cols,
        dtype: problem.dtype,
        param_dtype: problem.param_dtype,
        staged: match is_added_first(problem.residual.is_some(), problem.residual_place) {
            true => problem.dtype.accumulation(),
            false => problem.dtype,
        },
        reduces: problem.statistics.reduces(),
        merge: problem.statistics.merge(),
        column_sums: 0,
        reads: 1 + usize::from(problem.residual.is_some()),
        segments: problem.segments,
        params_by_step: problem.params().any(|param| !param.col.is_empty()),
    };
    let vectors_of = |knobs: Knobs| {
        let (whole, params) = (problem.whole(), problem.params());
        lanes::choose(&task, &problem.input, whole, params, hardware, knobs)
    };
    let run_of_params = |vectors: Vectors| {
        lanes::run_of_params(problem.params(), vectors).filter(|&run| run >= heuristic::LEAST_RUN)
    };
    let is_constant = |param: &Access| param.col.is_empty();
    let same_params =
        |vectors: Vectors| run_of_params(vectors).is_some() || problem.params().all(is_constant);
    let is_half = problem.dtype.is_half();
    let plan = |vectors: Vectors| {
        let optional =
            |tensor: &Option<Access>| tensor.as_ref().map(|it| lanes::blueprint(it, vectors));
        let params = [
            &problem.scale,
            &problem.bias,
            &problem.mean,
            &problem.variance,
        ];
        let params = params.map(optional);
        let output = lanes::blueprint(&problem.output, vectors);
        let passes = heuristic::may_be_nontemporal(output, vectors.width, &task, hardware)
            || heuristic::may_be_nontemporal_before_tail(
                output,
                vectors,
                &task,
                same_params(vectors),
                hardware,
            );
        let knobs = choice.knobs();
        let rows_per_unit = |groups: usize| {
            heuristic::rows_per_unit(groups, &task, &params, passes, hardware, knobs)
        };
        cut(&task, vectors, hardware, choice, rows_per_unit)
    };
    let mut vectors = vectors_of(choice.knobs());
    let mut cut = plan(vectors)?;
    if is_half
        && choice.knobs().vector.is_none()
        && let Some(bytes) = heuristic::narrow_vector(&cut, &task, hardware)
    {
        let narrow = vectors_of(Knobs {
            vector: Some(bytes / problem.dtype.accumulation().size()),
            ..choice.knobs()
        });
        let narrow_cut = plan(narrow)?;
        // Narrow vectors may be too many to stage.
        if cut.staging == Staging::Reload || narrow_cut.staging != Staging::Reload {
            (vectors, cut) = (narrow, narrow_cut);
        }
    }
    if choice.knobs().vector.is_none() {
        for lanes in heuristic::narrower_columns(&cut, &task, hardware) {
            let narrow = vectors_of(Knobs {
                vector: Some(lanes),
                ..choice.knobs()
            });
            let narrow_cut = plan(narrow)?;
            if narrow_cut.staging != Staging::Reload {
                (vectors, cut) = (narrow, narrow_cut);
                break;
            }
        }
    }
    let run = match cut.team.level == Level::Unit && cut.staging == Staging::Reload {
        true => run_of_params(vectors),
        false => None,
    };
    if let Some(run) = run {
        cut.grid.run = run;
    }
    if let Some(items) = heuristic::dynamic_items(&cut, &task, hardware, choice.knobs()) {
        cut.team.dynamic = true;
        cut.grid.groups_per_team = items;
    }
    let access = |access: &Access| lanes::blueprint(access, vectors);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    let same_params = run.is_some() || problem.params().all(is_constant);
    let of_runs = cut.team.has_tail && cut.staging == Staging::Reload;
    let added = problem.residual.iter();
    let added = added.filter(|_| is_added_first(true, problem.residual_place));
    let mut reduced = [&problem.input].into_iter().chain(added);
    let (scale, bias) = (optional(&problem.scale), optional(&problem.bias));
    let (mean, variance) = (optional(&problem.mean), optional(&problem.variance));
    let one_block = heuristic::is_one_block(&cut, &task, hardware);
    let mut blueprint = Blueprint {
        team: cut.team,
        staging: cut.staging,
        statistics: problem.statistics,
        shifts: problem.statistics.reduces_mean(),
        first_is_shift: is_half && cut.team.level == Level::Unit && !one_block,
        one_block,
        folded: cut.team.tile
            && problem.params().all(is_constant)
            // A norm has two factors, whose product may not be finite.
            && !problem.statistics.is_norm(),
        prefetch_next_row: heuristic::prefetch_next_row(
            access(&problem.input),
            &cut,
            &task,
            hardware,
        ),
        epsilon_in_sqrt: problem.epsilon.is_inside_sqrt(),
        activation: problem.activation.kind(),
        rows_per_unit: cut.rows_per_unit,
        loads_in_flight: heuristic::loads_in_flight(&cut, &task, same_params, hardware),
        input: access(&problem.input),
        residual: optional(&problem.residual),
        residual_place: problem.residual_place,
        scale,
        bias,
        mean,
        variance,
        params_alike: are_alike(problem),
        params_kept: heuristic::params_kept(problem, &cut, hardware),
        params_by_run: run.is_some() || of_runs && same_params,
        is_one_run: cut.team.has_tail && !cut.team.parts && reduced.all(Access::is_one_run),
        output: access(&problem.output),
        writes_sum: problem.writes_sum,
        written_statistics: problem
            .written_statistics
            .as_ref()
            .map(|(written, access)| (*written, access.row.len())),
        split: cut.takes_two_launches(problem.statistics.reduces()),
    };
    blueprint.output.nontemporal =
        heuristic::is_nontemporal(blueprint.output, &cut, &task, hardware)
            || heuristic::is_nontemporal_before_tail(
                blueprint.output,
                &cut,
                vectors,
                &task,
                same_params,
                hardware,
            );
    // Packed pairs would be staged in the accumulation dtype, for which shared memory has no space.
    if let (_, 0) = cut.staging.places() {
        let input = Some(&mut blueprint.input);
        let tensors = [
            input,
            blueprint.residual.as_mut(),
            Some(&mut blueprint.output),
        ];
        lanes::pair(problem.dtype, vectors, hardware, tensors);
        let params = [blueprint.scale.as_mut(), blueprint.bias.as_mut()];
        lanes::pair(problem.param_dtype, vectors, hardware, params);
        let given = [blueprint.mean.as_mut(), blueprint.variance.as_mut()];
        lanes::pair(problem.provided_dtype, vectors, hardware, given);
    }
    let (workspace, combine) = match blueprint.split {
        true => between_launches(
            &task,
            &cut,
            usize::from(blueprint.shifts),
            hardware,
            choice.knobs(),
        )?,
        false => (0, None),
    };
    let plan = Plan {
        strategy: cut.strategy,
        workspace,
        combine,
        blueprint,
        grid: cut.grid,
        reason: cut.reason,
    };
    check_limits(&plan.footprint(problem), hardware)?;
    Ok(plan)
}

/// True if there are several parameters with equal row addressing.
fn are_alike(problem: &NormProblem) -> bool {
    let mut rows = problem.params().map(|param| &param.row);
    let Some(first) = rows.next().filter(|row| !row.is_empty()) else {
        return false;
    };
    let mut others = rows.peekable();
    others.peek().is_some() && others.all(|row| row == first)
}
