//! Segments whose length is [not a multiple of the vector width](cubenorm_core::Team::has_tail): full
//! vectors, then one overlapping tail vector.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint};

use crate::epilogue::AffineStep;
use crate::forward::apply::apply_steps;
use crate::forward::io::{Bound, ResultRow, Row, UnitRows};
use crate::memory::access::step_offset;
use crate::memory::segment::{further_row, segment_blueprint, segment_start};
use crate::schedule::partition::Partition;
use crate::types::Types;

/// True if segments are normalized one by one. Locating each segment pays off for several segments
/// per row, or for non-temporal stores.
///
/// Rows of one segment get slower: `17 x 17 f32 AVX-512: 0.74x`.
pub(crate) fn takes_segments(blueprint: Blueprint) -> bool {
    let output = blueprint.output;
    blueprint.team.has_tail() && (output.col_dims > 1 || output.nontemporal)
}

/// Blueprint for a vector at any alignment: no non-temporal store.
fn anywhere(blueprint: Blueprint) -> Blueprint {
    Blueprint {
        output: AccessBlueprint {
            nontemporal: false,
            ..blueprint.output
        },
        ..blueprint
    }
}

/// Normalizes the steps from `first` on, all in one segment and with its parameters. The rows are
/// read again from memory.
///
/// With non-temporal stores, full vectors begin at an aligned address behind the segment's start.
/// The unit that owns the first step also writes the head vector in front of it.
#[cube]
pub(crate) fn apply_segment<T: Types>(
    first: usize,
    steps: usize,
    params: &ComptimeOption<AffineStep<T::A, T::N>>,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let of_segment = comptime!(segment_blueprint(blueprint));
    let anywhere = comptime!(anywhere(of_segment));
    let vectorization = comptime!(blueprint.team.lanes());
    let width = T::N::value();
    let begin = first % partition.segment_steps;
    let end = begin + steps;
    let segment = first - begin;
    let output = &bound.results.output;
    let to_output =
        step_offset::<T::O, T::Output, T::N>(output, segment, blueprint.output, vectorization);
    let length = partition.segment_steps * width - partition.overlap;

    let mut ahead = 0usize;
    if comptime!(blueprint.output.nontemporal) {
        ahead = (width - (unit_rows.rows.index(0usize).result.output + to_output) % width) % width;
        if begin == 0 && ahead > 0 {
            let start = rows_from::<T>(unit_rows, &*bound, segment, 0usize, to_output, blueprint);
            apply_steps::<T>(0usize, 1usize, params, &start, bound, anywhere);
        }
    }
    let whole = (length - ahead) / width;
    let stop = max(min(end, whole), begin);
    let between = rows_from::<T>(unit_rows, &*bound, segment, ahead, to_output, blueprint);
    apply_steps::<T>(begin, stop - begin, params, &between, bound, of_segment);
    // Remaining steps: the tail, and with a head also the step before it.
    for step in stop..end {
        let begin = min(step * width, length - width);
        let last = rows_from::<T>(unit_rows, &*bound, segment, begin, to_output, blueprint);
        apply_steps::<T>(0usize, 1usize, params, &last, bound, anywhere);
    }
}

/// Positions in the segment that begins with the step `segment`, advanced by `elements`.
#[cube]
fn rows_from<T: Types>(
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &Bound<'_, T>,
    segment: usize,
    elements: usize,
    to_output: usize,
    #[comptime] blueprint: Blueprint,
) -> UnitRows<T::A, T::N> {
    let mut rows = Sequence::<Row<T::A, T::N>>::new();
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        let row = unit_rows.rows.index(r);
        let start = segment_start::<T>(bound.source, &row.source, segment, blueprint);
        rows.push(Row::<T::A, T::N> {
            source: further_row::<T>(&start, elements, blueprint),
            statistics: row.statistics.same(),
            result: ResultRow::<T::A, T::N> {
                output: row.result.output + to_output + elements,
                sum: row.result.sum + to_output + elements,
                affine: row.result.affine.same(),
                rotation: row.result.rotation,
                in_bounds: row.result.in_bounds,
            },
        });
    }
    let next = if comptime!(blueprint.team.prefetches_next_row()) {
        let next = unit_rows.next.as_ref().unwrap();
        let start = segment_start::<T>(bound.source, next, segment, blueprint);
        ComptimeOption::new_Some(further_row::<T>(&start, elements, blueprint))
    } else {
        ComptimeOption::new_None()
    };
    UnitRows::<T::A, T::N> { rows, next }
}
