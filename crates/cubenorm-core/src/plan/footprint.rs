//! Buffers and resources of the launches of a plan. No other module computes a buffer size.
//!
//! Allocations use these sizes, and the SAFETY comments of the launches refer to them. Each formula
//! follows the addresses of the kernel of the same name.

use super::{
    BackwardBlueprint, BackwardPlan, Blueprint, Combine, Grid, Hardware, Level, Merge, Plan,
    RowBuffering, Staging, Team, Vectorization,
};
use crate::{Access, BackwardProblem, NormProblem};

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
    /// The gradient of the input, dx.
    InputGradient,
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

/// Bytes of the arrays in shared memory of a cube.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedMemory {
    /// Sum over all arrays.
    pub all: usize,
    /// Maximum over arrays that are live at the same time.
    pub live: usize,
}

impl SharedMemory {
    const NONE: Self = Self { all: 0, live: 0 };

    pub(super) const fn of(bytes: usize) -> Self {
        Self {
            all: bytes,
            live: bytes,
        }
    }

    /// Bytes that a device needs.
    pub const fn needed(self, hardware: &Hardware) -> usize {
        match hardware.reuses_shared_memory {
            true => self.live,
            false => self.all,
        }
    }

    /// Both live at the same time.
    const fn and(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            live: self.live + other.live,
        }
    }

    /// One after the other.
    const fn then(self, next: Self) -> Self {
        Self {
            all: self.all + next.all,
            live: if self.live > next.live {
                self.live
            } else {
                next.live
            },
        }
    }

    /// `count` times, one after another.
    const fn times(self, count: usize) -> Self {
        Self {
            all: self.all * count,
            live: self.live,
        }
    }
}

impl Footprint {
    /// One past the highest element of a buffer that the launch accesses.
    pub fn elements(&self, buffer: Buffer) -> usize {
        let of_buffer = self.extents.iter().filter(|it| it.buffer == buffer);
        of_buffer.map(Extent::elements).max().unwrap_or(0)
    }
}

/// Rows per workspace value: along the kept axis each lane of a vector has its own value.
pub(super) fn lanes_of_rows(team: &Team) -> usize {
    match team.lanes {
        Vectorization::Perpendicular => team.vector,
        Vectorization::Parallel => 1,
    }
}

/// Elements of the partial statistics of a split row. Each part of each row group has two vectors,
/// part after part. Then each row group has `shifts` vectors.
///
/// Row groups with a tail cover some rows twice, so their vectors have more lanes than rows.
pub(super) fn partial_statistics(team: &Team, grid: &Grid, shifts: usize) -> usize {
    (2 * grid.splits + shifts) * grid.groups * lanes_of_rows(team)
}

/// Elements of combined statistics: two values for each row, and its shift if there is one.
pub(super) fn combined_statistics(rows: usize, shifts: usize) -> usize {
    (2 + shifts) * rows
}

/// Elements of the channel sums of a launch that combines segments itself: two for each lane of
/// each row group.
pub(super) fn channel_sums(team: &Team, grid: &Grid) -> usize {
    2 * grid.groups * lanes_of_rows(team)
}

/// Words of a cluster: a ring of [`ROUNDS`] slots, each of two sums for each cube.
const fn cluster_words(cluster: usize) -> usize {
    ROUNDS * cluster * SUMS
}

/// Slots of the ring through which the cubes of a cluster publish their sums.
///
/// A cube publishes round r only after it has read every peer's round r-2. A slow peer may still
/// read r-3 but nothing older.
pub const ROUNDS: usize = 4;

/// Sums that a cube publishes in a round.
pub const SUMS: usize = 2;

impl BackwardPlan {
    /// Elements of the partial column sums, if the plan computes them: for each team one row of
    /// each requested kind.
    pub fn column_sums(&self, cols: usize) -> usize {
        let kinds = self.blueprint.column_sums.count();
        self.parts_of_columns() * kinds * self.columns_of_part(cols)
    }

    /// Words through which the cubes of a cluster publish their sums; 0 without a cluster.
    pub fn cluster_words(&self) -> usize {
        let team = &self.blueprint.team;
        match team.cluster_size {
            1 => 0,
            cluster => self.grid.teams(team) * cluster_words(cluster as usize),
        }
    }

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
        let (team, grid) = (&blueprint.team, &self.grid);
        let accumulation = problem.dtype.accumulation().size();
        let scale = problem.scale.as_ref().filter(|_| blueprint.scale.is_some());
        let bias = problem.bias.as_ref().filter(|_| blueprint.bias.is_some());
        let source = || {
            [
                reads(Buffer::Input, Some(&problem.input), 1),
                reads(Buffer::OutputGradient, Some(&problem.output_gradient), 1),
                // The mean, followed by the reciprocal deviation.
                reads(Buffer::Saved, problem.saved.as_ref(), 2),
                reads(Buffer::Scale, scale, 1),
                reads(Buffer::Bias, bias, 1),
            ]
            .into_iter()
            .flatten()
        };
        let cubes = |grid: &Grid| [grid.cube_count, 1, 1];
        let mut launches = Vec::new();
        let table = merge_table(team, team.merge, accumulation);
        if blueprint.split {
            let params = [&blueprint.saved, &blueprint.scale, &blueprint.bias];
            launches.push(Footprint {
                kernel: Kernel::PartialSums,
                cube_dim: grid.cube_dim,
                cube_count: cubes(grid),
                shared_memory: table,
                // Input, output gradient, workspace and metadata.
                bindings: 4 + params.into_iter().flatten().count() as u32,
                extents: source()
                    .chain([writes(Buffer::PartialStatistics, self.workspace)])
                    .collect(),
            });
        }
        if let Some(combine) = &self.combine {
            let weights = reads(Buffer::Scale, scale, 1);
            launches.push(combine.footprint(self.workspace, weights, accumulation));
        }
        let left = match &self.combine {
            Some(combine) => (Buffer::CombinedStatistics, combine.workspace),
            None => (Buffer::PartialStatistics, self.workspace),
        };
        let mut extents: Vec<Extent> = source().collect();
        if blueprint.split {
            extents.push(read(left.0, left.1));
        }
        if blueprint.combines_within() {
            extents.push(writes(Buffer::ChannelSums, self.workspace));
        }
        if let Some(dx) = &problem.input_gradient {
            extents.push(writes(Buffer::InputGradient, reach(dx)));
        }
        if let Some(sums) = problem
            .row_sums
            .as_ref()
            .filter(|_| blueprint.row_sums.is_some())
        {
            extents.push(writes(Buffer::RowSums, pairs(sums)));
        }
        if blueprint.column_sums.any() {
            let elements = self.column_sums(problem.cols);
            extents.push(Extent {
                buffer: Buffer::ColumnSums,
                read: elements,
                written: elements,
            });
        }
        if team.cluster_size > 1 {
            let elements = self.cluster_words();
            extents.push(Extent {
                buffer: Buffer::ClusterWords,
                read: elements,
                written: elements,
            });
        }
        launches.push(Footprint {
            kernel: Kernel::Backward,
            cube_dim: grid.cube_dim,
            cube_count: cubes(grid),
            shared_memory: backward_memory(blueprint, problem),
            bindings: blueprint.bindings(),
            extents,
        });
        launches
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
        let (team, grid) = (&blueprint.team, &self.grid);
        let accumulation = problem.dtype.accumulation().size();
        let cubes = [grid.cube_count, 1, 1];
        let source = || {
            [
                reads(Buffer::Input, Some(&problem.input), 1),
                reads(Buffer::Residual, problem.residual.as_ref(), 1),
            ]
            .into_iter()
            .flatten()
        };
        let result = reach(&problem.output);
        let sum = problem.writes_sum.then(|| writes(Buffer::Sum, result));
        let mut launches = Vec::new();
        if blueprint.split {
            launches.push(Footprint {
                kernel: Kernel::PartialStatistics,
                cube_dim: grid.cube_dim,
                cube_count: cubes,
                shared_memory: merge_table(team, team.merge, accumulation),
                // Input, workspace and metadata.
                bindings: 3
                    + u32::from(blueprint.residual.is_some())
                    + u32::from(blueprint.writes_sum),
                extents: source()
                    .chain([writes(Buffer::PartialStatistics, self.workspace)])
                    .chain(sum)
                    .collect(),
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
        ];
        let mut extents: Vec<Extent> = source().chain(params.into_iter().flatten()).collect();
        extents.push(writes(Buffer::Output, result));
        match (blueprint.split, &self.combine) {
            (true, Some(combine)) => {
                extents.push(read(Buffer::CombinedStatistics, combine.workspace))
            }
            (true, None) => extents.push(read(Buffer::PartialStatistics, self.workspace)),
            // The first of two launches writes the sum.
            (false, _) => extents.extend(sum),
        }
        if let Some((_, access)) = &problem.written_statistics {
            extents.push(writes(Buffer::Statistics, pairs(access)));
        }
        if team.dynamic {
            extents.push(Extent {
                buffer: Buffer::WorkCounter,
                read: 1,
                written: 1,
            });
        }
        launches.push(Footprint {
            kernel: Kernel::Normalize,
            cube_dim: grid.cube_dim,
            cube_count: cubes,
            shared_memory: forward_memory(blueprint, problem),
            bindings: blueprint.bindings(),
            extents,
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
            kernel: Kernel::Combine,
            cube_dim: self.grid.cube_dim,
            cube_count: [self.grid.cube_count, 1, 1],
            shared_memory: merge_table(&self.team, self.team.merge, accumulation),
            bindings: 3 + u32::from(scale),
            extents: workspaces.into_iter().chain(weights).collect(),
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

/// The array in shared memory through which the units of a team merge partial results.
fn merge_table(team: &Team, merge: Merge, accumulation: usize) -> SharedMemory {
    match team.level {
        Level::Unit | Level::Plane => SharedMemory::NONE,
        // The planes of a cube merge their own results first.
        Level::Cube => table(
            (team.size / team.plane_size.max(1)) as usize,
            1,
            merge,
            accumulation,
        ),
        Level::Perpendicular if team.size == 1 => SharedMemory::NONE,
        Level::Perpendicular => {
            let slots = (team.size * team.columns) as usize;
            table(slots, team.vector, merge, accumulation)
        }
    }
}

/// The array of `reduce/exchange.rs`. Values that a merge does not use take one slot.
const fn table(slots: usize, lanes: usize, merge: Merge, accumulation: usize) -> SharedMemory {
    let counts = if merge.weighs() { slots } else { 1 };
    let means = if merge.has_two() { slots } else { 1 };
    SharedMemory::of((counts + (means + slots) * lanes) * accumulation)
}

/// The arrays of a forward pass for one row: its shift and statistics if the row is staged, else
/// the statistics alone.
fn forward_tables(
    slots: usize,
    lanes: usize,
    merge: Merge,
    is_staged_row: bool,
    accumulation: usize,
) -> SharedMemory {
    let of = |merge| table(slots, lanes, merge, accumulation);
    match (is_staged_row, merge.takes_means()) {
        (false, _) => of(merge),
        (true, true) => of(Merge::Sum).then(of(Merge::Sums)),
        (true, false) => of(merge),
    }
}

/// Bytes of shared memory for merging partial results of a row, forward or backward.
pub(super) fn merged_bytes(
    slots: usize,
    lanes: usize,
    merge: Merge,
    is_staged_row: bool,
    accumulation: usize,
    hardware: &Hardware,
) -> usize {
    let tables = match merge {
        // Backward; at most two rows alternate.
        Merge::Sums => table(slots, lanes, merge, accumulation).times(2),
        _ => forward_tables(slots, lanes, merge, is_staged_row, accumulation),
    };
    tables.needed(hardware)
}

/// The staging slots of the units in shared memory.
fn cells(staging: Staging, team: &Team, element: usize) -> SharedMemory {
    let (_, shared) = staging.places();
    SharedMemory::of(shared * team.size as usize * team.vector * element)
}

/// Shared memory of the kernel that normalizes.
fn forward_memory(blueprint: &Blueprint, problem: &NormProblem) -> SharedMemory {
    let team = &blueprint.team;
    let accumulation = problem.dtype.accumulation().size();
    let element = match blueprint.stages_input() {
        true => problem.dtype.size(),
        false => accumulation,
    };
    let is_staged_row = blueprint.staging != Staging::Reload;
    let table = |merge| merge_table(team, merge, accumulation);
    let shift = match is_staged_row && blueprint.shifts && !blueprint.first_is_shift {
        true => table(Merge::Sum),
        false => SharedMemory::NONE,
    };
    let statistics = match blueprint.statistics.reduces() && !team.segmented {
        false => SharedMemory::NONE,
        true if is_staged_row && blueprint.statistics.reduces_mean() => table(Merge::Sums),
        true => table(team.merge),
    };
    let staged = cells(blueprint.staging, team, element);
    let staged = SharedMemory::of(staged.all * blueprint.rows_per_unit);
    staged.and(shift.then(statistics).times(blueprint.rows_per_unit))
}

/// Shared memory of the kernel that computes the input's gradient.
fn backward_memory(blueprint: &BackwardBlueprint, problem: &BackwardProblem) -> SharedMemory {
    let team = &blueprint.team;
    let accumulation = problem.dtype.accumulation().size();
    let table = merge_table(team, Merge::Sums, accumulation);
    let kinds = blueprint.column_sums.count();
    // Along the kept axis all lanes of a step share one column.
    let lanes = match team.lanes {
        Vectorization::Parallel => team.vector,
        Vectorization::Perpendicular => 1,
    };
    let (_, shared) = blueprint.staged_columns.times(kinds).places();
    let sums = SharedMemory::of(shared * team.size as usize * lanes * accumulation);
    let scale = cells(blueprint.staged_scale, team, problem.param_dtype.size());
    let written = match blueprint.staged_columns != Staging::Reload
        && team.lanes == Vectorization::Perpendicular
    {
        true => {
            let units = (team.size * team.columns) as usize;
            SharedMemory::of(blueprint.staged_vectors() * units * accumulation)
        }
        false => SharedMemory::NONE,
    };
    let cluster = team.cluster_size as usize;
    let of_row = match blueprint.reduces && !team.segmented {
        false => SharedMemory::NONE,
        // Sums to publish, sums read from peers, and sums recomputed after a timeout.
        true if cluster > 1 => table.then(SharedMemory::of(cluster * SUMS * 8)).then(table),
        true => table,
    };
    let calls = match blueprint.row == RowBuffering::DoubleBuffer {
        true => 2,
        false => 1,
    };
    // Sums published ahead, before the first round.
    let ahead = match blueprint.publishes_ahead() {
        true => table,
        false => SharedMemory::NONE,
    };
    let merged = ahead
        .then(of_row.times(calls * blueprint.rows_per_unit))
        .then(written);
    sums.and(scale).and(merged)
}
