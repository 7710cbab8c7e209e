//! Staging of dgamma and dbeta partials: a unit's column sums from row to row.

use super::staging::{MERGED_OF_UNIT, size, slots};
use crate::plan::accuracy::LONGEST_COLUMN_SUM;
use crate::plan::blueprint::Staging;
use crate::plan::grid::Grid;
use crate::plan::hardware::Hardware;
use crate::plan::knobs::StagingPreference;
use crate::plan::schedule::Schedule;
use crate::plan::shared_memory::merged_bytes;
use crate::plan::team::{Level, Vectorization};
use crate::plan::workload::Workload;
use crate::plan::workspace::parts_of_columns;
use crate::statistics::Merge;

/// Maximum 4-byte column sums that a unit keeps in registers from row to row.
pub(super) const STAGED_SUMS: usize = 32;

/// Column sums of a cube above which shared memory is preferred: an eighth of a multiprocessor's
/// registers.
/// 16,384 columns with one sum each H200, shared memory -> registers: 1.4x to 1.6x slower.
const STAGED_SUMS_OF_CUBE: usize = 1 << 13;

/// Maximum column sums of a cube in registers: a quarter of a multiprocessor's registers.
const MOST_STAGED_SUMS_OF_CUBE: usize = 1 << 14;

/// Columns of f16/bf16 with two sums each whose sums go to shared memory. Registers would fit the
/// sums, but not the next row as well.
/// 1,024 f16/bf16 H200, sums in registers -> shared memory: 1.09x faster.
pub(super) const SHORT_HALVES: std::ops::RangeInclusive<usize> = 512..=1024;

/// Minimum columns of f16/bf16 with one sum each whose sums go to shared memory. With sums in
/// registers, the next row arrives too late.
/// 7,168 f16/bf16 H200, sums in registers -> shared memory: 1.20x faster.
const LONG_HALVES: usize = 7168;

/// Column sums that a unit keeps in registers if shared memory cannot hold all of them.
const STAGED_SUMS_WITH_SHARED: usize = 16;

/// Resident units per multiprocessor with column sums. More units hide more latency, but leave more
/// partials to reduce.
const RESIDENT_UNITS: u32 = 1024;

/// Minimum rows per resident team: with fewer, its partials cost more than the reads that it saves.
const ROWS_OF_A_RESIDENT: usize = 4;

/// Column sums of `per_unit` vectors, in 4-byte values.
fn sums_of_columns(work: &Workload, per_unit: usize) -> usize {
    per_unit * work.vector * work.column_sums * work.accumulation() / 4
}

/// Bytes of the merge tables of a cube of `members` units.
pub(super) fn merged_of_cube(work: &Workload, members: u32, hardware: &Hardware) -> usize {
    let slots = slots(members, hardware.plane(work.knobs.plane_size));
    let accumulation = work.accumulation();
    let tables = merged_bytes(slots, 1, Merge::Sums, false, false, accumulation, hardware);
    tables.max(members as usize * MERGED_OF_UNIT * accumulation)
}

/// Staging of a unit's column sums from row to row, and the maximum number of teams. There is no
/// limit if sums are not staged or rows are too few for resident teams.
pub(super) fn staged_columns(
    work: &Workload,
    hardware: &Hardware,
    level: Level,
    per_unit: usize,
    members: u32,
) -> (Staging, usize) {
    let none = (Staging::Reload, usize::MAX);
    let Some(vectors) = size(per_unit).filter(|_| work.column_sums > 0) else {
        return none;
    };
    let numbers = sums_of_columns(work, per_unit);
    let of_cube = numbers * members as usize;
    let fits_registers = numbers <= STAGED_SUMS && of_cube <= MOST_STAGED_SUMS_OF_CUBE;
    // Shared memory holds the merge tables as well.
    let merged = merged_of_cube(work, members, hardware);
    let bytes = |vectors: usize| members as usize * sums_of_columns(work, vectors) * 4 + merged;
    let fits_shared =
        |vectors: usize| level == Level::Cube && bytes(vectors) <= hardware.max_shared_memory;
    let wants_shared = match work.knobs.row {
        Some(row) => row == StagingPreference::Shared,
        None => of_cube > STAGED_SUMS_OF_CUBE || makes_room(work),
    };
    let registers = STAGED_SUMS_WITH_SHARED / sums_of_columns(work, 1);
    let staging = match fits_registers && !(wants_shared && fits_shared(vectors)) {
        true => Staging::Registers(vectors),
        false if fits_shared(vectors) => Staging::Shared(vectors),
        false if (1..vectors).contains(&registers) && fits_shared(vectors - registers) => {
            Staging::Mixed {
                registers,
                shared: vectors - registers,
            }
        }
        false => return none,
    };
    let resident = match staging.places() {
        (_, 0) => usize::MAX,
        (_, shared) => hardware.max_shared_memory / bytes(shared).max(1),
    };
    match resident_teams(work, members, resident, hardware) {
        Some(teams) => (staging, teams),
        None => none,
    }
}

/// True if f16/bf16 column sums leave the registers to the next row.
fn makes_room(work: &Workload) -> bool {
    let columns = work.steps * work.vector;
    work.is_half()
        && match work.column_sums {
            1 => columns >= LONG_HALVES,
            _ => SHORT_HALVES.contains(&columns),
        }
}

/// Teams that stay resident and sum the columns of all rows, with at most `cubes` cubes per
/// multiprocessor. `None` if they leave multiprocessors idle.
fn resident_teams(
    work: &Workload,
    members: u32,
    cubes: usize,
    hardware: &Hardware,
) -> Option<usize> {
    let cluster_size = work.cluster_size as usize;
    let processors = hardware.processors();
    let of_processor = match cluster_size {
        1 => (RESIDENT_UNITS / members).max(1) as usize,
        _ => 1,
    };
    let resident = processors * of_processor.min(cubes).max(1) / cluster_size;
    let resident = resident.max(work.least_teams());
    let teams = resident.min(work.groups / ROWS_OF_A_RESIDENT);
    // An incomplete cluster may leave multiprocessors idle.
    (teams > 0 && (teams + 1) * cluster_size > processors).then_some(teams)
}

/// Minimum vectors of rows per core for fused column sums.
/// 1 MiB AVX-512, separate launch -> fused: 1.11x to 3.3x faster.
const LEAST_GROUPS_OF_LANES: usize = 4;

/// True if the launch that writes the input's gradient also computes column sums. Few teams should
/// process many rows each.
pub(in crate::plan) fn are_fused(schedule: &Schedule, hardware: &Hardware) -> bool {
    let (team, grid) = (&schedule.team, &schedule.grid);
    let of_units = || match team.lanes() {
        Vectorization::Parallel => parts_of_columns(grid, team) <= grid.teams(team),
        Vectorization::Perpendicular => hardware.cpu_cores.is_some() && has_own_columns(schedule),
    };
    let is_staged = schedule.staged_columns != Staging::Reload;
    is_staged || !hardware.is_gpu() && team.level() == Level::Unit && of_units()
}

/// True if a core with vectors along rows may sum columns per lane, over its rows or its parts of
/// all rows. It needs enough rows that few partial sums remain.
fn has_own_columns(schedule: &Schedule) -> bool {
    let Grid {
        groups,
        groups_per_team,
        ..
    } = schedule.grid;
    // The sums of a part cover all rows.
    let is_whole = groups_per_team.is_multiple_of(groups) && groups <= LONGEST_COLUMN_SUM;
    (is_whole || !schedule.team.has_parts()) && groups.min(groups_per_team) >= LEAST_GROUPS_OF_LANES
}
