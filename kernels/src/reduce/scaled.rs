//! Vector norms of a unit's slice: sums relative to a [`scale`](crate::reduce::scale).

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::memory::input::{SourceRow, TypedSource, read};
use crate::memory::stage::TypedStaged;
use crate::reduce::moments::{Moments, second_moment_term};
use crate::reduce::scale::{inverse, is_exact, larger, scale_of};
use crate::schedule::share::Share;
use crate::types::Types;

/// Sum of a unit's steps from `first` on: `plain` if that is exact, else computed with a scale.
#[cube]
pub(crate) fn block_norm<T: Types>(
    plain: Vector<T::A, T::N>,
    source: &TypedSource<T>,
    row: &SourceRow<T::A, T::N>,
    first: usize,
    steps: usize,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let stride = comptime!(blueprint.team.size() as usize);
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut scale = Vector::<T::A, T::N>::new(T::A::new(1.0));
    let mut sum = plain;
    if !is_exact::<T::A, T::N>(plain) {
        let mut largest = zero;
        for i in 0..steps {
            let value = read::<T>(source, row, first + i * stride, blueprint);
            largest = larger::<T::A, T::N>(largest, value);
        }
        scale = scale_of::<T::A, T::N>(largest);
        let inverse = inverse::<T::A, T::N>(scale);
        sum = zero;
        for i in 0..steps {
            let value = read::<T>(source, row, first + i * stride, blueprint);
            sum += second_moment_term::<T::A, T::N>(value * inverse, blueprint);
        }
    }
    Moments::<T::A, T::N> {
        count: T::A::cast_from(steps),
        mean: scale,
        m2: sum,
    }
}

/// Sum of one vector.
#[cube]
pub(crate) fn vector_norm<A: Float, N: Size>(
    value: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Moments<A, N> {
    let scale = scale_of::<A, N>(value.abs());
    Moments::<A, N> {
        count: A::new(1.0),
        mean: scale,
        m2: second_moment_term::<A, N>(value * inverse::<A, N>(scale), blueprint),
    }
}
/// Sum of the vectors that a unit stages, relative to the scale of the largest. They are at hand twice,
/// so there is no first attempt without a scale.
#[cube]
pub(crate) fn staged_norm<T: Types>(
    staged: &TypedStaged<T>,
    share: &Share,
    count: T::A,
    #[comptime] blueprint: Blueprint,
) -> Moments<T::A, T::N> {
    let vectors = comptime!(blueprint.staging.vectors().unwrap_or(0));
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut largest = zero;
    #[unroll]
    for i in 0..vectors {
        if i < share.count {
            largest = larger::<T::A, T::N>(largest, staged.get(i, blueprint));
        }
    }
    let scale = scale_of::<T::A, T::N>(largest);
    let inverse = inverse::<T::A, T::N>(scale);
    let mut sum = zero;
    #[unroll]
    for i in 0..vectors {
        if i < share.count {
            let value = staged.get(i, blueprint) * inverse;
            sum += second_moment_term::<T::A, T::N>(value, blueprint);
        }
    }
    Moments::<T::A, T::N> {
        count,
        mean: scale,
        m2: sum,
    }
}
