//! Launch of a normalization. Everything is checked before the launch, since later errors only show
//! when a buffer is read.

use std::sync::Arc;
use std::time::Duration;

use cubecl::ir::AddressType;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    DType, Hardware, Kernel, Knobs, NormDesc, NormProblem, Plan, StrategyChoice, TensorDesc,
    plan_forward, problem_on,
};

use super::args::{
    address_type, arg, check_apart, check_buffer, cube_count, cube_dim, flat_arg, lanes_of_rows,
    left_lanes, memory_type, optional_arg, partition, scalars, width,
};
use super::combine::Segments;
use super::device::{check_activation, check_dtypes, has_cpu_hints};
use super::fill::nans;
use super::memory::{allocate_bytes, bytes, launched};
use super::plan_cache::{DescKey, DescQuery, PlanCache};
use super::work_counter::work_counter;
use super::{LaunchError, elem_type, hardware};
use crate::epilogue::AffineLaunch;
use crate::forward::io::ResultsLaunch;
use crate::forward::kernel::{normalize, reduce_parts};
use crate::memory::input::SourceLaunch;
use crate::tune::{measured, tune_forward};

/// Input and output buffers of a normalization.
#[derive(Debug, Clone)]
pub struct ForwardTensors {
    /// Tensor to normalize.
    pub input: Handle,
    /// Residual, added at [`residual_place`](NormDesc::residual_place).
    pub residual: Option<Handle>,
    /// Scale (gamma).
    pub scale: Option<Handle>,
    /// Bias (beta), added after the scale.
    pub bias: Option<Handle>,
    /// Provided means.
    pub mean: Option<Handle>,
    /// Provided variances.
    pub variance: Option<Handle>,
    /// Buffer for the output, which must not overlap any other buffer. None: allocated.
    pub output: Option<Handle>,
}

impl ForwardTensors {
    /// Buffers with an input only.
    pub fn new(input: Handle) -> Self {
        Self {
            input,
            residual: None,
            scale: None,
            bias: None,
            mean: None,
            variance: None,
            output: None,
        }
    }
}

/// Output tensor: description and buffer.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Layout and dtype.
    pub desc: TensorDesc,
    /// Buffer.
    pub handle: Handle,
}

/// Tensors that a normalization has written.
#[derive(Debug, Clone)]
pub struct ForwardOutputs {
    /// Normalized tensor.
    pub output: Tensor,
    /// `input + residual`; None if not requested.
    pub sum: Option<Tensor>,
    /// The two statistics of each row that [`written_statistics`](NormDesc::written_statistics)
    /// names; None if not requested. The shape is the input's with 1 for each reduced axis, then 2.
    /// The dtype is the accumulation type.
    pub statistics: Option<Tensor>,
}

/// Buffers that a normalization has written: see [`ForwardOutputs`].
#[derive(Debug, Clone)]
pub struct ForwardHandles {
    /// Normalized tensor.
    pub output: Handle,
    /// `input + residual`; None if not requested.
    pub sum: Option<Handle>,
    /// The two statistics of each row; None if not requested.
    pub statistics: Option<Handle>,
}

/// Plan of a description on a device, and the reason for it.
///
/// # Errors
///
/// As [`launch_forward`], and for an empty tensor, which launches nothing.
pub fn plan_for(
    client: &Client,
    desc: &NormDesc,
    choice: StrategyChoice,
) -> Result<Plan, LaunchError> {
    let hardware = hardware(client);
    with_view(desc, None, &hardware, |desc| {
        let problem = checked(client, desc, choice, &hardware)?;
        Ok(plan_forward(&problem, &hardware, choice)?)
    })
}

/// Calls `run` with the device's view of a description. The view includes the padding of pitched
/// rows if that gives a GPU wider loads and the input buffer contains all of it. A buffer that is
/// not known yet is assumed to contain it. Errors refer to the description itself.
fn with_view<T>(
    desc: &NormDesc,
    tensors: Option<&ForwardTensors>,
    hardware: &Hardware,
    run: impl Fn(&NormDesc) -> Result<T, LaunchError>,
) -> Result<T, LaunchError> {
    let padded = match hardware.is_gpu() {
        true => desc.with_padding(),
        false => None,
    };
    let is_there = |padded: &NormDesc| {
        tensors.is_none_or(|tensors| {
            let input = check_buffer("input", &padded.input, &tensors.input);
            tensors.output.is_none() && input.is_ok()
        })
    };
    if let Some(padded) = padded.filter(is_there)
        && let Ok(done) = run(&padded)
    {
        return Ok(done);
    }
    run(desc)
}

/// Validated problem, if the device can run it.
fn checked(
    client: &Client,
    desc: &NormDesc,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<NormProblem, LaunchError> {
    let problem = problem_on(desc, hardware, choice)?;
    check_dtypes(client, problem_dtypes(&problem))?;
    check_activation(client, problem.dtype, problem.activation)?;
    Ok(problem)
}

/// Everything that launches of a description share.
#[derive(Debug)]
struct Prepared {
    /// The device's view of the description.
    desc: NormDesc,
    problem: NormProblem,
    /// None for an empty tensor.
    plan: Option<Plan>,
    output: TensorDesc,
    statistics: Option<TensorDesc>,
    /// False if a graph capture has kept the autotuner from measuring.
    is_settled: bool,
}

static PREPARED: PlanCache<DescKey<NormDesc>, Prepared> = PlanCache::new();

fn prepare(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<Prepared, LaunchError> {
    let problem = checked(client, desc, choice, hardware)?;
    let knobs = match choice.budget() {
        Some(budget) if !problem.is_empty() => {
            tune_forward(client, hardware, desc, &problem, tensors, budget)?
        }
        _ => Some(choice.knobs()),
    };
    let plan = match (problem.is_empty(), choice.budget(), knobs) {
        (true, ..) => None,
        (false, Some(_), Some(knobs)) => {
            let plan = measured(knobs, |choice| plan_forward(&problem, hardware, choice))?;
            Some(plan)
        }
        (false, ..) => Some(plan_forward(&problem, hardware, choice)?),
    };
    Ok(Prepared {
        output: TensorDesc::new(problem.output_layout.clone(), problem.dtype),
        statistics: desc.written_statistics.map(|_| desc.statistics_desc()),
        desc: desc.clone(),
        problem,
        plan,
        is_settled: knobs.is_some(),
    })
}

/// The cached preparation of a description.
fn prepared(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<Arc<Prepared>, LaunchError> {
    let query = DescQuery::new(client, desc, choice);
    PREPARED.get(
        &query,
        |prepared| prepared.is_settled,
        || {
            // Tuning launches kernels, so errors are found first.
            check_buffers(desc, tensors)?;
            prepare(client, desc, tensors, choice, hardware)
        },
    )
}

/// A normalization that is validated and planned for a device, and launches without a description.
///
/// [`launch_forward`] looks its preparation up by the description. A caller that knows the layouts
/// of its tensors by another key keeps the preparation instead.
///
/// # Example
///
/// ```no_run
/// use cubecl::client::Client;
/// use cubenorm_core::{NormDesc, StrategyChoice};
/// use cubenorm_kernels::{ForwardTensors, LaunchError, PreparedForward};
///
/// # fn example(client: &Client, desc: &NormDesc, tensors: ForwardTensors) -> Result<(), LaunchError> {
/// let prepared = PreparedForward::new(client, desc, &tensors, StrategyChoice::Inferred)?;
/// for _ in 0..10 {
///     let written = prepared.launch(client, &tensors)?;
/// #   drop(written);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PreparedForward {
    prepared: Arc<Prepared>,
    output: TensorDesc,
}

impl PreparedForward {
    /// Validates and plans a description. Measures as [`launch_forward`] does.
    ///
    /// # Errors
    ///
    /// As [`launch_forward`].
    pub fn new(
        client: &Client,
        desc: &NormDesc,
        tensors: &ForwardTensors,
        choice: StrategyChoice,
    ) -> Result<Self, LaunchError> {
        let hardware = hardware(client);
        let prepared = with_view(desc, Some(tensors), &hardware, |desc| {
            prepared(client, desc, tensors, choice, &hardware)
        })?;
        let mut output = prepared.output.clone();
        output.layout.shape = desc.input.shape().to_vec();
        Ok(Self { prepared, output })
    }

    /// Description of the output, and of the sum.
    pub fn output(&self) -> &TensorDesc {
        &self.output
    }

    /// Description of the statistics; None if not requested.
    pub fn statistics(&self) -> Option<&TensorDesc> {
        self.prepared.statistics.as_ref()
    }

    /// False if the plan is analytic because a graph is being captured: a later preparation
    /// measures.
    pub fn is_settled(&self) -> bool {
        self.prepared.is_settled
    }

    /// Launches the normalization. The buffers must have the described layouts.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] if a buffer is missing, too small, too large to address or overlaps the
    /// output.
    pub fn launch(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        self.prepared.launch(client, tensors)
    }
}

/// Fastest knobs of a description on a device, from the autotune cache or measured now. Default
/// knobs if no candidate beats the analytic plan, or if the problem is too small or too large to
/// measure, or if a graph is being captured.
///
/// [`launch_forward`] with [`StrategyChoice::TunedWithin`] uses the same knobs for the same budget.
/// [`Tuned`](StrategyChoice::Tuned) has no budget.
///
/// # Errors
///
/// As [`launch_forward`].
pub fn tuned_forward(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    budget: Duration,
) -> Result<Knobs, LaunchError> {
    let hardware = hardware(client);
    with_view(desc, Some(tensors), &hardware, |desc| {
        let problem = checked(client, desc, StrategyChoice::Tuned, &hardware)?;
        check_buffers(desc, tensors)?;
        if problem.is_empty() {
            return Ok(Knobs::default());
        }
        let knobs = tune_forward(client, &hardware, desc, &problem, tensors, budget)?;
        Ok(knobs.unwrap_or_default())
    })
}

/// Validates, plans and launches a normalization.
///
/// ```text
/// s = input + residual
/// y = activation((s - mean) * rstd * scale + bias)
/// ```
///
/// or, with [`ResidualPlace::Output`](cubenorm_core::ResidualPlace::Output),
///
/// ```text
/// y = activation((input - mean) * rstd * scale + bias + residual)
/// ```
///
/// Shapes and dtypes are those of [`NormDesc`]. If a GPU [computes the
/// padding](NormDesc::with_padding), the output's rows have the input's pitch. An empty tensor
/// launches nothing; statistics over no elements are NaN.
///
/// The same plan gives the same results from run to run: no strategy depends on the order in which
/// cubes finish. [`StrategyChoice::Tuned`] may choose another plan on another machine, or with an
/// empty autotune cache.
///
/// # Errors
///
/// [`LaunchError`], before anything is launched.
pub fn launch_forward(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
) -> Result<ForwardOutputs, LaunchError> {
    let hardware = hardware(client);
    launch_with_view(client, desc, tensors, &hardware, |desc| {
        prepared(client, desc, tensors, choice, &hardware)
    })
}

/// [`launch_forward`] planned for other hardware than the device reports: for fewer features, such
/// as WebGPU's guaranteed limits, or for features that the device does not report.
///
/// # Errors
///
/// As [`launch_forward`]. Exceeding the device's own limits is an error when an output is read.
/// Non-temporal stores are ordinary stores if the device's compiler does not support them.
pub fn launch_forward_within(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<ForwardOutputs, LaunchError> {
    let nontemporal_threshold = hardware.nontemporal_threshold;
    let hardware = &Hardware {
        nontemporal_threshold: nontemporal_threshold.filter(|_| has_cpu_hints(client)),
        ..hardware.clone()
    };
    launch_with_view(client, desc, tensors, hardware, |desc| {
        Ok(Arc::new(prepare(client, desc, tensors, choice, hardware)?))
    })
}

fn launch_with_view(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    hardware: &Hardware,
    prepare: impl Fn(&NormDesc) -> Result<Arc<Prepared>, LaunchError>,
) -> Result<ForwardOutputs, LaunchError> {
    let mut outputs = with_view(desc, Some(tensors), hardware, |desc| {
        let prepared = prepare(desc)?;
        let written = prepared.launch(client, tensors)?;
        let tensor = |desc: &TensorDesc, handle| Tensor {
            desc: desc.clone(),
            handle,
        };
        Ok(ForwardOutputs {
            output: tensor(&prepared.output, written.output),
            sum: written.sum.map(|sum| tensor(&prepared.output, sum)),
            statistics: match (&prepared.statistics, written.statistics) {
                (Some(desc), Some(handle)) => Some(tensor(desc, handle)),
                _ => None,
            },
        })
    })?;
    // The requested columns, without the padding of pitched rows.
    outputs.output.desc.layout.shape = desc.input.shape().to_vec();
    Ok(outputs)
}

impl Prepared {
    fn launch(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        check_buffers(&self.desc, tensors)?;
        if let Some(handle) = &tensors.output {
            check_buffer("output", &self.output, handle)?;
            let read = [
                ("input", Some(&tensors.input)),
                ("residual", tensors.residual.as_ref()),
                ("scale", tensors.scale.as_ref()),
                ("bias", tensors.bias.as_ref()),
                ("mean", tensors.mean.as_ref()),
                ("variance", tensors.variance.as_ref()),
            ];
            check_apart("output", handle, read)?;
        }
        let allocated = |desc: &TensorDesc| allocate_bytes(client, bytes(desc));
        let outputs = ForwardHandles {
            output: match &tensors.output {
                Some(handle) => handle.clone(),
                None => allocated(&self.output),
            },
            sum: self.problem.writes_sum.then(|| allocated(&self.output)),
            statistics: self.statistics.as_ref().map(|desc| match self.plan {
                Some(_) => allocated(desc),
                // Statistics of rows without elements. There may be rows nevertheless.
                None => nans(client, desc),
            }),
        };
        if let Some(plan) = &self.plan {
            Launch::new(client, &self.problem, plan, tensors, &outputs)?.run();
        }
        Ok(outputs)
    }
}

fn check_buffers(desc: &NormDesc, tensors: &ForwardTensors) -> Result<(), LaunchError> {
    let [mean, variance] = desc.given();
    let pairs = [
        ("input", Some(&desc.input), Some(&tensors.input)),
        (
            "residual",
            desc.residual.as_ref(),
            tensors.residual.as_ref(),
        ),
        ("scale", desc.scale.as_ref(), tensors.scale.as_ref()),
        ("bias", desc.bias.as_ref(), tensors.bias.as_ref()),
        ("mean", mean, tensors.mean.as_ref()),
        ("variance", variance, tensors.variance.as_ref()),
    ];
    for (tensor, desc, handle) in pairs {
        match (desc, handle) {
            (Some(desc), Some(handle)) => check_buffer(tensor, desc, handle)?,
            (None, None) => {}
            _ => return Err(LaunchError::Missing { tensor }),
        }
    }
    Ok(())
}

fn problem_dtypes(problem: &NormProblem) -> impl Iterator<Item = DType> {
    let accumulation = problem.dtype.accumulation();
    let NormProblem {
        dtype,
        param_dtype,
        provided_dtype,
        ..
    } = *problem;
    [dtype, param_dtype, provided_dtype, accumulation].into_iter()
}

/// Arguments that kernels share. Macros, because the argument types depend on the types that a
/// kernel is instantiated with.
macro_rules! source {
    ($launch:expr) => {
        SourceLaunch::new(
            arg(&$launch.tensors.input, &$launch.problem.input),
            optional_arg(
                $launch.tensors.residual.as_ref(),
                $launch.problem.residual.as_ref(),
            )
            .into(),
        )
    };
}

macro_rules! affine {
    ($launch:expr) => {{
        let (tensors, problem) = ($launch.tensors, $launch.problem);
        AffineLaunch::new(
            optional_arg(tensors.scale.as_ref(), problem.scale.as_ref()).into(),
            optional_arg(tensors.bias.as_ref(), problem.bias.as_ref()).into(),
            optional_arg(tensors.mean.as_ref(), problem.mean.as_ref()).into(),
            optional_arg(tensors.variance.as_ref(), problem.variance.as_ref()).into(),
        )
    }};
}

macro_rules! results {
    ($launch:expr, $sum:expr) => {
        ResultsLaunch::new(
            arg(&$launch.outputs.output, &$launch.problem.output),
            $sum.into(),
            $launch.statistics().into(),
        )
    };
}

/// Arguments of the launches of one normalization.
struct Launch<'a> {
    client: &'a Client,
    problem: &'a NormProblem,
    plan: &'a Plan,
    tensors: &'a ForwardTensors,
    outputs: &'a ForwardHandles,
    address: AddressType,
}

impl<'a> Launch<'a> {
    fn new(
        client: &'a Client,
        problem: &'a NormProblem,
        plan: &'a Plan,
        tensors: &'a ForwardTensors,
        outputs: &'a ForwardHandles,
    ) -> Result<Self, LaunchError> {
        let (dtype, params, given) = (problem.dtype, problem.param_dtype, problem.provided_dtype);
        let bound = [
            (Some(&tensors.input), dtype),
            (tensors.residual.as_ref(), dtype),
            (tensors.scale.as_ref(), params),
            (tensors.bias.as_ref(), params),
            (tensors.mean.as_ref(), given),
            (tensors.variance.as_ref(), given),
            (Some(&outputs.output), dtype),
            (outputs.sum.as_ref(), dtype),
            (outputs.statistics.as_ref(), dtype.accumulation()),
        ];
        let address = address_type(client, bound, plan.workspace)?;
        Ok(Self {
            client,
            problem,
            plan,
            tensors,
            outputs,
            address,
        })
    }

    fn run(&self) {
        let parts = self.plan.blueprint.split().then(|| {
            let accumulation = self.problem.dtype.accumulation();
            let elements = self.plan.workspace;
            let workspace = allocate_bytes(self.client, elements * accumulation.size());
            self.reduce_parts(flat_arg(&workspace, elements));
            let Some(combine) = &self.plan.combine else {
                return flat_arg(&workspace, elements);
            };
            let segments = Segments {
                client: self.client,
                handle: &workspace,
                elements,
                grid: &self.plan.grid,
                shifts: self.plan.blueprint.shifts(),
                scale: None,
                accumulation: elem_type(accumulation),
                param_dtype: elem_type(self.problem.param_dtype),
                address: self.address,
            };
            flat_arg(&segments.combine(combine), combine.workspace)
        });
        self.normalize(parts);
    }

    fn normalize(&self, parts: Option<TensorArg>) {
        let blueprint = self.plan.blueprint;
        // If rows are split, the first launch writes the sum, since it binds fewer buffers.
        let sum = match parts {
            Some(_) => None,
            None => self.sum(),
        };
        // SAFETY:
        // 1. `Plan::footprint` bounds every access, and the plan was checked against the device's
        //    limits.
        // 2. The caller's buffers hold the spans of their layouts (`check_buffers`). All others
        //    have the sizes of the footprint.
        // 3. The previous launch has written every element of a workspace that is read.
        unsafe {
            normalize::launch_unchecked(
                self.client,
                cube_count(&self.plan.grid),
                cube_dim(&self.plan.grid),
                self.address,
                blueprint.team.vector,
                width(&blueprint.team, Some(blueprint.input)),
                width(&blueprint.team, blueprint.residual()),
                width(&blueprint.team, blueprint.scale),
                width(&blueprint.team, blueprint.bias),
                width(&blueprint.team, blueprint.mean),
                width(&blueprint.team, blueprint.variance),
                width(&blueprint.team, Some(blueprint.output)),
                left_lanes(&blueprint.team),
                source!(self),
                affine!(self),
                results!(self, sum),
                parts.into(),
                blueprint
                    .team
                    .is_dynamic()
                    .then(|| work_counter(self.client))
                    .into(),
                partition(&self.plan.grid, self.problem.cols),
                scalars(
                    self.problem.dtype,
                    self.problem.epsilon,
                    self.problem.activation,
                ),
                blueprint,
                memory_type(self.problem.dtype, Some(blueprint.input)),
                memory_type(self.problem.param_dtype, blueprint.scale.or(blueprint.bias)),
                memory_type(
                    self.problem.provided_dtype,
                    blueprint.mean.or(blueprint.variance),
                ),
                elem_type(self.problem.dtype.accumulation()),
            );
        }
        launched(self.client, Kernel::Normalize);
    }

    fn reduce_parts(&self, workspace: TensorArg) {
        let blueprint = self.plan.blueprint;
        // SAFETY:
        // 1. As in `normalize`, 1 and 2.
        // 2. The workspace has the size of the footprint (`partial_statistics`). The kernel does
        //    not read it.
        unsafe {
            reduce_parts::launch_unchecked(
                self.client,
                cube_count(&self.plan.grid),
                cube_dim(&self.plan.grid),
                self.address,
                blueprint.team.vector,
                width(&blueprint.team, Some(blueprint.input)),
                width(&blueprint.team, blueprint.residual()),
                width(&blueprint.team, Some(blueprint.output)),
                lanes_of_rows(&blueprint.team),
                source!(self),
                self.sum().into(),
                workspace,
                partition(&self.plan.grid, self.problem.cols),
                blueprint,
                memory_type(self.problem.dtype, Some(blueprint.input)),
                elem_type(self.problem.dtype.accumulation()),
            );
        }
        launched(self.client, Kernel::PartialStatistics);
    }

    fn sum(&self) -> Option<TensorArg> {
        let sum = self.outputs.sum.as_ref()?;
        Some(arg(sum, &self.problem.output))
    }

    fn statistics(&self) -> Option<TensorArg> {
        let statistics = self.outputs.statistics.as_ref()?;
        let (_, access) = self.problem.written_statistics.as_ref()?;
        Some(arg(statistics, access))
    }
}
