//! All launches of a backward pass: the input's gradient, and the reduction of partial sums to
//! parameter gradients.

use super::backward::plan_backward;
use super::footprint::{Buffer, Footprint};
use super::hardware::Hardware;
use super::knobs::StrategyChoice;
use super::param_reduce::{ParamReduce, Partials};
use super::result::{BackwardPlan, PlanError};
use super::view::{input_problem_on, sums_on};
use crate::backward::{BackwardDesc, BackwardProblem, ParamSums};
use crate::error::NormError;
use crate::layout::{Layout, TensorDesc};
use crate::problem::{Access, Dim};

/// Most partial sums per parameter element. More are summed over the parameter's own axes instead.
const MAX_PARTS: usize = 4096;

/// A reason that a backward pass has no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BackwardError {
    /// The description is invalid.
    #[error(transparent)]
    Description(#[from] NormError),
    /// The description cannot be planned on the device.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// The launches of a backward pass, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct BackwardSchedule {
    /// The problem over the normalization's own axes.
    pub problem: BackwardProblem,
    /// The launches; none if the tensor is empty.
    pub launches: Vec<BackwardLaunch>,
}

/// One plan of a backward pass, and the reduction that follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackwardLaunch {
    /// The planned problem.
    pub problem: BackwardProblem,
    /// Its plan.
    pub plan: BackwardPlan,
    /// True if it writes the input's gradient.
    pub writes_input: bool,
    /// The reduction of its partial sums to parameter gradients, if it writes any.
    pub reduce: Option<ParamReduce>,
}

impl BackwardSchedule {
    /// Buffers and resources of each launch, in order.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{
    ///     Buffer, DType, BackwardDesc, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc,
    ///     schedule_backward,
    /// };
    ///
    /// let norm = NormDesc::new(
    ///     TensorDesc::contiguous([2048, 4096], DType::F32),
    ///     [1],
    ///     Statistics::MeanVariance,
    /// )
    /// .with_scale(TensorDesc::contiguous([4096], DType::F32));
    /// let desc = BackwardDesc::new(norm);
    /// let schedule = schedule_backward(&desc, &Hardware::cuda(132), StrategyChoice::Inferred)?;
    /// let [backward, reduce] = &schedule.footprint()[..] else {
    ///     panic!("the scale's gradient is reduced from sums of columns");
    /// };
    /// let left = backward.elements(Buffer::ColumnSums);
    /// assert!(reduce.elements(Buffer::ColumnSums) <= left);
    /// assert_eq!(reduce.elements(Buffer::ScaleGradient), 4096);
    /// # Ok::<(), cubenorm_core::BackwardError>(())
    /// ```
    pub fn footprint(&self) -> Vec<Footprint> {
        let of_launch = |launch: &BackwardLaunch| {
            let accumulation = launch.problem.dtype.accumulation().size();
            let reduce = launch.reduce.as_ref().map(|it| it.footprint(accumulation));
            let plan = launch.plan.footprint(&launch.problem);
            plan.into_iter().chain(reduce)
        };
        self.launches.iter().flat_map(of_launch).collect()
    }
}

/// Plans all launches of a backward pass.
///
/// If a forced strategy does not apply to the axes of a launch, the analytic plan is used there.
///
/// # Errors
///
/// [`BackwardError`] if the description is invalid or a kernel exceeds the device's limits.
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, BackwardDesc, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc,
///     schedule_backward,
/// };
///
/// let norm = NormDesc::new(
///     TensorDesc::contiguous([2048, 4096], DType::F32),
///     [1],
///     Statistics::MeanVariance,
/// );
/// let desc = BackwardDesc::new(norm);
/// let schedule = schedule_backward(&desc, &Hardware::cpu(8, 512), StrategyChoice::Inferred)?;
/// assert!(schedule.launches[0].writes_input);
/// # Ok::<(), cubenorm_core::BackwardError>(())
/// ```
pub fn schedule_backward(
    desc: &BackwardDesc,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<BackwardSchedule, BackwardError> {
    let sums = sums_on(desc, hardware);
    let problem = input_problem_on(desc, sums, hardware)?;
    let planner = LaunchPlanner {
        desc,
        hardware,
        choice,
    };
    let launches = match problem.is_empty() {
        true => Vec::new(),
        false => planner.launches(&problem, sums)?,
    };
    Ok(BackwardSchedule { problem, launches })
}

/// Plans the launches of one description.
struct LaunchPlanner<'a> {
    desc: &'a BackwardDesc,
    hardware: &'a Hardware,
    choice: StrategyChoice,
}

impl LaunchPlanner<'_> {
    fn launches(
        &self,
        problem: &BackwardProblem,
        sums: ParamSums,
    ) -> Result<Vec<BackwardLaunch>, BackwardError> {
        let writes_input = self.desc.input_gradient.is_some();
        let shapes = self.shapes();
        if let [shape] = shapes.as_slice()
            && let Some(launch) = self.together(problem, sums, shape)?
        {
            return Ok(vec![launch]);
        }
        let mut launches = Vec::new();
        if writes_input {
            let problem = match shapes.is_empty() {
                true => problem.clone(),
                false => input_problem_on(self.desc, ParamSums::Elsewhere, self.hardware)?,
            };
            launches.push(BackwardLaunch {
                plan: self.plan(&problem)?,
                problem,
                writes_input,
                reduce: None,
            });
        }
        for shape in shapes {
            let problem = self.desc.param_problem(&shape)?;
            let plan = self.plan(&problem)?;
            let partials = Partials {
                buffer: Buffer::RowSums,
                elements: 2 * problem.rows,
                access: Access {
                    row: vec![Dim {
                        size: problem.rows,
                        stride: 2,
                    }],
                    col: Vec::new(),
                },
                parts: 1,
                offsets: [0, 1],
            };
            launches.push(BackwardLaunch {
                reduce: self.reduce(partials, &shape)?,
                problem,
                plan,
                writes_input: false,
            });
        }
        Ok(launches)
    }

    /// Distinct shapes of the parameters whose gradients are computed.
    fn shapes(&self) -> Vec<Vec<usize>> {
        let mut shapes: Vec<Vec<usize>> = self
            .params()
            .into_iter()
            .flatten()
            .map(|it| it.shape().to_vec())
            .collect();
        shapes.dedup();
        shapes
    }

    /// Scale and bias, if their gradients are computed.
    fn params(&self) -> [Option<&TensorDesc>; 2] {
        let norm = &self.desc.norm;
        [
            norm.scale.as_ref().filter(|_| self.desc.wants_scale),
            norm.bias.as_ref().filter(|_| self.desc.wants_bias),
        ]
    }

    /// The plan of the chosen strategy, or the analytic one if the strategy does not apply to these
    /// axes.
    fn plan(&self, problem: &BackwardProblem) -> Result<BackwardPlan, PlanError> {
        match plan_backward(problem, self.hardware, self.choice) {
            Err(PlanError::Strategy { .. }) => {
                plan_backward(problem, self.hardware, StrategyChoice::Inferred)
            }
            plan => plan,
        }
    }

    /// The launch of the input's gradient and the partial sums of one parameter shape; `None` if
    /// these need two launches.
    fn together(
        &self,
        problem: &BackwardProblem,
        sums: ParamSums,
        shape: &[usize],
    ) -> Result<Option<BackwardLaunch>, BackwardError> {
        let plan = match self.plan(problem) {
            Err(PlanError::Bindings { .. }) => return Ok(None),
            plan => plan?,
        };
        let Some(partials) = self.partials(problem, &plan, sums, shape) else {
            return Ok(None);
        };
        Ok(Some(BackwardLaunch {
            reduce: self.reduce(partials, shape)?,
            problem: problem.clone(),
            plan,
            writes_input: self.desc.input_gradient.is_some(),
        }))
    }

    /// Plans the reduction to the gradients of the parameters of one shape.
    fn reduce(
        &self,
        partials: Partials,
        shape: &[usize],
    ) -> Result<Option<ParamReduce>, PlanError> {
        let of_shape = |it: &&TensorDesc| it.shape() == shape;
        let params = self.params().map(|param| param.filter(of_shape));
        let accumulation = self.desc.norm.input.dtype.accumulation();
        ParamReduce::plan(partials, params, accumulation, self.hardware)
    }

    /// The partial sums that a launch leaves; `None` if it leaves none or too many.
    fn partials(
        &self,
        problem: &BackwardProblem,
        plan: &BackwardPlan,
        sums: ParamSums,
        shape: &[usize],
    ) -> Option<Partials> {
        let repeated = self.desc.repeated(shape);
        let partials = match sums {
            ParamSums::Rows | ParamSums::Runs => {
                plan.blueprint.row_sums?;
                let kept = self.desc.summed_shape(sums);
                let strides = Layout::contiguous(kept.clone()).strides;
                let access = sums_of(&kept, &strides, 2, &repeated);
                Partials {
                    buffer: Buffer::RowSums,
                    elements: 2 * kept.iter().product::<usize>(),
                    parts: parts(&access),
                    access,
                    offsets: [0, 1],
                }
            }
            ParamSums::Segments => {
                let kept = self.desc.summed_shape(sums);
                let mut access = sums_of(&kept, &problem.row_strides, 1, &repeated);
                // The first launch writes the parts one after another.
                access.col.push(Dim {
                    size: plan.grid.splits,
                    stride: problem.rows,
                });
                let buffer = match plan.blueprint.split() {
                    true => Buffer::PartialStatistics,
                    false => Buffer::ChannelSums,
                };
                (plan.workspace > 0).then_some(())?;
                Partials {
                    buffer,
                    elements: plan.workspace,
                    parts: parts(&access),
                    access,
                    offsets: [plan.grid.splits * problem.rows, 0],
                }
            }
            ParamSums::Columns if plan.blueprint.column_sums.any() => {
                let teams = plan.parts_of_columns();
                let of_kind = plan.columns_of_part(problem.cols);
                let of_team = plan.blueprint.column_sums.count() * of_kind;
                let lanes = plan.lanes_of_column();
                let sizes = self.desc.norm.input.shape();
                let mut access = sums_of(sizes, &problem.column_strides, lanes, &repeated);
                let summed = [(teams, of_team), (lanes, 1)];
                let summed = summed.map(|(size, stride)| Dim { size, stride });
                access.col = summed.into_iter().filter(|dim| dim.size > 1).collect();
                return Some(Partials {
                    buffer: Buffer::ColumnSums,
                    elements: plan.column_sums(problem.cols),
                    parts: teams * lanes,
                    access,
                    offsets: [0, of_team - of_kind],
                });
            }
            ParamSums::Columns | ParamSums::Elsewhere => return None,
        };
        (partials.parts <= MAX_PARTS).then_some(partials)
    }
}

/// Parts of each element.
fn parts(access: &Access) -> usize {
    access.col.iter().map(|dim| dim.size).product()
}

/// Dimensions of partial sums, with strides multiplied by `scaled`. Rows are the parameter's
/// dimensions in row-major order, columns the dimensions that it repeats along.
fn sums_of(sizes: &[usize], strides: &[usize], scaled: usize, repeated: &[bool]) -> Access {
    let of = |wanted: bool| {
        (0..sizes.len())
            .filter(|&dim| sizes[dim] != 1 && repeated[dim] == wanted)
            .map(|dim| Dim {
                size: sizes[dim],
                stride: strides[dim] * scaled,
            })
            .collect()
    };
    Access {
        row: of(false),
        col: of(true),
    }
}
