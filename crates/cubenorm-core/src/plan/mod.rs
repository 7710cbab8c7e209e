//! Problem and hardware to plan: which kernel runs, how it is cut, and why.

mod blueprint;
mod candidates;
mod cost;
mod gradient;
mod grid;
mod hardware;
mod heuristic;
mod join;
mod knobs;
mod lanes;

use std::fmt;

pub use blueprint::{AccessBlueprint, Blueprint, Hold, Lanes, Level, LoadMode, Merge, Team};
pub use candidates::{forward_candidates, gradient_candidates, knobs};
pub use gradient::{GradientBlueprint, GradientPlan, RowKept, plan_gradient};
pub use grid::Grid;
pub use hardware::Hardware;
pub use join::Join;
pub use knobs::{Knobs, RowHeld};

use serde::{Deserialize, Serialize};

use crate::problem::Rows;
use crate::{Access, GradientDesc, NormDesc, NormError, NormProblem, ParamSums};
use blueprint::is_added_first;
use grid::{Task, check_bindings, cut};
use join::between_launches;
use lanes::Vectors;

/// Bytes of a row's neighbours in memory that are worth a load by themselves. Measured on an H100, percent of a copy, group
/// norm of bfloat16 with channels last, whose rows units hold: 21 and 42 with 8 and 16 bytes, 79 with 32, 85 to 97 with
/// more; but 31 and 52 in vectors of 2 and 4, which divide 60 and 40. In strands 48 to 60.
const LEAST_BESIDE: usize = 32;

/// Who works together on a row. See the table in the [crate documentation](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strategy {
    /// One unit for each row.
    Unit,
    /// One plane for each row.
    Plane,
    /// One cube for each row, or several that tell each other what they find.
    Cube,
    /// Several cubes for each row, in two launches.
    Split,
    /// Vectors along the kept axis, units along the reduced one.
    Column,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 5] = [
        Self::Unit,
        Self::Plane,
        Self::Cube,
        Self::Split,
        Self::Column,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "unit",
            Self::Plane => "plane",
            Self::Cube => "cube",
            Self::Split => "split",
            Self::Column => "column",
        })
    }
}

/// Who decides how a launch is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StrategyChoice {
    /// The analytic choice for this problem on this hardware.
    #[default]
    Inferred,
    /// What has been measured to be the fastest for problems like this one. A plan by itself measures
    /// nothing: to [`plan_forward`] and [`plan_gradient`] this is the same as [`Inferred`](Self::Inferred).
    Tuned,
    /// The caller, as far as the knobs say.
    Forced(Knobs),
}

impl StrategyChoice {
    /// What the caller decides.
    pub fn knobs(self) -> Knobs {
        match self {
            Self::Inferred | Self::Tuned => Knobs::default(),
            Self::Forced(knobs) => knobs,
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

/// Why no plan could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A forced strategy does not apply to the problem.
    #[error("the {strategy} strategy cannot run this problem: {reason}")]
    Strategy {
        /// The strategy.
        strategy: Strategy,
        /// What stands in the way.
        reason: &'static str,
    },
    /// The kernel would bind more buffers than the device takes.
    #[error("the kernel binds {needed} buffers, the device takes {available}")]
    Bindings {
        /// Buffers of the kernel.
        needed: u32,
        /// Buffers that the device takes.
        available: u32,
    },
}

/// What runs: the comptime half ([`Blueprint`]) and the sizes of the launch.
///
/// A plan is a value. It prints as one line that says what would run and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Which strategy this is.
    pub strategy: Strategy,
    /// What the kernel is compiled for.
    pub blueprint: Blueprint,
    /// How the launch is cut.
    pub grid: Grid,
    /// Elements of the accumulation dtype that partial statistics need between two launches.
    pub workspace: usize,
    /// The launch that joins strands between the two, where rows have several.
    pub join: Option<Join>,
    /// Why this strategy, in words.
    pub reason: &'static str,
}

impl Plan {
    /// Bytes that any implementation must move: each element read once, each result written once.
    pub fn minimum_bytes(problem: &NormProblem) -> usize {
        let elements = problem.rows * problem.cols;
        let tensors = 2 + usize::from(problem.residual.is_some()) + usize::from(problem.writes_sum);
        let params = [
            &problem.scale,
            &problem.bias,
            &problem.mean,
            &problem.variance,
        ];
        let params: usize = params.into_iter().flatten().map(Access::elements).sum();
        elements * tensors * problem.dtype.size() + params * problem.param_dtype.size()
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
        if self.blueprint.abreast > 1 {
            write!(f, ", {} abreast", self.blueprint.abreast)?;
        }
        write!(f, ", row {}", self.blueprint.hold)?;
        write!(
            f,
            "{} ({})",
            self.grid.describe_splits(&self.blueprint.team),
            self.reason
        )
    }
}

/// The canonical form of a description that a device is to run: units of a GPU share rows, which are longer there where
/// nothing is reduced and rows would be short or parameters are one number along few elements. Rows that have
/// [strands](NormProblem::strands), and are not held, come as those, unless units of a plane or cube are to share them.
///
/// # Errors
///
/// As [`NormDesc::problem`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc, problem_on,
/// };
///
/// // Batch norm by running statistics, of maps of 7 x 7 that no vector divides.
/// let input = TensorDesc::contiguous([8, 2048, 7, 7], DType::F32);
/// let channel = TensorDesc::contiguous([1, 2048, 1, 1], DType::F32);
/// let [mean, variance] = [channel.clone(), channel];
/// let desc = NormDesc::new(input, [0, 2, 3], Statistics::Given { mean, variance });
/// let choice = StrategyChoice::Inferred;
/// assert_eq!(problem_on(&desc, &Hardware::cpu(8, 512), choice)?.cols, 7 * 7);
/// assert_eq!(problem_on(&desc, &Hardware::cuda(132), choice)?.cols, 2048 * 7 * 7);
/// # Ok::<(), cubenorm_core::NormError>(())
/// ```
pub fn problem_on(
    desc: &NormDesc,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<NormProblem, NormError> {
    let rows = match hardware.is_gpu() {
        true => Rows::OfRuns,
        false => Rows::Even,
    };
    let whole = desc.canonical(rows, false)?;
    // Units of a plane or cube share whole rows.
    let shares_rows = matches!(
        choice.knobs().strategy,
        Some(Strategy::Plane | Strategy::Cube)
    );
    if shares_rows {
        return Ok(whole);
    }
    let in_strands = desc.canonical(rows, true)?;
    if in_strands.strands == 1 {
        return Ok(whole);
    }
    let plan = |problem: &NormProblem| plan_forward(problem, hardware, StrategyChoice::Inferred);
    let (Ok(of_whole), Ok(of_strands)) = (plan(&whole), plan(&in_strands)) else {
        return Ok(whole);
    };
    let [whole_width, width] = [&of_whole, &of_strands].map(|plan| plan.blueprint.team.vector);
    let bytes = desc.input.dtype.size();
    // What is held is read once.
    let reads_once = of_whole.blueprint.hold != Hold::Reread
        && whole_width == hardware.widest_vector(bytes)
        && in_strands.strands * bytes >= LEAST_BESIDE;
    let pays = strands_pay(in_strands.strands, in_strands.cols, bytes, hardware);
    Ok(match reads_once || width < whole_width || !pays {
        true => whole,
        false => in_strands,
    })
}

/// How a gradient's sums are to be taken on a device: of strands, where rows have any and they pay, else as
/// [`GradientDesc::param_sums`] says.
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, GradientDesc, Hardware, Layout, NormDesc, ParamSums, Statistics, TensorDesc, sums_on,
/// };
///
/// // Two groups of four channels that are last in memory, of 900 pixels each.
/// let layout = Layout::strided([1, 2, 4, 900], [7200, 4, 1, 8]);
/// let norm = NormDesc::new(TensorDesc::new(layout, DType::F32), [2, 3], Statistics::MeanVariance)
///     .with_scale(TensorDesc::contiguous([2, 4, 1], DType::F32));
/// let desc = GradientDesc::new(norm);
/// assert_eq!(sums_on(&desc, &Hardware::cuda(132)), ParamSums::Strands);
/// ```
pub fn sums_on(desc: &GradientDesc, hardware: &Hardware) -> ParamSums {
    let bytes = desc.norm.input.dtype.size();
    match desc.sums_of_strands() {
        Some((strands, cols)) if strands_pay(strands, cols, bytes, hardware) => ParamSums::Strands,
        _ => desc.param_sums(),
    }
}

/// Whether so many strands of so many elements are worth finding what each lane of them is multiplied with. Measured with
/// AVX-512, forward and backward together, batch norm of floats in maps of 7 x 7, whose strands are 196 bytes: with 8
/// pictures they take 1.57 times the time of whole rows, with 32 1.33, with 83 1.05; with 167 of halves 0.86.
fn strands_pay(strands: usize, cols: usize, bytes: usize, hardware: &Hardware) -> bool {
    hardware.cpu_cores.is_none() || cols >= strands * bytes
}

/// Plans a forward normalization.
///
/// # Errors
///
/// [`PlanError`] where a forced strategy does not apply, or the device's limits do not hold the
/// kernel.
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
    let task = Task {
        rows: problem.rows,
        cols: problem.cols,
        dtype: problem.dtype,
        held: match is_added_first(problem.residual.is_some(), problem.residual_place) {
            true => problem.dtype.accumulation(),
            false => problem.dtype,
        },
        reduces: problem.statistics.reduces(),
        merge: problem.statistics.merge(),
        column_sums: 0,
        reads: 1 + usize::from(problem.residual.is_some()),
        strands: problem.strands,
    };
    let vectors_of = |knobs: Knobs| {
        let (whole, params) = (problem.whole(), problem.params());
        lanes::choose(&task, &problem.input, whole, params, hardware, knobs)
    };
    let is_half = problem.dtype.is_half();
    let row_bytes = problem.cols * problem.dtype.size();
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
        let abreast = |groups: usize| {
            let knobs = choice.knobs();
            heuristic::abreast(groups, row_bytes, is_half, &params, hardware, knobs)
        };
        cut(&task, vectors, hardware, choice, abreast)
    };
    let mut vectors = vectors_of(choice.knobs());
    let mut cut = plan(vectors)?;
    if is_half
        && choice.knobs().vector.is_none()
        && let Some(bytes) = heuristic::narrow_vector(&cut, &task, hardware)
    {
        vectors = vectors_of(Knobs {
            vector: Some(bytes / problem.dtype.accumulation().size()),
            ..choice.knobs()
        });
        cut = plan(vectors)?;
    }
    if choice.knobs().vector.is_none() {
        for lanes in heuristic::narrower_columns(&cut, &task, hardware) {
            let narrow = vectors_of(Knobs {
                vector: Some(lanes),
                ..choice.knobs()
            });
            let narrow_cut = plan(narrow)?;
            if narrow_cut.hold != Hold::Reread {
                (vectors, cut) = (narrow, narrow_cut);
                break;
            }
        }
    }
    let run = match cut.team.level == Level::Unit && cut.hold == Hold::Reread {
        true => lanes::run_of_params(problem.params(), vectors)
            .filter(|&run| run >= heuristic::LEAST_RUN),
        false => None,
    };
    if let Some(run) = run {
        cut.grid.run = run;
    }
    let access = |access: &Access| lanes::blueprint(access, vectors);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    let is_constant = |param: &Access| param.col.is_empty();
    let same_params = run.is_some() || problem.params().all(is_constant);
    let (scale, bias) = (optional(&problem.scale), optional(&problem.bias));
    let (mean, variance) = (optional(&problem.mean), optional(&problem.variance));
    let mut blueprint = Blueprint {
        team: cut.team,
        hold: cut.hold,
        statistics: problem.statistics,
        shifts: problem.statistics.reduces_mean(),
        epsilon_in_sqrt: problem.epsilon.is_inside_sqrt(),
        activation: problem.activation.kind(),
        abreast: cut.abreast,
        under_way: heuristic::under_way(&cut, &task, same_params, hardware),
        input: access(&problem.input),
        residual: optional(&problem.residual),
        residual_place: problem.residual_place,
        scale,
        bias,
        mean,
        variance,
        params_by_run: run.is_some(),
        output: access(&problem.output),
        writes_sum: problem.writes_sum,
        written_statistics: problem
            .written_statistics
            .as_ref()
            .map(|(written, access)| (*written, access.row.len())),
        split: (cut.grid.splits > 1 || cut.team.joined) && problem.statistics.reduces(),
    };
    // A row in shared memory is there as it is in memory: there is no room for more.
    if let (_, 0) = cut.hold.places() {
        let input = Some(&mut blueprint.input);
        let tensors = [
            input,
            blueprint.residual.as_mut(),
            Some(&mut blueprint.output),
        ];
        lanes::pair(problem.dtype, vectors, hardware, tensors);
        let params = [
            &mut blueprint.scale,
            &mut blueprint.bias,
            &mut blueprint.mean,
            &mut blueprint.variance,
        ];
        let params = params.map(Option::as_mut);
        lanes::pair(problem.param_dtype, vectors, hardware, params);
    }
    check_bindings(blueprint.bindings(), hardware)?;
    let (workspace, join) = match blueprint.split {
        true => between_launches(
            &task,
            &cut,
            usize::from(blueprint.shifts),
            hardware,
            choice.knobs(),
        )?,
        false => (0, None),
    };
    Ok(Plan {
        strategy: cut.strategy,
        workspace,
        join,
        blueprint,
        grid: cut.grid,
        reason: cut.reason,
    })
}
