//! Row of a round: located, prefetched, and published to the cluster.

use cubecl::prelude::*;
use cubenorm_core::BackwardBlueprint;

use crate::backward::element::{BackwardRow, TypedBackwardSource, backward_row, read_step};
use crate::backward::stage::{TypedStagedRow, TypedStagedScale};
use crate::backward::sums::sum_up_staged;
use crate::epilogue::Scalars;
use crate::reduce::cluster::{Words, publish};
use crate::reduce::team::merge_team;
use crate::schedule::item::{Item, item};
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, my_share, step_to_load};
use crate::types::Types;

/// Reduces the row of a round from registers and publishes its sums to the cluster.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(crate) fn publish_round<T: Types>(
    source: &TypedBackwardSource<T>,
    staged: &TypedStagedRow<T>,
    words: &Words,
    scale: &TypedStagedScale<T>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let share = share_of_item(&item, partition, blueprint);
    let found = found_row::<T>(source, staged, &item, partition, blueprint);
    let mine = sum_up_staged::<T>(source, staged, scale, &found, &share, scalars, blueprint);
    let of_cube = merge_team::<T::A, T::N>(mine.index(0usize), team);
    publish::<T::A, T::N>(&of_cube, words, round, team);
}

/// Slice of a work item for this unit.
#[cube]
pub(crate) fn share_of_item(
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Share {
    let mut share = my_share(item.part, partition, blueprint.team);
    if comptime!(blueprint.row.is_double()) {
        // Multiplies by one at run time. The compiler cannot know that, so it does not keep
        // converted values between the two passes.
        share.count *= min(partition.cols, 1usize);
    }
    share
}

/// Locates an item's row, with its prefetched statistics.
#[cube]
pub(crate) fn found_row<T: Types>(
    source: &TypedBackwardSource<T>,
    staged: &TypedStagedRow<T>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> BackwardRow<T::A, T::N> {
    let mut found = backward_row::<T>(source, item.row, partition, blueprint);
    if comptime!(blueprint.row.is_ahead()) {
        // The statistics came with the row, which saves another load.
        let saved = staged.saved();
        found.mean.constant = Vector::new(saved.mean);
        found.rstd.constant = Vector::new(saved.rstd);
    }
    found
}

/// Loads a unit's slice of the row of a round into registers.
#[cube]
pub(crate) fn read_row<T: Types>(
    source: &TypedBackwardSource<T>,
    staged: &mut TypedStagedRow<T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let share = my_share(item.part, partition, team);
    let row = backward_row::<T>(source, item.row, partition, blueprint);
    if comptime!(blueprint.row.is_ahead()) {
        staged.set_saved(&row.saved());
    }
    #[unroll]
    for i in 0..comptime!(blueprint.staged_vectors()) {
        let step = step_to_load(i, &share, partition.steps, team);
        staged.set(
            i,
            &read_step::<T, T::F, T::R, T::O>(source, &row, step, blueprint),
        );
    }
}
