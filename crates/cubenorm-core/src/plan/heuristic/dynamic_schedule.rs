//! Dynamic schedule for the cores of a CPU.

use crate::plan::hardware::Hardware;
use crate::plan::schedule::Schedule;
use crate::plan::workload::Workload;

/// Minimum number of cores for a dynamic schedule: two cores start and finish together.
/// Nine shapes, four cores with AVX-512, mean: 1.06x faster.
const LEAST_CORES: u32 = 4;

/// Minimum input size in bytes for a dynamic schedule.
/// 8 MiB and more, 16 cores with AVX-512, mean: 1.11x to 1.15x faster.
const LEAST_BYTES: usize = 8 << 20;

/// Maximum requests of a core to the work counter.
/// Nine shapes, 16 cores, mean: 1.09x faster with 4 requests, 1.10x faster with 16.
const REQUESTS: usize = 16;

/// Items per request to the work counter; `None` for a static schedule.
///
/// Cores wake one after another and share time with other work. An early core takes rows that a
/// late one has not begun. Results do not depend on the core that computes a row. Two launches keep
/// the static schedule: the second waits for the last core anyway.
pub(in crate::plan) fn dynamic_items(
    schedule: &Schedule,
    work: &Workload,
    hardware: &Hardware,
) -> Option<usize> {
    let cores = hardware.cpu_cores?;
    let (team, grid) = (&schedule.team, &schedule.grid);
    let (items, teams) = (grid.groups * grid.splits, grid.teams(team));
    let at_a_time = items
        .div_ceil(teams * REQUESTS)
        .next_multiple_of(schedule.rows_per_unit);
    let can = team.is_blocked()
        && team.cluster_size() == 1
        && !(work.reduces && team.reduces_apart())
        && teams > 1
        && at_a_time * teams < items;
    let bytes = work.rows * work.row_bytes();
    let pays = cores >= LEAST_CORES && bytes >= LEAST_BYTES;
    (can && work.knobs.dynamic.unwrap_or(pays)).then_some(at_a_time)
}
