//! Autotune key: problems that share the fastest plan.

use std::fmt;

use cubecl::tune::{AutotuneKey, anchor};
use cubenorm_core::{
    AccessBlueprint, ActivationKind, BackwardBlueprint, Blueprint, DType, LoadMode, StatisticsKind,
    Team,
};
use serde::{Deserialize, Serialize};

/// Autotune key. Problems of one key share the measurement of one of them.
///
/// Sizes are rounded up to powers of two, as CubeCL's autotune level says. The key contains the
/// candidates, so a cached index never refers to another or an invalid candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TuneKey {
    /// Pass, statistics and activation class.
    pub(super) operation: String,
    /// Dtypes of the input, of the parameters and (forward) of provided statistics.
    pub(super) dtypes: String,
    /// Tensors and their load modes, such as `x1+1v`: one row dimension, one column dimension,
    /// vector loads.
    pub(super) layout: String,
    /// Rows, rounded up.
    pub(super) rows: usize,
    /// Columns, rounded up.
    pub(super) cols: usize,
    /// Vector width of the analytic plan, which follows from the divisors of the columns.
    pub(super) vector: usize,
    /// Indices of the candidates among the device's knobs.
    pub(super) candidates: Vec<usize>,
}

impl AutotuneKey for TuneKey {}

impl TuneKey {}

impl fmt::Display for TuneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}x{} {} {}",
            self.operation, self.rows, self.cols, self.dtypes, self.layout
        )
    }
}

/// Parts of a key that forward and backward share.
pub(super) struct Parts {
    pub(super) pass: &'static str,
    pub(super) statistics: StatisticsKind,
    pub(super) activation: ActivationKind,
    /// Of input and parameters.
    pub(super) dtypes: Vec<DType>,
    /// Of other tensors. They are part of the key if one differs from the input's.
    pub(super) mixed: Vec<DType>,
    pub(super) size: [usize; 2],
    pub(super) team: Team,
    pub(super) layout: String,
    pub(super) candidates: Vec<usize>,
}

impl From<Parts> for TuneKey {
    fn from(parts: Parts) -> Self {
        let is_mixed = parts.mixed.iter().any(|dtype| *dtype != parts.dtypes[0]);
        let mixed = parts.mixed.iter().filter(|_| is_mixed);
        let dtypes: Vec<String> = parts
            .dtypes
            .iter()
            .chain(mixed)
            .map(DType::to_string)
            .collect();
        let [rows, cols] = parts.size.map(|size| anchor(size, None, None, Some(2)));
        // Cost class of an activation: nothing, a comparison, or a transcendental function.
        let activation = match parts.activation {
            ActivationKind::Identity => "",
            kind if kind.is_transcendental() => " transcendental",
            _ => " piecewise",
        };
        let segments = if parts.team.is_segmented() {
            " segments"
        } else {
            ""
        };
        Self {
            operation: format!("{} {:?}{activation}", parts.pass, parts.statistics),
            dtypes: dtypes.join("/"),
            layout: format!("{:?}{segments} {}", parts.team.lanes(), parts.layout),
            rows,
            cols,
            vector: parts.team.vector,
            candidates: parts.candidates,
        }
    }
}

/// Encodes the tensors of a forward pass.
pub(super) fn layout(blueprint: &Blueprint) -> String {
    let tensors = [
        ("x", Some(blueprint.input)),
        ("r", blueprint.residual()),
        ("s", blueprint.scale),
        ("b", blueprint.bias),
        ("m", blueprint.mean),
        ("v", blueprint.variance),
        ("y", Some(blueprint.output)),
    ];
    let sum = match (blueprint.writes_output, blueprint.writes_sum) {
        (false, _) => " no output",
        (true, true) => " sum",
        (true, false) => "",
    };
    let written = if blueprint.written_statistics.is_some() {
        " statistics"
    } else {
        ""
    };
    let codes = match blueprint.quantization {
        Some((format, _)) => format!(" {format:?}"),
        None => String::new(),
    };
    format!("{}{sum}{written}{codes}", letters(&tensors))
}

/// Encodes the tensors of a backward pass.
pub(super) fn backward_layout(blueprint: &BackwardBlueprint) -> String {
    let tensors = [
        ("x", Some(blueprint.input)),
        ("dy", Some(blueprint.output_gradient)),
        ("k", blueprint.saved),
        ("s", blueprint.scale),
        ("b", blueprint.bias),
        (
            "dsum",
            blueprint
                .input_gradient
                .filter(|_| blueprint.adds_sum_gradient),
        ),
        ("dx", blueprint.input_gradient),
        ("g", blueprint.gate.map(|gate| gate.access)),
        (
            "dg",
            blueprint
                .input_gradient
                .filter(|_| blueprint.writes_gate_gradient()),
        ),
    ];
    let sums = match (blueprint.row_sums, blueprint.column_sums.count()) {
        (Some(sums), _) if sums.col_dims > 0 => " runs",
        (Some(_), _) => " rows",
        (_, 0) => "",
        _ => " columns",
    };
    let provided = if blueprint.provides_sums {
        " provided sums"
    } else {
        ""
    };
    format!("{}{sums}{provided}", letters(&tensors))
}

fn letters(tensors: &[(&str, Option<AccessBlueprint>)]) -> String {
    let present = tensors.iter().filter_map(|(name, access)| {
        let access = (*access)?;
        let mode = match access.mode {
            LoadMode::Vector => 'v',
            LoadMode::PackedHalf2 => 'p',
            LoadMode::PackedByte4 => 'b',
            LoadMode::Unaligned => 'a',
            LoadMode::Broadcast => 's',
            LoadMode::Segments => 'r',
            LoadMode::RowScalar => 'o',
            LoadMode::Gather => 'g',
        };
        Some(format!(
            "{name}{}+{}{mode}",
            access.row_dims, access.col_dims
        ))
    });
    present.collect::<Vec<_>>().join(" ")
}
