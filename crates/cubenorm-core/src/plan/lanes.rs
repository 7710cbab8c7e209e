//! Which axis vectors run along and how wide they are.

use super::grid::Task;
use super::{AccessBlueprint, Hardware, Knobs, Lanes, LoadMode};
use crate::{Access, Dim};

/// The axis that the input is contiguous along, and the widest vector that fits every tensor.
pub(super) fn choose<'a>(
    task: &Task,
    input: &Access,
    everyone: impl Iterator<Item = &'a Access> + Clone,
    hardware: &Hardware,
    knobs: Knobs,
) -> (Lanes, usize) {
    let step = |dims: &[Dim]| dims.last().map(|dim| dim.stride);
    let lanes = match (step(&input.col), step(&input.row)) {
        (Some(1), _) => Lanes::Columns,
        (_, Some(1)) => Lanes::Rows,
        _ => Lanes::Columns,
    };
    // Every tensor has the lanes within one dimension, and the input takes them in one access. A
    // residual that repeats a row is as good as one that does not; a parameter at a stride costs its
    // own gather only.
    let fits = |vector: usize| {
        let divides = |access: &Access| {
            lane_dims(access, lanes)
                .last()
                .is_none_or(|dim| dim.size % vector == 0)
        };
        let loads = match mode(input, lanes, vector) {
            LoadMode::Vector => true,
            // A CPU's compiler makes one access of them.
            LoadMode::Adjacent => hardware.cpu_cores.is_some(),
            LoadMode::Splat | LoadMode::Gather => false,
        };
        everyone.clone().all(divides) && loads
    };
    let widest = hardware.widest_vector(task.dtype.size());
    let mut vector = match knobs.vector {
        Some(wanted) => widest.min(1 << wanted.max(1).ilog2()),
        None => widest,
    };
    while vector > 1 && !fits(vector) {
        vector /= 2;
    }
    (lanes, vector)
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
        1 => LoadMode::Adjacent,
        _ => LoadMode::Gather,
    }
}

fn lane_dims(access: &Access, lanes: Lanes) -> &[Dim] {
    match lanes {
        Lanes::Columns => &access.col,
        Lanes::Rows => &access.row,
    }
}
