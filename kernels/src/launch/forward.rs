//! Launch of a planned normalization. Buffers are checked before the launch, since later errors only
//! show when one is read.

use cubecl::ir::AddressType;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    AccessBlueprint, Blueprint, DType, Hardware, Kernel, NormDesc, NormProblem, Offset, Plan,
    StrategyChoice, TensorDesc, problem_on,
};

use super::args::{
    address_type, arg, check_apart, check_buffer, cube_count, cube_dim, flat_arg, lanes_of_rows,
    left_lanes, memory_type, optional_arg, partition, scalars, width,
};
use super::combine::Segments;
use super::device::{check_activation, check_dtypes};
use super::fill::nans;
use super::memory::{allocate_bytes, bytes, launched};
use super::zeroed::{cluster_words, work_counter};
use super::{LaunchError, elem_type};
use crate::epilogue::AffineLaunch;
use crate::forward::io::ResultsLaunch;
use crate::forward::kernel::{normalize, normalize_pair, reduce_parts};
use crate::memory::input::SourceLaunch;

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
    /// Table of the rotation.
    pub rotation: Option<Handle>,
    /// Given scale of a quantised output.
    pub codes_scale: Option<Handle>,
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
            rotation: None,
            codes_scale: None,
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

/// Buffers that a normalization has written: see [`ForwardOutputs`](crate::ForwardOutputs).
#[derive(Debug, Clone)]
pub struct ForwardHandles {
    /// Normalized tensor, or words of codes. A placeholder that holds nothing if the description does not write it.
    pub output: Handle,
    /// `input + residual`; None if not requested.
    pub sum: Option<Handle>,
    /// The two statistics of each row; None if not requested.
    pub statistics: Option<Handle>,
}

/// The given scale of a quantised output.
const CODES_SCALE: &str = "scale of the codes";

/// Validated problem, if the device can run it.
pub(crate) fn checked_forward(
    client: &Client,
    desc: &NormDesc,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<NormProblem, LaunchError> {
    let problem = problem_on(desc, hardware, choice)?;
    check_dtypes(client, problem_dtypes(&problem))?;
    check_activation(client, problem.dtype, problem.activation)?;
    check_activation(client, problem.dtype, problem.statistics.function())?;
    Ok(problem)
}

/// A description that is validated and planned for a device.
#[derive(Debug)]
pub(crate) struct PlannedForward {
    /// The device's view of the description.
    desc: NormDesc,
    pub(super) problem: NormProblem,
    /// None for an empty tensor.
    pub(super) plan: Option<Plan>,
    /// Description of the output.
    pub(crate) output: TensorDesc,
    /// Description of the sum; None if not requested.
    pub(crate) sum: Option<TensorDesc>,
    /// Description of the statistics; None if not requested.
    pub(crate) statistics: Option<TensorDesc>,
}

impl PlannedForward {
    pub(crate) fn new(desc: &NormDesc, problem: NormProblem, plan: Option<Plan>) -> Self {
        Self {
            output: match problem.writes_output {
                true if problem.quantization.is_some() => desc.codes_desc(),
                true => TensorDesc::new(problem.output_layout.clone(), problem.output_dtype),
                // Kernels bind a buffer, but no store is left in them.
                false => TensorDesc::contiguous([0], problem.output_dtype),
            },
            sum: (problem.writes_sum)
                .then(|| TensorDesc::new(problem.output_layout.clone(), problem.dtype)),
            statistics: desc.written_statistics.map(|_| desc.statistics_desc()),
            desc: desc.clone(),
            problem,
            plan,
        }
    }

    /// Launches all kernels of a normalization.
    pub(crate) fn launch(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        let outputs = self.outputs(client, tensors)?;
        if let Some(plan) = &self.plan {
            Launch::new(client, &self.problem, plan, tensors, &outputs)?.run();
        }
        Ok(outputs)
    }

    /// Launches all kernels of a normalization, and writes the output to the input's buffer if the plan allows it.
    pub(crate) fn launch_in_place(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        let plan = self.plan.as_ref().filter(|_| tensors.output.is_none());
        let Some(plan) = plan.filter(|plan| writes_in_place(&self.problem, plan)) else {
            return self.launch(client, tensors);
        };
        check_forward_buffers(&self.desc, tensors)?;
        let outputs = self.others(client, tensors.input.clone());
        let launch = Launch::new(client, &self.problem, plan, tensors, &outputs)?;
        Launch {
            in_place: true,
            ..launch
        }
        .run();
        Ok(outputs)
    }

    /// True if [`launch_in_place`](Self::launch_in_place) writes to the input's buffer.
    pub(crate) fn writes_in_place(&self) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| writes_in_place(&self.problem, plan))
    }

    /// Checks the buffers of a launch, and allocates its results.
    pub(super) fn outputs(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        check_forward_buffers(&self.desc, tensors)?;
        if let Some(handle) = &tensors.output {
            check_buffer("output", &self.output, handle)?;
            let read = [
                ("input", Some(&tensors.input)),
                ("residual", tensors.residual.as_ref()),
                ("scale", tensors.scale.as_ref()),
                ("bias", tensors.bias.as_ref()),
                ("mean", tensors.mean.as_ref()),
                ("variance", tensors.variance.as_ref()),
                ("rotation table", tensors.rotation.as_ref()),
                (CODES_SCALE, tensors.codes_scale.as_ref()),
            ];
            check_apart("output", handle, read)?;
        }
        let output = match &tensors.output {
            Some(handle) => handle.clone(),
            None => allocate_bytes(client, bytes(&self.output)),
        };
        Ok(self.others(client, output))
    }

    /// An output, and the other buffers that are written, allocated.
    fn others(&self, client: &Client, output: Handle) -> ForwardHandles {
        let allocated = |desc: &TensorDesc| allocate_bytes(client, bytes(desc));
        ForwardHandles {
            output,
            sum: self.sum.as_ref().map(allocated),
            statistics: self.statistics.as_ref().map(|desc| match self.plan {
                Some(_) => allocated(desc),
                // Statistics of rows without elements. There may be rows nevertheless.
                None => nans(client, desc),
            }),
        }
    }
}

/// True if a plan reads each element for the last time right before the same unit writes it.
///
/// 1. A tail vector repeats elements of the vector before it, which would be normalized twice.
/// 2. Teams that share a row sample its shift from elements that another of them may have written.
/// 3. A rotation reads the other half of a row again, and codes are smaller than elements.
/// 4. Units of one team have merged their sums before the first of them writes.
fn writes_in_place(problem: &NormProblem, plan: &Plan) -> bool {
    let Blueprint {
        team,
        input,
        output,
        rotation,
        ..
    } = &plan.blueprint;
    let is_alike = problem.input == problem.output
        && problem.dtype == problem.output_dtype
        && input.mode == output.mode;
    let owns_rows = !team.has_parts() && !team.is_segmented() && team.cluster_size() == 1;
    let has_tail = team.has_tail() || team.has_row_tail();
    let is_plain = rotation.is_none() && problem.quantization.is_none();
    problem.writes_output && is_alike && owns_rows && !has_tail && is_plain
}

pub(crate) fn check_forward_buffers(
    desc: &NormDesc,
    tensors: &ForwardTensors,
) -> Result<(), LaunchError> {
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
        (
            "rotation table",
            desc.rotation.as_ref().map(|rotation| &rotation.table),
            tensors.rotation.as_ref(),
        ),
        (
            CODES_SCALE,
            desc.quantization.as_ref().and_then(|it| it.scale.as_ref()),
            tensors.codes_scale.as_ref(),
        ),
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
        residual_dtype,
        output_dtype,
        param_dtype,
        provided_dtype,
        ..
    } = *problem;
    [
        dtype,
        residual_dtype,
        output_dtype,
        param_dtype,
        provided_dtype,
        accumulation,
    ]
    .into_iter()
}

/// Access of the tensor in the place of provided means: these, or the table of a rotation.
pub(super) fn of_means(blueprint: &Blueprint) -> Option<AccessBlueprint> {
    blueprint
        .mean
        .or(blueprint.rotation.map(|(table, _)| table))
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
            optional_arg(
                tensors.rotation.as_ref(),
                problem.rotation.as_ref().map(|(table, _)| table),
            )
            .into(),
            optional_arg(
                tensors.codes_scale.as_ref(),
                problem
                    .quantization
                    .as_ref()
                    .and_then(|(_, scale)| scale.as_ref()),
            )
            .into(),
        )
    }};
}

macro_rules! results {
    ($launch:expr, $sum:expr) => {
        ResultsLaunch::new($launch.output(), $sum.into(), $launch.statistics().into())
    };
}

/// Arguments of the launches of one normalization.
pub(super) struct Launch<'a> {
    client: &'a Client,
    problem: &'a NormProblem,
    plan: &'a Plan,
    tensors: &'a ForwardTensors,
    outputs: &'a ForwardHandles,
    /// True if the output is the input's buffer.
    in_place: bool,
    address: AddressType,
}

impl<'a> Launch<'a> {
    pub(super) fn new(
        client: &'a Client,
        problem: &'a NormProblem,
        plan: &'a Plan,
        tensors: &'a ForwardTensors,
        outputs: &'a ForwardHandles,
    ) -> Result<Self, LaunchError> {
        let (dtype, result) = (problem.dtype, problem.output_dtype);
        let (params, given) = (problem.param_dtype, problem.provided_dtype);
        let bound = [
            ("input", Some(&tensors.input), dtype),
            (
                "residual",
                tensors.residual.as_ref(),
                problem.residual_dtype,
            ),
            ("scale", tensors.scale.as_ref(), params),
            ("bias", tensors.bias.as_ref(), params),
            ("mean", tensors.mean.as_ref(), given),
            ("variance", tensors.variance.as_ref(), given),
            ("rotation table", tensors.rotation.as_ref(), given),
            (CODES_SCALE, tensors.codes_scale.as_ref(), given),
            ("output", Some(&outputs.output), result),
            ("sum", outputs.sum.as_ref(), dtype),
            (
                "statistics",
                outputs.statistics.as_ref(),
                dtype.accumulation(),
            ),
        ];
        // Codes are counted one by one, while a word has four.
        let codes = match problem.quantization {
            Some(_) => problem.rows.saturating_mul(problem.cols),
            None => 0,
        };
        let address = address_type(client, bound, plan.workspace.max(codes))?;
        Ok(Self {
            client,
            problem,
            plan,
            tensors,
            outputs,
            in_place: false,
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
                offset: Offset::ZERO,
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
        // 1. `Plan::footprint` computes the largest index of each buffer by the formulas of the
        //    kernels. `cubenorm-core`'s tests/bounds simulates every access of random plans and
        //    compares.
        // 2. Every tensor holds the span of its layout: the caller's (`check_forward_buffers`, and
        //    `PlannedForward::launch` for the output), and ours, which are allocated from the span.
        //    No index of a tensor exceeds its span. The workspace has the size of the footprint.
        // 3. Each tensor starts at the device's alignment (`address_type`), and a vector load at a
        //    multiple of its width (`load_mode`), so it is aligned.
        // 4. The output overlaps nothing that is read (`check_apart`), or it is the input, and each element is
        //    read before it is written (`writes_in_place`). Units that share elements, as tails do, store
        //    equal values.
        // 5. The launches of a client run in order, so the launch before has written every element
        //    of the workspace that is read. The work counter is zero (`work_counter`), and so are the
        //    words (`cluster_words`).
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
                width(&blueprint.team, of_means(&blueprint)),
                width(&blueprint.team, blueprint.variance),
                width(&blueprint.team, Some(blueprint.output)),
                left_lanes(&blueprint.team),
                source!(self),
                affine!(self),
                results!(self, sum),
                parts.into(),
                self.words().into(),
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
                memory_type(self.problem.residual_dtype, blueprint.residual()),
                memory_type(self.problem.output_dtype, Some(blueprint.output)),
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

    /// Runs two normalizations in one launch, which [`fits_one_launch`](super::pair::fits_one_launch) allows.
    pub(super) fn run_with(&self, second: &Self) {
        let (blueprint, of_second) = (self.plan.blueprint, second.plan.blueprint);
        let team = &blueprint.team;
        let (grid, other) = (&self.plan.grid, &second.plan.grid);
        let cubes = grid.cube_count.max(other.cube_count);
        // SAFETY:
        // 1. As in `normalize`, 1 to 4, for each of the two. `fits_one_launch` has compared the types and widths that
        //    they share.
        // 2. A cube that a plan does not have gets no item, so it touches nothing.
        unsafe {
            normalize_pair::launch_unchecked(
                self.client,
                CubeCount::Static(cubes, 2, 1),
                cube_dim(grid),
                self.address.max(second.address),
                team.vector,
                width(team, Some(blueprint.input)),
                width(team, blueprint.scale),
                width(team, blueprint.bias),
                width(team, of_means(&blueprint)),
                width(team, Some(blueprint.output)),
                source!(self),
                affine!(self),
                results!(self, None::<TensorArg>),
                partition(grid, self.problem.cols),
                source!(second),
                affine!(second),
                results!(second, None::<TensorArg>),
                partition(other, second.problem.cols),
                scalars(
                    self.problem.dtype,
                    self.problem.epsilon,
                    self.problem.activation,
                ),
                blueprint,
                of_second,
                memory_type(self.problem.dtype, Some(blueprint.input)),
                memory_type(self.problem.residual_dtype, None),
                memory_type(self.problem.output_dtype, Some(blueprint.output)),
                memory_type(self.problem.param_dtype, blueprint.scale.or(blueprint.bias)),
                memory_type(self.problem.provided_dtype, None),
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
                memory_type(self.problem.residual_dtype, blueprint.residual()),
                elem_type(self.problem.dtype.accumulation()),
            );
        }
        launched(self.client, Kernel::PartialStatistics);
    }

    /// Words through which the cubes of a cluster exchange sums.
    fn words(&self) -> Option<TensorArg> {
        let count = self.plan.cluster_words();
        (count > 0).then(|| cluster_words(self.client, count))
    }

    fn output(&self) -> TensorArg {
        let output = arg(&self.outputs.output, &self.problem.output);
        match self.in_place {
            // The input is the first buffer of the kernel.
            true => output.into_alias(0),
            false => output,
        }
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
