//! The kernels of a gradient: in one launch, or in two where rows are split.

use cubecl::prelude::*;
use cubenorm_core::{GradientBlueprint, Hold, Lanes, Level, RowKept, StatisticsKind, Team};

use super::element::{
    Element, GradientRow, GradientSource, Params, Step, TypedGradientSource, element, gradient_row,
    params, read_step,
};
use super::held::{
    ColumnStep, HeldColumns, HeldRow, TypedHeldRow, TypedHeldScale, held_params, hold_scale,
};
use super::sums::{nothing, params_of, sum_up, sum_up_held, sum_up_parts};
use crate::forward::Scalars;
use crate::moments::{Moments, same};
use crate::operand::{Optional, col_offset, group_row, optional_start, row_offset, store};
use crate::strategy::peers::{Words, hear, look, tell};
use crate::strategy::split::{Partition, merge_parts, row_elements, write_part};
use crate::strategy::{member, merge_team, team_index};
use crate::types::{One, Typed, Types};
use crate::work::{Item, Share, has_step, item, my_share, own_part, step_to_load};

/// The tensors that are written.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct GradientResults<F: Float, NY: Size, A: Float, N: Size> {
    /// The input's gradient.
    pub(crate) input: Optional<F, NY>,
    /// `sum(dz * xhat)` and `sum(dz)` of each row, as pairs.
    pub(crate) rows: Optional<A, One>,
    /// The same of each column over the rows of a team, or of each row that several teams share: for each
    /// of these a row of the first, then a row of the second.
    pub(crate) columns: Optional<A, N>,
}

/// [`GradientResults`] of a kernel's types.
type TypedResults<T> =
    GradientResults<<T as Types>::F, <T as Types>::Output, <T as Types>::A, <T as Types>::N>;

/// What is taken off a row's gradient: a constant, and a multiple of the normalized value.
#[derive(CubeType, Clone, Copy)]
struct Correction<A: Float, N: Size> {
    constant: Vector<A, N>,
    multiple: Vector<A, N>,
}

#[cube]
fn correction<A: Float, N: Size>(
    sums: &Moments<A, N>,
    row: &GradientRow<A, N>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) -> Correction<A, N> {
    let kind = comptime!(blueprint.statistics);
    let mut sum = sums.mean;
    let mut products = sums.m2;
    if comptime!(!blueprint.weights && blueprint.scale.is_some()) {
        sum *= row.scale.constant;
        products *= row.scale.constant;
    }
    if comptime!(matches!(
        kind,
        StatisticsKind::L1Norm | StatisticsKind::L2Norm
    )) {
        // A norm is a sum, not a mean.
        Correction::<A, N> {
            constant: sum,
            multiple: products,
        }
    } else {
        let count = Vector::<A, N>::new(row_elements::<A, N>(partition, blueprint.team));
        let mut multiple = mean_of::<A, N>(products, count, blueprint);
        if comptime!(!blueprint.epsilon_in_sqrt && kind.reduces_deviation()) {
            // The deviation alone moves with the input: (deviation + epsilon) / deviation more.
            let epsilon = Vector::<A, N>::new(scalars.epsilon.get::<A>());
            let one = Vector::<A, N>::new(A::new(1.0));
            let share = one - epsilon * row.rstd.constant;
            let zero = Vector::<A, N>::new(A::new(0.0));
            let has_deviation = share.greater_than(&zero);
            multiple = select_many(
                has_deviation,
                multiple / select_many(has_deviation, share, one),
                zero,
            );
        }
        Correction::<A, N> {
            constant: mean_of::<A, N>(sum, count, blueprint),
            multiple,
        }
    }
}

/// A sum over a row by what it is of.
#[cube]
fn mean_of<A: Float, N: Size>(
    sum: Vector<A, N>,
    count: Vector<A, N>,
    #[comptime] blueprint: GradientBlueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.row == RowKept::InTurn) {
        // A division is a call, for which units that hold so much have no registers; one of them does for both sums.
        sum * (Vector::<A, N>::new(A::new(1.0)) / count)
    } else {
        sum / count
    }
}

/// The input's gradient.
#[cube]
fn passed_back<A: Float, N: Size>(
    element: &Element<A, N>,
    correction: &Correction<A, N>,
    #[comptime] blueprint: GradientBlueprint,
) -> Vector<A, N> {
    match comptime!(blueprint.statistics) {
        StatisticsKind::None => element.deep,
        StatisticsKind::Given => element.deep * element.rstd,
        StatisticsKind::Mean => element.deep - correction.constant,
        StatisticsKind::MeanVariance => {
            let centered = element.deep - correction.constant;
            (centered - element.normalized * correction.multiple) * element.rstd
        }
        StatisticsKind::MeanSquare | StatisticsKind::L2Norm => {
            (element.deep - element.normalized * correction.multiple) * element.rstd
        }
        StatisticsKind::L1Norm => {
            let zero = Vector::<A, N>::new(A::new(0.0));
            let one = Vector::<A, N>::new(A::new(1.0));
            let sign = select_many(element.input.less_than(&zero), -one, one);
            let sign = select_many(element.input.equal(&zero), zero, sign);
            (element.deep - sign * correction.multiple) * element.rstd
        }
    }
}

/// Passes back: each team sums up a row, or merges what [`gradient_parts`] has left of its parts,
/// then writes what is wanted.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn gradient<
    F: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Above: Size,
    Scale: Size,
    Bias: Size,
    Output: Size,
    W: Size,
>(
    source: &GradientSource<F, P, A, Input, Above, Scale, Bias>,
    results: &mut GradientResults<F, Output, A, N>,
    parts: &Optional<A, W>,
    words: &Words,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: GradientBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let scale = hold_scale::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
        source, &partition, blueprint,
    );
    let mut held = HeldColumns::<A, N>::zeros(blueprint);
    let mut row = HeldRow::<F, A, N>::new(blueprint.row != RowKept::Reread, blueprint);
    let mut next = HeldRow::<F, A, N>::new(blueprint.row.is_ahead(), blueprint);
    if comptime!(blueprint.row == RowKept::Ahead) {
        read_row::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
            source,
            &mut next,
            0usize.runtime(),
            &partition,
            blueprint,
        );
    } else if comptime!(blueprint.row == RowKept::InTurn) {
        read_row::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
            source,
            &mut row,
            0usize.runtime(),
            &partition,
            blueprint,
        );
    }
    if comptime!(blueprint.tells_ahead()) {
        read_row::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
            source,
            &mut next,
            1usize.runtime(),
            &partition,
            blueprint,
        );
        tell_round::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
            source,
            &row,
            words,
            &scale,
            0usize.runtime(),
            &partition,
            &scalars,
            blueprint,
        );
    }
    let mut round = 0usize;
    while round < partition.items_per_team {
        gradient_items::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>, W>(
            source, results, parts, words, &scale, &mut held, &mut row, &mut next, round,
            &partition, &scalars, blueprint,
        );
        round += comptime!(blueprint.abreast);
        if comptime!(blueprint.row == RowKept::InTurn) {
            gradient_items::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>, W>(
                source, results, parts, words, &scale, &mut held, &mut next, &mut row, round,
                &partition, &scalars, blueprint,
            );
            round += comptime!(blueprint.abreast);
        }
    }
    if comptime!(blueprint.held_columns != Hold::Reread) {
        write_held::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, Output)>>(
            results, &held, &partition, blueprint,
        );
    }
}

/// Sums up the row of a round, which its units hold, and tells the cubes of the team.
#[cube]
#[allow(clippy::too_many_arguments)]
fn tell_round<T: Types>(
    source: &TypedGradientSource<T>,
    held: &TypedHeldRow<T>,
    words: &Words,
    scale: &TypedHeldScale<T>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let share = share_of_item(&item, partition, blueprint);
    let found = found_row::<T>(source, held, &item, partition, blueprint);
    let mine = sum_up_held::<T>(source, held, scale, &found, &share, scalars, blueprint);
    let of_cube = merge_team::<T::A, T::N>(mine.index(0usize), team);
    tell::<T::A, T::N>(&of_cube, words, round, team);
}

/// This unit's steps of an item.
#[cube]
fn share_of_item(
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: GradientBlueprint,
) -> Share {
    let mut share = my_share(item.part, partition, blueprint.team);
    if comptime!(blueprint.row == RowKept::InTurn) {
        // There are columns, or nothing would have been launched; as no compiler knows, it does not keep what one pass
        // has converted for the other.
        share.count *= min(partition.cols, 1usize);
    }
    share
}

/// The row of an item, with what is held of it.
#[cube]
fn found_row<T: Types>(
    source: &TypedGradientSource<T>,
    held: &TypedHeldRow<T>,
    item: &Item,
    partition: &Partition,
    #[comptime] blueprint: GradientBlueprint,
) -> GradientRow<T::A, T::N> {
    let first_row = group_row::<T::N>(item.group, blueprint.team);
    let mut found = gradient_row::<T>(source, first_row, partition, blueprint);
    if comptime!(blueprint.row.is_ahead()) {
        // It came with the row, and nobody waits for it again.
        let saved = held.saved();
        found.mean.constant = Vector::new(saved.mean);
        found.rstd.constant = Vector::new(saved.rstd);
    }
    found
}

/// Reads a unit's share of the row of a round into registers.
#[cube]
fn read_row<T: Types>(
    source: &TypedGradientSource<T>,
    held: &mut TypedHeldRow<T>,
    round: usize,
    partition: &Partition,
    #[comptime] blueprint: GradientBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let share = my_share(item.part, partition, team);
    let first_row = group_row::<T::N>(item.group, team);
    let row = gradient_row::<T>(source, first_row, partition, blueprint);
    if comptime!(blueprint.row.is_ahead()) {
        held.set_saved(&row.saved());
    }
    #[unroll]
    for i in 0..comptime!(blueprint.held_vectors()) {
        let step = step_to_load(i, &share, partition.steps, team);
        held.set(i, &read_step::<T, T::F>(source, &row, step, blueprint));
    }
}

/// Writes what a unit has held, zeros too where its team had no row.
#[cube]
fn write_held<T: Types>(
    results: &mut TypedResults<T>,
    held: &HeldColumns<T::A, T::N>,
    partition: &Partition,
    #[comptime] blueprint: GradientBlueprint,
) {
    let share = my_share(own_part(blueprint.team), partition, blueprint.team);
    let vectors = comptime!(blueprint.held_vectors());
    let is_first = true.runtime();
    #[unroll]
    for i in 0..vectors {
        if has_step(i, &share, blueprint.team) {
            let step = share.begin + i * comptime!(blueprint.team.members as usize);
            let sums = held.get(i, blueprint);
            let slot = team_index(blueprint.team);
            add_columns::<T>(
                results,
                slot,
                step,
                sums.products,
                sums.gradients,
                is_first,
                partition,
                blueprint,
            );
        }
    }
}

/// A row on its way back.
#[derive(CubeType, Clone, Copy)]
struct Row<A: Float, N: Size> {
    correction: Correction<A, N>,
    output: usize,
    exists: bool,
}

/// Passes back as many items as the plan takes abreast, the first of them in `round`. Rows abreast
/// add to the sums of their columns together. Where the plan reads ahead, this round's row is there
/// already, in `row` where rooms take turns, else in `next`, and `next` becomes that of the next
/// round. Where cubes tell ahead, `next` is that of the next round already, which is summed up
/// here, and `row` becomes that of the round after it.
#[cube]
#[allow(clippy::too_many_arguments)]
fn gradient_items<T: Types, W: Size>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    parts: &Optional<T::A, W>,
    words: &Words,
    scale: &TypedHeldScale<T>,
    held: &mut HeldColumns<T::A, T::N>,
    row: &mut TypedHeldRow<T>,
    next: &mut TypedHeldRow<T>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let team = comptime!(blueprint.team);
    let first = item(round, partition, team);
    // As in the forward kernel, units that may wait for each other come along.
    let comes = first.exists || comptime!(team.level == Level::Column);
    let share = share_of_item(&first, partition, blueprint);
    if comes {
        let lanes = comptime!(team.lanes);
        let access = comptime!(blueprint.input_gradient);
        if comptime!(blueprint.row == RowKept::Ahead) {
            row.take(&*next, blueprint);
        }
        let mut sources = Sequence::<GradientRow<T::A, T::N>>::new();
        let mut outputs = Sequence::<usize>::new();
        #[unroll]
        for r in 0..blueprint.abreast {
            let item = item(round + r, partition, team);
            let first_row = group_row::<T::N>(item.group, team);
            sources.push(found_row::<T>(source, &*row, &item, partition, blueprint));
            outputs.push(optional_start::<T::F, T::Output>(
                &results.input,
                first_row,
                partition.cols_written,
                access,
                lanes,
            ));
        }
        if comptime!(blueprint.row == RowKept::Held) {
            read_row::<T>(source, row, round, partition, blueprint);
        }
        // A whole round after they were told, and ahead of the wait for the next row.
        let found = if comptime!(blueprint.tells_ahead()) {
            ComptimeOption::<u64>::new_Some(look(words, round, team))
        } else {
            ComptimeOption::<u64>::new_None()
        };
        let mine = if comptime!(blueprint.tells_ahead()) {
            tell_round::<T>(
                source,
                &*next,
                words,
                scale,
                round + 1,
                partition,
                scalars,
                blueprint,
            );
            nothing::<T::A, T::N>(1usize)
        } else if comptime!(blueprint.row != RowKept::Reread) {
            sum_up_held::<T>(
                source,
                &*row,
                scale,
                sources.index(0usize),
                &share,
                scalars,
                blueprint,
            )
        } else if comptime!(blueprint.sums_runs()) {
            let group = first.group;
            sum_up_runs::<T>(
                source, results, &sources, group, partition, scalars, blueprint,
            )
        } else if comptime!(blueprint.reduces && !blueprint.split) {
            sum_up::<T>(source, &sources, &share, partition, scalars, blueprint)
        } else {
            nothing::<T::A, T::N>(blueprint.abreast)
        };
        if comptime!(blueprint.row.is_ahead() && !blueprint.tells_ahead()) {
            // Under way while the team waits for its sums, behind all else that it reads.
            read_row::<T>(source, next, round + 1, partition, blueprint);
        }
        let mut rows = Sequence::<Row<T::A, T::N>>::new();
        #[unroll]
        for r in 0..blueprint.abreast {
            let item = item(round + r, partition, team);
            let sums = if comptime!(blueprint.reduces && blueprint.split) {
                let parts = parts.as_ref().unwrap();
                merge_parts::<T::A, T::N, W>(parts, item.group, partition, team)
            } else if comptime!(blueprint.reduces && team.peers > 1) {
                if comptime!(!blueprint.tells_ahead()) {
                    let of_cube = merge_team::<T::A, T::N>(mine.index(r), team);
                    tell::<T::A, T::N>(&of_cube, words, round, team);
                }
                let vectors = comptime!(blueprint.held_vectors());
                let found = if comptime!(blueprint.tells_ahead()) {
                    found.unwrap()
                } else {
                    look(words, round, team)
                };
                let heard = hear::<T::A, T::N>(found, words, round, vectors, team);
                let mut sums = same::<T::A, T::N>(&heard.sums);
                if !heard.is_all {
                    let all = sum_up_parts::<T>(source, &sources, partition, scalars, blueprint);
                    sums.mean = all.mean;
                    sums.m2 = all.m2;
                }
                sums
            } else if comptime!(blueprint.reduces) {
                merge_team::<T::A, T::N>(mine.index(r), team)
            } else {
                same::<T::A, T::N>(mine.index(r))
            };
            write_rows::<T>(results, &sums, &item, blueprint);
            rows.push(Row::<T::A, T::N> {
                correction: correction::<T::A, T::N>(
                    &sums,
                    sources.index(r),
                    partition,
                    scalars,
                    blueprint,
                ),
                output: *outputs.index(r),
                exists: item.exists,
            });
        }
        let members = comptime!(team.members as usize);
        if comptime!(blueprint.held_columns != Hold::Reread) {
            let vectors = comptime!(blueprint.held_vectors());
            let together = comptime!(blueprint.under_way.min(vectors));
            #[unroll]
            for first in 0..comptime!(vectors.div_ceil(together)) {
                let begin = comptime!(first * together);
                let end = comptime!(vectors.min(begin + together));
                // Loads are under way before anything is written, which they must not overtake.
                let mut reads = Sequence::<Sequence<Step<T::A, T::N>>>::new();
                #[unroll]
                for i in begin..end {
                    if comptime!(blueprint.row == RowKept::Reread) {
                        let step = step_to_load(i, &share, partition.steps, team);
                        reads.push(read_steps::<T>(source, &sources, step, blueprint));
                    } else {
                        let mut held = Sequence::<Step<T::A, T::N>>::new();
                        held.push(row.get(i));
                        reads.push(held);
                    }
                }
                #[unroll]
                for i in begin..end {
                    if has_step(i, &share, team) {
                        let step = share.begin + i * members;
                        let reads = reads.index(comptime!(i - begin));
                        let first = sources.index(0usize);
                        let shared = held_params::<T>(scale, source, first, i, step, blueprint);
                        let sums = write_step::<T>(
                            source, results, &sources, reads, &rows, &shared, step, scalars,
                            blueprint,
                        );
                        held.add(i, &sums, blueprint);
                    }
                }
            }
            if comptime!(blueprint.tells_ahead()) {
                read_row::<T>(source, row, round + 2, partition, blueprint);
            }
        } else if comptime!(access.is_some() || blueprint.column_sums.any()) {
            let part = part_of_columns(&first, round, blueprint);
            let ahead = comptime!(blueprint.under_way);
            let mut done = 0usize;
            if comptime!(ahead > 1) {
                while done + comptime!(ahead - 1) < share.count {
                    let begin = share.begin + done * members;
                    // Loads are under way before anything is written, which they must not overtake.
                    let mut several = Sequence::<Sequence<Step<T::A, T::N>>>::new();
                    #[unroll]
                    for j in 0..ahead {
                        let step = begin + j * members;
                        several.push(read_steps::<T>(source, &sources, step, blueprint));
                    }
                    #[unroll]
                    for j in 0..ahead {
                        let step = begin + j * members;
                        let reads = several.index(j);
                        pass_step::<T>(
                            source, results, &sources, reads, &rows, step, &part, partition,
                            scalars, blueprint,
                        );
                    }
                    done += ahead;
                }
            }
            for i in done..share.count {
                let step = share.begin + i * members;
                let reads = read_steps::<T>(source, &sources, step, blueprint);
                pass_step::<T>(
                    source, results, &sources, &reads, &rows, step, &part, partition, scalars,
                    blueprint,
                );
            }
        }
    } else if comptime!(
        blueprint.column_sums.any() && blueprint.held_columns == Hold::Reread && !team.parts
    ) {
        // A team without rows has columns all the same, of zeros.
        if round == 0 {
            let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
            for i in 0..share.count {
                let step = share.begin + i * comptime!(team.members as usize);
                add_columns::<T>(
                    results,
                    team_index(team),
                    step,
                    zero,
                    zero,
                    true.runtime(),
                    partition,
                    blueprint,
                );
            }
        }
    }
}

/// Passes a step of rows abreast back, and adds to the sums of its columns.
#[cube]
#[allow(clippy::too_many_arguments)]
fn pass_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    step: usize,
    part: &ColumnPart,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let shared = params::<T>(source, sources.index(0usize), step, blueprint);
    let sums = write_step::<T>(
        source, results, sources, reads, rows, &shared, step, scalars, blueprint,
    );
    add_columns::<T>(
        results,
        part.slot,
        step,
        sums.products,
        sums.gradients,
        part.is_new,
        partition,
        blueprint,
    );
}

/// Reads a step of rows abreast. One that does not exist is another, which is there.
#[cube]
fn read_steps<T: Types>(
    source: &TypedGradientSource<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    step: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> Sequence<Step<T::A, T::N>> {
    let mut reads = Sequence::<Step<T::A, T::N>>::new();
    #[unroll]
    for r in 0..blueprint.abreast {
        reads.push(read_step::<T, T::A>(
            source,
            sources.index(r),
            step,
            blueprint,
        ));
    }
    reads
}

/// Passes a step of rows abreast back, and returns what it adds to the sums of its columns.
#[cube]
#[allow(clippy::too_many_arguments)]
fn write_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    shared: &Params<T::A, T::N>,
    step: usize,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnStep<T::A, T::N> {
    if comptime!(blueprint.abreast == 1 && blueprint.team.level != Level::Column) {
        // It exists, or its team would not be here; and what is added to nothing takes a unit longer.
        write_row_step::<T>(
            source, results, sources, reads, rows, shared, step, scalars, 0usize, blueprint,
        )
    } else {
        let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
        let mut products = zero;
        let mut gradients = zero;
        #[unroll]
        for r in 0..blueprint.abreast {
            if rows.index(r).exists {
                let sums = write_row_step::<T>(
                    source, results, sources, reads, rows, shared, step, scalars, r, blueprint,
                );
                products += sums.products;
                gradients += sums.gradients;
            }
        }
        ColumnStep::<T::A, T::N> {
            products,
            gradients,
        }
    }
}

/// Passes a step of one of the rows abreast back.
#[cube]
#[allow(clippy::too_many_arguments)]
fn write_row_step<T: Types>(
    source: &TypedGradientSource<T>,
    results: &mut TypedResults<T>,
    sources: &Sequence<GradientRow<T::A, T::N>>,
    reads: &Sequence<Step<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    shared: &Params<T::A, T::N>,
    step: usize,
    scalars: &Scalars,
    #[comptime] r: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnStep<T::A, T::N> {
    let row = rows.index(r);
    let params = params_of::<T>(source, sources.index(r), shared, step, blueprint);
    let element = element::<T>(
        reads.index(r),
        source,
        sources.index(r),
        &params,
        step,
        scalars,
        blueprint,
    );
    let access = comptime!(blueprint.input_gradient);
    if comptime!(access.is_some()) {
        let value = passed_back::<T::A, T::N>(&element, &row.correction, blueprint);
        let tensor = results.input.as_mut().unwrap();
        let access = comptime!(access.unwrap());
        let lanes = comptime!(blueprint.team.lanes);
        store::<T::F, T::Output, T::A, T::N>(tensor, row.output, step, value, access, lanes);
    }
    ColumnStep::<T::A, T::N> {
        products: element.shallow * element.normalized,
        gradients: element.shallow,
    }
}

/// Writes the sums of the rows of a group, where they are wanted.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn write_rows<T: Types>(
    results: &mut TypedResults<T>,
    sums: &Moments<T::A, T::N>,
    item: &Item,
    #[comptime] blueprint: GradientBlueprint,
) {
    let team = comptime!(blueprint.team);
    if comptime!(blueprint.row_sums.is_some() && !blueprint.sums_runs()) {
        if item.exists && item.part == 0 && member(team) == 0 {
            let tensor = results.rows.as_mut().unwrap();
            let access = comptime!(blueprint.row_sums.unwrap());
            let first = group_row::<T::N>(item.group, team);
            let rows = comptime!(match team.lanes {
                Lanes::Columns => 1,
                Lanes::Rows => team.vector,
            });
            #[unroll]
            for lane in 0..rows {
                let pair =
                    2 * row_offset::<T::A, One>(&*tensor, first + lane, access, Lanes::Columns);
                tensor[pair] = Vector::new(sums.m2.extract(lane));
                tensor[pair + 1] = Vector::new(sums.mean.extract(lane));
            }
        }
    }
}

/// Sums up a row run by run, each by one unit or one plane of its team, and writes the sums of runs. What comes back
/// is what each unit brings to the sums of the row: of its runs, the first of those that found them has it.
#[cube]
fn sum_up_runs<T: Types>(
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

/// Where the sums of columns of an item belong.
#[derive(CubeType, Clone, Copy)]
struct ColumnPart {
    slot: usize,
    /// Whether nothing is there yet.
    is_new: bool,
}

/// A team adds up those of its rows. Where several teams share a row, each row has sums of its own.
#[cube]
fn part_of_columns(
    item: &Item,
    round: usize,
    #[comptime] blueprint: GradientBlueprint,
) -> ColumnPart {
    if comptime!(blueprint.team.parts) {
        ColumnPart {
            slot: item.group,
            is_new: true.runtime(),
        }
    } else {
        ColumnPart {
            slot: team_index(blueprint.team),
            is_new: round == 0,
        }
    }
}

/// Adds a step to the sums of its columns, where this kernel takes them; the first row starts them.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_columns<T: Types>(
    results: &mut TypedResults<T>,
    part: usize,
    step: usize,
    products: Vector<T::A, T::N>,
    gradients: Vector<T::A, T::N>,
    is_first: bool,
    partition: &Partition,
    #[comptime] blueprint: GradientBlueprint,
) {
    let sums = comptime!(blueprint.column_sums);
    if comptime!(sums.any()) {
        let columns = results.columns.as_mut().unwrap();
        let slot = comptime!(sums.count()) * part * partition.steps + step;
        if comptime!(sums.products) {
            add_column::<T::A, T::N>(columns, slot, products, is_first);
        }
        if comptime!(sums.gradients) {
            let slot = slot + comptime!(sums.count() - 1) * partition.steps;
            add_column::<T::A, T::N>(columns, slot, gradients, is_first);
        }
    }
}

#[cube]
fn add_column<A: Float, N: Size>(
    columns: &mut Tensor<Vector<A, N>>,
    slot: usize,
    value: Vector<A, N>,
    is_first: bool,
) {
    if is_first {
        columns[slot] = value;
    } else {
        columns[slot] += value;
    }
}

/// The first launch of a split row: leaves the sums of each part in the workspace.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn gradient_parts<
    F: Float,
    P: Float,
    A: Float,
    N: Size,
    Input: Size,
    Above: Size,
    Scale: Size,
    Bias: Size,
    W: Size,
>(
    source: &GradientSource<F, P, A, Input, Above, Scale, Bias>,
    workspace: &mut Tensor<Vector<A, W>>,
    partition: Partition,
    scalars: Scalars,
    #[comptime] blueprint: GradientBlueprint,
    #[define(F)] _dtype: ElemType,
    #[define(P)] _param_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    for round in 0..partition.items_per_team {
        part_item::<Typed<(F, P, A, N), (Input, Above, Scale, Bias, One, One, One)>, W>(
            source, workspace, round, &partition, &scalars, blueprint,
        );
    }
}

#[cube]
fn part_item<T: Types, W: Size>(
    source: &TypedGradientSource<T>,
    workspace: &mut Tensor<Vector<T::A, W>>,
    round: usize,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: GradientBlueprint,
) {
    let team = comptime!(blueprint.team);
    let item = item(round, partition, team);
    let comes = item.exists || comptime!(team.level == Level::Column);
    if comes {
        let first_row = group_row::<T::N>(item.group, team);
        let mut rows = Sequence::<GradientRow<T::A, T::N>>::new();
        rows.push(gradient_row::<T>(source, first_row, partition, blueprint));
        let share = my_share(item.part, partition, team);
        let mine = sum_up::<T>(source, &rows, &share, partition, scalars, blueprint);
        let merged = merge_team::<T::A, T::N>(mine.index(0usize), team);
        if item.exists {
            write_part::<T::A, T::N, W>(workspace, &merged, item.group, item.part, partition, team);
        }
    }
}
