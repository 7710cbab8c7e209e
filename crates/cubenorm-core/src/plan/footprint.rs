//! Buffers and resources of the launches of a plan.
//!
//! Allocations use these sizes, and the SAFETY comments of the launches refer to them. Each formula
//! follows the addresses of the kernel of the same name.

use super::grid::Grid;
use super::result::{BackwardPlan, Combine, Plan};
use super::shared_memory::{SharedMemory, backward_memory, forward_memory, merge_table};
use crate::backward::BackwardProblem;
use crate::problem::{Access, NormProblem};

/// A buffer of a launch, by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The tensor to normalize.
    Input,
    /// The residual, added to the input or to the result.
    Residual,
    /// The scale, gamma.
    Scale,
    /// The bias, beta.
    Bias,
    /// Provided means.
    Mean,
    /// Provided variances.
    Variance,
    /// The given scale of a quantised output.
    CodesScale,
    /// The cosines and sines of a rotation.
    Rotation,
    /// The normalized tensor.
    Output,
    /// The sum of input and residual.
    Sum,
    /// Two statistics of each row.
    Statistics,
    /// The gradient of the output, dy.
    OutputGradient,
    /// The mean and reciprocal deviation of each row, as the forward pass wrote them.
    Saved,
    /// The gradient of the sum, which is added to dx.
    SumGradient,
    /// The gradient of the input, dx.
    InputGradient,
    /// The gate of a backward pass.
    Gate,
    /// The gradient of the gate.
    GateGradient,
    /// Statistics of each part of each row, between the two launches of a split row.
    PartialStatistics,
    /// Statistics of each row, combined from its segments.
    CombinedStatistics,
    /// Two sums of each row, or of each segment of it, for the parameter gradients.
    RowSums,
    /// Two sums of each channel, for a launch that combines its segments itself.
    ChannelSums,
    /// Sums of each column, for each team.
    ColumnSums,
    /// Words for the sums that the cubes of a cluster publish.
    ClusterWords,
    /// The counter of a dynamic schedule.
    WorkCounter,
    /// The gradient of the scale, dgamma.
    ScaleGradient,
    /// The gradient of the bias, dbeta.
    BiasGradient,
}

/// The range of a buffer that a launch accesses, in elements from its start. 0 for an access that
/// does not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The buffer.
    pub buffer: Buffer,
    /// One past the highest element that is read.
    pub read: usize,
    /// One past the highest element that is written.
    pub written: usize,
}

impl Extent {
    /// One past the highest element that is accessed.
    pub fn elements(&self) -> usize {
        self.read.max(self.written)
    }
}

/// The kernel of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Writes the statistics of each part of a split row.
    PartialStatistics,
    /// Combines the statistics of the segments of a row.
    Combine,
    /// Normalizes.
    Normalize,
    /// Writes the sums of each part of a split row, backward.
    PartialSums,
    /// Computes the input's gradient and the partial sums of the parameter gradients.
    Backward,
    /// Reduces partial sums to parameter gradients.
    ParamReduce,
    /// Updates a running average: see [`LerpDesc`](crate::LerpDesc).
    Lerp,
    /// Sets the words of clusters to zero.
    Zero,
}

/// Buffers and resources of one launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// The kernel.
    pub kernel: Kernel,
    /// Units of a cube along x, y and z.
    pub cube_dim: [u32; 3],
    /// Cubes along x, y and z.
    pub cube_count: [u32; 3],
    /// Bytes of shared memory of a cube.
    pub shared_memory: SharedMemory,
    /// Storage buffers that it binds, CubeCL's metadata buffer included.
    pub bindings: u32,
    /// The buffers.
    pub extents: Vec<Extent>,
}

impl Footprint {
    /// A launch of this size without buffers.
    fn of(kernel: Kernel, grid: &Grid) -> Self {
        Self {
            kernel,
            cube_dim: grid.cube_dim,
            cube_count: [grid.cube_count, 1, 1],
            shared_memory: SharedMemory::default(),
            bindings: 0,
            extents: Vec::new(),
        }
    }

    /// One past the highest element of a buffer that the launch accesses.
    pub fn elements(&self, buffer: Buffer) -> usize {
        let of_buffer = self.extents.iter().filter(|it| it.buffer == buffer);
        of_buffer.map(Extent::elements).max().unwrap_or(0)
    }
}

impl BackwardPlan {
    /// Buffers and resources of each launch of the plan, in order.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{
    ///     Buffer, DType, BackwardDesc, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc,
    ///     plan_backward,
    /// };
    ///
    /// let input = TensorDesc::contiguous([2048, 4096], DType::F32);
    /// let norm = NormDesc::new(input, [1], Statistics::MeanVariance);
    /// let problem = BackwardDesc::new(norm.clone()).input_problem(BackwardDesc::new(norm).param_sums())?;
    /// let plan = plan_backward(&problem, &Hardware::cuda(132), StrategyChoice::Inferred)?;
    /// let footprint = plan.footprint(&problem);
    /// assert_eq!(footprint[0].elements(Buffer::InputGradient), 2048 * 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn footprint(&self, problem: &BackwardProblem) -> Vec<Footprint> {
        let blueprint = &self.blueprint;
        let accumulation = problem.dtype.accumulation().size();
        let scale = problem.scale.as_ref().filter(|_| blueprint.scale.is_some());
        let bias = problem.bias.as_ref().filter(|_| blueprint.bias.is_some());
        let numbers_saved = if blueprint.provides_sums { 4 } else { 2 };
        let sources = [
            reads(Buffer::Input, Some(&problem.input), 1),
            reads(Buffer::OutputGradient, Some(&problem.output_gradient), 1),
            // The mean, followed by the reciprocal deviation and by provided sums.
            reads(Buffer::Saved, problem.saved.as_ref(), numbers_saved),
            reads(Buffer::Scale, scale, 1),
            reads(Buffer::Bias, bias, 1),
            reads(Buffer::Gate, problem.gate.as_ref().map(|it| &it.access), 1),
        ];
        let sources: Vec<Extent> = sources.into_iter().flatten().collect();
        let mut launches = Vec::new();
        if blueprint.split() {
            let params = [&blueprint.saved, &blueprint.scale, &blueprint.bias];
            let gate = u32::from(blueprint.gate.is_some());
            let params = params.into_iter().flatten().count() as u32 + gate;
            let partial = writes(Buffer::PartialStatistics, self.workspace);
            launches.push(Footprint {
                shared_memory: merge_table(&blueprint.team, blueprint.team.merge, accumulation),
                // Input, output gradient, workspace and metadata.
                bindings: 4 + params,
                extents: sources.iter().copied().chain([partial]).collect(),
                ..Footprint::of(Kernel::PartialSums, &self.grid)
            });
        }
        if let Some(combine) = &self.combine {
            let weights = reads(Buffer::Scale, scale, 1);
            launches.push(combine.footprint(self.workspace, weights, accumulation));
        }
        let results = self.results(problem);
        launches.push(Footprint {
            shared_memory: backward_memory(blueprint, problem),
            bindings: blueprint.bindings(),
            extents: sources.into_iter().chain(results).collect(),
            ..Footprint::of(Kernel::Backward, &self.grid)
        });
        launches
    }

    /// The buffers of the last launch other than its sources.
    fn results(&self, problem: &BackwardProblem) -> impl Iterator<Item = Extent> {
        let blueprint = &self.blueprint;
        let row_sums = problem.row_sums.as_ref();
        let row_sums = row_sums.filter(|_| blueprint.row_sums.is_some());
        let has_words = blueprint.team.cluster_size() > 1;
        let dx = problem.input_gradient.as_ref();
        [
            blueprint
                .split()
                .then(|| reads_partials(self.workspace, self.combine.as_ref())),
            blueprint
                .combines_within()
                .then(|| writes(Buffer::ChannelSums, self.workspace)),
            reads(Buffer::SumGradient, problem.sum_gradient.as_ref(), 1),
            dx.map(|dx| writes(Buffer::InputGradient, reach(dx))),
            dx.filter(|_| blueprint.writes_gate_gradient())
                .map(|dx| writes(Buffer::GateGradient, reach(dx))),
            row_sums.map(|sums| writes(Buffer::RowSums, pairs(sums))),
            blueprint
                .column_sums
                .any()
                .then(|| updates(Buffer::ColumnSums, self.column_sums(problem.cols))),
            has_words.then(|| updates(Buffer::ClusterWords, self.cluster_words())),
        ]
        .into_iter()
        .flatten()
    }
}

impl Plan {
    /// Buffers and resources of each launch of the plan, in order.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{
    ///     Buffer, DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc, plan_forward,
    /// };
    ///
    /// let input = TensorDesc::contiguous([3, 512, 14, 14], DType::F32);
    /// let problem = NormDesc::new(input, [1], Statistics::MeanVariance).problem()?;
    /// let plan = plan_forward(&problem, &Hardware::cpu(2, 512), StrategyChoice::Inferred)?;
    /// let [partial, normalize] = &plan.footprint(&problem)[..] else {
    ///     panic!("its rows are split");
    /// };
    /// // The partial statistics of the first launch fill the allocated workspace.
    /// assert_eq!(partial.elements(Buffer::PartialStatistics), plan.workspace);
    /// assert_eq!(normalize.elements(Buffer::Output), 3 * 512 * 14 * 14);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn footprint(&self, problem: &NormProblem) -> Vec<Footprint> {
        let blueprint = &self.blueprint;
        let accumulation = problem.dtype.accumulation().size();
        let sources = || {
            let residual = reads(Buffer::Residual, problem.residual.as_ref(), 1);
            reads(Buffer::Input, Some(&problem.input), 1)
                .into_iter()
                .chain(residual)
        };
        let result = reach(&problem.output);
        let sum = problem.writes_sum.then(|| writes(Buffer::Sum, result));
        let mut launches = Vec::new();
        if blueprint.split() {
            let partial = writes(Buffer::PartialStatistics, self.workspace);
            let optional = [blueprint.residual.is_some(), blueprint.writes_sum];
            launches.push(Footprint {
                shared_memory: merge_table(&blueprint.team, blueprint.team.merge, accumulation),
                // Input, workspace and metadata.
                bindings: 3 + optional.map(u32::from).iter().sum::<u32>(),
                extents: sources().chain([partial]).chain(sum).collect(),
                ..Footprint::of(Kernel::PartialStatistics, &self.grid)
            });
        }
        if let Some(combine) = &self.combine {
            launches.push(combine.footprint(self.workspace, None, accumulation));
        }
        let params = [
            reads(Buffer::Scale, problem.scale.as_ref(), 1),
            reads(Buffer::Bias, problem.bias.as_ref(), 1),
            reads(Buffer::Mean, problem.mean.as_ref(), 1),
            reads(Buffer::Variance, problem.variance.as_ref(), 1),
            reads(
                Buffer::Rotation,
                problem.rotation.as_ref().map(|(table, _)| table),
                1,
            ),
            reads(
                Buffer::CodesScale,
                problem
                    .quantization
                    .as_ref()
                    .and_then(|(_, scale)| scale.as_ref()),
                1,
            ),
        ];
        let statistics = problem.written_statistics.as_ref();
        let results = [
            problem
                .writes_output
                .then(|| writes(Buffer::Output, result)),
            match blueprint.split() {
                true => Some(reads_partials(self.workspace, self.combine.as_ref())),
                // The first of two launches writes the sum.
                false => sum,
            },
            statistics.map(|(written, access)| {
                writes(Buffer::Statistics, written.count() * reach(access))
            }),
            blueprint
                .team
                .is_dynamic()
                .then(|| updates(Buffer::WorkCounter, 1)),
            (blueprint.team.cluster_size() > 1)
                .then(|| updates(Buffer::ClusterWords, self.cluster_words())),
        ];
        let extents = params.into_iter().chain(results).flatten();
        launches.push(Footprint {
            shared_memory: forward_memory(blueprint, problem),
            bindings: blueprint.bindings(),
            extents: sources().chain(extents).collect(),
            ..Footprint::of(Kernel::Normalize, &self.grid)
        });
        launches
    }
}

impl Combine {
    fn footprint(&self, parts: usize, weights: Option<Extent>, accumulation: usize) -> Footprint {
        let scale = weights.is_some();
        let workspaces = [
            read(Buffer::PartialStatistics, parts),
            writes(Buffer::CombinedStatistics, self.workspace),
        ];
        Footprint {
            shared_memory: merge_table(&self.team, self.team.merge, accumulation),
            bindings: 3 + u32::from(scale),
            extents: workspaces.into_iter().chain(weights).collect(),
            ..Footprint::of(Kernel::Combine, &self.grid)
        }
    }
}

fn read(buffer: Buffer, elements: usize) -> Extent {
    Extent {
        buffer,
        read: elements,
        written: 0,
    }
}

fn writes(buffer: Buffer, elements: usize) -> Extent {
    Extent {
        buffer,
        read: 0,
        written: elements,
    }
}

fn updates(buffer: Buffer, elements: usize) -> Extent {
    Extent {
        buffer,
        read: elements,
        written: elements,
    }
}

/// The statistics that the second of two launches reads.
fn reads_partials(workspace: usize, combine: Option<&Combine>) -> Extent {
    match combine {
        Some(combine) => read(Buffer::CombinedStatistics, combine.workspace),
        None => read(Buffer::PartialStatistics, workspace),
    }
}

/// The extent of a tensor with `tile` adjacent elements at each address.
fn reads(buffer: Buffer, access: Option<&Access>, tile: usize) -> Option<Extent> {
    Some(read(buffer, reach(access?) + tile - 1))
}

/// One past the highest element that any row and column address.
pub(super) fn reach(access: &Access) -> usize {
    let dims = access.row.iter().chain(&access.col);
    // A dimension of size 0 has no element and no plan.
    let last: usize = dims
        .map(|dim| dim.size.saturating_sub(1) * dim.stride)
        .sum();
    last + 1
}

/// The extent of pairs, whose strides count pairs.
pub(super) fn pairs(access: &Access) -> usize {
    2 * reach(access)
}
