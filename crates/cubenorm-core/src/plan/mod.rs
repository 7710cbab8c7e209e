//! Problem and hardware to plan: which kernel runs, how it is cut, and why.

mod blueprint;
mod hardware;
mod heuristic;
mod lanes;

use std::fmt;

pub use blueprint::{AccessBlueprint, Blueprint, Hold, Lanes, Level, LoadMode};
pub use hardware::Hardware;

use crate::NormProblem;
use heuristic::Shape;

/// Who works together on a row. See the table in the [crate documentation](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strategy {
    /// One unit for each row.
    Unit,
    /// One plane for each row.
    Plane,
    /// One cube for each row.
    Cube,
    /// Several cubes for each row, in two launches.
    Split,
    /// Vectors along the kept axis, units along the reduced one.
    Column,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 5] = [
        Self::Unit,
        Self::Plane,
        Self::Cube,
        Self::Split,
        Self::Column,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "unit",
            Self::Plane => "plane",
            Self::Cube => "cube",
            Self::Split => "split",
            Self::Column => "column",
        })
    }
}

/// Whether the plan picks the strategy or is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StrategyChoice {
    /// The analytic choice for this problem on this hardware.
    #[default]
    Inferred,
    /// This strategy, with the planes and the rest of its parameters as the hardware has them.
    ///
    /// `plane_size` stands in where the hardware reports no plane operations although it runs them,
    /// as CubeCL does for software Vulkan drivers.
    Forced {
        /// The strategy.
        strategy: Strategy,
        /// Units of a plane, where the hardware does not say.
        plane_size: Option<u32>,
    },
}

impl From<Strategy> for StrategyChoice {
    fn from(strategy: Strategy) -> Self {
        Self::Forced {
            strategy,
            plane_size: None,
        }
    }
}

/// Why no plan could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A forced strategy does not apply to the problem.
    #[error("the {strategy} strategy cannot run this problem: {reason}")]
    Strategy {
        /// The strategy.
        strategy: Strategy,
        /// What stands in the way.
        reason: &'static str,
    },
    /// The kernel would bind more buffers than the device takes.
    #[error("the kernel binds {needed} buffers, the device takes {available}")]
    Bindings {
        /// Buffers of the kernel.
        needed: u32,
        /// Buffers that the device takes.
        available: u32,
    },
}

/// What runs: the comptime half ([`Blueprint`]) and the sizes of the launch.
///
/// A plan is a value. It prints as one line that says what would run and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Which strategy this is.
    pub strategy: Strategy,
    /// What the kernel is compiled for.
    pub blueprint: Blueprint,
    /// Units of a cube along x, y and z.
    pub cube_dim: [u32; 3],
    /// Cubes of a launch, all along x.
    pub cube_count: u32,
    /// Row groups: rows, or vectors of rows where lanes run along the kept axis.
    pub groups: usize,
    /// Steps through a row: vectors of columns, or columns where lanes run along the kept axis.
    pub steps: usize,
    /// Row groups that a team works through, one after another.
    pub groups_per_team: usize,
    /// Parts that the steps of a row are split in; 1 where one launch does it all.
    pub splits: usize,
    /// Steps of one part.
    pub steps_per_split: usize,
    /// Elements of the accumulation dtype that partial statistics need between two launches.
    pub workspace: usize,
    /// Why this strategy, in words.
    pub reason: &'static str,
}

impl Plan {
    /// Bytes that any implementation must move: each element read once, each result written once.
    pub fn minimum_bytes(problem: &NormProblem) -> usize {
        let elements = problem.rows * problem.cols;
        let tensors = 2 + usize::from(problem.residual.is_some()) + usize::from(problem.writes_sum);
        elements * tensors * problem.dtype.size()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.cube_dim;
        write!(
            f,
            "{}: {} cubes of {x}x{y}x{z} units, vectors of {} along {}, {} row group{} per team\
             {}, row {}",
            self.strategy,
            self.cube_count,
            self.blueprint.vector,
            match self.blueprint.lanes {
                Lanes::Columns => "the reduced axes",
                Lanes::Rows => "the kept axes",
            },
            self.groups_per_team,
            if self.groups_per_team == 1 { "" } else { "s" },
            match self.blueprint.abreast {
                1 => String::new(),
                abreast => format!(", {abreast} abreast"),
            },
            self.blueprint.hold,
        )?;
        if self.splits > 1 {
            write!(
                f,
                ", each row in {} parts of {} steps",
                self.splits, self.steps_per_split
            )?;
        }
        write!(f, " ({})", self.reason)
    }
}

/// Plans a forward normalization.
///
/// # Errors
///
/// [`PlanError`] where a forced strategy does not apply, or the device's limits do not hold the
/// kernel.
///
/// # Example
///
/// ```
/// use cubenorm_core::{
///     DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc, plan_forward,
/// };
///
/// let input = TensorDesc::contiguous([2048, 4096], DType::F32);
/// let problem = NormDesc::new(input, [1], Statistics::MeanSquare).problem()?;
/// let plan = plan_forward(&problem, &Hardware::cpu(8, 512), StrategyChoice::Inferred)?;
/// assert!(plan.to_string().starts_with("unit: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_forward(
    problem: &NormProblem,
    hardware: &Hardware,
    choice: StrategyChoice,
) -> Result<Plan, PlanError> {
    let (lanes, vector) = lanes::choose(problem, hardware);
    let groups = match lanes {
        Lanes::Columns => problem.rows,
        Lanes::Rows => problem.rows / vector,
    };
    let steps = match lanes {
        Lanes::Columns => problem.cols / vector,
        Lanes::Rows => problem.cols,
    };
    let work = heuristic::Work {
        groups,
        steps,
        vector,
        lanes,
        reduces: problem.statistics.reduces(),
        accumulation: problem.dtype.accumulation().size(),
    };
    let Shape {
        strategy,
        level,
        cube_dim,
        teams_per_cube,
        hold,
        splits,
        max_teams,
        reason,
    } = heuristic::shape(&work, hardware, choice)?;

    let steps_per_split = steps.div_ceil(splits).max(1);
    // Rounding up may leave the last parts empty: count those that are not.
    let splits = steps.div_ceil(steps_per_split).max(1);
    let items = groups * splits;
    let access = |access: &crate::Access| lanes::blueprint(access, lanes, vector);
    let optional = |tensor: &Option<crate::Access>| tensor.as_ref().map(access);
    let (scale, bias) = (optional(&problem.scale), optional(&problem.bias));
    let abreast = match level == Level::Unit && hold == Hold::Reread && splits == 1 {
        true => {
            let row_bytes = problem.cols * problem.dtype.size();
            heuristic::abreast(groups, row_bytes, &[scale, bias], hardware)
        }
        false => 1,
    };
    let teams = items.div_ceil(abreast).min(max_teams).max(1);
    let groups_per_team = items.div_ceil(teams).next_multiple_of(abreast);
    let cubes = items
        .div_ceil(groups_per_team)
        .div_ceil(teams_per_cube as usize);

    let blueprint = Blueprint {
        level,
        lanes,
        vector,
        hold,
        statistics: problem.statistics,
        shifts: problem.statistics.reduces_mean() && problem.dtype == problem.dtype.accumulation(),
        epsilon_in_sqrt: matches!(problem.epsilon, crate::Epsilon::InsideSqrt(_)),
        activation: problem.activation.kind(),
        members: members(level, cube_dim),
        columns: match level {
            Level::Column => cube_dim[0],
            _ => 1,
        },
        abreast,
        plane_size: match level {
            Level::Plane => cube_dim[0],
            Level::Cube => heuristic::plane_size(hardware, choice).unwrap_or(0),
            _ => 0,
        },
        input: access(&problem.input),
        residual: optional(&problem.residual),
        residual_place: problem.residual_place,
        scale,
        bias,
        mean: optional(&problem.mean),
        variance: optional(&problem.variance),
        output: access(&problem.output),
        writes_sum: problem.writes_sum,
        written_statistics: problem
            .written_statistics
            .as_ref()
            .map(|(written, access)| (*written, access.row.len())),
        split: splits > 1 && work.reduces,
    };
    let needed = blueprint.bindings();
    if needed > hardware.max_bindings {
        return Err(PlanError::Bindings {
            needed,
            available: hardware.max_bindings,
        });
    }
    Ok(Plan {
        strategy,
        blueprint,
        cube_dim,
        cube_count: cubes as u32,
        groups,
        steps,
        groups_per_team,
        splits,
        steps_per_split,
        workspace: if blueprint.split {
            2 * splits * problem.rows
        } else {
            0
        },
        reason,
    })
}

/// Units that share a row.
fn members(level: Level, cube_dim: [u32; 3]) -> u32 {
    match level {
        Level::Unit => 1,
        Level::Plane => cube_dim[0],
        Level::Cube => cube_dim[0],
        Level::Column => cube_dim[1],
    }
}
