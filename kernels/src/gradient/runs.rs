//! Sums of runs of columns, each of which has one scale and one bias.

use cubecl::prelude::*;
use cubenorm_core::{GradientBlueprint, Lanes, Level, Team};

use super::element::{GradientRow, TypedGradientSource, params};
use super::results::TypedResults;
use super::sums::sum_up;
use crate::forward::Scalars;
use crate::moments::Moments;
use crate::operand::{col_offset, row_offset};
use crate::strategy::split::Partition;
use crate::strategy::{member, merge_team};
use crate::types::{One, Types};
use crate::work::Share;

/// Sums up a row run by run, each by one unit or one plane of its team, and writes the sums of runs. What comes back
/// is what each unit brings to the sums of the row: of its runs, the first of those that found them has it.
#[cube]
pub(super) fn sum_up_runs<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    group: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) -> Sequence<Moments<T::A, T::N>> {
    let team = comptime!(blueprint.team);
    let finders = comptime!(match team.level {
        Level::Unit => team,
        _ => Team {
            level: Level::Plane,
            members: team.plane_size,
            ..team
        },
    });
    // Scaled once for a run, which has one scale.
    let of_run = comptime!(GradientBlueprint {
        team: finders,
        weights: false,
        ..blueprint
    });
    let together = comptime!(finders.members as usize);
    let lane = member(team) % together;
    let brings = lane == 0;
    let runs = partition.steps / partition.run;
    let row = sources.index(0usize);
    let access = comptime!(blueprint.row_sums.unwrap());
    let mut mean = T::A::new(0.0);
    let mut m2 = T::A::new(0.0);
    let mut run = member(team) / together;
    while run < runs {
        let step = run * partition.run;
        let share = Share {
            begin: step + lane,
            count: (partition.run + comptime!(together - 1) - lane) / together,
        };
        let mine = sum_up::<T>(source, sources, &share, partition, scalars, of_run);
        let found = merge_team::<T::A, T::N>(mine.index(0usize), finders);
        let gradients = found.mean.extract(0usize);
        let products = found.m2.extract(0usize);
        if brings {
            let scale = if comptime!(blueprint.weights) {
                params::<T>(source, row, step, blueprint)
                    .scale
                    .extract(0usize)
            } else {
                T::A::new(1.0)
            };
            mean += gradients * scale;
            m2 += products * scale;
            let tensor = results.rows.as_mut().unwrap();
            let column = step * T::N::value();
            let pair = 2 * row_offset::<T::A, One>(&*tensor, group, access, Lanes::Columns)
                + 2 * col_offset::<T::A, One>(&*tensor, column, access, Lanes::Columns);
            tensor[pair] = Vector::new(products);
            tensor[pair + 1] = Vector::new(gradients);
        }
        run += comptime!((team.members / finders.members) as usize);
    }
    let mut mine = Moments::<T::A, T::N> {
        count: T::A::new(0.0),
        mean: Vector::new(T::A::new(0.0)),
        m2: Vector::new(T::A::new(0.0)),
    };
    mine.mean.insert(0usize, mean);
    mine.m2.insert(0usize, m2);
    let mut sums = Sequence::<Moments<T::A, T::N>>::new();
    sums.push(mine);
    sums
}
