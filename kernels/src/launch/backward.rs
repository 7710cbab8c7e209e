//! Launch of a planned backward pass.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    BackwardDesc, BackwardError, BackwardLaunch, BackwardPlan, BackwardProblem, BackwardSchedule,
    Buffer, DType, Hardware, Kernel, LoadMode, ParamReduce, TensorDesc, input_problem_on, sums_on,
};

use super::args::{
    address_type, arg, check_apart, check_buffer, cube_count, cube_dim, flat_arg, lanes_of_rows,
    left_lanes, memory_type, optional_arg, partition, scalars, width,
};
use super::combine::Segments;
use super::device::{check_activation, check_dtypes};
use super::fill::zeros;
use super::memory::{allocate_bytes, bytes, launched};
use super::zeroed::cluster_words;
use super::{LaunchError, elem_type};
use crate::backward::element::BackwardSourceLaunch;
use crate::backward::io::BackwardResultsLaunch;
use crate::backward::kernel::{gradient, partial_sums};
use crate::backward::param_reduce::{ParamReduceShape, param_reduce};

/// Input and output buffers of a backward pass.
#[derive(Debug, Clone)]
pub struct BackwardTensors {
    /// Input of the forward pass.
    pub input: Handle,
    /// Output gradient (`dy`).
    pub output_gradient: Handle,
    /// Pairs of mean and reciprocal deviation. None: the description does not read them.
    pub saved: Option<Handle>,
    /// Scale of the forward pass.
    pub scale: Option<Handle>,
    /// Bias of the forward pass.
    pub bias: Option<Handle>,
    /// Sum gradient. None: the description does not add it.
    pub sum_gradient: Option<Handle>,
    /// Gate of the forward pass.
    pub gate: Option<Handle>,
    /// Buffer for the input gradient, which must not overlap any other buffer. None: allocated.
    pub input_gradient: Option<Handle>,
}

impl BackwardTensors {
    /// Input and output gradient alone.
    pub fn new(input: Handle, output_gradient: Handle) -> Self {
        Self {
            input,
            output_gradient,
            saved: None,
            scale: None,
            bias: None,
            sum_gradient: None,
            gate: None,
            input_gradient: None,
        }
    }
}

/// Buffers that a backward pass has written: see [`BackwardOutputs`](crate::BackwardOutputs).
#[derive(Debug, Clone)]
pub struct BackwardHandles {
    /// Input gradient; None if not requested.
    pub input: Option<Handle>,
    /// Gate gradient; None if not requested.
    pub gate: Option<Handle>,
    /// Scale gradient; None if not requested.
    pub scale: Option<Handle>,
    /// Bias gradient; None if not requested.
    pub bias: Option<Handle>,
}

/// Validated problem of the input gradient, if the device can run it and all buffers are present.
pub(crate) fn checked_backward(
    client: &Client,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    hardware: &Hardware,
) -> Result<BackwardProblem, LaunchError> {
    let problem = input_problem_on(desc, sums_on(desc, hardware), hardware)?;
    let accumulation = problem.dtype.accumulation();
    let (result, params) = (problem.output_dtype, problem.param_dtype);
    let dtypes = [problem.dtype, result, params, accumulation];
    let of_gate = problem.gate.as_ref().map(|gate| gate.dtype);
    check_dtypes(client, dtypes.into_iter().chain(of_gate))?;
    check_activation(client, problem.dtype, problem.activation)?;
    check_buffers(desc, tensors, problem.reads_bias())?;
    Ok(problem)
}

impl From<BackwardError> for LaunchError {
    fn from(error: BackwardError) -> Self {
        match error {
            BackwardError::Description(error) => error.into(),
            BackwardError::Plan(error) => error.into(),
        }
    }
}

fn check_buffers(
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    reads_bias: bool,
) -> Result<(), LaunchError> {
    let norm = &desc.norm;
    let gate = desc.gate();
    let bias = norm.bias.as_ref().filter(|_| reads_bias);
    let pairs = [
        ("input", Some(&norm.input), Some(&tensors.input)),
        (
            "output gradient",
            Some(&desc.output_gradient),
            Some(&tensors.output_gradient),
        ),
        ("scale", norm.scale.as_ref(), tensors.scale.as_ref()),
        ("bias", bias, tensors.bias.as_ref()),
        (
            "sum gradient",
            desc.sum_gradient.as_ref(),
            tensors.sum_gradient.as_ref(),
        ),
        ("gate", gate, tensors.gate.as_ref()),
    ];
    for (tensor, desc, handle) in pairs {
        match (desc, handle) {
            (Some(desc), Some(handle)) => check_buffer(tensor, desc, handle)?,
            (Some(_), None) => return Err(LaunchError::Missing { tensor }),
            (None, _) => {}
        }
    }
    if let Some(saved) = desc.saved.as_ref().filter(|_| desc.reads_saved()) {
        let tensor = "saved statistics";
        let handle = tensors.saved.as_ref();
        let handle = handle.ok_or(LaunchError::Missing { tensor })?;
        // Flat: with its pairs it may have one dimension more than a tensor.
        let span = saved.layout.checked_span().unwrap_or(usize::MAX);
        if span > handle.size_in_used() as usize / saved.dtype.size() {
            check_buffer(tensor, &TensorDesc::contiguous([span], saved.dtype), handle)?;
        }
    }
    if let (Some(desc), Some(handle)) = (&desc.input_gradient, &tensors.input_gradient) {
        check_buffer("input gradient", desc, handle)?;
        let read = [
            ("input", Some(&tensors.input)),
            ("output gradient", Some(&tensors.output_gradient)),
            ("saved statistics", tensors.saved.as_ref()),
            ("scale", tensors.scale.as_ref()),
            ("bias", tensors.bias.as_ref()),
            ("sum gradient", tensors.sum_gradient.as_ref()),
            ("gate", tensors.gate.as_ref()),
        ];
        check_apart("input gradient", handle, read)?;
    }
    Ok(())
}

/// Descriptions of the gradients.
#[derive(Debug)]
pub(crate) struct BackwardDescs {
    pub(crate) input: Option<TensorDesc>,
    pub(crate) gate: Option<TensorDesc>,
    pub(crate) scale: Option<TensorDesc>,
    pub(crate) bias: Option<TensorDesc>,
}

/// A description that is validated and planned for a device.
#[derive(Debug)]
pub(crate) struct PlannedBackward {
    desc: BackwardDesc,
    schedule: BackwardSchedule,
    /// Descriptions of the gradients; None if not requested.
    pub(crate) outputs: BackwardDescs,
}

impl PlannedBackward {
    pub(crate) fn new(desc: &BackwardDesc, schedule: BackwardSchedule) -> Self {
        let param = |tensor: &Option<TensorDesc>, wanted: bool| {
            let tensor = tensor.as_ref().filter(|_| wanted)?;
            Some(TensorDesc::contiguous(tensor.shape(), tensor.dtype))
        };
        Self {
            schedule,
            outputs: BackwardDescs {
                input: desc.input_gradient.clone(),
                gate: desc.gate_gradient.clone(),
                scale: param(&desc.norm.scale, desc.wants_scale),
                bias: param(&desc.norm.bias, desc.wants_bias),
            },
            desc: desc.clone(),
        }
    }

    /// Launches all kernels of a backward pass.
    pub(crate) fn launch(
        &self,
        client: &Client,
        tensors: &BackwardTensors,
    ) -> Result<BackwardHandles, LaunchError> {
        let Self {
            desc,
            schedule,
            outputs,
        } = self;
        check_buffers(desc, tensors, schedule.problem.reads_bias())?;
        let is_empty = schedule.problem.is_empty();
        let param = |desc: &TensorDesc| match is_empty {
            // The sum over no elements.
            true => zeros(client, desc),
            false => allocate_bytes(client, bytes(desc)),
        };
        let written = BackwardHandles {
            input: outputs.input.as_ref().map(|desc| {
                let handle = tensors.input_gradient.clone();
                handle.unwrap_or_else(|| allocate_bytes(client, bytes(desc)))
            }),
            gate: (outputs.gate.as_ref()).map(|desc| allocate_bytes(client, bytes(desc))),
            scale: outputs.scale.as_ref().map(param),
            bias: outputs.bias.as_ref().map(param),
        };
        let backward = Backward {
            client,
            tensors,
            accumulation: desc.norm.input.dtype.accumulation(),
        };
        for launch in &schedule.launches {
            let written_here = [&written.input, &written.gate]
                .map(|handle| handle.as_ref().filter(|_| launch.writes_input));
            let left = backward.launch(launch, written_here)?;
            if let (Some(reduce), Some(left)) = (&launch.reduce, left) {
                let param = |desc: &Option<TensorDesc>, handle| {
                    let dtype = desc.as_ref().map(|desc| desc.dtype);
                    dtype.zip(Option::as_ref(handle))
                };
                let params = [
                    param(&outputs.scale, &written.scale),
                    param(&outputs.bias, &written.bias),
                ];
                backward.reduce(reduce, &left, params)?;
            }
        }
        Ok(written)
    }
}

/// Arguments that all launches of a backward pass share.
struct Backward<'a> {
    client: &'a Client,
    tensors: &'a BackwardTensors,
    accumulation: DType,
}

impl Backward<'_> {
    /// Workspace of `elements` sums.
    fn sums(&self, elements: usize) -> Handle {
        allocate_bytes(self.client, elements * self.accumulation.size())
    }

    /// Launches one plan. Returns the buffer of its parameter-gradient partials.
    fn launch(
        &self,
        launch: &BackwardLaunch,
        written: [Option<&Handle>; 2],
    ) -> Result<Option<Handle>, LaunchError> {
        let BackwardLaunch { problem, plan, .. } = launch;
        let partials = launch.reduce.as_ref().map(|reduce| &reduce.partials);
        let of_buffer = |buffer: Buffer| partials.filter(|partials| partials.buffer == buffer);
        let rows = of_buffer(Buffer::RowSums).map(|it| self.sums(it.elements));
        let columns = of_buffer(Buffer::ColumnSums).map(|it| (self.sums(it.elements), it.elements));
        let left = self.launch_plan(
            problem,
            plan,
            written,
            rows.as_ref(),
            columns
                .as_ref()
                .map(|(handle, elements)| (handle, *elements)),
        )?;
        Ok(rows.or(columns.map(|(handle, _)| handle)).or(left))
    }

    /// Launches one plan. Returns the output of its first launch if there are two, or of the only
    /// launch if that combines several channels.
    fn launch_plan(
        &self,
        problem: &BackwardProblem,
        plan: &BackwardPlan,
        [input, gate]: [Option<&Handle>; 2],
        rows: Option<&Handle>,
        columns: Option<(&Handle, usize)>,
    ) -> Result<Option<Handle>, LaunchError> {
        let (blueprint, grid) = (plan.blueprint, &plan.grid);
        let team = blueprint.team;
        let tensors = self.tensors;
        let (dtype, params) = (problem.dtype, problem.param_dtype);
        let of_gate = problem.gate.as_ref().map_or(dtype, |gate| gate.dtype);
        let accumulation = self.accumulation;
        let bound = [
            ("input", Some(&tensors.input), dtype),
            (
                "output gradient",
                Some(&tensors.output_gradient),
                problem.output_dtype,
            ),
            ("saved statistics", tensors.saved.as_ref(), accumulation),
            ("scale", tensors.scale.as_ref(), params),
            ("bias", tensors.bias.as_ref(), params),
            ("sum gradient", tensors.sum_gradient.as_ref(), dtype),
            ("input gradient", input, dtype),
            ("gate", tensors.gate.as_ref(), of_gate),
            ("gate gradient", gate, of_gate),
            ("row sums", rows, accumulation),
            (
                "column sums",
                columns.map(|(handle, _)| handle),
                accumulation,
            ),
        ];
        let address = address_type(self.client, bound, plan.workspace)?;
        let param = blueprint.scale.or(blueprint.bias);
        let elem = [
            memory_type(problem.dtype, Some(blueprint.input)),
            memory_type(problem.output_dtype, Some(blueprint.output_gradient)),
            memory_type(
                of_gate,
                Some(blueprint.gate.map_or(blueprint.input, |it| it.access)),
            ),
            memory_type(problem.param_dtype, param),
            elem_type(self.accumulation),
        ];
        let numbers = || scalars(problem.dtype, problem.epsilon, problem.activation);
        // Tensors that the blueprint leaves out are not bound.
        let scale = problem.scale.as_ref().filter(|_| blueprint.scale.is_some());
        let bias = problem.bias.as_ref().filter(|_| blueprint.bias.is_some());
        let sum_gradient = problem.sum_gradient.as_ref();
        let of_step = problem.gate.as_ref().map(|gate| &gate.access);
        let parts = blueprint.split().then(|| self.sums(plan.workspace));
        let segments = blueprint
            .combines_within()
            .then(|| self.sums(plan.workspace));
        let rows = match &segments {
            Some(segments) => Some(flat_arg(segments, plan.workspace)),
            None => optional_arg(rows, problem.row_sums.as_ref()),
        };
        // A macro, because the argument types depend on the types that a kernel is instantiated
        // with.
        macro_rules! source {
            ($sum_gradient:expr) => {
                BackwardSourceLaunch::new(
                    arg(&tensors.input, &problem.input),
                    arg(&tensors.output_gradient, &problem.output_gradient),
                    optional_arg(tensors.saved.as_ref(), problem.saved.as_ref()).into(),
                    optional_arg(tensors.scale.as_ref(), scale).into(),
                    optional_arg(tensors.bias.as_ref(), bias).into(),
                    optional_arg(tensors.gate.as_ref(), of_step).into(),
                    optional_arg(tensors.sum_gradient.as_ref(), $sum_gradient).into(),
                )
            };
        }
        if let Some(parts) = &parts {
            // SAFETY:
            // 1. `BackwardPlan::footprint` bounds every access, and the plan was checked against
            //    the device's limits.
            // 2. The caller's buffers hold the spans of their layouts (`check_buffers`).
            // 3. The workspace has the size of the footprint (`partial_statistics`). The kernel
            //    does not read it.
            unsafe {
                partial_sums::launch_unchecked(
                    self.client,
                    cube_count(grid),
                    cube_dim(grid),
                    address,
                    team.vector,
                    width(&team, Some(blueprint.input)),
                    width(&team, Some(blueprint.output_gradient)),
                    width(&team, blueprint.scale),
                    width(&team, blueprint.bias),
                    width(&team, blueprint.gate.map(|gate| gate.access)),
                    lanes_of_rows(&team),
                    source!(None),
                    flat_arg(parts, plan.workspace),
                    partition(grid, problem.cols),
                    numbers(),
                    blueprint,
                    elem[0],
                    elem[1],
                    elem[2],
                    elem[3],
                    elem[4],
                );
            }
            launched(self.client, Kernel::PartialSums);
        }
        let combined = plan
            .combine
            .as_ref()
            .zip(parts.as_ref())
            .map(|(combine, parts)| {
                let weights = blueprint.scale.zip(tensors.scale.as_ref().zip(scale));
                let segments = Segments {
                    client: self.client,
                    handle: parts,
                    elements: plan.workspace,
                    grid,
                    shifts: false,
                    scale: weights.map(|(blueprint, (handle, access))| (handle, access, blueprint)),
                    offset: blueprint.offset,
                    accumulation: elem[4],
                    param_dtype: elem_type(problem.param_dtype),
                    address,
                };
                (segments.combine(combine), combine.workspace)
            });
        let left = combined.or_else(|| parts.clone().map(|parts| (parts, plan.workspace)));
        let words =
            (team.cluster_size() > 1).then(|| cluster_words(self.client, plan.cluster_words()));
        // SAFETY:
        // 1. As above, 1 and 2. All sums and words have the sizes of the footprint.
        // 2. The previous launches have written every element of a workspace that is read.
        // 3. Words are zeros before the launch. No round has the tag zero.
        unsafe {
            gradient::launch_unchecked(
                self.client,
                cube_count(grid),
                cube_dim(grid),
                address,
                team.vector,
                width(&team, Some(blueprint.input)),
                width(&team, Some(blueprint.output_gradient)),
                width(&team, blueprint.scale),
                width(&team, blueprint.bias),
                width(&team, blueprint.gate.map(|gate| gate.access)),
                width(&team, blueprint.input_gradient),
                left_lanes(&team),
                source!(sum_gradient),
                BackwardResultsLaunch::new(
                    optional_arg(input, problem.input_gradient.as_ref()).into(),
                    optional_arg(gate, problem.input_gradient.as_ref()).into(),
                    rows.into(),
                    columns.map(|(handle, sums)| flat_arg(handle, sums)).into(),
                ),
                left.map(|(left, elements)| flat_arg(&left, elements))
                    .into(),
                words.into(),
                partition(grid, problem.cols),
                numbers(),
                blueprint,
                elem[0],
                elem[1],
                elem[2],
                elem[3],
                elem[4],
            );
        }
        launched(self.client, Kernel::Backward);
        Ok(parts.or(segments))
    }

    /// Reduces the partials to the requested gradients of scale and bias.
    fn reduce(
        &self,
        reduce: &ParamReduce,
        left: &Handle,
        params: [Option<(DType, &Handle)>; 2],
    ) -> Result<(), LaunchError> {
        let ParamReduce {
            partials,
            elements,
            vector,
            ..
        } = reduce;
        let wanted = |which: usize| params[which].filter(|_| reduce.writes[which]);
        let [of_scale, of_bias] = partials.offsets;
        let ((dtype, output), second, offset) = match [wanted(0), wanted(1)] {
            [Some(scale), bias] => (scale, bias, of_scale),
            [None, Some(bias)] => (bias, None, of_bias),
            [None, None] => return Ok(()),
        };
        let address = address_type(self.client, [], partials.elements.max(*elements))?;
        let [columns, size, _] = reduce.cube_dim;
        let shape = ParamReduceShape {
            size: size as usize,
            columns: columns as usize,
            blocked: self.client.properties().hardware.num_cpu_cores.is_some(),
            element_dims: partials.access.row.len(),
            part_dims: partials.access.col.len(),
            mode: match vector {
                1 => LoadMode::Gather,
                _ => LoadMode::Vector,
            },
        };
        let second = second.map(|(_, second)| flat_arg(second, *elements));
        let [x, y, z] = reduce.cube_count;
        // SAFETY:
        // 1. `ParamReduce::footprint` bounds every access, and the plan was checked against the
        //    device's limits.
        // 2. The previous launch has written all partials of each element of a parameter.
        // 3. Each gradient has as many elements as the reduction writes.
        unsafe {
            param_reduce::launch_unchecked(
                self.client,
                CubeCount::Static(x, y, z),
                CubeDim::new_2d(columns, size),
                address,
                *vector,
                arg(left, &partials.access),
                flat_arg(output, *elements),
                second.into(),
                reduce.vectors(),
                partials.parts,
                offset,
                of_bias,
                reduce.rounds,
                shape,
                elem_type(self.accumulation),
                elem_type(dtype),
            );
        }
        launched(self.client, Kernel::ParamReduce);
        Ok(())
    }
}
