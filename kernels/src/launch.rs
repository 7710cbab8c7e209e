//! From a description and buffers to a launch. Everything is checked before it: what goes wrong
//! after it only shows when a buffer is read.

use cubecl::ir::{
    AddressType, ElemType, FloatKind,
    features::{Plane, TypeUsage},
};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    Access, AccessBlueprint, Activation, ActivationKind, DType, Dim, Hardware, Lanes, LoadMode,
    NormDesc, NormError, NormProblem, Plan, PlanError, StrategyChoice, TensorDesc, plan_forward,
};

use crate::epilogue::AffineLaunch;
use crate::forward::{ResultsLaunch, ScalarsLaunch, normalize, reduce_parts};
use crate::source::SourceLaunch;
use crate::strategy::split::PartitionLaunch;

/// Why a normalization was not launched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The description is wrong.
    #[error(transparent)]
    Description(#[from] NormError),
    /// The description cannot be planned on this device.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The runtime does not have the dtype.
    #[error(
        "{runtime} has no {dtype}: use one of {available}, or a runtime that has it ({elsewhere})"
    )]
    DType {
        /// The runtime's name.
        runtime: &'static str,
        /// What was asked for.
        dtype: DType,
        /// What it has.
        available: String,
        /// Who has it.
        elsewhere: &'static str,
    },
    /// The runtime computes the activation to fewer digits than the dtype has.
    #[error(
        "{runtime} does not compute {activation} in {dtype}: use f32, or leave the activation out \
         and apply it yourself"
    )]
    Activation {
        /// The runtime's name.
        runtime: &'static str,
        /// What was asked for.
        activation: Activation,
        /// In which dtype.
        dtype: DType,
    },
    /// The tensor is larger than the runtime can index.
    #[error("{runtime} indexes tensors with 32 bits: {elements} elements are too many")]
    AddressSpace {
        /// The runtime's name.
        runtime: &'static str,
        /// Elements of the largest tensor.
        elements: usize,
    },
    /// A description has a tensor that comes without a buffer, or the other way round.
    #[error(
        "the description and the buffers disagree about {tensor}: one has it, the other does not"
    )]
    Missing {
        /// The tensor.
        tensor: &'static str,
    },
}

/// The buffers that a description's tensors lie in.
#[derive(Debug, Clone)]
pub struct ForwardTensors {
    /// The tensor to normalize.
    pub input: Handle,
    /// What is added first.
    pub residual: Option<Handle>,
    /// What is multiplied.
    pub scale: Option<Handle>,
    /// What is added after the scale.
    pub bias: Option<Handle>,
    /// Given means.
    pub mean: Option<Handle>,
    /// Given variances.
    pub variance: Option<Handle>,
    /// Where the result goes; allocated where there is none.
    pub output: Option<Handle>,
}

impl ForwardTensors {
    /// An input and nothing else.
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

/// A result: its description and its buffer.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Layout and dtype.
    pub desc: TensorDesc,
    /// The buffer.
    pub handle: Handle,
}

/// What a normalization has written.
#[derive(Debug, Clone)]
pub struct ForwardOutputs {
    /// The normalized tensor.
    pub output: Tensor,
    /// `input + residual`, where it was asked for.
    pub sum: Option<Tensor>,
    /// Mean and rstd of each row as pairs, where they were asked for: the kept axes in their order,
    /// then 2.
    pub statistics: Option<Tensor>,
}

/// The device facts that a plan reads, from a client.
pub fn hardware(client: &Client) -> Hardware {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let has_planes = client.features().plane.contains(Plane::Ops);
    let plane_size = hardware.plane_size_min;
    let is_fixed = plane_size == hardware.plane_size_max && plane_size > 1;
    Hardware {
        cpu_cores: hardware.num_cpu_cores,
        is_software: hardware.num_cpu_cores.is_none()
            && properties.identity.physical.is_none()
            && !has_planes,
        plane_size: (has_planes && is_fixed).then_some(plane_size),
        max_units_per_cube: hardware.max_units_per_cube,
        max_cube_dim: hardware.max_cube_dim.into(),
        max_cubes: hardware.max_cube_count.0,
        max_shared_memory: hardware.max_shared_memory_size,
        max_bindings: hardware.max_bindings,
        multiprocessors: hardware.num_streaming_multiprocessors,
        load_width: properties.io_width(),
        max_vector: hardware.max_vector_size,
    }
}

/// What would run for a description on a device, and why.
///
/// # Errors
///
/// As [`launch_forward`].
pub fn plan_for(
    client: &Client,
    desc: &NormDesc,
    choice: StrategyChoice,
) -> Result<Plan, LaunchError> {
    let problem = desc.problem()?;
    check_dtypes(client, problem_dtypes(&problem))?;
    check_activation(client, &problem)?;
    Ok(plan_forward(&problem, &hardware(client), choice)?)
}

/// Normalizes: validates, plans and launches.
///
/// ```text
/// s = input + residual
/// y = activation((s - mean) * rstd * scale + bias)
/// ```
///
/// Shapes and dtypes are those of [`NormDesc`]. An empty tensor launches nothing. Results are the
/// same from run to run: no strategy depends on the order in which cubes finish.
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
    launch_forward_within(client, desc, tensors, choice, &hardware(client))
}

/// [`launch_forward`] planned for other hardware than the device reports: for less of it, such as
/// what WebGPU guarantees everywhere, or for what the device has and does not report.
///
/// # Errors
///
/// As [`launch_forward`]. Limits beyond the device's own show when a result is read.
pub fn launch_forward_within(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<ForwardOutputs, LaunchError> {
    let problem = desc.problem()?;
    check_dtypes(client, problem_dtypes(&problem))?;
    check_activation(client, &problem)?;
    check_buffers(desc, tensors)?;
    let output_desc = TensorDesc::new(problem.output_layout.clone(), problem.dtype);
    if let Some(handle) = &tensors.output {
        check_buffer("output", &output_desc, handle)?;
    }
    // An empty tensor has nothing to plan.
    let plan = match problem.is_empty() {
        true => None,
        false => Some(plan_forward(&problem, hardware, choice)?),
    };

    let allocate = |desc: TensorDesc| {
        let elements = desc.layout.checked_span().unwrap_or(0).max(1);
        Tensor {
            handle: client.empty(elements * desc.dtype.size()),
            desc,
        }
    };
    let outputs = ForwardOutputs {
        output: match tensors.output.clone() {
            Some(handle) => Tensor {
                desc: output_desc.clone(),
                handle,
            },
            None => allocate(output_desc.clone()),
        },
        sum: problem.writes_sum.then(|| allocate(output_desc)),
        statistics: desc
            .written_statistics
            .map(|_| allocate(desc.statistics_desc())),
    };
    if let Some(plan) = plan {
        Launch::new(client, &problem, &plan, tensors, &outputs)?.run();
    }
    Ok(outputs)
}

pub(crate) fn elem_type(dtype: DType) -> ElemType {
    ElemType::Float(match dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        DType::F32 => FloatKind::F32,
        DType::F64 => FloatKind::F64,
    })
}

/// Whether the device can load, store and convert a dtype; what is computed in, compute with.
pub fn supports(client: &Client, dtype: DType) -> bool {
    let usage = client.properties().type_usage(elem_type(dtype));
    let needed = match dtype.accumulation() == dtype {
        true => TypeUsage::Buffer | TypeUsage::Conversion | TypeUsage::Arithmetic,
        false => TypeUsage::Buffer | TypeUsage::Conversion,
    };
    usage.is_superset(needed)
}

/// Whether the device computes an activation to the last digits of a dtype.
///
/// CubeCL's error function is a polynomial with f32's digits, as are constants in kernels, and WGSL and SPIR-V have no
/// transcendental functions of f64: those are refused rather than computed to fewer digits than the
/// dtype promises.
pub fn supports_activation(client: &Client, dtype: DType, activation: Activation) -> bool {
    let kind = activation.kind();
    let is_cpu = client.properties().hardware.num_cpu_cores.is_some();
    dtype != DType::F64
        || !kind.is_transcendental()
        || is_cpu && !matches!(kind, ActivationKind::Gelu | ActivationKind::GeluTanh)
}

fn check_activation(client: &Client, problem: &NormProblem) -> Result<(), LaunchError> {
    let (dtype, activation) = (problem.dtype, problem.activation);
    match supports_activation(client, dtype, activation) {
        true => Ok(()),
        false => Err(LaunchError::Activation {
            runtime: client.name(),
            activation,
            dtype,
        }),
    }
}

fn problem_dtypes(problem: &NormProblem) -> impl Iterator<Item = DType> {
    let accumulation = problem.dtype.accumulation();
    [problem.dtype, problem.param_dtype, accumulation].into_iter()
}

/// Checks that a device has dtypes.
pub(crate) fn check_dtypes(
    client: &Client,
    mut dtypes: impl Iterator<Item = DType>,
) -> Result<(), LaunchError> {
    match dtypes.find(|&dtype| !supports(client, dtype)) {
        None => Ok(()),
        Some(dtype) => {
            let available: Vec<_> = DType::ALL
                .into_iter()
                .filter(|&dtype| supports(client, dtype))
                .map(|dtype| dtype.to_string())
                .collect();
            Err(LaunchError::DType {
                runtime: client.name(),
                dtype,
                available: available.join(", "),
                elsewhere: match dtype {
                    DType::BF16 => "cuda, rocm, metal or cpu",
                    DType::F64 => "cuda, rocm or cpu",
                    DType::F16 | DType::F32 => "cuda, rocm, metal, vulkan or cpu",
                },
            })
        }
    }
}

fn check_buffers(desc: &NormDesc, tensors: &ForwardTensors) -> Result<(), LaunchError> {
    let (mean, variance) = match &desc.statistics {
        cubenorm_core::Statistics::Given { mean, variance } => (Some(mean), Some(variance)),
        _ => (None, None),
    };
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

/// Checks that a buffer holds all that a description reaches.
pub(crate) fn check_buffer(
    tensor: &'static str,
    desc: &TensorDesc,
    handle: &Handle,
) -> Result<(), LaunchError> {
    let elements = handle.size_in_used() as usize / desc.dtype.size();
    Ok(desc.fits(tensor, elements)?)
}

/// The arguments that kernels share. Macros, because the types of arguments name the types that a
/// kernel is instantiated with, and those are only known where it is called.
macro_rules! source {
    ($launch:expr) => {
        SourceLaunch::new(
            $launch.arg(&$launch.tensors.input, &$launch.problem.input),
            $launch
                .optional(&$launch.tensors.residual, &$launch.problem.residual)
                .into(),
        )
    };
}

macro_rules! affine {
    ($launch:expr) => {{
        let (tensors, problem) = ($launch.tensors, $launch.problem);
        AffineLaunch::new(
            $launch.optional(&tensors.scale, &problem.scale).into(),
            $launch.optional(&tensors.bias, &problem.bias).into(),
            $launch.optional(&tensors.mean, &problem.mean).into(),
            $launch
                .optional(&tensors.variance, &problem.variance)
                .into(),
        )
    }};
}

macro_rules! results {
    ($launch:expr, $sum:expr) => {
        ResultsLaunch::new(
            $launch.arg(&$launch.outputs.output.handle, &$launch.problem.output),
            $sum.into(),
            $launch.statistics().into(),
        )
    };
}

/// All that one launch is made of.
struct Launch<'a> {
    client: &'a Client,
    problem: &'a NormProblem,
    plan: &'a Plan,
    tensors: &'a ForwardTensors,
    outputs: &'a ForwardOutputs,
    address: AddressType,
}

impl<'a> Launch<'a> {
    fn new(
        client: &'a Client,
        problem: &'a NormProblem,
        plan: &'a Plan,
        tensors: &'a ForwardTensors,
        outputs: &'a ForwardOutputs,
    ) -> Result<Self, LaunchError> {
        let elements = [Some(&tensors.input), Some(&outputs.output.handle)]
            .into_iter()
            .chain([tensors.residual.as_ref(), tensors.scale.as_ref()])
            .flatten()
            .map(|handle| handle.size_in_used() as usize / problem.dtype.size())
            .max()
            .unwrap_or(0);
        let address = AddressType::from_len(elements);
        if !client.properties().supports_address(address) {
            return Err(LaunchError::AddressSpace {
                runtime: client.name(),
                elements,
            });
        }
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
        let parts = self.plan.blueprint.split.then(|| {
            let bytes = self.plan.workspace * self.problem.dtype.accumulation().size();
            let workspace = self.client.empty(bytes);
            self.reduce_parts(self.workspace(&workspace));
            self.workspace(&workspace)
        });
        self.normalize(parts);
    }

    fn normalize(&self, parts: Option<TensorArg>) {
        let blueprint = self.plan.blueprint;
        // The first of two launches writes the sum: it has buffers to spare.
        let sum = match parts {
            Some(_) => None,
            None => self.sum(),
        };
        // Safety: every address that the kernel forms lies in its buffer, see `operand`, and the
        // launch stays within the device's limits, which the plan has read. Of a workspace,
        // `reduce_parts` has written every number.
        unsafe {
            normalize::launch_unchecked(
                self.client,
                self.cube_count(),
                self.cube_dim(),
                self.address,
                blueprint.vector,
                self.width(Some(blueprint.input)),
                self.width(blueprint.residual),
                self.width(blueprint.scale),
                self.width(blueprint.bias),
                self.width(blueprint.mean),
                self.width(blueprint.variance),
                self.width(Some(blueprint.output)),
                self.lanes_of_rows(),
                source!(self),
                affine!(self),
                results!(self, sum),
                parts.into(),
                self.partition(),
                self.scalars(),
                blueprint,
                elem_type(self.problem.dtype),
                elem_type(self.problem.param_dtype),
                elem_type(self.problem.dtype.accumulation()),
            );
        }
    }

    fn reduce_parts(&self, workspace: TensorArg) {
        let blueprint = self.plan.blueprint;
        // Safety: as in `normalize`; the workspace holds two numbers for each row of each part.
        unsafe {
            reduce_parts::launch_unchecked(
                self.client,
                self.cube_count(),
                self.cube_dim(),
                self.address,
                blueprint.vector,
                self.width(Some(blueprint.input)),
                self.width(blueprint.residual),
                self.width(Some(blueprint.output)),
                self.lanes_of_rows(),
                source!(self),
                self.sum().into(),
                workspace,
                self.partition(),
                blueprint,
                elem_type(self.problem.dtype),
                elem_type(self.problem.dtype.accumulation()),
            );
        }
    }

    fn cube_count(&self) -> CubeCount {
        CubeCount::Static(self.plan.cube_count, 1, 1)
    }

    fn cube_dim(&self) -> CubeDim {
        let [x, y, z] = self.plan.cube_dim;
        CubeDim::new_3d(x, y, z)
    }

    /// Rows that a vector of the workspace covers.
    fn lanes_of_rows(&self) -> usize {
        match self.plan.blueprint.lanes {
            Lanes::Rows => self.plan.blueprint.vector,
            Lanes::Columns => 1,
        }
    }

    /// Elements of one access of a tensor.
    fn width(&self, access: Option<AccessBlueprint>) -> usize {
        match access.map(|access| access.mode) {
            Some(LoadMode::Vector) => self.plan.blueprint.vector,
            _ => 1,
        }
    }

    fn partition(&self) -> PartitionLaunch {
        let plan = self.plan;
        PartitionLaunch::new(
            plan.groups,
            plan.steps,
            plan.splits,
            plan.steps_per_split,
            plan.groups_per_team,
        )
    }

    fn scalars(&self) -> ScalarsLaunch {
        let dtype = elem_type(self.problem.dtype.accumulation());
        let [alpha, beta] = self.problem.activation.parameters();
        ScalarsLaunch::new(
            InputScalar::new(self.problem.epsilon.value(), dtype),
            InputScalar::new(alpha, dtype),
            InputScalar::new(beta, dtype),
        )
    }

    /// A tensor with the dimensions that its index is decoded over for metadata.
    fn arg(&self, handle: &Handle, access: &Access) -> TensorArg {
        let (mut shape, mut strides): (Vec<_>, Vec<_>) = access
            .row
            .iter()
            .chain(&access.col)
            .map(|&Dim { size, stride }| (size, stride))
            .unzip();
        if shape.is_empty() {
            // A tensor that never moves still has an element.
            (shape, strides) = (vec![1], vec![1]);
        }
        // Safety: `check_buffers` and the allocations of `launch_forward` make sure that the layout
        // spans no more than the buffer.
        unsafe { TensorArg::from_raw_parts(handle.clone(), strides.into(), shape.into()) }
    }

    fn optional(&self, handle: &Option<Handle>, access: &Option<Access>) -> Option<TensorArg> {
        Some(self.arg(handle.as_ref()?, access.as_ref()?))
    }

    fn sum(&self) -> Option<TensorArg> {
        let sum = self.outputs.sum.as_ref()?;
        Some(self.arg(&sum.handle, &self.problem.output))
    }

    fn statistics(&self) -> Option<TensorArg> {
        let statistics = self.outputs.statistics.as_ref()?;
        let (_, access) = self.problem.written_statistics.as_ref()?;
        Some(self.arg(&statistics.handle, access))
    }

    fn workspace(&self, handle: &Handle) -> TensorArg {
        let flat = Access {
            row: vec![Dim {
                size: self.plan.workspace,
                stride: 1,
            }],
            col: Vec::new(),
        };
        self.arg(handle, &flat)
    }
}
