//! The compile-time parameters of a forward kernel, and of staging and loads in any kernel.

use std::fmt;

use super::team::{Division, Team};
use crate::activation::ActivationKind;
use crate::desc::{Offset, ResidualPlace, Rounding, WrittenStatistics};
use crate::problem::Turn;
use crate::quantization::CodeFormat;
use crate::statistics::StatisticsKind;

/// The staging of a row between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Staging {
    /// None: the row is reloaded, which is cheap if a cache holds it.
    Reload,
    /// Registers, with this number of vectors per unit.
    Registers(usize),
    /// Shared memory, with this number of vectors per unit.
    Shared(usize),
    /// The first vectors of each unit in registers, the others in shared memory.
    Mixed {
        /// Vectors per unit in registers.
        registers: usize,
        /// Vectors per unit in shared memory.
        shared: usize,
    },
}

impl Staging {
    /// Staged vectors per unit; `None` if the row is reloaded.
    pub fn vectors(self) -> Option<usize> {
        match self {
            Self::Reload => None,
            Self::Registers(vectors) | Self::Shared(vectors) => Some(vectors),
            Self::Mixed { registers, shared } => Some(registers + shared),
        }
    }

    /// The same staging with `count` times the vectors.
    pub const fn times(self, count: usize) -> Self {
        match self {
            Self::Reload => Self::Reload,
            Self::Registers(vectors) => Self::Registers(vectors * count),
            Self::Shared(vectors) => Self::Shared(vectors * count),
            Self::Mixed { registers, shared } => Self::Mixed {
                registers: registers * count,
                shared: shared * count,
            },
        }
    }

    /// Vectors per unit in registers and in shared memory.
    pub const fn places(self) -> (usize, usize) {
        match self {
            Self::Reload => (0, 0),
            Self::Registers(vectors) => (vectors, 0),
            Self::Shared(vectors) => (0, vectors),
            Self::Mixed { registers, shared } => (registers, shared),
        }
    }
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reload => f.write_str("reloaded"),
            Self::Registers(vectors) => {
                write!(f, "staged in registers ({vectors} vectors per unit)")
            }
            Self::Shared(vectors) => {
                write!(f, "staged in shared memory ({vectors} vectors per unit)")
            }
            Self::Mixed { registers, shared } => write!(
                f,
                "staged in registers and shared memory ({registers} + {shared} vectors per unit)"
            ),
        }
    }
}

/// The access pattern of the lanes of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Contiguous and aligned: one vector access.
    Vector,
    /// Contiguous f16 packed as 32-bit words of two elements, for devices that load and store lane
    /// by lane.
    PackedHalf2,
    /// Contiguous codes of 8 bits, packed as 32-bit words of four.
    PackedByte4,
    /// Contiguous but unaligned: one access per lane, which a CPU compiler merges.
    Unaligned,
    /// One element, broadcast to all lanes.
    Broadcast,
    /// Constant along each column segment. A vector may contain the end of one segment and the
    /// start of the next.
    Segments,
    /// Constant along each row, with vectors along rows: every lane looks up the element of its
    /// row.
    RowScalar,
    /// Strided: one access per lane.
    Gather,
}

/// The computation of a tensor's addresses from row and column indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// All dimensions are decoded.
    Decoded,
    /// Rows are packed, so the row stride is the row length.
    PackedRows,
    /// Each column segment ends with a tail vector: see [`Team::has_tail`].
    Tail,
    /// Adjacent columns are adjacent in memory although vectors run along rows.
    UnitStride,
}

/// The comptime half of an [`Access`](crate::Access): the number of dimensions to decode. Sizes and
/// strides are run-time arguments, so another shape of the same kind needs no new kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccessBlueprint {
    /// Dimensions of the row index.
    pub row_dims: usize,
    /// Dimensions of the column index.
    pub col_dims: usize,
    /// The access pattern of a vector's lanes.
    pub mode: LoadMode,
    /// The computation of addresses.
    pub addressing: Addressing,
    /// True if whole vectors use non-temporal stores.
    pub nontemporal: bool,
}

impl AccessBlueprint {
    /// The access of scalars.
    pub const fn of_numbers(row_dims: usize, col_dims: usize) -> Self {
        Self {
            row_dims,
            col_dims,
            mode: LoadMode::Gather,
            addressing: Addressing::Decoded,
            nontemporal: false,
        }
    }

    /// True if each column segment ends with a tail vector: see [`Team::has_tail`].
    pub const fn has_tail(&self) -> bool {
        matches!(self.addressing, Addressing::Tail)
    }

    /// The same access for vectors that divide the segments.
    pub const fn without_tail(mut self) -> Self {
        if self.has_tail() {
            self.addressing = Addressing::Decoded;
        }
        self
    }

    /// True if rows are packed, so the row stride is the row length.
    pub const fn has_packed_rows(&self) -> bool {
        matches!(self.addressing, Addressing::PackedRows)
    }

    /// True if adjacent columns are adjacent in memory although vectors run along rows.
    pub const fn has_unit_stride(&self) -> bool {
        matches!(self.addressing, Addressing::UnitStride)
    }
}

/// The shift of the shifted-data algorithm: a number near the mean that is subtracted before
/// summing. A large common offset then cancels before rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shift {
    /// The mean of a few leading elements.
    Mean,
    /// The row's first element. It applies to f16/bf16 rows of one unit.
    FirstElement,
    /// As [`Mean`](Self::Mean), for a reloaded row that is short enough to be summed as one block.
    OneBlock,
}

/// A residual: its tensor, and its place in the formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Residual {
    /// The tensor.
    pub access: AccessBlueprint,
    /// The place in the formula.
    pub place: ResidualPlace,
}

/// The compile-time parameters of a kernel. Each distinct value is one more kernel, so sizes are
/// run-time arguments where possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// The team of a row.
    pub team: Team,
    /// The staging of a row between its passes.
    pub staging: Staging,
    /// The statistics to reduce.
    pub statistics: StatisticsKind,
    /// The shift of a reduced mean; `None` if no mean is reduced.
    pub shift: Option<Shift>,
    /// True if epsilon is added to the variance, false if to the deviation.
    pub epsilon_in_sqrt: bool,
    /// The activation.
    pub activation: ActivationKind,
    /// Rows that a unit normalizes together, sharing the loads of scale and bias.
    pub rows_per_unit: usize,
    /// Loads in flight of a reloaded row: steps that are loaded before the first of them is
    /// written.
    pub loads_in_flight: usize,
    /// The input.
    pub input: AccessBlueprint,
    /// The residual.
    pub residual: Option<Residual>,
    /// The scale.
    pub scale: Option<AccessBlueprint>,
    /// Added to the scale.
    pub offset: Offset,
    /// The rounding of the normalized value.
    pub rounding: Rounding,
    /// The bias.
    pub bias: Option<AccessBlueprint>,
    /// Provided means.
    pub mean: Option<AccessBlueprint>,
    /// Provided variances, or the `alpha` of dynamic tanh.
    pub variance: Option<AccessBlueprint>,
    /// The rotation: its table and the elements that it turns.
    pub rotation: Option<(AccessBlueprint, Turn)>,
    /// The format of a quantised output, and the row dimensions of a given scale.
    pub quantization: Option<(CodeFormat, Option<usize>)>,
    /// The result and the optional sum.
    pub output: AccessBlueprint,
    /// True if the output is written.
    pub writes_output: bool,
    /// True if `input + residual` is written.
    pub writes_sum: bool,
    /// The statistics that are written and the row dimensions of their tensor.
    pub written_statistics: Option<(WrittenStatistics, usize)>,
}

/// The properties that the blueprints of both passes have.
pub trait RowBlueprint {
    /// The team of a row.
    fn team(&self) -> &Team;
    /// Rows that a unit processes together.
    fn rows_per_unit(&self) -> usize;
    /// The staging of a row between its passes.
    fn staging(&self) -> Staging;
    /// True if something is reduced, so a row has a second pass.
    fn reduces(&self) -> bool;
    /// True if each pass is a launch.
    fn split(&self) -> bool;
    /// Number of tensors of the input's size that each pass reads, and number that it writes.
    fn tensors(&self) -> (usize, usize);
    /// The properties that only this pass has, in words.
    fn describe(&self) -> String;
}

impl RowBlueprint for Blueprint {
    fn team(&self) -> &Team {
        &self.team
    }

    fn rows_per_unit(&self) -> usize {
        self.rows_per_unit
    }

    fn staging(&self) -> Staging {
        self.staging
    }

    /// The writing pass reads provided statistics.
    fn reduces(&self) -> bool {
        self.statistics.reduces()
    }

    fn split(&self) -> bool {
        self.split()
    }

    fn tensors(&self) -> (usize, usize) {
        let reads = 1 + usize::from(self.residual.is_some());
        let writes = [self.writes_output, self.writes_sum];
        (reads, writes.map(usize::from).iter().sum())
    }

    fn describe(&self) -> String {
        let stores = if self.output.nontemporal {
            ", non-temporal stores"
        } else {
            ""
        };
        let prefetch = if self.team.prefetches_next_row() {
            ", next row prefetched"
        } else {
            ""
        };
        format!(", row {}{stores}{prefetch}", self.staging)
    }
}

impl Blueprint {
    /// True if a staged row is the unmodified input. Otherwise a residual was added or multiplied, or it was
    /// loaded as packed pairs, and it has the accumulation dtype.
    pub fn stages_input(&self) -> bool {
        let is_modified = self.residual.is_some_and(|it| it.place.is_in_front());
        !is_modified && self.input.mode != LoadMode::PackedHalf2
    }

    /// The residual's tensor.
    pub fn residual(&self) -> Option<AccessBlueprint> {
        self.residual.map(|residual| residual.access)
    }

    /// The residual if it has this place.
    pub fn residual_at(&self, place: ResidualPlace) -> Option<AccessBlueprint> {
        let residual = self.residual.filter(|residual| residual.place == place);
        residual.map(|residual| residual.access)
    }

    /// True if a residual is added, or a gate multiplied, after the normalization.
    pub fn combines_last(&self) -> bool {
        self.residual.is_some_and(|it| !it.place.is_in_front())
    }

    /// The activation of the result. That of a gate is not.
    pub fn result_activation(&self) -> ActivationKind {
        match self.residual.is_some_and(|it| it.place.is_gate()) {
            true => ActivationKind::Identity,
            false => self.activation,
        }
    }

    /// The tensors that broadcast to the input.
    pub fn params(&self) -> impl Iterator<Item = AccessBlueprint> {
        [self.scale, self.bias, self.mean, self.variance]
            .into_iter()
            .flatten()
    }

    /// True if the scale of each row is computed.
    pub const fn scales_rows(&self) -> bool {
        matches!(self.quantization, Some((_, None)))
    }

    /// The access of the sum, which is never quantised.
    pub fn sum(&self) -> AccessBlueprint {
        let mode = match self.output.mode {
            LoadMode::PackedByte4 => LoadMode::Vector,
            mode => mode,
        };
        AccessBlueprint {
            mode,
            ..self.output
        }
    }

    /// True if elements are taken relative to a shift near the row's mean.
    pub const fn shifts(&self) -> bool {
        self.shift.is_some()
    }

    /// True if the shift is the row's first element.
    pub const fn shifts_by_first(&self) -> bool {
        matches!(self.shift, Some(Shift::FirstElement))
    }

    /// True if a reloaded row is summed as one block, starting from its shift.
    pub const fn is_one_block(&self) -> bool {
        matches!(self.shift, Some(Shift::OneBlock))
    }

    /// True if a row is reduced and written by different launches: several teams share it, or its
    /// segments are [combined](Team::is_segmented) in between.
    pub const fn split(&self) -> bool {
        self.statistics.reduces() && self.team.reduces_apart()
    }

    /// True if a unit combines segments itself, in one launch.
    pub const fn combines_within(&self) -> bool {
        self.statistics.reduces() && matches!(self.team.division, Division::AllSegments)
    }

    /// Storage buffers of the kernel that binds the most, including CubeCL's metadata buffer.
    ///
    /// In a split pair the first launch writes the sum and the second the statistics, so neither
    /// exceeds WebGPU's guaranteed limit.
    pub fn bindings(&self) -> u32 {
        let count = |present: bool| u32::from(present);
        let inputs = 1 + count(self.residual.is_some());
        let params = count(self.scale.is_some())
            + count(self.bias.is_some())
            + count(self.mean.is_some())
            + count(self.variance.is_some())
            + count(self.rotation.is_some())
            + count(self.quantization.is_some_and(|(_, scale)| scale.is_some()));
        let statistics = count(self.written_statistics.is_some());
        let sum = count(self.writes_sum);
        let (output, workspace, metadata) = (1, 1, 1);
        match self.split() {
            true => {
                let partial = inputs + sum + workspace + metadata;
                let apply = inputs + params + output + statistics + workspace + metadata;
                partial.max(apply)
            }
            false => {
                inputs
                    + params
                    + output
                    + sum
                    + statistics
                    + count(self.team.is_dynamic())
                    + count(self.team.cluster_size() > 1)
                    + metadata
            }
        }
    }
}
