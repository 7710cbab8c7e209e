//! Which axis vectors run along and how wide they are.

use super::{AccessBlueprint, Hardware, Lanes, LoadMode};
use crate::{Access, Dim, NormProblem};

/// The axis that the input is contiguous along, and the widest vector that fits every tensor.
pub(super) fn choose(problem: &NormProblem, hardware: &Hardware) -> (Lanes, usize) {
    let step = |dims: &[Dim]| dims.last().map(|dim| dim.stride);
    let lanes = match (step(&problem.input.col), step(&problem.input.row)) {
        (Some(1), _) => Lanes::Columns,
        (_, Some(1)) => Lanes::Rows,
        _ => Lanes::Columns,
    };
    let mut vector = hardware.widest_vector(problem.dtype.size());
    while vector > 1 && !fits(problem, lanes, vector) {
        vector /= 2;
    }
    (lanes, vector)
}

/// Whether every tensor has `vector` lanes within one dimension, and the input and output take
/// them in one access each.
fn fits(problem: &NormProblem, lanes: Lanes, vector: usize) -> bool {
    let divides = |access: &Access| {
        lane_dims(access, lanes)
            .last()
            .is_none_or(|dim| dim.size % vector == 0)
    };
    // A residual that repeats a row is as good as one that does not; a parameter at a stride costs
    // its own gather only. The input decides.
    problem.accesses().all(divides) && mode(&problem.input, lanes, vector) == LoadMode::Vector
}

pub(super) fn blueprint(access: &Access, lanes: Lanes, vector: usize) -> AccessBlueprint {
    AccessBlueprint {
        row_dims: access.row.len(),
        col_dims: access.col.len(),
        mode: mode(access, lanes, vector),
    }
}

fn mode(access: &Access, lanes: Lanes, vector: usize) -> LoadMode {
    let Some((innermost, outer)) = lane_dims(access, lanes).split_last() else {
        return LoadMode::Splat;
    };
    let others = match lanes {
        Lanes::Columns => &access.row,
        Lanes::Rows => &access.col,
    };
    // A vector access starts at a multiple of its width, wherever the other indices stand.
    let is_aligned = outer
        .iter()
        .chain(others)
        .all(|dim| dim.stride % vector == 0);
    match innermost.stride {
        0 => LoadMode::Splat,
        1 if is_aligned => LoadMode::Vector,
        _ => LoadMode::Gather,
    }
}

fn lane_dims(access: &Access, lanes: Lanes) -> &[Dim] {
    match lanes {
        Lanes::Columns => &access.col,
        Lanes::Rows => &access.row,
    }
}
