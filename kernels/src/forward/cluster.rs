//! Statistics of a row that the cubes of a cluster share. Each cube reduces its part, publishes it, and merges all
//! parts in the same order.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Staging};

use crate::memory::input::{SourceRow, TypedSource};
use crate::memory::stage::{TypedStaged, stage};
use crate::reduce::accumulate::row_moments;
use crate::reduce::cluster::{MAX_POLLS, Words, poll, publish, wait};
use crate::reduce::moments::{Moments, merge, same};
use crate::reduce::staged::{staged_moments, staged_shift};
use crate::schedule::partition::{Partition, part_count};
use crate::schedule::share::{Share, my_share};
use crate::types::Types;

/// Moments of a row, relative to its shift, which all cubes sample from the same elements.
///
/// If a peer is late, a cube reduces all parts itself, to the same bits.
#[cube]
pub(crate) fn cluster_moments<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    staged: &ComptimeOption<TypedStaged<T>>,
    share: &Share,
    part: usize,
    words: &Words,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(blueprint.team);
    let cubes = comptime!(team.cluster_size() as usize);
    let mine = part_moments::<T>(source, row, staged, share, part, partition, blueprint);
    publish::<T::A, T::N>(&mine, words, round, team);
    let found = poll(words, round, team);
    let received = wait(found, words, round, MAX_POLLS, team);
    let count = part_count::<T::A, T::N>(partition, 0usize.runtime(), team);
    let mut all = received.part::<T::A, T::N>(0usize, count);
    if received.is_all {
        #[unroll]
        for cube in 1..cubes {
            let count = part_count::<T::A, T::N>(partition, cube.runtime(), team);
            let next = received.part::<T::A, T::N>(cube, count);
            let merged = merge::<T::A, T::N>(&all, &next, team);
            all.count = merged.count;
            all.mean = merged.mean;
            all.m2 = merged.m2;
        }
    } else {
        // Registers hold a part for as long as it is reduced, since shared memory may hold this cube's own.
        let again = comptime!(Blueprint {
            staging: match blueprint.staging.vectors() {
                Some(vectors) => Staging::Registers(vectors),
                None => Staging::Reload,
            },
            ..blueprint
        });
        let mut other = 0usize;
        while other < cubes {
            let share = my_share(other, partition, team);
            let staged = staged_part::<T>(source, row, &share, partition, again);
            let of_part = part_moments::<T>(source, row, &staged, &share, other, partition, again);
            if other == 0 {
                all.count = of_part.count;
                all.mean = of_part.mean;
                all.m2 = of_part.m2;
            } else {
                let merged = merge::<T::A, T::N>(&all, &of_part, team);
                all.count = merged.count;
                all.mean = merged.mean;
                all.m2 = merged.m2;
            }
            other += 1;
        }
    }
    all
}

/// Stages a part of a row if the plan stages rows.
#[cube]
fn staged_part<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> ComptimeOption<TypedStaged<T>> {
    if comptime!(blueprint.staging != Staging::Reload) {
        let staged = stage::<T>(source, row, share, partition.steps, blueprint);
        ComptimeOption::new_Some(staged)
    } else {
        ComptimeOption::new_None()
    }
}

/// Moments of a part of a row, relative to the row's shift and merged over a cube.
#[cube]
fn part_moments<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    staged: &ComptimeOption<TypedStaged<T>>,
    share: &Share,
    part: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    if comptime!(blueprint.staging != Staging::Reload) {
        let staged = staged.as_ref().unwrap();
        let count = part_count::<T::A, T::N>(partition, part, blueprint.team);
        let shift = staged_shift::<T>(staged, share, count, blueprint);
        let of_part = SourceRow::<T::A, T::N> {
            input: row.input,
            residual: row.residual,
            shift,
        };
        let moments = staged_moments::<T>(staged, &of_part, share, count, blueprint);
        Moments::<T::A, T::N> {
            count,
            mean: moments.mean + (shift - row.shift),
            m2: moments.m2,
        }
    } else {
        same::<T::A, T::N>(&row_moments::<T>(source, row, share, partition, blueprint))
    }
}
