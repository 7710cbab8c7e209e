//! Statistics of a row, and their output.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint, Vectorization, WrittenStatistics};

use crate::forward::io::{Bound, TypedResults};
use crate::memory::access::row_offset;
use crate::memory::input::SourceRow;
use crate::reduce::moments::{Moments, RowStatistics, finish};
use crate::schedule::item::Item;
use crate::schedule::partition::{Partition, row_elements};
use crate::schedule::team::member;
use crate::types::{One, Types};

/// Statistics of a row from its moments. Writes them if requested.
#[cube]
pub(crate) fn item_statistics<T: Types>(
    moments: &Moments<T::A, T::N>,
    source_row: &SourceRow<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> RowStatistics<T::A, T::N> {
    let count = row_elements::<T::A, T::N>(partition, blueprint.team);
    let statistics = finish::<T::A, T::N>(moments, count, bound.epsilon(), blueprint);
    write_statistics::<T>(
        bound.results,
        source_row,
        &statistics,
        item,
        partition,
        blueprint,
    );
    statistics
}

/// Writes the statistics of each row of a group if requested. The scale of a quantised row is written later.
#[cube]
#[allow(
    clippy::manual_is_multiple_of,
    reason = "kernels have no such function"
)]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn write_statistics<T: Types>(
    results: &mut TypedResults<T>,
    source_row: &SourceRow<T::A, T::N>,
    statistics: &RowStatistics<T::A, T::N>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    if comptime!(blueprint.written_statistics.is_some() && !blueprint.scales_rows()) {
        if item.in_bounds && item.part == 0 && member(blueprint.team) == 0 {
            let tensor = results.statistics.as_mut().unwrap();
            let (kind, dims) = comptime!(blueprint.written_statistics.unwrap());
            let access = comptime!(AccessBlueprint::of_numbers(dims, 0));
            let rows = comptime!(match blueprint.team.lanes() {
                Vectorization::Parallel => 1,
                Vectorization::Perpendicular => blueprint.team.vector,
            });
            #[unroll]
            for lane in 0..rows {
                let row = item.row + lane;
                let first = comptime!(kind.count())
                    * row_offset::<T::A, One>(&*tensor, row, access, Vectorization::Parallel);
                let is_norm = comptime!(blueprint.statistics.is_norm());
                let mean = if is_norm {
                    T::A::new(0.0)
                } else {
                    source_row.shift.extract(lane) + statistics.mean.extract(lane)
                };
                let second = if comptime!(kind == WrittenStatistics::MeanVariance) {
                    statistics.variance.extract(lane)
                } else if is_norm {
                    statistics.rstd.extract(lane) * statistics.mean.extract(lane)
                } else {
                    statistics.rstd.extract(lane)
                };
                // Combined channels share these numbers, which the first channel writes.
                if comptime!(!blueprint.team.is_segmented()) || row % partition.channels == 0 {
                    tensor[first] = Vector::new(mean);
                    tensor[first + 1] = Vector::new(second);
                    if comptime!(kind == WrittenStatistics::MeanRstdVariance) {
                        tensor[first + 2] = Vector::new(statistics.variance.extract(lane));
                    }
                }
            }
        }
    }
}
