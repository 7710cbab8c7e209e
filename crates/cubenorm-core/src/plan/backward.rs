//! Plans of a backward pass, with the strategies of the forward pass.

use std::fmt;

use super::combine::between_launches;
use super::footprint;
use super::grid::{self, Cut, check_limits};
use super::heuristic::{self, LONGEST_COLUMN_SUM, MAX_LOADS_IN_FLIGHT, MOST_ROWS_PER_UNIT};
use super::task::Task;
use super::{
    AccessBlueprint, Combine, Grid, Hardware, Knobs, Level, Merge, PlanError, Staging,
    StagingPreference, Strategy, Team, Vectorization, lanes,
};
use crate::{Access, ActivationKind, BackwardProblem, ColumnSums, StatisticsKind, StrategyChoice};

/// Most rows that a unit processes together; they share one read and write of the column sums.
/// Layer norm over channels, 56 x 56, AVX-512, four vectors of rows vs. one: ratio 0.76 to 1.05.
const MAX_ROWS_PER_UNIT: usize = 4;

/// Bytes of input and dy per row from which a CPU Vulkan driver finds it in no cache again; more
/// rows per unit then cost nothing. 128 KiB rows, lavapipe, eight rows vs. four: ratio 0.65 to 0.8.
const CACHED_BYTES: usize = 128 << 10;

/// Bytes of input and dy per row from which it is long for a CPU core.
const LONG_ROW_BYTES: usize = 16 << 10;

/// Vectors that a core has in use per row, for short and for long rows. 96 to 768 columns, f32,
/// AVX2, one row vs. four: ratio 0.5 to 0.8.
const CORE_VECTORS: usize = 8;
const CORE_VECTORS_OF_LONG_ROW: usize = 4;

/// Bytes of column sums up to which a core processes one row at a time, because they stay in its
/// first-level cache. 320 to 1,280 columns, f32, AVX-512, one row vs. four: ratio 0.68 to 0.92.
const SUMS_NEARBY: usize = 8 << 10;

/// Rows per CPU unit if no vector divides them; the compiler then vectorizes loops itself. Layer
/// norm, 1,021 columns, f32, AVX-512, one row vs. two: ratio 0.80 to 0.96.
const WITHOUT_VECTORS: usize = 1;

/// 32-bit values that the units of a cube may stage, of columns and rows: half of a
/// multiprocessor's registers. The other half remains for computation.
const STAGED_OF_CUBE: usize = 1 << 15;

/// The same for double-buffered rows and a scale, if column sums are in shared memory.
const ROWS_AND_SCALE: usize = 40 << 10;

/// Elements of a row up to which two column sums leave registers for narrow vectors only. f16,
/// H200, narrow vs. wide: ratio 0.75 to 0.8.
const SHORT_ROW: usize = 2048;

/// Units of a cube, and columns per unit, that leave too few registers for a converted f16/bf16
/// row. 16,384 columns, f16, H200: ratio 0.85 if both passes convert the row.
const CROWDED: u32 = 1024;
const COLUMNS_IN_FLIGHT: usize = 16;

/// 32-bit values of loads in flight per unit that reloads its row. Batch norm, f16, H200, four
/// steps vs. one: ratio 0.8 to 0.93.
const NUMBERS_IN_FLIGHT: usize = 16;

/// Minimum units of a cube whose planes sum column segments; all of them write the row. Group norm,
/// 16 channels of 1,024, f32, H200, one plane per channel vs. two: ratio 0.85.
const LEAST_UNITS_OF_RUNS: u32 = 256;

/// Minimum vectors of rows per core for fused column sums. 1 MiB, AVX-512, fused vs. a separate
/// launch: ratio 0.3 to 0.9.
const LEAST_GROUPS_OF_LANES: usize = 4;

/// Steps per unit from which a row is long for a cube.
const LONG_STEPS: usize = 4;

/// The compile-time parameters of a backward kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackwardBlueprint {
    /// The team of a row.
    pub team: Team,
    /// The statistics that the normalization reduced.
    pub statistics: StatisticsKind,
    /// True if epsilon was added to the variance, false if to the deviation.
    pub epsilon_in_sqrt: bool,
    /// The activation.
    pub activation: ActivationKind,
    /// The normalized tensor.
    pub input: AccessBlueprint,
    /// The output's gradient.
    pub output_gradient: AccessBlueprint,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<AccessBlueprint>,
    /// The scale.
    pub scale: Option<AccessBlueprint>,
    /// The bias.
    pub bias: Option<AccessBlueprint>,
    /// The input's gradient; `None` if it is not needed.
    pub input_gradient: Option<AccessBlueprint>,
    /// True if sums over a row are computed.
    pub reduces: bool,
    /// True if these sums are weighted by the scale.
    pub weights: bool,
    /// The tensor of the row sums, if they are written. With column dimensions it holds sums per
    /// column segment.
    pub row_sums: Option<AccessBlueprint>,
    /// True if a core processes its row segment by segment, each with one scale, one bias and its
    /// own sums.
    pub by_runs: bool,
    /// Column sums that each team accumulates over its rows, in its own part of a workspace that
    /// stays in the core's cache. If teams share a row, the contributions of each row are stored
    /// unreduced. Omitted sums need a separate launch.
    pub column_sums: ColumnSums,
    /// Staging of a unit's column sums until its team has processed all rows, and their number of
    /// steps. If lanes are rows, each step has one value. [`Staging::Reload`] accumulates in the
    /// workspace, row by row.
    pub staged_columns: Staging,
    /// The buffering of a row between its passes, if column sums are staged.
    pub row: RowBuffering,
    /// Staging of a unit's slice of the scale from row to row; [`Staging::Reload`] loads it at each
    /// step.
    pub staged_scale: Staging,
    /// Loads in flight of a reloaded row: steps that are loaded before the first of them is
    /// written.
    pub loads_in_flight: usize,
    /// Rows that a unit processes together, adding to the column sums once for all of them.
    pub rows_per_unit: usize,
    /// True if a row is reduced and written by different launches.
    pub split: bool,
    /// True if rows have one element: its gradient less the mean of the row is exactly 0.
    pub has_one_element: bool,
}

/// The buffering of a row of input and dy between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowBuffering {
    /// None: the row is reloaded, which is cheap if a cache holds it.
    Reload,
    /// One buffer in registers.
    Single,
    /// One buffer in registers, and a prefetch of the next row while the team waits for the sums of
    /// this one. The prefetched row is then copied.
    Prefetch,
    /// Double buffering in registers; each pass converts the row for itself. It suits units whose
    /// copies and converted values would exceed the registers. The cubes of a cluster sum the next
    /// row before they write this one, so its sums have arrived by then.
    DoubleBuffer,
}

impl RowBuffering {
    /// True if the next row and its saved statistics are read before its turn.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Prefetch | Self::DoubleBuffer)
    }
}

impl BackwardBlueprint {
    /// Vectors of columns that each unit stages; at least 1, the minimum capacity.
    pub fn staged_vectors(&self) -> usize {
        self.staged_columns.vectors().unwrap_or(1)
    }

    /// True if the cubes of a cluster publish the sums of a row one round before they need them.
    pub fn publishes_ahead(&self) -> bool {
        self.row == RowBuffering::DoubleBuffer && self.team.cluster_size > 1
    }

    /// True if sums of column segments are written, each reduced by one unit or plane.
    pub fn sums_runs(&self) -> bool {
        self.row_sums.is_some_and(|sums| sums.col_dims > 0)
    }

    /// True if scale and bias are the same in all rows, so rows of a unit share their loads.
    pub fn shares_params(&self) -> bool {
        let params = [self.scale, self.bias];
        params.iter().flatten().all(|param| param.row_dims == 0)
    }

    /// True if a unit combines segments itself, in one launch, which also writes their sums.
    pub fn combines_within(&self) -> bool {
        self.team.segmented && self.reduces && !self.split
    }

    /// Storage buffers of the kernel that binds the most, including CubeCL's metadata buffer.
    pub fn bindings(&self) -> u32 {
        let present = [
            self.saved.is_some(),
            self.scale.is_some(),
            self.bias.is_some(),
            self.input_gradient.is_some(),
            self.row_sums.is_some() || self.combines_within(),
            self.column_sums.any(),
            self.split,
            self.team.cluster_size > 1,
        ];
        3 + present.into_iter().map(u32::from).sum::<u32>()
    }
}

/// The plan of a backward launch.
#[derive(Debug, Clone, PartialEq)]
pub struct BackwardPlan {
    /// The strategy.
    pub strategy: Strategy,
    /// The compile-time parameters of the kernel.
    pub blueprint: BackwardBlueprint,
    /// The launch sizes.
    pub grid: Grid,
    /// Elements of the accumulation dtype in the workspace: partial row sums between two launches,
    /// or segment sums after one.
    pub workspace: usize,
    /// The launch that combines segments between the two others; `None` without segments.
    pub combine: Option<Combine>,
    /// The reason for the strategy, in words.
    pub reason: &'static str,
}

/// Partial sums per column that a fused launch writes. There is one per team, one per cube at
/// [`Level::Perpendicular`], or one per row that several teams share. A core that has parts of all vectors
/// of rows writes each of its columns once.
fn parts_of_columns(grid: &Grid, team: &Team) -> usize {
    match team.level {
        Level::Perpendicular => grid.cube_count as usize,
        _ if team.parts && team.lanes == Vectorization::Perpendicular => 1,
        _ if team.parts && team.cluster_size == 1 => grid.groups,
        _ => grid.teams(team),
    }
}

impl BackwardPlan {
    /// Partial sums per column that are left to reduce, if the plan computes them.
    pub fn parts_of_columns(&self) -> usize {
        parts_of_columns(&self.grid, &self.blueprint.team)
    }

    /// Elements of each partial sum of `columns` columns, in whole vectors.
    pub fn columns_of_part(&self, columns: usize) -> usize {
        (columns * self.lanes_of_column()).next_multiple_of(self.blueprint.team.vector)
    }

    /// Adjacent elements per column of a partial sum: one per lane if a unit's vectors run along
    /// rows, else one.
    pub fn lanes_of_column(&self) -> usize {
        let team = &self.blueprint.team;
        match (team.level, team.lanes) {
            (Level::Unit, Vectorization::Perpendicular) => team.vector,
            _ => 1,
        }
    }
}

impl fmt::Display for BackwardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = self.grid.describe(&self.blueprint.team);
        write!(f, "{}: {grid}", self.strategy)?;
        if self.blueprint.rows_per_unit > 1 {
            write!(f, ", {} rows per unit", self.blueprint.rows_per_unit)?;
        }
        if self.blueprint.column_sums.any() {
            write!(f, ", parameter gradients in the same launch")?;
        }
        if self
            .blueprint
            .input_gradient
            .is_some_and(|it| it.nontemporal)
        {
            write!(f, ", non-temporal stores")?;
        }
        write!(
            f,
            "{} ({})",
            self.grid.describe_splits(&self.blueprint.team),
            self.reason
        )
    }
}

/// Plans a launch of the backward pass.
///
/// Column sums are fused if few teams process many rows each. This holds on a CPU, and on a GPU
/// whose registers or shared memory hold the sums of a row. Otherwise the plan omits them, and they
/// need a launch over the columns.
///
/// # Errors
///
/// [`PlanError`], as [`plan_forward`](super::plan_forward).
pub fn plan_backward(
    problem: &BackwardProblem,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<BackwardPlan, PlanError> {
    if problem.is_empty() {
        return Err(PlanError::Empty);
    }
    let task = Task {
        rows: problem.rows,
        cols: problem.cols,
        dtype: problem.dtype,
        param_dtype: problem.param_dtype,
        staged: problem.dtype.accumulation(),
        reduces: problem.reduces(),
        merge: Merge::Sums,
        column_sums: problem.column_sums.count(),
        reads: 2,
        segments: problem.segments,
        params_by_step: problem.params().any(|param| !param.col.is_empty()),
    };
    let sums_on_the_way = !hardware.is_gpu();
    let vectors_of = |knobs: Knobs| {
        let (whole, params) = (problem.whole(), problem.params());
        lanes::choose(&task, &problem.input, whole, params, hardware, knobs)
    };
    let mut vectors = vectors_of(choice.knobs());
    // Input and dy of a row.
    let row_bytes = 2 * problem.cols * problem.dtype.size();
    let accumulated = problem.dtype.accumulation().size();
    let vector_bytes = vectors.width * accumulated;
    let sums_bytes = problem.column_sums.count() * problem.cols * accumulated;
    let most_of_core = match vectors.width {
        1 => WITHOUT_VECTORS,
        _ => MAX_ROWS_PER_UNIT,
    };
    let lanes = vectors.lanes;
    let rows_per_unit = |groups: usize| {
        if !(problem.column_sums.any() && sums_on_the_way) {
            return 1;
        }
        let rows = match (choice.knobs().rows_per_unit, hardware.cpu_vulkan_lanes()) {
            (Some(rows), _) => rows.min(MOST_ROWS_PER_UNIT),
            (None, Some(lanes)) => {
                let most = match row_bytes < CACHED_BYTES {
                    true => MAX_ROWS_PER_UNIT,
                    false => MOST_ROWS_PER_UNIT,
                };
                let spare = (groups / lanes).checked_ilog2();
                spare.map_or(1, |power| most.min(1 << power))
            }
            (None, None) if lanes == Vectorization::Perpendicular => most_of_core,
            (None, None) if sums_bytes <= SUMS_NEARBY => 1,
            (None, None) if row_bytes < LONG_ROW_BYTES => {
                most_of_core.min(hardware.rows_in_registers(CORE_VECTORS, vector_bytes))
            }
            (None, None) => {
                most_of_core.min(hardware.rows_in_registers(CORE_VECTORS_OF_LONG_ROW, vector_bytes))
            }
        };
        rows.min(groups).max(1)
    };
    let mut cut = grid::cut(&task, vectors, hardware, choice, rows_per_unit)?;
    let wish = choice.knobs().row;
    let holds_many = matches!(
        cut.staged_columns,
        Staging::Shared(_) | Staging::Mixed { .. }
    );
    let is_crowded = cut.team.size >= CROWDED && !problem.dtype.is_half();
    let narrowings = match holds_many && is_crowded {
        true if row_buffering(problem, &cut, wish) == RowBuffering::Reload => 2,
        _ => 1,
    };
    let widest = heuristic::NARROW_VECTOR / narrowings / problem.dtype.accumulation().size();
    let is_narrow = match cut.staged_columns {
        _ if holds_many => true,
        _ if sums_on_the_way || choice.knobs().vector.is_some() => false,
        // Staged rows along the kept axis are read once, with fewer loads in wide vectors.
        staged if cut.team.lanes == Vectorization::Perpendicular => staged == Staging::Reload,
        // Narrow vectors occupy all units, unlike these.
        Staging::Registers(_)
            if cut.team.exact_vectors.is_none() && fills(problem, &cut, widest) =>
        {
            true
        }
        Staging::Reload => is_long(&cut),
        _ => problem.column_sums.count() == 2 && problem.cols <= SHORT_ROW,
    };
    if is_narrow && vectors.width > widest {
        let narrow = vectors_of(Knobs {
            vector: Some(widest),
            ..choice.knobs()
        });
        // The same units with more vectors each, if nothing is staged.
        let has_more = cut.team.level == Level::Cube && !problem.column_sums.any();
        let choice = of_units(choice, has_more.then_some(cut.team.size));
        let narrow_cut = grid::cut(&task, narrow, hardware, choice, rows_per_unit)?;
        // Narrow vectors may be too many to stage.
        if !holds_many || narrow_cut.staged_columns != Staging::Reload {
            (cut, vectors) = (narrow_cut, narrow);
        }
    }
    if let Some(units) = units_of_runs(problem, &cut) {
        let choice = of_units(choice, Some(units));
        cut = grid::cut(&task, vectors, hardware, choice, rows_per_unit)?;
    }
    let row = row_buffering(problem, &cut, wish);
    if row != RowBuffering::DoubleBuffer && is_wide(problem, &cut) {
        cut.team.exact_vectors = None;
    }
    // The compiler keeps vectors without bounds checks converted between the passes. For f32 rows
    // with one sum at most this exceeds the registers. 3,072 columns, f32, H200: ratio 1.05 to 1.1.
    let is_light = !problem.dtype.is_half() && problem.column_sums.count() < 2;
    if row == RowBuffering::DoubleBuffer || is_wide(problem, &cut) || is_light {
        cut.team.unguarded_vectors = 0;
    }
    let run = problem.summed_run();
    let run = run.and_then(|run| run_of(&cut, run, problem.cols / run));
    if let Some(run) = run {
        cut.grid.run = run;
    }
    let access = |access: &Access| lanes::blueprint(access, vectors);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    // The activation's argument is needed only for its derivative.
    let has_slope = problem.activation.kind() != ActivationKind::Identity;
    let reads_scale = problem.input_gradient.is_some() || has_slope;
    let on_the_way = cut.staged_columns != Staging::Reload
        || sums_on_the_way
            && cut.team.level == Level::Unit
            && match vectors.lanes {
                Vectorization::Parallel => {
                    parts_of_columns(&cut.grid, &cut.team) <= cut.grid.teams(&cut.team)
                }
                Vectorization::Perpendicular => {
                    hardware.cpu_cores.is_some() && has_own_columns(&cut)
                }
            };
    let mut blueprint = BackwardBlueprint {
        team: cut.team,
        statistics: problem.statistics,
        epsilon_in_sqrt: problem.epsilon.is_inside_sqrt(),
        activation: problem.activation.kind(),
        input: access(&problem.input),
        output_gradient: access(&problem.output_gradient),
        saved: optional(&problem.saved),
        scale: optional(&problem.scale).filter(|_| reads_scale),
        bias: optional(&problem.bias).filter(|_| has_slope),
        input_gradient: optional(&problem.input_gradient),
        reduces: problem.reduces(),
        weights: problem.weights(),
        row_sums: problem
            .row_sums
            .as_ref()
            .filter(|access| access.col.is_empty() || run.is_some())
            .map(|access| AccessBlueprint::of_numbers(access.row.len(), access.col.len())),
        by_runs: run.is_some()
            && hardware.cpu_cores.is_some()
            && cut.team.level == Level::Unit
            && problem.has_whole_runs(),
        column_sums: match on_the_way {
            true => problem.column_sums,
            false => ColumnSums::default(),
        },
        staged_columns: cut.staged_columns,
        loads_in_flight: match row {
            RowBuffering::Reload => loads_in_flight(problem, &cut, vectors.width, hardware),
            _ => 1,
        },
        row,
        staged_scale: match row {
            RowBuffering::DoubleBuffer if reads_scale => staged_scale(problem, &cut, hardware),
            _ => Staging::Reload,
        },
        rows_per_unit: cut.rows_per_unit,
        split: cut.takes_two_launches(problem.reduces()),
        has_one_element: problem.cols * problem.segments == 1 && problem.statistics.reduces_mean(),
    };
    if let Some(input_gradient) = &mut blueprint.input_gradient {
        input_gradient.nontemporal =
            heuristic::is_nontemporal(*input_gradient, &cut, &task, hardware);
    }
    if row == RowBuffering::Reload {
        let BackwardBlueprint {
            input,
            output_gradient,
            input_gradient,
            ..
        } = &mut blueprint;
        let tensors = [Some(input), Some(output_gradient), input_gradient.as_mut()];
        lanes::pair(problem.dtype, vectors, hardware, tensors);
        let params = [&mut blueprint.scale, &mut blueprint.bias].map(Option::as_mut);
        lanes::pair(problem.param_dtype, vectors, hardware, params);
    }
    let (workspace, combine) = match blueprint.split {
        true => between_launches(&task, &cut, 0, hardware, choice.knobs())?,
        false if blueprint.combines_within() => {
            (footprint::channel_sums(&cut.team, &cut.grid), None)
        }
        false => (0, None),
    };
    let plan = BackwardPlan {
        strategy: cut.strategy,
        workspace,
        combine,
        blueprint,
        grid: cut.grid,
        reason: cut.reason,
    };
    check_limits(&plan.footprint(problem), hardware)?;
    Ok(plan)
}

/// True if a core with vectors along rows may sum columns per lane, over its rows or its parts of
/// all rows. It needs enough rows that few partial sums remain.
fn has_own_columns(cut: &Cut) -> bool {
    let Grid {
        groups,
        groups_per_team,
        ..
    } = cut.grid;
    // The sums of a part cover all rows.
    let is_whole = groups_per_team.is_multiple_of(groups) && groups <= LONGEST_COLUMN_SUM;
    (is_whole || !cut.team.parts) && groups.min(groups_per_team) >= LEAST_GROUPS_OF_LANES
}

/// Loads in flight of a reloaded row, in steps. A unit that owns a row hides latency with other
/// rows or with a CPU's cache.
///
/// A unit of a CPU Vulkan driver has neither. Batch norm, lavapipe: ratio 0.72 to 0.86.
fn loads_in_flight(
    problem: &BackwardProblem,
    cut: &Cut,
    width: usize,
    hardware: &Hardware,
) -> usize {
    let is_alone = cut.team.level == Level::Unit;
    if is_alone && hardware.is_cpu_vulkan() && !problem.weights() {
        return (MAX_LOADS_IN_FLIGHT / cut.rows_per_unit).max(1);
    }
    // Layer norm over 96 channels, f32, H200, two steps vs. one: ratio 1.05 to 1.15.
    let is_short = cut.team.level == Level::Perpendicular && cut.grid.splits == 1;
    let has_others = is_alone || is_short && !problem.dtype.is_half();
    let holds_sums =
        cut.staged_columns != Staging::Reload && cut.team.level != Level::Perpendicular;
    if holds_sums || !has_others && problem.reduces() {
        let numbers = 2 * width * problem.dtype.size() / 4;
        return (NUMBERS_IN_FLIGHT / numbers.max(1)).clamp(1, MAX_LOADS_IN_FLIGHT);
    }
    1
}

/// The choice with this number of units, unless it sets one.
fn of_units(choice: StrategyChoice, units: Option<u32>) -> StrategyChoice {
    let knobs = choice.knobs();
    StrategyChoice::Forced(Knobs {
        units: knobs.units.or(units),
        ..knobs
    })
}

/// Units of a cube with one plane per summed segment; `None` if the cube has no more than that.
fn units_of_runs(problem: &BackwardProblem, cut: &Cut) -> Option<u32> {
    let runs = (problem.cols / problem.summed_run()?).next_power_of_two();
    let units = (runs as u32).saturating_mul(cut.team.plane_size);
    let units = units.max(LEAST_UNITS_OF_RUNS);
    let has_more = cut.team.level == Level::Cube && cut.team.plane_size > 0;
    (has_more && units < cut.team.size).then_some(units)
}

/// Steps of a segment of `columns` columns if a unit or plane may sum each of the `runs` segments
/// by itself.
fn run_of(cut: &Cut, columns: usize, runs: usize) -> Option<usize> {
    let team = cut.team;
    let least = match team.level {
        // Shorter segments do not pay for a loop of their own.
        Level::Unit => heuristic::LEAST_RUN,
        // At least half of a plane's units have a step.
        Level::Plane | Level::Cube => (team.plane_size as usize).div_ceil(2),
        Level::Perpendicular => 0,
    };
    let steps = columns.div_ceil(team.vector);
    let by_itself = team.lanes == Vectorization::Parallel && !team.parts;
    let is_whole = match team.has_tail {
        true => cut.grid.run == steps,
        false => columns.is_multiple_of(team.vector),
    };
    // Segment sums are added like block sums; more of them would lose precision.
    let keeps_digits = runs <= heuristic::MOST_BLOCKS;
    (by_itself && is_whole && keeps_digits && least > 0 && steps >= least).then_some(steps)
}

/// True if vectors of `lanes` lanes occupy all units evenly.
fn fills(problem: &BackwardProblem, cut: &Cut, lanes: usize) -> bool {
    problem.cols.is_multiple_of(lanes * cut.team.size as usize)
}

/// True if units of a cube reload a row in several steps each.
fn is_long(cut: &Cut) -> bool {
    let members = cut.team.size as usize;
    cut.team.level == Level::Cube && cut.grid.steps.div_ceil(members) >= LONG_STEPS
}

/// The buffering of rows for units that stage column sums.
fn row_buffering(
    problem: &BackwardProblem,
    cut: &Cut,
    wish: Option<StagingPreference>,
) -> RowBuffering {
    let vectors = cut.staged_columns.vectors();
    let Some(vectors) = vectors.filter(|_| problem.reduces()) else {
        return RowBuffering::Reload;
    };
    let columns = vectors * cut.team.vector;
    let is_column = cut.team.level == Level::Perpendicular;
    let (in_registers, _) = cut.staged_columns.places();
    // Lanes along rows share one sum.
    let of_vector = if is_column { 1 } else { cut.team.vector };
    let sums = in_registers * of_vector * problem.column_sums.count();
    let sums = sums * problem.dtype.accumulation().size() / 4;
    let row = 2 * columns * problem.dtype.size() / 4;
    let units = (cut.team.size * cut.team.columns) as usize;
    let fits = |numbers: usize| numbers * units <= STAGED_OF_CUBE;
    // Two sums leave no registers for the next row. 4,096 columns, f32, H200, with prefetch vs.
    // without: ratio 1.05 to 1.1.
    let has_two_sums =
        problem.column_sums.count() == 2 && matches!(cut.staged_columns, Staging::Registers(2..));
    let is_half = problem.dtype.is_half();
    match wish {
        // Prefetch would load the saved statistics of one row only. Layer norm, 96 to 384 channels,
        // f32, H100, staged vs. reloaded: ratio 0.77 to 0.83.
        _ if is_column => match fits(sums + row) && wish != Some(StagingPreference::Reload) {
            true => RowBuffering::Single,
            false => RowBuffering::Reload,
        },
        None if has_two_sums && !is_half && fits(sums + row) => RowBuffering::Single,
        // One vector cannot be double-buffered in SPIR-V: CubeCL 0.11.3 panics at its index, a
        // constant zero.
        None | Some(StagingPreference::Shared) if fits(sums + 2 * row) => {
            match vectors > 1 && (cut.team.cluster_size > 1 || is_wide(problem, cut)) {
                true => RowBuffering::DoubleBuffer,
                false => RowBuffering::Prefetch,
            }
        }
        Some(StagingPreference::Reload) => RowBuffering::Reload,
        _ if fits(sums + row) => RowBuffering::Single,
        _ => RowBuffering::Reload,
    }
}

/// True if the converted values of an f16/bf16 row leave a unit no registers for computation.
fn is_wide(problem: &BackwardProblem, cut: &Cut) -> bool {
    let columns = cut.staged_columns.vectors().unwrap_or(0) * cut.team.vector;
    let is_crowded = cut.team.size >= CROWDED;
    problem.dtype.is_half() && (is_crowded || columns > COLUMNS_IN_FLIGHT)
}

/// Staging of the scale from row to row. A load behind a row in flight would wait for that row.
fn staged_scale(problem: &BackwardProblem, cut: &Cut, hardware: &Hardware) -> Staging {
    let is_same = |scale: &Access| scale.row.is_empty() && !scale.col.is_empty();
    let Some(vectors) = cut.staged_columns.vectors() else {
        return Staging::Reload;
    };
    if !problem.scale.as_ref().is_some_and(is_same) {
        return Staging::Reload;
    }
    let (_, sums) = cut
        .staged_columns
        .times(problem.column_sums.count())
        .places();
    let accumulation = problem.dtype.accumulation().size();
    let columns = sums * accumulation + vectors * problem.param_dtype.size();
    let units = cut.team.size as usize;
    let slots = units / cut.team.plane_size.max(1) as usize;
    let merged = footprint::merged_bytes(slots, 1, Merge::Sums, false, accumulation, hardware);
    let merged = merged.max(units * heuristic::MERGED_OF_UNIT * accumulation);
    // Two buffers of two tensors, and the scale as a fifth. An f32 scale of f16/bf16 rows is larger
    // than that.
    let numbers = 5 * vectors * cut.team.vector * problem.dtype.size() / 4;
    let has_room = cut.team.size < CROWDED
        && problem.param_dtype.size() <= problem.dtype.size()
        && numbers * cut.team.size as usize <= ROWS_AND_SCALE;
    match units * cut.team.vector * columns + merged <= hardware.max_shared_memory {
        _ if has_room => Staging::Registers(vectors),
        true => Staging::Shared(vectors),
        false => Staging::Reload,
    }
}
