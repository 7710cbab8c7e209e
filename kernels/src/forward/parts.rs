//! Partial statistics of rows that are split: the first of two launches.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::memory::access::{Optional, row_start, store};
use crate::memory::input::{SourceRow, TypedSource, read, source_row};
use crate::reduce::accumulate::row_moments;
use crate::reduce::channels::write_shift;
use crate::reduce::moments::Moments;
use crate::reduce::split::{Workspace, write_part};
use crate::schedule::item::{Item, item};
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, my_share};
use crate::types::Types;

/// Tensors of the first launch of a split row.
#[derive(CubeType)]
pub(crate) struct BoundParts<'a, T: Types, W: Size> {
    pub(crate) source: &'a TypedSource<T>,
    pub(crate) sum: &'a mut Optional<T::F, T::Output>,
    pub(crate) workspace: &'a mut Workspace<T::A, W>,
}

#[cube]
impl<'a, T: Types, W: Size> BoundParts<'a, T, W> {
    pub(crate) fn new(
        source: &'a TypedSource<T>,
        sum: &'a mut Optional<T::F, T::Output>,
        workspace: &'a mut Workspace<T::A, W>,
    ) -> BoundParts<'a, T, W> {
        BoundParts::<'a, T, W> {
            source,
            sum,
            workspace,
        }
    }
}

/// Reduces the part of a row that is the work item `round`.
#[cube]
pub(crate) fn reduce_item<T: Types, W: Size>(
    bound: &mut BoundParts<'_, T, W>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let item = item(round, partition, blueprint.team);
    if item.takes_part(blueprint.team) {
        let row = source_row::<T>(bound.source, item.row, partition, blueprint);
        let share = my_share(item.part, partition, blueprint.team);
        let merged = row_moments::<T>(bound.source, &row, &share, partition, blueprint);
        if item.in_bounds {
            write_row_part::<T, W>(bound, &row, &merged, &item, &share, partition, blueprint);
        }
    }
}

/// Writes the statistics of a part, and its shift if needed, to the workspace. Also writes the sum
/// of input and residual if requested.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
pub(crate) fn write_row_part<T: Types, W: Size>(
    bound: &mut BoundParts<'_, T, W>,
    row: &SourceRow<T::A, T::N>,
    found: &Moments<T::A, T::N>,
    item: &Item,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) {
    let team = comptime!(blueprint.team);
    let (group, part) = (item.group, item.part);
    write_part::<T::A, T::N, W>(bound.workspace, found, group, part, partition, team);
    if comptime!(team.is_segmented() && blueprint.shifts()) {
        if part == 0 {
            write_shift::<T::A, T::N, W>(bound.workspace, row.shift, group, partition, team);
        }
    }
    if comptime!(blueprint.writes_sum) {
        let sum = bound.sum.as_mut().unwrap();
        let vectorization = comptime!(team.lanes());
        let access = comptime!(blueprint.output);
        let cols = partition.cols_written;
        let base = row_start::<T::F, T::Output>(&*sum, item.row, cols, access, vectorization);
        for i in 0..share.count {
            let step = share.begin + i * comptime!(team.size() as usize);
            let value = read::<T>(bound.source, row, step, blueprint);
            store::<T::F, T::Output, T::A, T::N>(sum, base, step, value, access, vectorization);
        }
    }
}
