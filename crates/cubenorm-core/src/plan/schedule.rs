//! All launches of a backward pass: the input's gradient, and the reduction of partial sums to
//! parameter gradients.

use super::footprint::{self, Buffer, Extent, Footprint, Kernel, SharedMemory};
use super::grid::check_limits;
use super::{BackwardPlan, Hardware, PlanError, StrategyChoice};
use super::{input_problem_on, plan_backward, sums_on};
use crate::{
    Access, BackwardDesc, BackwardProblem, DType, Dim, Layout, NormError, ParamSums, TensorDesc,
};

/// Most partial sums per parameter element. More are summed over the parameter's own axes instead.
const MAX_PARTS: usize = 4096;

/// Units of a cube that reduces partial sums, one parameter element each.
const REDUCE_UNITS: u32 = 64;

/// Minimum parts that several GPU units share. A single unit would wait for memory once per part.
const SHARED_PARTS: usize = 64;

/// Most units of a cube that shares parts, and minimum parts per unit.
const SHARING_UNITS: u32 = 1024;
const PARTS_OF_UNIT: usize = 16;

/// Adjacent elements of such a cube: at most a cache line if all multiprocessors are busy, at least
/// one memory access.
const MOST_COLUMNS: u32 = 32;
const LEAST_COLUMNS: u32 = 8;

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

/// Partial sums of parameter gradients that a launch writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Partials {
    /// The buffer that holds them.
    pub buffer: Buffer,
    /// Elements of that buffer.
    pub elements: usize,
    /// Addresses of the partial sums: the row is the parameter element, the columns are its parts.
    pub access: Access,
    /// Parts of each element.
    pub parts: usize,
    /// Offsets of the sums of scale and bias.
    pub offsets: [usize; 2],
}

/// The reduction of partial sums to the gradients of scale and bias, of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamReduce {
    /// The partial sums.
    pub partials: Partials,
    /// True for scale and bias if their gradient is written.
    pub writes: [bool; 2],
    /// Elements of each gradient.
    pub elements: usize,
    /// Dtype of each gradient.
    pub dtype: DType,
    /// Adjacent elements that a unit reduces together.
    pub vector: usize,
    /// Units of a cube: adjacent vectors along x, units that share a vector's parts along y.
    pub cube_dim: [u32; 3],
    /// Cubes along x, and one along y for each gradient.
    pub cube_count: [u32; 3],
    /// Vectors that a unit reduces one after another.
    pub rounds: usize,
}

impl ParamReduce {
    /// Vectors of each gradient.
    pub fn vectors(&self) -> usize {
        self.elements / self.vector
    }

    fn footprint(&self, accumulation: usize) -> Footprint {
        let Partials {
            buffer,
            access,
            offsets,
            ..
        } = &self.partials;
        let [of_scale, of_bias] = self.writes;
        let first = |is_read: bool, offset: usize| if is_read { offset } else { 0 };
        let offset = first(of_scale, offsets[0]).max(first(of_bias, offsets[1]));
        let written = |buffer: Buffer, wanted: bool| {
            wanted.then_some(Extent {
                buffer,
                read: 0,
                written: self.elements,
            })
        };
        let extents = [
            Some(Extent {
                buffer: *buffer,
                read: offset + footprint::reach(access),
                written: 0,
            }),
            written(Buffer::ScaleGradient, of_scale),
            written(Buffer::BiasGradient, of_bias),
        ];
        let units = self.cube_dim.iter().product::<u32>() as usize;
        Footprint {
            kernel: Kernel::ParamReduce,
            cube_dim: self.cube_dim,
            cube_count: self.cube_count,
            shared_memory: match self.cube_dim[1] {
                1 => SharedMemory::default(),
                _ => SharedMemory::of(units * self.vector * accumulation),
            },
            bindings: 2 + self.cube_count[1],
            extents: extents.into_iter().flatten().collect(),
        }
    }
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
    let planner = Planner {
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

struct Planner<'a> {
    desc: &'a BackwardDesc,
    hardware: &'a Hardware,
    choice: StrategyChoice,
}

impl Planner<'_> {
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
                let buffer = match plan.blueprint.split {
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

    /// Plans the reduction to the gradients of the parameters of one shape; `None` if they are
    /// empty.
    fn reduce(
        &self,
        partials: Partials,
        shape: &[usize],
    ) -> Result<Option<ParamReduce>, PlanError> {
        let params = self
            .params()
            .map(|param| param.filter(|it| it.shape() == shape));
        let elements = shape.iter().product::<usize>();
        let Some(param) = params.iter().flatten().next().filter(|_| elements > 0) else {
            return Ok(None);
        };
        let outputs = params.iter().flatten().count();
        let accumulation = self.desc.norm.input.dtype.accumulation();
        let vector = self.vector(&partials, accumulation.size().max(param.dtype.size()));
        let vectors = elements / vector;
        let (columns, members) = self.units(partials.parts, elements, outputs);
        let cubes = match self.hardware.cpu_cores {
            Some(_) => 1,
            None => {
                let wanted = vectors.div_ceil(columns as usize);
                wanted.min(self.hardware.max_cubes as usize)
            }
        };
        let reduce = ParamReduce {
            partials,
            writes: params.map(|param| param.is_some()),
            elements,
            dtype: param.dtype,
            vector,
            cube_dim: [columns, members, 1],
            cube_count: [cubes as u32, outputs as u32, 1],
            rounds: vectors.div_ceil(cubes * columns as usize),
        };
        check_limits(&[reduce.footprint(accumulation.size())], self.hardware)?;
        Ok(Some(reduce))
    }

    /// Units of a reducing cube: adjacent vectors, and units that share a vector's parts if the
    /// device runs them in parallel.
    fn units(&self, parts: usize, elements: usize, outputs: usize) -> (u32, u32) {
        let hardware = self.hardware;
        let most = hardware.max_units_per_cube.min(hardware.max_cube_dim[0]);
        match hardware.busy_cores(parts.saturating_mul(elements)) {
            Some(cores) => (cores, 1),
            None if hardware.is_cpu_vulkan() || parts < SHARED_PARTS => (REDUCE_UNITS.min(most), 1),
            None => {
                let processors = hardware.processors().max(1);
                let wanted = (outputs * elements / processors).max(1).ilog2();
                let columns = 1 << wanted.min(MOST_COLUMNS.ilog2());
                let columns = u32::clamp(columns, LEAST_COLUMNS, MOST_COLUMNS).min(most);
                let shares = (parts / PARTS_OF_UNIT).clamp(1, SHARING_UNITS as usize) as u32;
                let room = SHARING_UNITS.min(most) / columns;
                let members = shares.min(room).min(hardware.max_cube_dim[1]).max(1);
                (columns, 1 << members.ilog2())
            }
        }
    }

    /// Adjacent elements of `bytes` bytes that a unit reduces together. One on a GPU, to occupy
    /// more units.
    fn vector(&self, partials: &Partials, bytes: usize) -> usize {
        if self.hardware.is_gpu() {
            return 1;
        }
        let Some((last, outer)) = partials.access.row.split_last() else {
            return 1;
        };
        if last.stride != 1 {
            return 1;
        }
        let steps = outer.iter().chain(&partials.access.col);
        let jumps = steps.map(|dim| dim.stride).chain(partials.offsets);
        let jumps: Vec<usize> = jumps.chain([last.size]).collect();
        let mut vector = self.hardware.widest_vector(bytes);
        // A vector access must be aligned to its width.
        while jumps.iter().any(|n| n % vector != 0) {
            vector /= 2;
        }
        vector
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
