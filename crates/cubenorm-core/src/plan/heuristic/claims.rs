//! Which cores of a CPU claim their rows while a launch runs.

use crate::plan::grid::Cut;
use crate::plan::task::Task;
use crate::plan::{Hardware, Knobs};

/// Cores from which on rows are claimed. Measured with AVX-512, four take 0.94 of the time in the mean of nine shapes; two,
/// which begin and end together, 1.05.
const LEAST_CORES: u32 = 4;

/// Bytes of the smallest input of which rows are claimed. Measured with AVX-512 on 16 cores, shapes of 8 MiB and more take 0.87
/// and, in another run, 0.90 of the time in the mean (0.72 to 1.09), and 17 smaller ones 1.02.
const LEAST_BYTES: usize = 8 << 20;

/// Claims of a core at most. With 4 of them nine shapes take 0.92 of the time in the mean on 16 cores, with 16 0.91.
const CLAIMS: usize = 16;

/// Items that a core claims at a time, where it is not given its own from the start.
///
/// Cores are woken one after another, and each is held up by what else runs on it: who is early takes what the last one has
/// not begun. Who works on a row has no say in what comes of it. Of two launches, of which the second reads what the first
/// has left, each waits for its last core anyway.
pub(in crate::plan) fn claimed(
    cut: &Cut,
    task: &Task,
    hardware: &Hardware,
    knobs: Knobs,
) -> Option<usize> {
    let cores = hardware.cpu_cores?;
    let (team, grid) = (&cut.team, &cut.grid);
    let (items, teams) = (grid.groups * grid.splits, grid.teams(team));
    let at_a_time = items.div_ceil(teams * CLAIMS).next_multiple_of(cut.abreast);
    let can = team.in_blocks
        && team.peers == 1
        && !cut.takes_two_launches(task.reduces)
        && teams > 1
        && at_a_time * teams < items;
    let bytes = task.rows * task.cols * task.dtype.size();
    let pays = cores >= LEAST_CORES && bytes >= LEAST_BYTES;
    (can && knobs.claims.unwrap_or(pays)).then_some(at_a_time)
}
