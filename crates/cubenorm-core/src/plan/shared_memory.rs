//! Shared memory of a cube: merge tables and staging slots.

use super::backward_blueprint::BackwardBlueprint;
use super::blueprint::{Blueprint, Staging};
use super::hardware::Hardware;
use super::team::{Level, Team, Vectorization};
use super::workspace::SUMS;
use crate::backward::BackwardProblem;
use crate::problem::NormProblem;
use crate::statistics::Merge;

/// The merge of the largest magnitude of a quantised row.
const LARGEST: Merge = Merge::Scaled { squares: false };

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

/// The array in shared memory through which the units of a team merge partial results.
pub(super) fn merge_table(team: &Team, merge: Merge, accumulation: usize) -> SharedMemory {
    match team.level() {
        Level::Unit | Level::Plane => SharedMemory::NONE,
        // The planes of a cube merge their own results first.
        Level::Cube => table(
            (team.size() / team.plane_size().max(1)) as usize,
            1,
            merge,
            accumulation,
        ),
        Level::Perpendicular if team.size() == 1 => SharedMemory::NONE,
        Level::Perpendicular => {
            let slots = (team.size() * team.columns()) as usize;
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
    quantizes: bool,
    accumulation: usize,
    hardware: &Hardware,
) -> usize {
    let tables = match merge {
        // Backward; at most two rows alternate.
        Merge::Sums => table(slots, lanes, merge, accumulation).times(2),
        _ => forward_tables(slots, lanes, merge, is_staged_row, accumulation),
    };
    let tables = match quantizes {
        true => tables.then(table(slots, lanes, LARGEST, accumulation)),
        false => tables,
    };
    tables.needed(hardware)
}

/// The arrays of `reduce/cluster.rs`: sums of all cubes, and whether each came.
const fn exchanged(cubes: u32) -> SharedMemory {
    SharedMemory::of(cubes as usize * SUMS * 8)
}

/// The staging slots of the units in shared memory.
fn cells(staging: Staging, team: &Team, element: usize) -> SharedMemory {
    let (_, shared) = staging.places();
    SharedMemory::of(shared * team.size() as usize * team.vector * element)
}

/// Shared memory of the kernel that normalizes.
pub(super) fn forward_memory(blueprint: &Blueprint, problem: &NormProblem) -> SharedMemory {
    let team = &blueprint.team;
    let accumulation = problem.dtype.accumulation().size();
    let element = match blueprint.stages_input() {
        true => problem.dtype.size(),
        false => accumulation,
    };
    let is_staged_row = blueprint.staging != Staging::Reload;
    let table = |merge| merge_table(team, merge, accumulation);
    let shift = match is_staged_row && blueprint.shifts() && !blueprint.shifts_by_first() {
        true => table(Merge::Sum),
        false => SharedMemory::NONE,
    };
    let statistics = match blueprint.statistics.reduces() && !team.is_segmented() {
        false => SharedMemory::NONE,
        true if is_staged_row && blueprint.statistics.reduces_mean() => table(Merge::Sums),
        true => table(team.merge),
    };
    let largest = match blueprint.scales_rows() {
        true => table(LARGEST),
        false => SharedMemory::NONE,
    };
    let staged = cells(blueprint.staging, team, element);
    let staged = SharedMemory::of(staged.all * blueprint.rows_per_unit);
    let of_row = shift.then(statistics);
    let merged = match team.cluster_size() {
        1 => of_row.then(largest),
        // Of this part, from all parts, and recomputed after a timeout.
        cubes => of_row.then(exchanged(cubes)).then(of_row),
    };
    staged.and(merged.times(blueprint.rows_per_unit))
}

/// Shared memory of the kernel that computes the input's gradient.
pub(super) fn backward_memory(
    blueprint: &BackwardBlueprint,
    problem: &BackwardProblem,
) -> SharedMemory {
    let team = &blueprint.team;
    let accumulation = problem.dtype.accumulation().size();
    let table = merge_table(team, Merge::Sums, accumulation);
    let kinds = blueprint.column_sums.count();
    // Along the kept axis all lanes of a step share one column.
    let lanes = match team.lanes() {
        Vectorization::Parallel => team.vector,
        Vectorization::Perpendicular => 1,
    };
    let (_, shared) = blueprint.staged_columns.times(kinds).places();
    let sums = SharedMemory::of(shared * team.size() as usize * lanes * accumulation);
    let scale = cells(blueprint.staged_scale(), team, problem.param_dtype.size());
    let written = match blueprint.staged_columns != Staging::Reload
        && team.lanes() == Vectorization::Perpendicular
    {
        true => {
            let units = (team.size() * team.columns()) as usize;
            SharedMemory::of(blueprint.staged_vectors() * units * accumulation)
        }
        false => SharedMemory::NONE,
    };
    let cluster = team.cluster_size();
    let of_row = match blueprint.reduces() && !team.is_segmented() {
        false => SharedMemory::NONE,
        // Sums to publish, sums read from peers, and sums recomputed after a timeout.
        true if cluster > 1 => table.then(exchanged(cluster)).then(table),
        true => table,
    };
    let calls = match blueprint.row.is_double() {
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
