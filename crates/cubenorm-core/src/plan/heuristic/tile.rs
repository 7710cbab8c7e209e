//! Tiles of adjacent rows that a CPU core processes together, in memory order.

use super::occupancy;
use crate::plan::hardware::Hardware;
use crate::plan::team::Vectorization;
use crate::plan::workload::Workload;
use crate::statistics::Merge;

/// Maximum vectors in a core's tile of adjacent rows: their state must fit the first-level cache. A
/// tile with only some of the adjacent rows is slower unless it saves a launch.
/// Group norm, channels-last AVX-512, forward, 1 -> 2 to 8 vectors: 1.20x to 1.64x faster.
const MOST_ROWS_OF_TILE: usize = 20;

/// [`MOST_ROWS_OF_TILE`] if nothing is reduced, which leaves less state per row.
/// Batch norm, channels-last f16/bf16, provided statistics, 2 to 8 vectors: 1.01x to 1.41x faster.
const MOST_OF_PROVIDED: usize = 64;

/// Minimum vectors in a tile of segments that holds whole rows and needs one launch instead of
/// three.
/// Group norm, channels-last f32 AVX2, three launches -> one with four vectors: 1.25x to 2.22x
/// faster.
const LEAST_OF_SEGMENTS: usize = 4;

/// Maximum segments in such a tile: a core keeps six values of each.
/// 480 segments f16/bf16 AVX2, three launches -> one: 1.05x to 1.32x slower.
const MOST_SEGMENTS: usize = 320;

/// Maximum bytes of a line of segments that a tile covers as a whole, if lines balance over cores.
/// Memory is then read and written contiguously.
/// Lines of 128 to 768 bytes AVX2, group norm, forward: 1.05x to 1.41x faster.
const WHOLE_LINE: usize = 768;

/// Vectors in a core's tile of adjacent rows. A tile takes all contiguous vectors, so that each
/// step continues the one before in memory, or one vector. A tile of segments takes a short line,
/// or the fewest vectors with whole rows.
pub(in crate::plan) fn tile(work: &Workload, hardware: &Hardware) -> usize {
    let Some(cores) = hardware.cpu_cores else {
        return 1;
    };
    if work.lanes == Vectorization::Parallel || work.rotates {
        return 1;
    }
    let (groups, segment, segments) = (work.groups, work.vectors_of_segment(), work.segments);
    let most = match work.reduces || work.merge == Merge::Sums {
        true => MOST_ROWS_OF_TILE,
        false => MOST_OF_PROVIDED,
    };
    let fits = |vectors: &usize| {
        let divides = |groups: usize| groups.is_multiple_of(*vectors);
        *vectors <= most && divides(segment) && divides(work.groups_of_launch)
    };
    let has_whole_rows = |vectors: &usize| (vectors * work.vector).is_multiple_of(segments);
    let is_short = segment * work.vector * work.dtype.size() <= WHOLE_LINE;
    let of_segments = || {
        let are_even = |lines| occupancy::are_even(lines, cores);
        let line =
            (is_short && groups.checked_div(segment).is_some_and(are_even)).then_some(segment);
        let few = LEAST_OF_SEGMENTS..=MOST_SEGMENTS / work.vector;
        let mut vectors = line.into_iter().chain(few);
        vectors.find(|vectors| segments > 1 && has_whole_rows(vectors) && fits(vectors))
    };
    let wanted = work.knobs.rows_per_unit.or_else(of_segments);
    let wanted = wanted.unwrap_or(segment).max(1);
    if fits(&wanted) { wanted } else { 1 }
}
