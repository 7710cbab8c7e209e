//! Output of a step: normalize, scale, shift, activate, store.

use cubecl::prelude::*;
use cubenorm_core::{ActivationKind, Blueprint, StatisticsKind};

use crate::epilogue::{AffineStep, FoldedRow, Scalars, activate, affine_step, transform};
use crate::forward::io::{Bound, ResultRow, Row, UnitRows, writes_sum_here};
use crate::forward::rotation::rotated;
use crate::memory::access::store;
use crate::memory::input::{
    SourceRow, TypedSource, combine_last, prefetch_elements, read, read_last, shifted,
};
use crate::types::Types;

/// One step of a row, loaded.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Loaded<A: Float, N: Size> {
    /// Of the tensor to normalize.
    pub(crate) value: Vector<A, N>,
    /// Of a residual or gate that follows the normalization.
    pub(crate) last: Vector<A, N>,
}

/// Loads one step.
#[cube]
pub(crate) fn load_step<T: Types>(
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Loaded<T::A, T::N> {
    Loaded::<T::A, T::N> {
        value: read::<T>(source, row, step, blueprint),
        last: read_last::<T>(source, row, step, blueprint),
    }
}

/// Normalizes one step and stores it.
#[cube]
pub(crate) fn apply<T: Types>(
    loaded: &Loaded<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    affine: &AffineStep<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let rotated = rotated_step::<T>(loaded.value, step, row, affine, &*bound, blueprint);
    write_step::<T>(loaded, rotated, step, &row.result, bound, blueprint);
}

/// Normalizes one step, with scale and bias, and rotates it if there is a rotation.
#[cube]
fn rotated_step<T: Types>(
    value: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    affine: &AffineStep<T::A, T::N>,
    bound: &Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let transformed = transformed::<T>(value, row, affine, blueprint);
    if comptime!(blueprint.rotation.is_some()) {
        rotated::<T>(transformed, step, row, bound, blueprint)
    } else {
        transformed
    }
}

/// The result of one step, before it is rounded.
#[cube]
pub(crate) fn result_of_step<T: Types>(
    value: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    affine: &AffineStep<T::A, T::N>,
    bound: &Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let rotated = rotated_step::<T>(value, step, row, affine, bound, blueprint);
    let last = read_last::<T>(bound.source, &row.source, step, blueprint);
    finished::<T>(rotated, last, bound.scalars, blueprint)
}

/// Adds or multiplies a late residual, and applies the activation.
#[cube]
fn finished<T: Types>(
    transformed: Vector<T::A, T::N>,
    last: Vector<T::A, T::N>,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    activate::<T::A, T::N>(
        combine_last::<T::A, T::N>(transformed, last, scalars, blueprint),
        scalars.alpha.get::<T::A>(),
        scalars.beta.get::<T::A>(),
        comptime!(blueprint.result_activation()),
    )
}

/// Normalizes one step, with scale and bias.
#[cube]
pub(crate) fn transformed<T: Types>(
    value: Vector<T::A, T::N>,
    row: &Row<T::A, T::N>,
    affine: &AffineStep<T::A, T::N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let kind = comptime!(blueprint.statistics);
    let normalized = if comptime!(kind == StatisticsKind::Provided) {
        (value - affine.mean) * affine.rstd
    } else if comptime!(kind == StatisticsKind::DynamicTanh) {
        let zero = T::A::new(0.0);
        activate::<T::A, T::N>(value * affine.rstd, zero, zero, ActivationKind::Tanh)
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
    transform::<T>(normalized, affine, blueprint)
}

/// Applies the rest of the epilogue to a transformed step and stores it. Also stores the loaded value, the
/// sum, if requested.
#[cube]
pub(crate) fn write_step<T: Types>(
    loaded: &Loaded<T::A, T::N>,
    transformed: Vector<T::A, T::N>,
    step: usize,
    result: &ResultRow<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let activated = finished::<T>(transformed, loaded.last, bound.scalars, blueprint);
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.output);
    if result.in_bounds {
        store::<T::O, T::Output, T::A, T::N>(
            &mut bound.results.output,
            result.output,
            step,
            activated,
            access,
            vectorization,
        );
        if comptime!(writes_sum_here(blueprint)) {
            let sum = bound.results.sum.as_mut().unwrap();
            store::<T::F, T::Output, T::A, T::N>(
                sum,
                result.sum,
                step,
                loaded.value,
                access,
                vectorization,
            );
        }
    }
}

/// Normalizes `count` of a unit's steps from `first` on, read again from memory. `shared` holds
/// parameters that are constant over these steps.
#[cube]
pub(crate) fn apply_steps<T: Types>(
    first: usize,
    count: usize,
    shared: &ComptimeOption<AffineStep<T::A, T::N>>,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let stride = comptime!(blueprint.team.size() as usize);
    let ahead = comptime!(blueprint.loads_in_flight);
    let mut done = 0usize;
    if comptime!(ahead > 1) {
        while done + comptime!(ahead - 1) < count {
            let first = first + done * stride;
            apply_together::<T>(first, ahead, shared, unit_rows, bound, blueprint);
            done += ahead;
        }
    }
    for i in done..count {
        apply_together::<T>(
            first + i * stride,
            1usize,
            shared,
            unit_rows,
            bound,
            blueprint,
        );
    }
}

/// Normalizes all steps of a unit's rows with the folded parameters it keeps.
#[cube]
pub(crate) fn apply_kept<T: Types>(
    kept: &Sequence<FoldedRow<T::A, T::N>>,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let steps = comptime!(blueprint.team.params_kept().unwrap_or(0));
    let first = 0usize.runtime();
    // Issues the loads before any store, since loads must not be reordered across stores.
    let values = read_steps::<T>(bound.source, &unit_rows.rows, first, steps, blueprint);
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            let loaded = values.index(comptime!(step * blueprint.rows_per_unit + r));
            write_step::<T>(
                loaded,
                kept.index(step).apply(loaded.value, blueprint),
                step,
                &unit_rows.rows.index(r).result,
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
    shared: &ComptimeOption<AffineStep<T::A, T::N>>,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    if comptime!(blueprint.team.prefetches_next_row()) {
        let next = unit_rows.next.as_ref().unwrap();
        #[unroll]
        for j in 0..count {
            let step = first + j * comptime!(blueprint.team.size() as usize);
            prefetch_elements::<T>(bound.source, next, step, blueprint);
        }
    }
    // Issues the loads before any store, since loads must not be reordered across stores.
    let values = read_steps::<T>(bound.source, &unit_rows.rows, first, count, blueprint);
    #[unroll]
    for j in 0..count {
        let step = first + j * comptime!(blueprint.team.size() as usize);
        if comptime!(blueprint.team.params_by_segment()) {
            let shared = shared.as_ref().unwrap();
            apply_rows::<T>(&values, j, step, shared, unit_rows, bound, blueprint);
        } else {
            let any = &unit_rows.rows.index(0usize).result.affine;
            let own = affine_step::<T>(bound.affine, any, step, bound.epsilon(), blueprint);
            apply_rows::<T>(&values, j, step, &own, unit_rows, bound, blueprint);
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
) -> Sequence<Loaded<T::A, T::N>> {
    let mut values = Sequence::<Loaded<T::A, T::N>>::new();
    #[unroll]
    for j in 0..count {
        let step = first + comptime!(j * blueprint.team.size() as usize);
        #[unroll]
        for r in 0..blueprint.rows_per_unit {
            values.push(load_step::<T>(
                source,
                &rows.index(r).source,
                step,
                blueprint,
            ));
        }
    }
    values
}

/// Normalizes and stores a step of each row, the `j`th of the loaded ones.
#[cube]
pub(crate) fn apply_rows<T: Types>(
    values: &Sequence<Loaded<T::A, T::N>>,
    #[comptime] j: usize,
    step: usize,
    affine: &AffineStep<T::A, T::N>,
    unit_rows: &UnitRows<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    #[unroll]
    for r in 0..blueprint.rows_per_unit {
        apply::<T>(
            values.index(comptime!(j * blueprint.rows_per_unit + r)),
            step,
            unit_rows.rows.index(r),
            affine,
            bound,
            blueprint,
        );
    }
}
