//! The compile-time parameters of a backward kernel.

use super::blueprint::{AccessBlueprint, RowBlueprint, Staging};
use super::team::{Division, Team};
use crate::activation::ActivationKind;
use crate::backward::ColumnSums;
use crate::desc::Offset;
use crate::statistics::StatisticsKind;

/// The compile-time parameters of a backward kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackwardBlueprint {
    /// The team of a row.
    pub team: Team,
    /// The statistics that the normalization reduced.
    pub statistics: StatisticsKind,
    /// True if epsilon was added to the variance, false if to the deviation.
    pub epsilon_in_sqrt: bool,
    /// The activation: the gate's if there is one.
    pub activation: ActivationKind,
    /// The gate.
    pub gate: Option<GateBlueprint>,
    /// The normalized tensor.
    pub input: AccessBlueprint,
    /// The output's gradient.
    pub output_gradient: AccessBlueprint,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<AccessBlueprint>,
    /// True if the means of the two sums over a row follow each pair of `saved`.
    pub provides_sums: bool,
    /// The scale.
    pub scale: Option<AccessBlueprint>,
    /// Added to the scale.
    pub offset: Offset,
    /// The bias.
    pub bias: Option<AccessBlueprint>,
    /// True if the sum's gradient is added to the input's. Both have the same access.
    pub adds_sum_gradient: bool,
    /// The input's gradient; `None` if it is not needed.
    pub input_gradient: Option<AccessBlueprint>,
    /// The sums over a row.
    pub sums: RowSums,
    /// The tensor of the row sums, if they are written. With column dimensions it holds sums per
    /// column segment.
    pub row_sums: Option<AccessBlueprint>,
    /// Column sums that each team accumulates over its rows, in its own part of a workspace that
    /// stays in the core's cache. If teams share a row, the contributions of each row are stored
    /// unreduced. Omitted sums need a separate launch.
    pub column_sums: ColumnSums,
    /// Staging of a unit's column sums until its team has processed all rows, and their number of
    /// steps. If lanes are rows, each step has one value. [`Staging::Reload`] accumulates in the
    /// workspace, row by row.
    pub staged_columns: Staging,
    /// The buffering of a row between its passes; reloaded unless column sums are staged.
    pub row: RowBuffering,
    /// Rows that a unit processes together, adding to the column sums once for all of them.
    pub rows_per_unit: usize,
    /// True if rows have one element: its gradient less the mean of the row is exactly 0.
    pub has_one_element: bool,
}

/// The gate of a backward kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateBlueprint {
    /// The gate.
    pub access: AccessBlueprint,
    /// True if the input is multiplied, false if the output is.
    pub is_of_input: bool,
    /// True if its gradient is written, with the access of the input's.
    pub writes_gradient: bool,
}

/// The sums of `dy` over a row, alone and times the normalized input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowSums {
    /// None.
    None,
    /// Of the gradient after the scale (`dz`): the scale is constant along the row, or the sums are
    /// the scale's gradient.
    Plain,
    /// Of the gradient before the scale (`wdy`), because the scale changes along the row.
    Weighted,
}

/// The buffering of a row of input and dy between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowBuffering {
    /// None: the row is reloaded, which is cheap if a cache holds it.
    Reload {
        /// Loads in flight: steps that are loaded before the first of them is written.
        loads_in_flight: usize,
    },
    /// One buffer in registers.
    Single,
    /// One buffer in registers, and a prefetch of the next row while the team waits for the sums of
    /// this one. The prefetched row is then copied.
    Prefetch,
    /// Double buffering in registers; each pass converts the row for itself. It suits units whose
    /// copies and converted values would exceed the registers. The cubes of a cluster sum the next
    /// row before they write this one, so its sums have arrived by then.
    DoubleBuffer {
        /// Staging of a unit's slice of the scale from row to row; [`Staging::Reload`] loads it at
        /// each step.
        scale: Staging,
    },
}

impl RowBuffering {
    /// A reloaded row with one load in flight.
    pub const RELOAD: Self = Self::Reload { loads_in_flight: 1 };

    /// True if the row is reloaded.
    pub const fn reloads(self) -> bool {
        matches!(self, Self::Reload { .. })
    }

    /// True if the row is double-buffered.
    pub const fn is_double(self) -> bool {
        matches!(self, Self::DoubleBuffer { .. })
    }

    /// True if the next row and its saved statistics are read before its turn.
    pub const fn is_ahead(self) -> bool {
        matches!(self, Self::Prefetch | Self::DoubleBuffer { .. })
    }
}

impl BackwardBlueprint {
    /// Vectors of columns that each unit stages; at least 1, the minimum capacity.
    pub fn staged_vectors(&self) -> usize {
        self.staged_columns.vectors().unwrap_or(1)
    }

    /// Staging of a unit's slice of the scale from row to row; [`Staging::Reload`] unless rows are
    /// double-buffered.
    pub const fn staged_scale(&self) -> Staging {
        match self.row {
            RowBuffering::DoubleBuffer { scale } => scale,
            _ => Staging::Reload,
        }
    }

    /// Loads in flight of a reloaded row, else 1.
    pub const fn loads_in_flight(&self) -> usize {
        match self.row {
            RowBuffering::Reload { loads_in_flight } => loads_in_flight,
            _ => 1,
        }
    }

    /// True if the cubes of a cluster publish the sums of a row one round before they need them.
    pub fn publishes_ahead(&self) -> bool {
        self.row.is_double() && self.team.cluster_size() > 1
    }

    /// True if sums of column segments are written, each reduced by one unit or plane.
    pub fn sums_segments(&self) -> bool {
        self.row_sums.is_some_and(|sums| sums.col_dims > 0)
    }

    /// True if scale and bias are the same in all rows, so rows of a unit share their loads.
    pub fn shares_params(&self) -> bool {
        let params = [self.scale, self.bias];
        params.iter().flatten().all(|param| param.row_dims == 0)
    }

    /// True if a unit combines segments itself, in one launch, which also writes their sums.
    pub const fn combines_within(&self) -> bool {
        self.reduces() && matches!(self.team.division, Division::AllSegments)
    }

    /// True if sums over a row are computed.
    pub const fn reduces(&self) -> bool {
        !matches!(self.sums, RowSums::None)
    }

    /// True if sums over a row are weighted by the scale.
    pub const fn weights(&self) -> bool {
        matches!(self.sums, RowSums::Weighted)
    }

    /// True if a row is reduced and written by different launches.
    pub const fn split(&self) -> bool {
        self.reduces() && self.team.reduces_apart()
    }

    /// True if the gate's gradient is written.
    pub fn writes_gate_gradient(&self) -> bool {
        self.gate.is_some_and(|gate| gate.writes_gradient)
    }

    /// The activation behind scale and bias.
    pub const fn result_activation(&self) -> ActivationKind {
        match self.gate {
            Some(_) => ActivationKind::Identity,
            None => self.activation,
        }
    }

    /// Storage buffers of the kernel that binds the most, including CubeCL's metadata buffer.
    pub fn bindings(&self) -> u32 {
        let present = [
            self.saved.is_some(),
            self.scale.is_some(),
            self.bias.is_some(),
            self.adds_sum_gradient,
            self.gate.is_some(),
            self.writes_gate_gradient(),
            self.input_gradient.is_some(),
            self.row_sums.is_some() || self.combines_within(),
            self.column_sums.any(),
            self.split(),
            self.team.cluster_size() > 1,
        ];
        3 + present.into_iter().map(u32::from).sum::<u32>()
    }
}

impl RowBlueprint for BackwardBlueprint {
    fn team(&self) -> &Team {
        &self.team
    }

    fn rows_per_unit(&self) -> usize {
        self.rows_per_unit
    }

    fn staging(&self) -> Staging {
        match self.row {
            RowBuffering::Reload { .. } => Staging::Reload,
            RowBuffering::Single | RowBuffering::Prefetch | RowBuffering::DoubleBuffer { .. } => {
                Staging::Registers(self.staged_vectors())
            }
        }
    }

    fn reduces(&self) -> bool {
        self.reduces()
    }

    fn split(&self) -> bool {
        self.split()
    }

    fn tensors(&self) -> (usize, usize) {
        let reads = [self.adds_sum_gradient, self.gate.is_some()];
        let writes = [self.input_gradient.is_some(), self.writes_gate_gradient()];
        let count = |are: [bool; 2]| are.map(usize::from).iter().sum::<usize>();
        (2 + count(reads), count(writes))
    }

    fn describe(&self) -> String {
        let sums = match self.column_sums.any() {
            true => ", parameter gradients in the same launch",
            false => "",
        };
        let stores = match self.input_gradient {
            Some(access) if access.nontemporal => ", non-temporal stores",
            _ => "",
        };
        format!("{sums}{stores}")
    }
}
