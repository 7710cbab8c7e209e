//! From a description of gradients to their launches.

use std::time::Duration;

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    Access, Activation, DType, Dim, GradientDesc, GradientPlan, GradientProblem, Hardware, Knobs,
    Layout, LoadMode, ParamSums, PlanError, StrategyChoice, TensorDesc, input_problem_on,
    plan_gradient, sums_on,
};

use super::element::GradientSourceLaunch;
use super::fold::{FoldShape, fold};
use super::kernel::{gradient, gradient_parts};
use super::results::GradientResultsLaunch;
use crate::launch::args::{
    address_type, allocate, arg, check_apart, check_buffer, cube_count, cube_dim, flat_arg,
    lanes_of_rows, left_lanes, memory_type, optional_arg, partition, scalars, width, zeros,
};
use crate::launch::device::{check_activation, check_dtypes};
use crate::launch::join::Strands;
use crate::launch::memo::Memo;
use crate::launch::{LaunchError, Tensor, elem_type, hardware};
use crate::strategy::peers::words;
use crate::tune::tune_gradient;

/// Partial sums of one parameter that one unit adds up. Where there are more, they are summed up
/// over the parameter's own axes instead.
const MAX_PARTS: usize = 4096;

/// Units of a cube that adds up partial sums, each those of an element.
const FOLD_UNITS: u32 = 64;

/// Parts from which several units of a GPU share those of an element: one alone would wait for memory as
/// often as there are parts.
const SHARED_PARTS: usize = 64;

/// Units of a cube of such, and parts that each of them adds up at least.
const FOLD_SHARING_UNITS: u32 = 1024;
const PARTS_OF_UNIT: usize = 16;

/// Elements side by side in such a cube: as many as a line of a cache has where there are enough for all
/// multiprocessors, and no fewer than memory gives at once.
const MOST_FOLD_COLUMNS: u32 = 32;
const LEAST_FOLD_COLUMNS: u32 = 8;

/// The buffers that a gradient's tensors lie in.
#[derive(Debug, Clone)]
pub struct GradientTensors {
    /// What was normalized.
    pub input: Handle,
    /// The output's gradient.
    pub output_gradient: Handle,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<Handle>,
    /// What was multiplied.
    pub scale: Option<Handle>,
    /// What was added.
    pub bias: Option<Handle>,
    /// Where the input's gradient goes, in memory that nothing else here lies in; allocated where there is none.
    pub input_gradient: Option<Handle>,
}

/// What has been passed back.
#[derive(Debug, Clone)]
pub struct GradientOutputs {
    /// The input's gradient, where it was wanted.
    pub input: Option<Tensor>,
    /// The scale's, contiguous, where it was wanted.
    pub scale: Option<Tensor>,
    /// The bias's, contiguous, where it was wanted.
    pub bias: Option<Tensor>,
}

/// What would run for the input's gradient on a device, and why.
///
/// # Errors
///
/// As [`launch_gradient`], and where the tensor is empty, for which nothing runs.
pub fn plan_gradient_for(
    client: &Client,
    desc: &GradientDesc,
    choice: StrategyChoice,
) -> Result<GradientPlan, LaunchError> {
    let hardware = hardware(client);
    let problem = input_problem_on(desc, sums_on(desc, &hardware), &hardware)?;
    Ok(plan_gradient(&problem, &hardware, choice)?)
}

/// Passes a gradient back through a normalization.
///
/// Formulas, shapes and dtypes are those of [`GradientDesc`]. Nothing is launched for what is not
/// wanted.
///
/// The same plan gives the same results from run to run: sums over many elements are taken in stages in a
/// fixed order. [`StrategyChoice::Tuned`] may choose another plan on another machine, or where the tuner's
/// cache is empty.
///
/// # Errors
///
/// [`LaunchError`], before anything is launched.
pub fn launch_gradient(
    client: &Client,
    desc: &GradientDesc,
    tensors: &GradientTensors,
    choice: StrategyChoice,
) -> Result<GradientOutputs, LaunchError> {
    let hardware = hardware(client);
    let make = || {
        let (problem, sums) = checked(client, desc, tensors, &hardware)?;
        let choice = match choice.budget() {
            Some(budget) if !problem.is_empty() => {
                let knobs = tune_gradient(client, &hardware, desc, &problem, tensors, budget)?;
                StrategyChoice::Forced(knobs)
            }
            _ => choice,
        };
        Ok::<_, LaunchError>(Prepared {
            problem,
            sums,
            choice,
        })
    };
    let prepared = PREPARED.get(client, desc, choice, make)?;
    check_buffers(desc, tensors)?;
    Back {
        client,
        desc,
        tensors,
        hardware,
        choice: prepared.choice,
    }
    .run(&prepared.problem, prepared.sums)
}

/// What the tuner has found or now finds to be the fastest for all launches of a gradient on a device;
/// knobs that decide nothing where the analytic plans are, or where the problem is too small or too
/// large to measure.
///
/// [`launch_gradient`] with [`StrategyChoice::TunedWithin`] that budget asks the same, with
/// [`Tuned`](StrategyChoice::Tuned) without end.
///
/// # Errors
///
/// As [`launch_gradient`].
pub fn tuned_gradient(
    client: &Client,
    desc: &GradientDesc,
    tensors: &GradientTensors,
    budget: Duration,
) -> Result<Knobs, LaunchError> {
    let hardware = hardware(client);
    let (problem, _) = checked(client, desc, tensors, &hardware)?;
    if problem.is_empty() {
        return Ok(Knobs::default());
    }
    Ok(tune_gradient(
        client, &hardware, desc, &problem, tensors, budget,
    )?)
}

/// The problem over the normalization's own axes, where the device can run it and every buffer is there.
fn checked(
    client: &Client,
    desc: &GradientDesc,
    tensors: &GradientTensors,
    hardware: &Hardware,
) -> Result<(GradientProblem, ParamSums), LaunchError> {
    let sums = sums_on(desc, hardware);
    let problem = input_problem_on(desc, sums, hardware)?;
    let accumulation = problem.dtype.accumulation();
    let dtypes = [problem.dtype, problem.param_dtype, accumulation];
    check_dtypes(client, dtypes.into_iter())?;
    check_activation(client, problem.dtype, problem.activation)?;
    check_buffers(desc, tensors)?;
    Ok((problem, sums))
}

/// What a description comes to.
struct Prepared {
    problem: GradientProblem,
    sums: ParamSums,
    /// What tuning chose, where it was asked to.
    choice: StrategyChoice,
}

static PREPARED: Memo<GradientDesc, Prepared> = Memo::new();

fn check_buffers(desc: &GradientDesc, tensors: &GradientTensors) -> Result<(), LaunchError> {
    let norm = &desc.norm;
    // Read for the slope of an activation only.
    let bias = norm
        .bias
        .as_ref()
        .filter(|_| norm.activation != Activation::Identity);
    let pairs = [
        ("input", Some(&norm.input), Some(&tensors.input)),
        (
            "output gradient",
            Some(&desc.output_gradient),
            Some(&tensors.output_gradient),
        ),
        ("scale", norm.scale.as_ref(), tensors.scale.as_ref()),
        ("bias", bias, tensors.bias.as_ref()),
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
        // Flat: with the pairs it has a dimension more than a tensor may have.
        let span = saved.layout.checked_span().unwrap_or(usize::MAX);
        check_buffer(tensor, &TensorDesc::contiguous([span], saved.dtype), handle)?;
    }
    if let (Some(desc), Some(handle)) = (&desc.input_gradient, &tensors.input_gradient) {
        check_buffer("input gradient", desc, handle)?;
        let read = [
            ("input", Some(&tensors.input)),
            ("output gradient", Some(&tensors.output_gradient)),
            ("saved statistics", tensors.saved.as_ref()),
            ("scale", tensors.scale.as_ref()),
            ("bias", tensors.bias.as_ref()),
        ];
        check_apart("input gradient", handle, read)?;
    }
    Ok(())
}

/// One way back.
struct Back<'a> {
    client: &'a Client,
    desc: &'a GradientDesc,
    tensors: &'a GradientTensors,
    hardware: Hardware,
    choice: StrategyChoice,
}

/// Partial sums, and how those of a parameter's elements are found.
struct Partial {
    handle: Handle,
    elements: usize,
    access: Access,
    parts: usize,
    /// Where the sums of the scale and of the bias begin.
    offsets: [usize; 2],
}

impl Back<'_> {
    fn run(
        &self,
        problem: &GradientProblem,
        sums: ParamSums,
    ) -> Result<GradientOutputs, LaunchError> {
        let norm = &self.desc.norm;
        let input = self.desc.input_gradient.clone().map(|desc| {
            let handle = self.tensors.input_gradient.clone();
            let handle = handle.unwrap_or_else(|| allocate(self.client, &desc));
            Tensor { desc, handle }
        });
        let param = |tensor: &Option<TensorDesc>, wanted: bool| {
            let tensor = tensor.as_ref().filter(|_| wanted)?;
            let desc = TensorDesc::contiguous(tensor.shape(), tensor.dtype);
            let handle = match problem.is_empty() {
                // The sum over nothing.
                true => zeros(self.client, &desc),
                false => allocate(self.client, &desc),
            };
            Some(Tensor { desc, handle })
        };
        let outputs = GradientOutputs {
            input,
            scale: param(&norm.scale, self.desc.wants_scale),
            bias: param(&norm.bias, self.desc.wants_bias),
        };
        if problem.is_empty() {
            return Ok(outputs);
        }

        let params = [&outputs.scale, &outputs.bias];
        let shape_of = |tensor: &Tensor| tensor.desc.shape().to_vec();
        let mut shapes: Vec<Vec<usize>> = params.iter().copied().flatten().map(shape_of).collect();
        shapes.dedup();
        let on_the_way = match shapes.as_slice() {
            [shape] => self.on_the_way(problem, sums, shape, &outputs)?,
            _ => None,
        };
        if let Some(partial) = on_the_way {
            self.fold(&partial, [outputs.scale.as_ref(), outputs.bias.as_ref()])?;
            return Ok(outputs);
        }

        if outputs.input.is_some() {
            let alone = match shapes.is_empty() {
                true => None,
                false => Some(input_problem_on(
                    self.desc,
                    ParamSums::Elsewhere,
                    &self.hardware,
                )?),
            };
            let problem = alone.as_ref().unwrap_or(problem);
            let plan = self.plan(problem)?;
            self.launch(problem, &plan, outputs.input.as_ref(), None, None)?;
        }
        for shape in shapes {
            let partial = self.over_param(&shape)?;
            let of_shape = |tensor: &&Tensor| tensor.desc.shape() == shape;
            let outputs = [&outputs.scale, &outputs.bias];
            self.fold(
                &partial,
                outputs.map(|output| output.as_ref().filter(of_shape)),
            )?;
        }
        Ok(outputs)
    }

    /// Launches the input's gradient with the sums that parameters of one shape take, where both
    /// come out of one launch.
    fn on_the_way(
        &self,
        problem: &GradientProblem,
        sums: ParamSums,
        shape: &[usize],
        outputs: &GradientOutputs,
    ) -> Result<Option<Partial>, LaunchError> {
        let plan = match self.plan(problem) {
            Err(LaunchError::Plan(PlanError::Bindings { .. })) => return Ok(None),
            plan => plan?,
        };
        let sizes = self.desc.norm.input.shape();
        let repeated = self.desc.repeated(shape);
        let input = outputs.input.as_ref();
        match sums {
            ParamSums::Rows | ParamSums::Runs => {
                if plan.blueprint.row_sums.is_none() {
                    return Ok(None);
                }
                let kept = self.desc.summed_shape(sums);
                let strides = Layout::contiguous(kept.clone()).strides;
                let access = dims(&kept, &strides, 2, &repeated);
                let parts = access.col.iter().map(|dim| dim.size).product();
                if parts > MAX_PARTS {
                    return Ok(None);
                }
                let elements = 2 * kept.iter().product::<usize>();
                let handle = self.sums(elements);
                self.launch(problem, &plan, input, Some(&handle), None)?;
                Ok(Some(Partial {
                    handle,
                    elements,
                    access,
                    parts,
                    offsets: [0, 1],
                }))
            }
            ParamSums::Strands => {
                let kept = self.desc.summed_shape(sums);
                let mut access = dims(&kept, &problem.row_strides, 1, &repeated);
                // The first launch has left them part after part.
                access.col.push(Dim {
                    size: plan.grid.splits,
                    stride: problem.rows,
                });
                let parts = access.col.iter().map(|dim| dim.size).product();
                if parts > MAX_PARTS {
                    return Ok(None);
                }
                let left = self.launch(problem, &plan, input, None, None)?;
                let elements = plan.workspace;
                Ok(left.map(|handle| Partial {
                    handle,
                    elements,
                    access,
                    parts,
                    offsets: [plan.grid.splits * problem.rows, 0],
                }))
            }
            ParamSums::Columns if plan.blueprint.column_sums.any() => {
                let parts = plan.parts_of_columns();
                let of_kind = plan.columns_of_part(problem.cols);
                let of_part = plan.blueprint.column_sums.count() * of_kind;
                let elements = parts * of_part;
                let handle = self.sums(elements);
                self.launch(problem, &plan, input, None, Some((&handle, elements)))?;
                let lanes = plan.lanes_of_column();
                let mut access = dims(sizes, &problem.column_strides, lanes, &repeated);
                let summed =
                    [(parts, of_part), (lanes, 1)].map(|(size, stride)| Dim { size, stride });
                access.col = summed.into_iter().filter(|dim| dim.size > 1).collect();
                Ok(Some(Partial {
                    handle,
                    elements,
                    access,
                    parts: parts * lanes,
                    offsets: [0, of_part - of_kind],
                }))
            }
            _ => Ok(None),
        }
    }

    /// Sums up over the dimensions that parameters of a shape repeat along.
    fn over_param(&self, shape: &[usize]) -> Result<Partial, LaunchError> {
        let problem = self.desc.param_problem(shape)?;
        let plan = self.plan(&problem)?;
        let elements = 2 * problem.rows;
        let handle = self.sums(elements);
        self.launch(&problem, &plan, None, Some(&handle), None)?;
        Ok(Partial {
            handle,
            elements,
            access: Access {
                row: vec![Dim {
                    size: problem.rows,
                    stride: 2,
                }],
                col: Vec::new(),
            },
            parts: 1,
            offsets: [0, 1],
        })
    }

    /// The plan of the chosen strategy, or another where that does not apply to these axes.
    fn plan(&self, problem: &GradientProblem) -> Result<GradientPlan, LaunchError> {
        let plan = plan_gradient(problem, &self.hardware, self.choice);
        match plan {
            Err(PlanError::Strategy { .. }) => {
                let choice = StrategyChoice::Inferred;
                Ok(plan_gradient(problem, &self.hardware, choice)?)
            }
            plan => Ok(plan?),
        }
    }

    /// A workspace of so many sums.
    fn sums(&self, elements: usize) -> Handle {
        self.client.empty(elements * self.accumulation().size())
    }

    fn accumulation(&self) -> DType {
        self.desc.norm.input.dtype.accumulation()
    }

    /// Launches it, and returns what its first launch has left where there are two, or the only one of strands.
    fn launch(
        &self,
        problem: &GradientProblem,
        plan: &GradientPlan,
        input: Option<&Tensor>,
        rows: Option<&Handle>,
        columns: Option<(&Handle, usize)>,
    ) -> Result<Option<Handle>, LaunchError> {
        let (blueprint, grid) = (plan.blueprint, &plan.grid);
        let team = blueprint.team;
        let tensors = self.tensors;
        let (dtype, params) = (problem.dtype, problem.param_dtype);
        let accumulation = self.accumulation();
        let bound = [
            (Some(&tensors.input), dtype),
            (Some(&tensors.output_gradient), dtype),
            (tensors.saved.as_ref(), accumulation),
            (tensors.scale.as_ref(), params),
            (tensors.bias.as_ref(), params),
            (input.map(|tensor| &tensor.handle), dtype),
            (rows, accumulation),
            (columns.map(|(handle, _)| handle), accumulation),
        ];
        let address = address_type(self.client, bound, plan.workspace)?;
        let param = blueprint.scale.or(blueprint.bias);
        let elem = [
            memory_type(problem.dtype, Some(blueprint.input)),
            memory_type(problem.param_dtype, param),
            elem_type(self.accumulation()),
        ];
        let numbers = || scalars(problem.dtype, problem.epsilon, problem.activation);
        // What the blueprint leaves out is not bound.
        let scale = problem.scale.as_ref().filter(|_| blueprint.scale.is_some());
        let bias = problem.bias.as_ref().filter(|_| blueprint.bias.is_some());
        let parts = blueprint.split.then(|| self.sums(plan.workspace));
        let strands = blueprint.joins_within().then(|| self.sums(plan.workspace));
        let rows = match &strands {
            Some(strands) => Some(flat_arg(strands, plan.workspace)),
            None => optional_arg(rows, problem.row_sums.as_ref()),
        };
        // A macro, because the types of the arguments name those that a kernel is instantiated with.
        macro_rules! source {
            () => {
                GradientSourceLaunch::new(
                    arg(&tensors.input, &problem.input),
                    arg(&tensors.output_gradient, &problem.output_gradient),
                    optional_arg(tensors.saved.as_ref(), problem.saved.as_ref()).into(),
                    optional_arg(tensors.scale.as_ref(), scale).into(),
                    optional_arg(tensors.bias.as_ref(), bias).into(),
                )
            };
        }
        if let Some(parts) = &parts {
            // Safety: every address that the kernel forms lies in its buffer, see `operand`, and the
            // launch stays within the device's limits, which the plan has read. The workspace holds
            // two numbers for each row of each part.
            unsafe {
                gradient_parts::launch_unchecked(
                    self.client,
                    cube_count(grid),
                    cube_dim(grid),
                    address,
                    team.vector,
                    width(&team, Some(blueprint.input)),
                    width(&team, Some(blueprint.output_gradient)),
                    width(&team, blueprint.scale),
                    width(&team, blueprint.bias),
                    lanes_of_rows(&team),
                    source!(),
                    flat_arg(parts, plan.workspace),
                    partition(grid, problem.cols),
                    numbers(),
                    blueprint,
                    elem[0],
                    elem[1],
                    elem[2],
                );
            }
        }
        let joined = plan.join.as_ref().zip(parts.as_ref()).map(|(join, parts)| {
            let weights = blueprint.scale.zip(tensors.scale.as_ref().zip(scale));
            let strands = Strands {
                client: self.client,
                handle: parts,
                elements: plan.workspace,
                grid,
                shifts: false,
                scale: weights.map(|(blueprint, (handle, access))| (handle, access, blueprint)),
                accumulation: elem[2],
                param_dtype: elem_type(problem.param_dtype),
                address,
            };
            (strands.join(join), join.workspace)
        });
        let left = joined.or_else(|| parts.clone().map(|parts| (parts, plan.workspace)));
        let written = input.map(|tensor| &tensor.handle);
        let told = (team.peers > 1).then(|| {
            let count = grid.teams(&team) * words(team.peers as usize);
            (self.client.create_from_slice(&vec![0; 8 * count]), count)
        });
        // Safety: as above; of the workspace the first launch has written every number, and the sums
        // hold two numbers for each row, or for each column of each part of them. Cubes that share rows go
        // through as many rounds, and each round through as many words; those begin as zeros.
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
                width(&team, blueprint.input_gradient),
                left_lanes(&team),
                source!(),
                GradientResultsLaunch::new(
                    optional_arg(written, problem.input_gradient.as_ref()).into(),
                    rows.into(),
                    columns.map(|(handle, sums)| flat_arg(handle, sums)).into(),
                ),
                left.map(|(left, elements)| flat_arg(&left, elements))
                    .into(),
                told.map(|(words, count)| flat_arg(&words, count)).into(),
                partition(grid, problem.cols),
                numbers(),
                blueprint,
                elem[0],
                elem[1],
                elem[2],
            );
        }
        Ok(parts.or(strands))
    }

    /// Units of a cube that adds up so many parts: elements side by side, and units that share the parts of
    /// each, where the device runs them at once.
    fn fold_units(&self, parts: usize, elements: usize, outputs: usize) -> (u32, u32) {
        let hardware = &self.hardware;
        let most = hardware.max_units_per_cube;
        match hardware.busy_cores(parts * elements) {
            Some(cores) => (cores, 1),
            None if hardware.is_software() || parts < SHARED_PARTS => (FOLD_UNITS.min(most), 1),
            None => {
                let processors = hardware.processors().max(1);
                let wanted = (outputs * elements / processors).max(1).ilog2();
                let columns = (1 << wanted).clamp(LEAST_FOLD_COLUMNS, MOST_FOLD_COLUMNS);
                let shares = (parts / PARTS_OF_UNIT).max(1).min(most as usize) as u32;
                let members = shares.min(FOLD_SHARING_UNITS.min(most) / columns).max(1);
                (columns, 1 << members.ilog2())
            }
        }
    }

    /// Elements that a unit adds up side by side. On a GPU one, so that there is work for more units.
    fn fold_vector(&self, partial: &Partial, output: DType) -> usize {
        if self.hardware.is_gpu() {
            return 1;
        }
        let Some((last, outer)) = partial.access.row.split_last() else {
            return 1;
        };
        if last.stride != 1 {
            return 1;
        }
        let steps = outer.iter().chain(&partial.access.col);
        let jumps = steps.map(|dim| dim.stride).chain(partial.offsets);
        let jumps: Vec<usize> = jumps.collect();
        let widest = self.accumulation().size().max(output.size());
        let mut vector = self.hardware.widest_vector(widest);
        // All that a vector begins at is a multiple of it.
        while [last.size].iter().chain(&jumps).any(|n| n % vector != 0) {
            vector /= 2;
        }
        vector
    }

    /// Adds up the partial sums of scale and bias, which have one shape, as far as they are wanted.
    fn fold(&self, partial: &Partial, params: [Option<&Tensor>; 2]) -> Result<(), LaunchError> {
        let [of_scale, of_bias] = partial.offsets;
        let (output, second, offset) = match params {
            [Some(scale), bias] => (scale, bias, of_scale),
            [None, Some(bias)] => (bias, None, of_bias),
            [None, None] => return Ok(()),
        };
        let elements = output.desc.layout.checked_elements().unwrap_or(0);
        if elements == 0 {
            return Ok(());
        }
        let outputs = 1 + usize::from(second.is_some());
        let vector = self.fold_vector(partial, output.desc.dtype);
        let vectors = elements / vector;
        let (columns, members) = self.fold_units(partial.parts, elements, outputs);
        let cubes = match self.hardware.cpu_cores {
            Some(_) => 1,
            None => vectors
                .div_ceil(columns as usize)
                .min(self.hardware.max_cubes as usize),
        };
        let rounds = vectors.div_ceil(cubes * columns as usize);
        let address = address_type(self.client, [], partial.elements.max(elements))?;
        let shape = FoldShape {
            members: members as usize,
            columns: columns as usize,
            in_blocks: self.hardware.cpu_cores.is_some(),
            element_dims: partial.access.row.len(),
            part_dims: partial.access.col.len(),
            mode: match vector {
                1 => LoadMode::Gather,
                _ => LoadMode::Vector,
            },
        };
        let second = second.map(|second| flat_arg(&second.handle, elements));
        // Safety: `access` addresses the partial sums of each of a parameter's elements, all of
        // which the launch before has written; each output holds as many elements as there are.
        unsafe {
            fold::launch_unchecked(
                self.client,
                CubeCount::Static(cubes as u32, outputs as u32, 1),
                CubeDim::new_2d(columns, members),
                address,
                vector,
                arg(&partial.handle, &partial.access),
                flat_arg(&output.handle, elements),
                second.into(),
                vectors,
                partial.parts,
                offset,
                of_bias,
                rounds,
                shape,
                elem_type(self.accumulation()),
                elem_type(output.desc.dtype),
            );
        }
        Ok(())
    }
}

/// Dimensions of sums, `scaled` elements apart at least: those that a parameter has, in its row-major
/// order, and those that it repeats along, whose sums are added up.
fn dims(sizes: &[usize], strides: &[usize], scaled: usize, repeated: &[bool]) -> Access {
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
