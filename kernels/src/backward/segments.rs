//! Backward pass over segments of columns, each with one scale and one bias.

use cubecl::prelude::*;
use cubenorm_core::{
    AccessBlueprint, BackwardBlueprint, Execution, GateBlueprint, Level, RowSums, Team,
    Vectorization,
};

use crate::backward::element::{BackwardRow, TypedBackwardSource, params, segment_of_row};
use crate::backward::io::{Bound, TypedResults};
use crate::backward::param_partials::ColumnPart;
use crate::backward::step::{UnitRows, pass_steps};
use crate::backward::sums::{sum_up, sum_up_tail};
use crate::epilogue::Scalars;
use crate::memory::access::{col_offset, optional_offset, row_offset};
use crate::memory::segment::segment_access;
use crate::reduce::moments::{Moments, same};
use crate::reduce::team::merge_team;
use crate::schedule::partition::Partition;
use crate::schedule::share::Share;
use crate::schedule::team::member;
use crate::types::{One, Types};

/// Blueprint of a segment as a row of its own, without its tail.
fn segment_blueprint(blueprint: BackwardBlueprint) -> BackwardBlueprint {
    let constant = |access: AccessBlueprint| AccessBlueprint {
        col_dims: 0,
        ..access.without_tail()
    };
    BackwardBlueprint {
        team: blueprint.team.without_tail(),
        input: segment_access(blueprint.input),
        output_gradient: segment_access(blueprint.output_gradient),
        input_gradient: blueprint.input_gradient.map(segment_access),
        gate: blueprint.gate.map(|gate| GateBlueprint {
            access: segment_access(gate.access),
            ..gate
        }),
        scale: blueprint.scale.map(constant),
        bias: blueprint.bias.map(constant),
        ..blueprint
    }
}

/// Steps of a segment without its tail.
#[cube]
fn whole_steps(partition: &Partition, #[comptime] team: Team) -> usize {
    if comptime!(team.has_tail()) {
        partition.segment_steps - 1
    } else {
        partition.segment_steps
    }
}

/// Elements of a segment before its tail vector.
#[cube]
fn to_end<N: Size>(partition: &Partition) -> usize {
    (partition.segment_steps - 1) * N::value() - partition.overlap
}

/// Reduces the segment that begins with a step, before its scale is applied.
#[cube]
fn sum_up_segment<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Moments<T::A, T::N> {
    let of_segment = comptime!(BackwardBlueprint {
        sums: RowSums::Plain,
        ..segment_blueprint(blueprint)
    });
    let mut rows = Sequence::<BackwardRow<T::A, T::N>>::new();
    rows.push(segment_of_row::<T>(source, row, step, blueprint));
    let share = Share {
        begin: 0usize.runtime(),
        count: whole_steps(partition, blueprint.team),
    };
    let mine = sum_up::<T>(source, &rows, &share, partition, scalars, of_segment);
    let mut sums = same::<T::A, T::N>(mine.index(0usize));
    if comptime!(blueprint.team.has_tail()) {
        let end = rows.index(0usize).offset_by(to_end::<T::N>(partition));
        let end = sum_up_tail::<T>(source, &end, partition.overlap, scalars, of_segment);
        sums.mean += end.mean;
        sums.m2 += end.m2;
    }
    sums
}

/// Writes the input gradient of a row segment by segment.
#[cube]
pub(crate) fn pass_segments<T: Types>(
    unit_rows: &UnitRows<T::A, T::N>,
    part: &ColumnPart,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let of_segment = comptime!(segment_blueprint(blueprint));
    let team = comptime!(blueprint.team);
    let access = comptime!(blueprint.input_gradient);
    let (source, row) = (
        unit_rows.sources.index(0usize),
        unit_rows.rows.index(0usize),
    );
    for segment in 0..partition.steps / partition.segment_steps {
        let step = segment * partition.segment_steps;
        let input = &bound.results.input;
        let to_segment =
            optional_offset::<T::F, T::Output, T::N>(input, step, access, team.lanes());
        let source = segment_of_row::<T>(bound.source, source, step, blueprint);
        let whole = UnitRows::<T::A, T::N>::one(source, row.offset_by(to_segment));
        let share = Share {
            begin: 0usize.runtime(),
            count: whole_steps(partition, team),
        };
        pass_steps::<T>(&whole, &share, part, bound, partition, of_segment);
        if comptime!(team.has_tail()) {
            let to_end = to_end::<T::N>(partition);
            let (source, row) = (whole.sources.index(0usize), whole.rows.index(0usize));
            let end = UnitRows::<T::A, T::N>::one(source.offset_by(to_end), row.offset_by(to_end));
            let share = Share {
                begin: 0usize.runtime(),
                count: 1usize.runtime(),
            };
            pass_steps::<T>(&end, &share, part, bound, partition, of_segment);
        }
    }
}

/// Reduces a row segment by segment and writes the sums of each segment. One unit or one plane of
/// the team takes a segment.
///
/// Returns each unit's contribution to the row sums. The first lane of a plane contributes its
/// segments.
#[cube]
pub(crate) fn sum_up_segments<T: Types>(
    sources: &Sequence<BackwardRow<T::A, T::N>>,
    group: usize,
    bound: &mut Bound<'_, T>,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<Moments<T::A, T::N>> {
    let team = comptime!(blueprint.team);
    let finders = comptime!(segment_team(team));
    // Scaled once per segment.
    let of_segment = comptime!(BackwardBlueprint {
        team: finders,
        sums: RowSums::Plain,
        ..blueprint
    });
    let together = comptime!(finders.size() as usize);
    let lane = member(team) % together;
    let is_leader = lane == 0;
    let segments = partition.steps / partition.segment_steps;
    let row = sources.index(0usize);
    let mut mean = T::A::new(0.0);
    let mut m2 = T::A::new(0.0);
    let mut segment = member(team) / together;
    while segment < segments {
        let step = segment * partition.segment_steps;
        let mine = if comptime!(blueprint.team.params_by_segment()) {
            sum_up_segment::<T>(bound.source, row, step, partition, bound.scalars, blueprint)
        } else {
            let share = Share {
                begin: step + lane,
                count: (partition.segment_steps + comptime!(together - 1) - lane) / together,
            };
            let mine = sum_up::<T>(
                bound.source,
                sources,
                &share,
                partition,
                bound.scalars,
                of_segment,
            );
            same::<T::A, T::N>(mine.index(0usize))
        };
        let found = merge_team::<T::A, T::N>(&mine, finders);
        let gradients = found.mean.extract(0usize);
        let products = found.m2.extract(0usize);
        if is_leader {
            let scale = if comptime!(blueprint.weights()) {
                params::<T>(bound.source, row, step, blueprint)
                    .scale
                    .extract(0usize)
            } else {
                T::A::new(1.0)
            };
            mean += gradients * scale;
            m2 += products * scale;
            let column = segment * (partition.segment_steps * T::N::value() - partition.overlap);
            write_sums::<T>(bound.results, &found, group, column, blueprint);
        }
        segment += comptime!((team.size() / finders.size()) as usize);
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

/// Units of a team that reduce a segment: one unit or one plane.
fn segment_team(team: Team) -> Team {
    match team.level() {
        Level::Unit => team,
        _ => Team {
            execution: Execution::Plane {
                size: team.plane_size(),
            },
            ..team
        },
    }
}

/// Writes the sums of the segment of a row that begins with a column.
#[cube]
fn write_sums<T: Types>(
    results: &mut TypedResults<T>,
    sums: &Moments<T::A, T::N>,
    row: usize,
    column: usize,
    #[comptime] blueprint: BackwardBlueprint,
) {
    let tensor = results.rows.as_mut().unwrap();
    let axis = comptime!(Vectorization::Parallel);
    let access = comptime!(blueprint.row_sums.unwrap());
    let pair = 2 * row_offset::<T::A, One>(&*tensor, row, access, axis)
        + 2 * col_offset::<T::A, One>(&*tensor, column, access, axis);
    tensor[pair] = Vector::new(sums.m2.extract(0usize));
    tensor[pair + 1] = Vector::new(sums.mean.extract(0usize));
}
