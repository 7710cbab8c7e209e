//! Rotation of a normalized row: rotary position embedding.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, RotatedPairs, Vectorization};

use crate::epilogue::{TypedAffine, affine_step};
use crate::forward::apply::transformed;
use crate::forward::io::{Bound, Row};
use crate::memory::access::{load, optional_row};
use crate::memory::input::read;
use crate::types::Types;

/// Locates a row in the table of a rotation.
#[cube]
pub(crate) fn rotation_start<T: Types>(
    affine: &TypedAffine<T>,
    row: usize,
    #[comptime] blueprint: Blueprint,
) -> usize {
    let access = comptime!(blueprint.rotation.map(|(table, _)| table));
    let vectorization = comptime!(blueprint.team.lanes());
    optional_row::<T::G, T::Mean>(&affine.rotation, row, access, vectorization)
}

/// Columns of one step.
fn columns(blueprint: &Blueprint) -> usize {
    match blueprint.team.lanes() {
        Vectorization::Parallel => blueprint.team.vector,
        Vectorization::Perpendicular => 1,
    }
}

/// True if the lanes of a vector are pairs.
fn pairs_lanes(blueprint: &Blueprint) -> bool {
    let (_, turn) = blueprint.rotation.expect("the caller has asked");
    turn.pairs == RotatedPairs::Interleaved && columns(blueprint) > 1
}

/// Turns one step: `value * cos + turned * sin`. Steps behind the rotated elements stay.
///
/// The other elements of the pairs are read and normalized again, unless they are lanes of the same vector. A cache has
/// them, and a unit needs no exchange with others.
#[cube]
#[allow(
    clippy::manual_is_multiple_of,
    reason = "kernels have no such function"
)]
pub(crate) fn rotated<T: Types>(
    value: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    bound: &Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let (access, turn) = comptime!(blueprint.rotation.unwrap());
    let vectorization = comptime!(blueprint.team.lanes());
    let steps = comptime!(turn.dim / columns(&blueprint));
    let mut result = value;
    if step < steps {
        let turned = if comptime!(pairs_lanes(&blueprint)) {
            exchanged::<T::A, T::N>(value, blueprint.team.vector)
        } else {
            let distance = comptime!(match turn.pairs {
                RotatedPairs::HalfSplit => steps / 2,
                RotatedPairs::Interleaved => 1,
            });
            let is_first = step / distance % 2 == 0;
            let partner = select(is_first, step + distance, step - min(step, distance));
            let other = read::<T>(bound.source, &row.source, partner, blueprint);
            let affine = &row.result.affine;
            let own = affine_step::<T>(bound.affine, affine, partner, bound.epsilon(), blueprint);
            let other = transformed::<T>(other, row, &own, blueprint);
            let sign = select(is_first, T::A::new(-1.0), T::A::new(1.0));
            other * Vector::new(sign)
        };
        let table = bound.affine.rotation.as_ref().unwrap();
        let start = row.result.rotation;
        let cosines = load::<T::G, T::Mean, T::A, T::N>(table, start, step, access, vectorization);
        let sines =
            load::<T::G, T::Mean, T::A, T::N>(table, start, step + steps, access, vectorization);
        result = value * cosines + turned * sines;
    }
    result
}

/// Exchanges the lanes of each pair, and negates the first.
#[cube]
fn exchanged<A: Float, N: Size>(value: Vector<A, N>, #[comptime] lanes: usize) -> Vector<A, N> {
    let mut result = value;
    #[unroll]
    for pair in 0..comptime!(lanes / 2) {
        result.insert(2 * pair, -value.extract(2 * pair + 1));
        result.insert(2 * pair + 1, value.extract(2 * pair));
    }
    result
}
