//! Output of a step: normalize, scale, shift, activate, store.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, StatisticsKind};

use crate::epilogue::{
    AffineRow, AffineStep, FoldedRow, TypedAffine, activate, affine_row, affine_step, transform,
};
use crate::memory::access::{Optional, optional_start, row_start, store};
use crate::memory::input::{SourceRow, TypedSource, add_last, prefetch_elements, read, shifted};
use crate::reduce::moments::RowStatistics;
use crate::schedule::Item;
use crate::types::{One, Types};

/// Scalars that are run-time arguments, so that another value needs no new kernel.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Scalars {
    pub(crate) epsilon: InputScalar,
    pub(crate) alpha: InputScalar,
    pub(crate) beta: InputScalar,
}

/// Output tensors.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Results<F: Float, NY: Size, A: Float> {
    pub(crate) output: OwnedTensor<Vector<F, NY>>,
    pub(crate) sum: Optional<F, NY>,
    pub(crate) statistics: Optional<A, One>,
}

/// [`Results`] for the types of a kernel.
pub(crate) type TypedResults<T> = Results<<T as Types>::F, <T as Types>::Output, <T as Types>::A>;

/// Tensors and scalars of a forward launch.
#[derive(CubeType)]
pub(crate) struct Bound<'a, T: Types> {
    pub(crate) source: &'a TypedSource<T>,
    pub(crate) affine: &'a TypedAffine<T>,
    pub(crate) results: &'a mut TypedResults<T>,
    pub(crate) scalars: &'a Scalars,
}

#[cube]
impl<'a, T: Types> Bound<'a, T> {
    pub(crate) fn new(
        source: &'a TypedSource<T>,
        affine: &'a TypedAffine<T>,
        results: &'a mut TypedResults<T>,
        scalars: &'a Scalars,
    ) -> Bound<'a, T> {
        Bound::<'a, T> {
            source,
            affine,
            results,
            scalars,
        }
    }

    pub(crate) fn epsilon(&self) -> T::A {
        self.scalars.epsilon.get::<T::A>()
    }
}

/// Position of a row in each output, and its parameters.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct ResultRow<A: Float, N: Size> {
    pub(crate) output: usize,
    pub(crate) sum: usize,
    pub(crate) affine: AffineRow<A, N>,
    pub(crate) in_bounds: bool,
}

#[cube]
pub(crate) fn result_row<T: Types>(
    bound: &Bound<'_, T>,
    item: &Item,
    cols: usize,
    #[comptime] blueprint: Blueprint,
) -> ResultRow<T::A, T::N> {
    let first = item.row;
    let lanes = comptime!(blueprint.team.lanes);
    let access = comptime!(blueprint.output);
    let sum = comptime!(writes_sum_here(blueprint).then_some(access));
    ResultRow::<T::A, T::N> {
        output: row_start::<T::F, T::Output>(&bound.results.output, first, cols, access, lanes),
        sum: optional_start::<T::F, T::Output>(&bound.results.sum, first, cols, sum, lanes),
        affine: affine_row::<T>(bound.affine, first, bound.epsilon(), blueprint),
        in_bounds: item.in_bounds,
    }
}

/// True if the kernel that writes the output also writes the sum. If rows are split, the first
/// launch writes it, since that one binds fewer buffers.
pub(crate) fn writes_sum_here(blueprint: Blueprint) -> bool {
    blueprint.writes_sum && !blueprint.split
}

/// Position and statistics of a row.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Row<A: Float, N: Size> {
    pub(crate) source: SourceRow<A, N>,
    pub(crate) statistics: RowStatistics<A, N>,
}

/// Rows of one unit, normalized together.
#[derive(CubeType)]
pub(crate) struct UnitRows<A: Float, N: Size> {
    pub(crate) rows: Sequence<Row<A, N>>,
    pub(crate) written: Sequence<ResultRow<A, N>>,
    /// Row to prefetch: the one after these.
    pub(crate) next: ComptimeOption<SourceRow<A, N>>,
}

/// Normalizes one step and stores it.
#[cube]
pub(crate) fn apply<T: Types>(
    value: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    written: &ResultRow<T::A, T::N>,
    affine: &AffineStep<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let kind = comptime!(blueprint.statistics);
    let normalized = if comptime!(kind == StatisticsKind::Provided) {
        (value - affine.mean) * affine.rstd
    } else {
        let centered = if comptime!(kind.reduces_mean()) {
            shifted::<T::A, T::N>(value, &row.source, blueprint) - row.statistics.mean
        } else if comptime!(kind.is_norm()) {
            value * row.statistics.mean
        } else {
            value
        };
        if comptime!(kind.reduces_deviation()) {
            centered * row.statistics.rstd
        } else {
            centered
        }
    };
    let transformed = transform::<T::A, T::N>(normalized, affine, blueprint);
    write_step::<T>(
        value,
        transformed,
        step,
        &row.source,
        written,
        bound,
        blueprint,
    );
}

/// Applies the rest of the epilogue to a transformed step and stores it. Also stores `value`, the
/// sum, if requested.
#[cube]
pub(crate) fn write_step<T: Types>(
    value: Vector<T::A, T::N>,
    transformed: Vector<T::A, T::N>,
    step: usize,
    row: &SourceRow<T::A, T::N>,
    written: &ResultRow<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let result = activate::<T::A, T::N>(
        add_last::<T>(transformed, bound.source, row, step, blueprint),
        bound.scalars.alpha.get::<T::A>(),
        bound.scalars.beta.get::<T::A>(),
        blueprint.activation,
    );
    let lanes = comptime!(blueprint.team.lanes);
    let access = comptime!(blueprint.output);
    if written.in_bounds {
        store::<T::F, T::Output, T::A, T::N>(
            &mut bound.results.output,
            written.output,
            step,
            result,
            access,
            lanes,
        );
        if comptime!(writes_sum_here(blueprint)) {
            let sum = bound.results.sum.as_mut().unwrap();
            store::<T::F, T::Output, T::A, T::N>(sum, written.sum, step, value, access, lanes);
        }
    }
}

/// Normalizes `count` of a unit's steps from `first` on, read again from memory. `of_all` holds
/// parameters that are constant over these steps.
#[cube]
pub(crate) fn apply_steps<T: Types>(
    first: usize,
    count: usize,
    of_all: &ComptimeOption<AffineStep<T::A, T::N>>,
    rows_per_unit: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let stride = comptime!(blueprint.team.size as usize);
    let ahead = comptime!(blueprint.loads_in_flight);
    let mut done = 0usize;
    if comptime!(ahead > 1) {
        while done + comptime!(ahead - 1) < count {
            let first = first + done * stride;
            apply_together::<T>(first, ahead, of_all, rows_per_unit, bound, blueprint);
            done += ahead;
        }
    }
    for i in done..count {
        apply_together::<T>(
            first + i * stride,
            1usize,
            of_all,
            rows_per_unit,
            bound,
            blueprint,
        );
    }
}

/// Normalizes all steps of a unit's rows with the folded parameters it keeps.
#[cube]
pub(crate) fn apply_kept<T: Types>(
    kept: &Sequence<FoldedRow<T::A, T::N>>,
    rows_per_unit: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let steps = comptime!(blueprint.params_kept.unwrap_or(0));
    let first = 0usize.runtime();
    // Issues the loads before any store, since loads must not be reordered across stores.
    let values = read_steps::<T>(bound.source, &rows_per_unit.rows, first, steps, blueprint);
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let value = *values.index(comptime!(step * blueprint.rows_per_unit + r));
            write_step::<T>(
                value,
                kept.index(step).apply(value, blueprint),
                step,
                &rows_per_unit.rows.index(r).source,
                rows_per_unit.written.index(r),
                bound,
                blueprint,
            );
        }
    }
}

/// [`apply_steps`] of a few steps. All loads are issued before the first store.
#[cube]
fn apply_together<T: Types>(
    first: usize,
    #[comptime] count: usize,
    of_all: &ComptimeOption<AffineStep<T::A, T::N>>,
    rows_per_unit: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    if comptime!(blueprint.prefetch_next_row) {
        let next = rows_per_unit.next.as_ref().unwrap();
        #[unroll]
        for j in 0..count {
            let step = first + j * comptime!(blueprint.team.size as usize);
            prefetch_elements::<T>(bound.source, next, step, blueprint);
        }
    }
    // Issues the loads before any store, since loads must not be reordered across stores.
    let values = read_steps::<T>(bound.source, &rows_per_unit.rows, first, count, blueprint);
    #[unroll]
    for j in 0..count {
        let step = first + j * comptime!(blueprint.team.size as usize);
        if comptime!(blueprint.params_by_run) {
            let of_all = of_all.as_ref().unwrap();
            apply_rows::<T>(&values, j, step, of_all, rows_per_unit, bound, blueprint);
        } else {
            let any = &rows_per_unit.written.index(0usize).affine;
            let own = affine_step::<T>(bound.affine, any, step, bound.epsilon(), blueprint);
            apply_rows::<T>(&values, j, step, &own, rows_per_unit, bound, blueprint);
        }
    }
}

/// Loads `count` steps of each row, step by step.
#[cube]
fn read_steps<T: Types>(
    source: &TypedSource<T>,
    rows: &Sequence<Row<T::A, T::N>>,
    first: usize,
    #[comptime] count: usize,
    #[comptime] blueprint: Blueprint,
) -> Sequence<Vector<T::A, T::N>> {
    let mut values = Sequence::<Vector<T::A, T::N>>::new();
    #[unroll]
    for j in 0..count {
        let step = first + comptime!(j * blueprint.team.size as usize);
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            values.push(read::<T>(source, &rows.index(r).source, step, blueprint));
        }
    }
    values
}

/// Normalizes and stores a step of each row, the `j`th of the loaded ones.
#[cube]
pub(crate) fn apply_rows<T: Types>(
    values: &Sequence<Vector<T::A, T::N>>,
    #[comptime] j: usize,
    step: usize,
    affine: &AffineStep<T::A, T::N>,
    rows_per_unit: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        apply::<T>(
            *values.index(comptime!(j * blueprint.rows_per_unit + r)),
            step,
            rows_per_unit.rows.index(r),
            rows_per_unit.written.index(r),
            affine,
            bound,
            blueprint,
        );
    }
}
