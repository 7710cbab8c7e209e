use std::fmt;

use crate::{ActivationKind, ResidualPlace, StatisticsKind, WrittenStatistics};

/// Which axis the lanes of a vector run along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// The reduced axis: the lanes of a vector belong to one row and are summed up in the end.
    Columns,
    /// The kept axis: each lane is a row of its own.
    Rows,
}

/// Which units form a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Each unit for itself.
    Unit,
    /// The units of a plane, along x; planes of a cube along y.
    Plane,
    /// All units of a cube.
    Cube,
    /// Units of a cube that share their x.
    Column,
}

/// Where a row stays between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Nowhere: it is read again, which is cheap where a cache holds it.
    Reread,
    /// In registers: so many vectors for each unit.
    Registers(usize),
    /// In shared memory: so many vectors for each unit.
    Shared(usize),
    /// The first vectors of each unit in registers, the others in shared memory.
    Both {
        /// Those in registers.
        registers: usize,
        /// Those in shared memory.
        shared: usize,
    },
}

impl Hold {
    /// Vectors of each unit that are held.
    pub fn vectors(self) -> Option<usize> {
        match self {
            Self::Reread => None,
            Self::Registers(vectors) | Self::Shared(vectors) => Some(vectors),
            Self::Both { registers, shared } => Some(registers + shared),
        }
    }

    /// The same for so many times the vectors.
    pub const fn times(self, count: usize) -> Self {
        match self {
            Self::Reread => Self::Reread,
            Self::Registers(vectors) => Self::Registers(vectors * count),
            Self::Shared(vectors) => Self::Shared(vectors * count),
            Self::Both { registers, shared } => Self::Both {
                registers: registers * count,
                shared: shared * count,
            },
        }
    }

    /// Vectors of each unit in registers and in shared memory.
    pub const fn places(self) -> (usize, usize) {
        match self {
            Self::Reread => (0, 0),
            Self::Registers(vectors) => (vectors, 0),
            Self::Shared(vectors) => (0, vectors),
            Self::Both { registers, shared } => (registers, shared),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reread => f.write_str("read again"),
            Self::Registers(vectors) => write!(f, "held in registers ({vectors} vectors per unit)"),
            Self::Shared(vectors) => {
                write!(f, "held in shared memory ({vectors} vectors per unit)")
            }
            Self::Both { registers, shared } => write!(
                f,
                "held in registers and shared memory ({registers} + {shared} vectors per unit)"
            ),
        }
    }
}

/// How the lanes of one vector are found in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Side by side: one vector access.
    Vector,
    /// The same of float16, for whoever loads and stores lane by lane: as numbers of 32 bits, each of which is two.
    Pairs,
    /// Side by side, from anywhere: one access for each lane, which a CPU's compiler makes one of.
    Adjacent,
    /// All the same element.
    Splat,
    /// One number along each run of columns, of which a vector may have the end of one and the beginning of the next.
    Runs,
    /// One number all along a row, found for each lane's row by itself.
    OfRows,
    /// At a stride: one access for each lane.
    Gather,
}

/// The comptime half of an [`Access`](crate::Access): how many dimensions are decoded. Their sizes
/// and strides come at run time, so that another shape of the same kind compiles nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccessBlueprint {
    /// Dimensions of the row index.
    pub row_dims: usize,
    /// Dimensions of the column index.
    pub col_dims: usize,
    /// How a vector's lanes are loaded or stored.
    pub mode: LoadMode,
    /// Whether the last vector of each run of columns ends with it: see [`Team::ragged`].
    pub ragged: bool,
    /// Whether each row begins where the one before it ends, so that nobody has to look up how far apart they
    /// lie.
    pub end_to_end: bool,
    /// Whether neighbouring columns lie side by side where vectors run along the rows.
    pub adjacent_columns: bool,
    /// Whether whole vectors are stored past the caches of a CPU, which would not keep them.
    pub past_caches: bool,
}

impl AccessBlueprint {
    /// Of numbers that are read or written one by one.
    pub const fn of_numbers(row_dims: usize, col_dims: usize) -> Self {
        Self {
            row_dims,
            col_dims,
            mode: LoadMode::Gather,
            ragged: false,
            end_to_end: false,
            adjacent_columns: false,
            past_caches: false,
        }
    }
}

/// How what two parts of a row have found becomes what both have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Means and squared deviations from them, by Chan's formula.
    Moments,
    /// Means by the weight of their parts.
    Means,
    /// One sum.
    Sum,
    /// Two sums.
    Sums,
}

impl Merge {
    /// Whether parts weigh by how many elements they have seen; else nobody counts them.
    pub const fn weighs(self) -> bool {
        matches!(self, Self::Moments | Self::Means)
    }

    /// Whether there is a mean, or a sum in its place.
    pub const fn takes_means(self) -> bool {
        !matches!(self, Self::Sum)
    }
}

/// Who works on a row: the half of a blueprint that strategies read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Team {
    /// Which units form a team.
    pub level: Level,
    /// Which axis vectors run along.
    pub lanes: Lanes,
    /// Lanes of a vector.
    pub vector: usize,
    /// Units of a team.
    pub members: u32,
    /// Teams side by side in a cube, where lanes run along the kept axis.
    pub columns: u32,
    /// Units of a plane where plane operations are used, else 0.
    pub plane_size: u32,
    /// How partial results become one.
    pub merge: Merge,
    /// Whether a row is cut in parts, for several teams or for the cubes of one.
    pub parts: bool,
    /// Whether a row is one of several strands: what is found of them is joined between two launches, or by a unit that has
    /// all of them.
    pub joined: bool,
    /// Cubes that are a team together, each with a part of every row of it. What else is said of a team is said
    /// of each of these cubes.
    pub peers: u32,
    /// Whether a team takes items that follow one another, as a core does; else teams take turns.
    pub in_blocks: bool,
    /// Whether a team claims its next items when it is done with those before, while the launch runs; else it has its own
    /// from the start.
    pub claims: bool,
    /// Whether the rows abreast are all of those that lie side by side, which a loop goes through as they lie in memory.
    pub side_by_side: bool,
    /// Whether the last vector of each run of columns, those that lie side by side, ends with the run, whose
    /// length vectors do not divide: its first lanes are the last ones of the vector before.
    pub ragged: bool,
    /// The same of runs of rows, where vectors lie along those. Rows that are there twice come out twice, and alike.
    pub ragged_rows: bool,
    /// Vectors of each unit, where a row or sums of its columns are held and it fills what all units hold: the
    /// kernel then asks nowhere whether a unit still has one.
    pub filled: Option<usize>,
    /// Vectors that every unit has where some have one that others have not: the kernel asks of those beyond.
    pub full: usize,
}

/// All that a kernel is compiled for. Each field forks one more kernel, so it holds no size that a
/// run-time argument can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// Who works on a row.
    pub team: Team,
    /// Where a row stays between its passes.
    pub hold: Hold,
    /// What is reduced.
    pub statistics: StatisticsKind,
    /// Whether elements are taken relative to a number near the row's mean, so that a large common
    /// offset cancels before it is rounded.
    pub shifts: bool,
    /// Whether that number is the row's first element, of a row of halves that a unit has for itself, unless it is one
    /// block; else a mean.
    pub first_is_shift: bool,
    /// Whether a row that is read again is so short that it is summed up as one block, from its shift.
    pub one_block: bool,
    /// Whether statistics, scale and bias become one factor and one summand of each row before its first element is
    /// normalized: of rows side by side whose parameters do not change along them, of which a core reads less then.
    pub folded: bool,
    /// Whether the row that comes next is brought into the caches of a CPU while this one, which is read again, is
    /// normalized.
    pub fetches_next: bool,
    /// Whether epsilon is added to the variance, else to the deviation.
    pub epsilon_in_sqrt: bool,
    /// What is applied last.
    pub activation: ActivationKind,
    /// Rows that a unit normalizes side by side, sharing the loads of scale and bias.
    pub abreast: usize,
    /// Steps of a row that is read again whose loads are under way at once, before anything is written.
    pub under_way: usize,
    /// The input.
    pub input: AccessBlueprint,
    /// What is added.
    pub residual: Option<AccessBlueprint>,
    /// Where it is added.
    pub residual_place: ResidualPlace,
    /// What is multiplied.
    pub scale: Option<AccessBlueprint>,
    /// What is added after the scale.
    pub bias: Option<AccessBlueprint>,
    /// Given means.
    pub mean: Option<AccessBlueprint>,
    /// Given variances.
    pub variance: Option<AccessBlueprint>,
    /// Steps of a row by given statistics, where all rows have the same parameters and so few that a unit keeps them from row
    /// to row, already rooted and divided.
    pub params_kept: Option<usize>,
    /// Whether all of those are one number along a run of columns, which a unit reads once for it.
    pub params_by_run: bool,
    /// Whether all of them have their rows at the same places, which are looked for once.
    pub params_alike: bool,
    /// Whether the runs of a row lie end to end in what is reduced, which then is one run, however often parameters change
    /// along it.
    pub is_one_run: bool,
    /// The result, and the sum where it is written.
    pub output: AccessBlueprint,
    /// Whether `input + residual` is written.
    pub writes_sum: bool,
    /// Which statistics are written and the row dimensions of their tensor.
    pub written_statistics: Option<(WrittenStatistics, usize)>,
    /// Whether a row is split over several teams or [joined](Team::joined) between them, in two launches.
    pub split: bool,
}

/// Whether a row is more than the input.
pub(super) fn is_added_first(has_residual: bool, place: ResidualPlace) -> bool {
    has_residual && place == ResidualPlace::Input
}

impl Blueprint {
    /// Whether a row that is held is the input as it is in memory; else something was added to it or it came in
    /// pairs, and it has the digits that it is computed in.
    pub fn holds_input(&self) -> bool {
        !is_added_first(self.residual.is_some(), self.residual_place)
            && self.input.mode != LoadMode::Pairs
    }

    /// What broadcasts to the input.
    pub fn params(&self) -> impl Iterator<Item = AccessBlueprint> {
        [self.scale, self.bias, self.mean, self.variance]
            .into_iter()
            .flatten()
    }

    /// Whether a unit joins strands itself, in one launch.
    pub fn joins_within(&self) -> bool {
        self.team.joined && self.statistics.reduces() && !self.split
    }

    /// Storage buffers that the largest kernel binds, CubeCL's own metadata buffer included.
    ///
    /// Of a split pair, the first launch writes the sum and the second the statistics, so that
    /// neither exceeds what WebGPU guarantees.
    pub fn bindings(&self) -> u32 {
        let count = |present: bool| u32::from(present);
        let inputs = 1 + count(self.residual.is_some());
        let params = count(self.scale.is_some())
            + count(self.bias.is_some())
            + count(self.mean.is_some())
            + count(self.variance.is_some());
        let statistics = count(self.written_statistics.is_some());
        let sum = count(self.writes_sum);
        let (output, workspace, metadata) = (1, 1, 1);
        match self.split {
            true => {
                let partial = inputs + sum + workspace + metadata;
                let apply = inputs + params + output + statistics + workspace + metadata;
                partial.max(apply)
            }
            false => {
                inputs + params + output + sum + statistics + count(self.team.claims) + metadata
            }
        }
    }
}
