//! A gradient's plan: cut like a normalization's, over the same strategies.

use std::fmt;

use super::footprint;
use super::grid::{self, Cut, check_limits};
use super::heuristic::{self, LONGEST_COLUMN_SUM, MOST_ABREAST, STEPS_UNDER_WAY};
use super::join::between_launches;
use super::task::Task;
use super::{
    AccessBlueprint, Grid, Hardware, Hold, Join, Knobs, Lanes, Level, Merge, PlanError, RowHeld,
    Strategy, Team, lanes,
};
use crate::{Access, ActivationKind, ColumnSums, GradientProblem, StatisticsKind, StrategyChoice};

/// Rows that a unit takes side by side at most. The sums of columns are read and written once for all of
/// them; more save little more, but where the rows are long. Measured with AVX-512, layer norm over channels of 56 x 56, whose
/// rows a core's vectors are, four vectors side by side beside one: 0.76 to 1.05 of the time.
const MAX_ABREAST: usize = 4;

/// Bytes of input and gradient from which a row of a software driver's units is in no cache when they come
/// back to it, and more rows cost nothing. Measured on Mesa's driver, eight rows of 64 KiB beside four: 0.9 of
/// the time, of 128 KiB 0.65 to 0.8; rows of 16 and 32 KiB want four.
const CACHED_BYTES: usize = 128 << 10;

/// Bytes of input and gradient from which a row is long to a core of a CPU.
const LONG_ROW_BYTES: usize = 16 << 10;

/// Vectors of each row abreast that a core of a CPU works with, and of a long row. Measured with AVX2: rows of 96
/// to 768 floats one at a time take 0.5 to 0.8 of the time of four, rows of 4096 to 65,536 two at a time 0.7 to
/// 0.85 of that of eight; with AVX-512 four of these take 0.81 to 0.97 of that, two 0.83 to 1.
const CORE_VECTORS: usize = 8;
const CORE_VECTORS_OF_LONG_ROW: usize = 4;

/// Bytes of sums of columns up to which a core takes one row at a time: those stay near, and more rows together do not. Measured
/// with AVX-512, one row beside four, of those that registers do not hold: 0.68 to 0.92 of the time in rows of 320 to 1,280
/// floats and 640 to 1,024 halves, RMS norm of 1,280 halves 0.78; but 1.06 to 1.29 in layer norm of 1,280 to 2,560 halves,
/// whose two sums are 10 KiB and more.
const SUMS_NEARBY: usize = 8 << 10;

/// Rows that a core takes side by side where no vector divides them, and the compiler makes vectors of loops. Measured with
/// AVX-512, layer norm: one of 1,021 and 4,099 floats at a time takes 0.80 to 0.96 of the time of two, of halves 0.65 to 0.73
/// of that of four.
const WITHOUT_VECTORS: usize = 1;

/// Numbers of 4 bytes that the units of a cube may hold, of columns and of rows: half of a multiprocessor's
/// registers, which leaves as many to compute with.
const HELD_OF_CUBE: usize = 1 << 15;

/// The same of two rooms for rows and of a scale, where the sums of columns lie in shared memory.
const ROWS_AND_SCALE: usize = 40 << 10;

/// Elements of a row of halves up to which two sums of its columns leave registers for narrow vectors only: on an
/// H200 those take 0.75 to 0.8 of the time.
const SHORT_ROW: usize = 2048;

/// Units of a cube, and columns of each, that leave too few registers for what a row of halves is converted to:
/// measured on an H200, rows of 16,384 take 0.85 of the time where both passes convert it, and 0.73 to 0.76 with the
/// scale in registers. Rows of 32,768 floats that so many units read again take 0.65 to 0.7 of the time in vectors of
/// two.
const CROWDED: u32 = 1024;
const COLUMNS_UNDER_WAY: usize = 16;

/// Numbers of 4 bytes that a unit of a team has loads of under way where it reads its row again. Measured on an H200,
/// beside one step at a time: batch norm of floats takes 0.9 to 1 of the time with two steps, of halves 0.8 to 0.93 with
/// four, group norm of halves 0.85.
const NUMBERS_UNDER_WAY: usize = 16;

/// Units of a cube whose planes sum up runs of columns, at least: they write the row together. Measured on an H200,
/// group norm of floats in 16 channels of 1,024 for each group: a plane for each channel takes 0.85 of the time of two.
const LEAST_UNITS_OF_RUNS: u32 = 256;

/// Vectors of rows that a core sums up the columns of, at least. Measured with AVX-512, tensors of 1 MiB take 0.3 to 0.9 of the
/// time that they take with a launch for the sums.
const LEAST_GROUPS_OF_LANES: usize = 4;

/// Steps of a unit from which a row is long to a cube.
const LONG_STEPS: usize = 4;

/// All that a gradient's kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GradientBlueprint {
    /// Who works on a row.
    pub team: Team,
    /// What the normalization reduced.
    pub statistics: StatisticsKind,
    /// Whether epsilon was added to the variance, else to the deviation.
    pub epsilon_in_sqrt: bool,
    /// What was applied last.
    pub activation: ActivationKind,
    /// What was normalized.
    pub input: AccessBlueprint,
    /// The output's gradient.
    pub output_gradient: AccessBlueprint,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<AccessBlueprint>,
    /// What was multiplied.
    pub scale: Option<AccessBlueprint>,
    /// What was added.
    pub bias: Option<AccessBlueprint>,
    /// The input's gradient.
    pub input_gradient: Option<AccessBlueprint>,
    /// Whether sums over a row are taken.
    pub reduces: bool,
    /// Whether they are weighted by the scale.
    pub weights: bool,
    /// Of the tensor that they are written to, where they are; those of runs of columns where it has columns.
    pub row_sums: Option<AccessBlueprint>,
    /// Whether a core goes through its row run by run, each of which has one scale and one bias and sums of its own.
    pub by_runs: bool,
    /// Which sums of columns each team takes on its way from row to row, in a workspace of its own that
    /// stays in the cache of the core that fills it; where teams share a row, its products and gradients as
    /// they are. Those left out take another launch.
    pub column_sums: ColumnSums,
    /// Where the sums of a unit's columns stay until its team is through with its rows, and of how many
    /// steps, one number for each where lanes are rows; [`Hold::Reread`] where they are added up in the
    /// workspace, row by row.
    pub held_columns: Hold,
    /// Where a row stays between its passes, where the sums of columns are held.
    pub row: RowKept,
    /// Where a unit's share of the scale stays while its team goes from row to row; [`Hold::Reread`] where it is
    /// read at each step.
    pub held_scale: Hold,
    /// Steps of a row that is read again whose loads are under way at once, before anything is written.
    pub under_way: usize,
    /// Rows that a unit takes side by side, adding to the sums of columns together.
    pub abreast: usize,
    /// Whether a row is split over several teams, in two launches.
    pub split: bool,
}

/// Where a row of input and gradient stays between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowKept {
    /// Nowhere: it is read again, which is cheap where a cache holds it.
    Reread,
    /// In registers.
    Held,
    /// In registers, and the next row as well, which is read while the team waits for sums of this one, and copied
    /// when its turn comes.
    Ahead,
    /// The same, in two rooms that change places, and each pass converts for itself: of units with so many numbers
    /// that neither copies of them nor what they are converted to find registers. Cubes that share rows sum up the next
    /// row before they write this one, whose sums have arrived by then.
    InTurn,
}

impl RowKept {
    /// Whether the next row is read, with what was saved of it, before its team comes to it.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Ahead | Self::InTurn)
    }
}

impl GradientBlueprint {
    /// Vectors of columns that each unit holds, where it holds any: at least the room for one.
    pub fn held_vectors(&self) -> usize {
        self.held_columns.vectors().unwrap_or(1)
    }

    /// Whether cubes that share rows tell each other what they find in a row a round before they need it.
    pub fn tells_ahead(&self) -> bool {
        self.row == RowKept::InTurn && self.team.peers > 1
    }

    /// Whether sums of runs of columns are written, each of which a unit or a plane sums up by itself.
    pub fn sums_runs(&self) -> bool {
        self.row_sums.is_some_and(|sums| sums.col_dims > 0)
    }

    /// Whether scale and bias are the same in all rows, so that rows abreast share their loads.
    pub fn shares_params(&self) -> bool {
        let params = [self.scale, self.bias];
        params.iter().flatten().all(|param| param.row_dims == 0)
    }

    /// Whether a unit joins strands itself, in one launch, which leaves their sums too.
    pub fn joins_within(&self) -> bool {
        self.team.joined && self.reduces && !self.split
    }

    /// Storage buffers that the largest kernel binds, CubeCL's own metadata buffer included.
    pub fn bindings(&self) -> u32 {
        let present = [
            self.saved.is_some(),
            self.scale.is_some(),
            self.bias.is_some(),
            self.input_gradient.is_some(),
            self.row_sums.is_some() || self.joins_within(),
            self.column_sums.any(),
            self.split,
            self.team.peers > 1,
        ];
        3 + present.into_iter().map(u32::from).sum::<u32>()
    }
}

/// What runs for a gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientPlan {
    /// Which strategy this is.
    pub strategy: Strategy,
    /// What the kernel is compiled for.
    pub blueprint: GradientBlueprint,
    /// How the launch is cut.
    pub grid: Grid,
    /// Elements of the accumulation dtype that partial sums of rows need between two launches, and sums of strands after one.
    pub workspace: usize,
    /// The launch that joins strands between the two, where rows have several.
    pub join: Option<Join>,
    /// Why this strategy, in words.
    pub reason: &'static str,
}

/// Sums of each column that a launch leaves where it takes them on the way: one of each team, or where
/// several teams share a row, one of each row; one of each cube where its teams lie side by side. A core that has parts
/// of all vectors of rows leaves the sums of its columns, which nobody else has.
fn parts_of_columns(grid: &Grid, team: &Team) -> usize {
    match team.level {
        Level::Column => grid.cube_count as usize,
        _ if team.parts && team.lanes == Lanes::Rows => 1,
        _ if team.parts && team.peers == 1 => grid.groups,
        _ => grid.teams(team),
    }
}

impl GradientPlan {
    /// Sums of each column that are left to be added up, where the plan takes them on the way.
    pub fn parts_of_columns(&self) -> usize {
        parts_of_columns(&self.grid, &self.blueprint.team)
    }

    /// Numbers that there are for so many columns in each of them: whole vectors.
    pub fn columns_of_part(&self, columns: usize) -> usize {
        (columns * self.lanes_of_column()).next_multiple_of(self.blueprint.team.vector)
    }

    /// Numbers that a column has in each of them, side by side: one, or where a core's vectors are rows one of each lane.
    pub fn lanes_of_column(&self) -> usize {
        let team = &self.blueprint.team;
        match (team.level, team.lanes) {
            (Level::Unit, Lanes::Rows) => team.vector,
            _ => 1,
        }
    }
}

impl fmt::Display for GradientPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = self.grid.describe(&self.blueprint.team);
        write!(f, "{}: {grid}", self.strategy)?;
        if self.blueprint.abreast > 1 {
            write!(f, ", {} abreast", self.blueprint.abreast)?;
        }
        if self.blueprint.column_sums.any() {
            write!(f, ", summing up columns on the way")?;
        }
        if self
            .blueprint
            .input_gradient
            .is_some_and(|it| it.past_caches)
        {
            write!(f, ", stored past the caches")?;
        }
        write!(
            f,
            "{} ({})",
            self.grid.describe_splits(&self.blueprint.team),
            self.reason
        )
    }
}

/// Plans a gradient.
///
/// Sums of columns are taken on the way where the teams are few and each goes through many rows: on a CPU, and on a GPU
/// by as many teams as it keeps at work, where registers or shared memory hold the sums of a row. Elsewhere the plan
/// leaves them out: they take a launch over the columns.
///
/// # Errors
///
/// [`PlanError`], as [`plan_forward`](super::plan_forward).
pub fn plan_gradient(
    problem: &GradientProblem,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<GradientPlan, PlanError> {
    if problem.is_empty() {
        return Err(PlanError::Empty);
    }
    let task = Task {
        rows: problem.rows,
        cols: problem.cols,
        dtype: problem.dtype,
        param_dtype: problem.param_dtype,
        held: problem.dtype.accumulation(),
        reduces: problem.reduces(),
        merge: Merge::Sums,
        column_sums: problem.column_sums.count(),
        reads: 2,
        strands: problem.strands,
        params_by_step: problem.params().any(|param| !param.col.is_empty()),
    };
    let sums_on_the_way = !hardware.is_gpu();
    let vectors_of = |knobs: Knobs| {
        let (whole, params) = (problem.whole(), problem.params());
        lanes::choose(&task, &problem.input, whole, params, hardware, knobs)
    };
    let mut vectors = vectors_of(choice.knobs());
    // Input and output gradient of a row.
    let row_bytes = 2 * problem.cols * problem.dtype.size();
    let accumulated = problem.dtype.accumulation().size();
    let vector_bytes = vectors.width * accumulated;
    let sums_bytes = problem.column_sums.count() * problem.cols * accumulated;
    let most_of_core = match vectors.width {
        1 => WITHOUT_VECTORS,
        _ => MAX_ABREAST,
    };
    let lanes = vectors.lanes;
    let rows_abreast = |groups: usize| {
        if !(problem.column_sums.any() && sums_on_the_way) {
            return 1;
        }
        let rows = match (choice.knobs().abreast, hardware.software_lanes()) {
            (Some(rows), _) => rows.min(MOST_ABREAST),
            (None, Some(lanes)) => {
                let most = match row_bytes < CACHED_BYTES {
                    true => MAX_ABREAST,
                    false => MOST_ABREAST,
                };
                let spare = (groups / lanes).checked_ilog2();
                spare.map_or(1, |power| most.min(1 << power))
            }
            (None, None) if lanes == Lanes::Rows => most_of_core,
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
    let mut cut = grid::cut(&task, vectors, hardware, choice, rows_abreast)?;
    let wish = choice.knobs().row;
    let holds_many = matches!(cut.held_columns, Hold::Shared(_) | Hold::Both { .. });
    let is_crowded = cut.team.members >= CROWDED && !problem.dtype.is_half();
    let narrowings = match holds_many && is_crowded {
        true if row_kept(problem, &cut, wish) == RowKept::Reread => 2,
        _ => 1,
    };
    let widest = heuristic::NARROW_VECTOR / narrowings / problem.dtype.accumulation().size();
    let is_narrow = match cut.held_columns {
        _ if holds_many => true,
        _ if sums_on_the_way || choice.knobs().vector.is_some() => false,
        // Where columns of units hold their rows those are read once, and wide loads are fewer.
        held if cut.team.lanes == Lanes::Rows => held == Hold::Reread,
        // Narrow ones that fill all units, which these do not.
        Hold::Registers(_) if cut.team.filled.is_none() && fills(problem, &cut, widest) => true,
        Hold::Reread => is_long(&cut),
        _ => problem.column_sums.count() == 2 && problem.cols <= SHORT_ROW,
    };
    if is_narrow && vectors.width > widest {
        let narrow = vectors_of(Knobs {
            vector: Some(widest),
            ..choice.knobs()
        });
        // As many units as before, with more vectors each, where they hold nothing.
        let has_more = cut.team.level == Level::Cube && !problem.column_sums.any();
        let choice = of_units(choice, has_more.then_some(cut.team.members));
        let narrow_cut = grid::cut(&task, narrow, hardware, choice, rows_abreast)?;
        // They may be too many to hold.
        if !holds_many || narrow_cut.held_columns != Hold::Reread {
            (cut, vectors) = (narrow_cut, narrow);
        }
    }
    if let Some(units) = units_of_runs(problem, &cut) {
        let choice = of_units(choice, Some(units));
        cut = grid::cut(&task, vectors, hardware, choice, rows_abreast)?;
    }
    let row = row_kept(problem, &cut, wish);
    if row != RowKept::InTurn && is_wide(problem, &cut) {
        cut.team.filled = None;
    }
    // What a unit surely has a compiler keeps, converted, from one pass to the other; and of floats with one sum more of
    // it is under way than there are registers: measured on an H200, rows of 3,072, 5,120 and 14,336 take 1.05 to 1.1
    // times the time.
    let is_light = !problem.dtype.is_half() && problem.column_sums.count() < 2;
    if row == RowKept::InTurn || is_wide(problem, &cut) || is_light {
        cut.team.full = 0;
    }
    let run = problem.summed_run();
    let run = run.and_then(|run| run_of(&cut, run, problem.cols / run));
    if let Some(run) = run {
        cut.grid.run = run;
    }
    let access = |access: &Access| lanes::blueprint(access, vectors);
    let optional = |tensor: &Option<Access>| tensor.as_ref().map(access);
    // Vectors of the activation's argument are needed only for its slope.
    let has_slope = problem.activation.kind() != ActivationKind::Identity;
    let reads_scale = problem.input_gradient.is_some() || has_slope;
    let on_the_way = cut.held_columns != Hold::Reread
        || sums_on_the_way
            && cut.team.level == Level::Unit
            && match vectors.lanes {
                Lanes::Columns => {
                    parts_of_columns(&cut.grid, &cut.team) <= cut.grid.teams(&cut.team)
                }
                Lanes::Rows => hardware.cpu_cores.is_some() && has_own_columns(&cut),
            };
    let mut blueprint = GradientBlueprint {
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
        held_columns: cut.held_columns,
        under_way: match row {
            RowKept::Reread => under_way(problem, &cut, vectors.width, hardware),
            _ => 1,
        },
        row,
        held_scale: match row {
            RowKept::InTurn if reads_scale => held_scale(problem, &cut, hardware),
            _ => Hold::Reread,
        },
        abreast: cut.abreast,
        split: cut.takes_two_launches(problem.reduces()),
    };
    if let Some(input_gradient) = &mut blueprint.input_gradient {
        input_gradient.past_caches =
            heuristic::passes_caches(*input_gradient, &cut, &task, hardware);
    }
    if row == RowKept::Reread {
        let GradientBlueprint {
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
    let (workspace, join) = match blueprint.split {
        true => between_launches(&task, &cut, 0, hardware, choice.knobs())?,
        false if blueprint.joins_within() => (footprint::channel_sums(&cut.team, &cut.grid), None),
        false => (0, None),
    };
    let plan = GradientPlan {
        strategy: cut.strategy,
        workspace,
        join,
        blueprint,
        grid: cut.grid,
        reason: cut.reason,
    };
    check_limits(&plan.footprint(problem), hardware)?;
    Ok(plan)
}

/// Whether a core whose vectors are rows may sum up columns lane by lane: those of its rows, or of its parts of all rows,
/// and of enough of them for what is left to be added up to be little.
fn has_own_columns(cut: &Cut) -> bool {
    let Grid {
        groups,
        groups_per_team,
        ..
    } = cut.grid;
    // A part's sums are of all rows.
    let is_whole = groups_per_team.is_multiple_of(groups) && groups <= LONGEST_COLUMN_SUM;
    (is_whole || !cut.team.parts) && groups.min(groups_per_team) >= LEAST_GROUPS_OF_LANES
}

/// Steps of a row that is read again that are asked for at once: a unit that has a row for itself has other rows beside
/// it, or a CPU's cache.
///
/// One of a software driver's has neither. Measured on Mesa's driver, where all steps have the same scale: batch norm takes
/// 0.72 to 0.86 of the time, instance norm 0.98; with one for each step layer norm takes 0.98 to 1.1.
fn under_way(problem: &GradientProblem, cut: &Cut, width: usize, hardware: &Hardware) -> usize {
    let is_alone = cut.team.level == Level::Unit;
    if is_alone && hardware.is_software() && !problem.weights() {
        return (STEPS_UNDER_WAY / cut.abreast).max(1);
    }
    // Measured on an H200, layer norm over 96 channels of floats: two steps at once take 1.05 to 1.15 times the time.
    let is_short = cut.team.level == Level::Column && cut.grid.splits == 1;
    let has_others = is_alone || is_short && !problem.dtype.is_half();
    let holds_sums = cut.held_columns != Hold::Reread && cut.team.level != Level::Column;
    if holds_sums || !has_others && problem.reduces() {
        let numbers = 2 * width * problem.dtype.size() / 4;
        return (NUMBERS_UNDER_WAY / numbers.max(1)).clamp(1, STEPS_UNDER_WAY);
    }
    1
}

/// A choice, with so many units where it leaves them open.
fn of_units(choice: StrategyChoice, units: Option<u32>) -> StrategyChoice {
    let knobs = choice.knobs();
    StrategyChoice::Forced(Knobs {
        units: knobs.units.or(units),
        ..knobs
    })
}

/// Units of a cube with a plane for each run of columns whose sums are wanted, where it has more.
fn units_of_runs(problem: &GradientProblem, cut: &Cut) -> Option<u32> {
    let runs = (problem.cols / problem.summed_run()?).next_power_of_two();
    let units = (runs as u32).saturating_mul(cut.team.plane_size);
    let units = units.max(LEAST_UNITS_OF_RUNS);
    let has_more = cut.team.level == Level::Cube && cut.team.plane_size > 0;
    (has_more && units < cut.team.members).then_some(units)
}

/// Steps of a run of so many columns, of so many runs, where each unit or plane may sum up runs by itself.
fn run_of(cut: &Cut, columns: usize, runs: usize) -> Option<usize> {
    let team = cut.team;
    let least = match team.level {
        // A loop of its own for fewer would be more than that.
        Level::Unit => heuristic::LEAST_RUN,
        // Half the units of a plane at least have a step.
        Level::Plane | Level::Cube => (team.plane_size as usize).div_ceil(2),
        Level::Column => 0,
    };
    let steps = columns.div_ceil(team.vector);
    let by_itself = team.lanes == Lanes::Columns && !team.parts;
    let is_whole = match team.ragged {
        true => cut.grid.run == steps,
        false => columns.is_multiple_of(team.vector),
    };
    // Their sums go into one, like those of blocks.
    let keeps_digits = runs <= heuristic::MOST_BLOCKS;
    (by_itself && is_whole && keeps_digits && least > 0 && steps >= least).then_some(steps)
}

/// Whether vectors of so many lanes leave no unit without one.
fn fills(problem: &GradientProblem, cut: &Cut, lanes: usize) -> bool {
    problem
        .cols
        .is_multiple_of(lanes * cut.team.members as usize)
}

/// Whether units of a cube take a row that they read again in several steps each.
fn is_long(cut: &Cut) -> bool {
    let members = cut.team.members as usize;
    cut.team.level == Level::Cube && cut.grid.steps.div_ceil(members) >= LONG_STEPS
}

/// Where rows stay that units hold the sums of columns of.
fn row_kept(problem: &GradientProblem, cut: &Cut, wish: Option<RowHeld>) -> RowKept {
    let vectors = cut.held_columns.vectors();
    let Some(vectors) = vectors.filter(|_| problem.reduces()) else {
        return RowKept::Reread;
    };
    let columns = vectors * cut.team.vector;
    let is_column = cut.team.level == Level::Column;
    let (in_registers, _) = cut.held_columns.places();
    // Lanes that are rows have one sum for all of them.
    let of_vector = if is_column { 1 } else { cut.team.vector };
    let sums = in_registers * of_vector * problem.column_sums.count();
    let sums = sums * problem.dtype.accumulation().size() / 4;
    let row = 2 * columns * problem.dtype.size() / 4;
    let units = (cut.team.members * cut.team.columns) as usize;
    let fits = |numbers: usize| numbers * units <= HELD_OF_CUBE;
    // They leave none for the next row in registers: on an H200 rows of 4,096 floats take 1.05 to 1.1 times the time
    // with it.
    let has_two_sums =
        problem.column_sums.count() == 2 && matches!(cut.held_columns, Hold::Registers(2..));
    let is_half = problem.dtype.is_half();
    match wish {
        // What is saved of a row that comes ahead is that of one row. Measured on an H100, layer norm over 96 to 384
        // channels: floats that are held take 0.77 to 0.83 of the time of those that are read again, halves in vectors
        // of eight 0.83 to 0.89 of that in vectors of four.
        _ if is_column => match fits(sums + row) && wish != Some(RowHeld::Reread) {
            true => RowKept::Held,
            false => RowKept::Reread,
        },
        None if has_two_sums && !is_half && fits(sums + row) => RowKept::Held,
        // A room of one vector is none in SPIR-V: CubeCL 0.11.3 panics at the place in it, a constant zero.
        None | Some(RowHeld::Shared) if fits(sums + 2 * row) => {
            match vectors > 1 && (cut.team.peers > 1 || is_wide(problem, cut)) {
                true => RowKept::InTurn,
                false => RowKept::Ahead,
            }
        }
        Some(RowHeld::Reread) => RowKept::Reread,
        _ if fits(sums + row) => RowKept::Held,
        _ => RowKept::Reread,
    }
}

/// Whether units have so much of a row of halves that what it is converted to leaves no registers to compute with.
fn is_wide(problem: &GradientProblem, cut: &Cut) -> bool {
    let columns = cut.held_columns.vectors().unwrap_or(0) * cut.team.vector;
    let is_crowded = cut.team.members >= CROWDED;
    problem.dtype.is_half() && (is_crowded || columns > COLUMNS_UNDER_WAY)
}

/// Where the scale stays while teams go from row to row: who reads it behind a row that is under way waits for that.
fn held_scale(problem: &GradientProblem, cut: &Cut, hardware: &Hardware) -> Hold {
    let is_same = |scale: &Access| scale.row.is_empty() && !scale.col.is_empty();
    let Some(vectors) = cut.held_columns.vectors() else {
        return Hold::Reread;
    };
    if !problem.scale.as_ref().is_some_and(is_same) {
        return Hold::Reread;
    }
    let (_, sums) = cut.held_columns.times(problem.column_sums.count()).places();
    let accumulation = problem.dtype.accumulation().size();
    let columns = sums * accumulation + vectors * problem.param_dtype.size();
    let units = cut.team.members as usize;
    let slots = units / cut.team.plane_size.max(1) as usize;
    let merged = footprint::merged_bytes(slots, 1, Merge::Sums, false, accumulation, hardware);
    let merged = merged.max(units * heuristic::MERGED_OF_UNIT * accumulation);
    // Two rooms of two rows, and the scale as one row more, which it is not where halves have a scale of floats.
    let numbers = 5 * vectors * cut.team.vector * problem.dtype.size() / 4;
    let has_room = cut.team.members < CROWDED
        && problem.param_dtype.size() <= problem.dtype.size()
        && numbers * cut.team.members as usize <= ROWS_AND_SCALE;
    match units * cut.team.vector * columns + merged <= hardware.max_shared_memory {
        _ if has_room => Hold::Registers(vectors),
        true => Hold::Shared(vectors),
        false => Hold::Reread,
    }
}
