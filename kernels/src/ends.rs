//! How runs of columns are normalized that vectors do not divide, whose last vector [ends with
//! them](cubenorm_core::Team::ragged): from end to end, and the ends apart.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, Blueprint};

use crate::apply::{ResultRow, Row, Scalars, TypedResults, apply_steps};
use crate::epilogue::{AffineStep, TypedAffine};
use crate::operand::step_offset;
use crate::runs::{further_row, of_run, run_start};
use crate::source::{SourceRow, TypedSource};
use crate::strategy::split::Partition;
use crate::types::Types;

/// Whether runs are normalized one by one. To find where each begins is worth it where several are in a row, or where results
/// pass the caches: measured with AVX-512, batch norm of floats in maps of 17 x 17 takes 1.35 times the time.
pub(crate) fn takes_runs(blueprint: Blueprint) -> bool {
    let output = blueprint.output;
    blueprint.team.ragged && (output.col_dims > 1 || output.past_caches)
}

/// How a vector of a run is written that begins anywhere.
fn anywhere(blueprint: Blueprint) -> Blueprint {
    Blueprint {
        output: AccessBlueprint {
            past_caches: false,
            ..blueprint.output
        },
        ..blueprint
    }
}

/// Normalizes so many steps from `first` on of rows that are read again, all of one run, with the parameters of that.
///
/// Where results pass the caches of a CPU, a step that does not end the run has the vector that begins less than a vector
/// behind where it else does, at a multiple of one. Who has a run's first step has the vector in front of that, too.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(crate) fn apply_run<T: Types>(
    first: usize,
    steps: usize,
    params: &ComptimeOption<AffineStep<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    next: &ComptimeOption<SourceRow<T::A, T::N>>,
    written: &Sequence<ResultRow<T::A, T::N>>,
    source: &TypedSource<T>,
    affine: &TypedAffine<T>,
    results: &mut TypedResults<T>,
    partition: &Partition,
    epsilon: T::A,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) {
    let of_run = comptime!(of_run(blueprint));
    let anywhere = comptime!(anywhere(of_run));
    let lanes = comptime!(blueprint.team.lanes);
    let width = T::N::value();
    let begin = first % partition.run;
    let end = begin + steps;
    let run = first - begin;
    let to_output =
        step_offset::<T::F, T::Output, T::N>(&results.output, run, blueprint.output, lanes);
    let length = partition.run * width - partition.overlap;

    let mut ahead = 0usize;
    if comptime!(blueprint.output.past_caches) {
        ahead = (width - (written.index(0usize).output + to_output) % width) % width;
        if begin == 0 && ahead > 0 {
            apply_from::<T>(
                run, 0usize, to_output, 0usize, 1usize, params, rows, next, written, source,
                affine, results, epsilon, scalars, blueprint, anywhere,
            );
        }
    }
    let whole = (length - ahead) / width;
    let stop = max(min(end, whole), begin);
    apply_from::<T>(
        run,
        ahead,
        to_output,
        begin,
        stop - begin,
        params,
        rows,
        next,
        written,
        source,
        affine,
        results,
        epsilon,
        scalars,
        blueprint,
        of_run,
    );
    // What is left: the end, and where the others begin later the step before it, which reaches as far as it goes.
    for step in stop..end {
        let begin = min(step * width, length - width);
        apply_from::<T>(
            run, begin, to_output, 0usize, 1usize, params, rows, next, written, source, affine,
            results, epsilon, scalars, blueprint, anywhere,
        );
    }
}

/// [`apply_steps`] of the run that begins with a step, from so many of its elements on.
#[cube]
#[allow(clippy::too_many_arguments)]
fn apply_from<T: Types>(
    run: usize,
    elements: usize,
    to_output: usize,
    first: usize,
    count: usize,
    params: &ComptimeOption<AffineStep<T::A, T::N>>,
    rows: &Sequence<Row<T::A, T::N>>,
    next: &ComptimeOption<SourceRow<T::A, T::N>>,
    written: &Sequence<ResultRow<T::A, T::N>>,
    source: &TypedSource<T>,
    affine: &TypedAffine<T>,
    results: &mut TypedResults<T>,
    epsilon: T::A,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
    #[comptime] as_run: Blueprint,
) {
    let mut moved_rows = Sequence::<Row<T::A, T::N>>::new();
    let mut moved_results = Sequence::<ResultRow<T::A, T::N>>::new();
    #[unroll]
    for r in 0..blueprint.abreast {
        let (row, result) = (rows.index(r), written.index(r));
        let start = run_start::<T>(source, &row.source, run, blueprint);
        moved_rows.push(Row::<T::A, T::N> {
            source: further_row::<T>(&start, elements, blueprint),
            statistics: row.statistics.same(),
        });
        moved_results.push(ResultRow::<T::A, T::N> {
            output: result.output + to_output + elements,
            sum: result.sum + to_output + elements,
            affine: result.affine.same(),
            exists: result.exists,
        });
    }
    let moved_next = if comptime!(blueprint.fetches_next) {
        let start = run_start::<T>(source, next.as_ref().unwrap(), run, blueprint);
        ComptimeOption::new_Some(further_row::<T>(&start, elements, blueprint))
    } else {
        ComptimeOption::new_None()
    };
    apply_steps::<T>(
        first,
        count,
        params,
        &moved_rows,
        &moved_next,
        &moved_results,
        source,
        affine,
        results,
        epsilon,
        scalars,
        as_run,
    );
}
