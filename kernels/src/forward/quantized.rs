//! Quantised output: codes of 8 bits, and the scale of each row.

use cubecl::prelude::*;
use cubenorm_core::{
    AccessBlueprint, Blueprint, CODES_PER_WORD, CodeFormat, LEAST_QUANTIZED, Merge, Staging, Team,
    Vectorization,
};

use crate::epilogue::affine_step;
use crate::forward::apply::result_of_step;
use crate::forward::io::{Bound, Row};
use crate::memory::access::{row_offset, store_quarters, store_words};
use crate::memory::input::read;
use crate::memory::stage::TypedStaged;
use crate::reduce::moments::Moments;
use crate::reduce::team::merge_team;
use crate::schedule::item::Item;
use crate::schedule::share::Share;
use crate::schedule::team::member;
use crate::types::{One, Types};

/// `1.5 * 2^23`. The sum with a number between -2^22 and 2^22 has no digits behind the point. Its lowest bits are the
/// rounded number in two's complement.
const ROUNDING: f32 = 12_582_912.0;

/// Bits of f32.
const INFINITY: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;

/// Digits of an f32 that e4m3 does not have, and the difference of their exponents.
const SPARE_DIGITS: u32 = 20;
const EXPONENTS: u32 = (127 - 7) << 3;

/// The smallest normal number of e4m3, 2^-6, and the reciprocal of its smallest number, 2^-9.
const LEAST_NORMAL: f32 = 0.015625;
const SUBNORMALS: f32 = 512.0;

/// Writes the codes of a row, and its scale unless it is given.
#[cube]
pub(crate) fn quantize_row<T: Types>(
    staged: &ComptimeOption<TypedStaged<T>>,
    row: &Row<T::A, T::N>,
    item: &Item,
    share: &Share,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let scale = if comptime!(blueprint.scales_rows()) {
        let scale = row_scale::<T>(staged, row, share, &*bound, blueprint);
        write_scale::<T>(scale, item, bound, blueprint);
        scale
    } else {
        let (_, dims) = comptime!(blueprint.quantization.unwrap());
        let given = bound.affine.codes_scale.as_ref().unwrap();
        let access = comptime!(AccessBlueprint::of_numbers(dims.unwrap_or(0), 0));
        let place = row_offset::<T::G, One>(given, item.row, access, Vectorization::Parallel);
        T::A::cast_from(given[place].extract(0usize))
    };
    let factor = Vector::<T::A, T::N>::new(T::A::new(1.0) / scale);
    if comptime!(blueprint.staging != Staging::Reload) {
        #[unroll]
        for i in 0..comptime!(blueprint.staging.vectors().unwrap_or(0)) {
            if i < share.count {
                let step = share.begin + i * comptime!(blueprint.team.size() as usize);
                let value = staged.as_ref().unwrap().get(i, blueprint);
                write_codes::<T>(value, factor, step, row, bound, blueprint);
            }
        }
    } else {
        for i in 0..share.count {
            let step = share.begin + i * comptime!(blueprint.team.size() as usize);
            let value = read::<T>(bound.source, &row.source, step, blueprint);
            write_codes::<T>(value, factor, step, row, bound, blueprint);
        }
    }
}

/// The scale of a row from the largest magnitude of its result. All units of a cube call this: it may contain barriers.
#[cube]
fn row_scale<T: Types>(
    staged: &ComptimeOption<TypedStaged<T>>,
    row: &Row<T::A, T::N>,
    share: &Share,
    bound: &Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) -> T::A {
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    // The largest magnitude takes the place of the mean.
    let mut mine = Moments::<T::A, T::N> {
        count: T::A::new(0.0),
        mean: zero,
        m2: zero,
    };
    if comptime!(blueprint.staging != Staging::Reload) {
        #[unroll]
        for i in 0..comptime!(blueprint.staging.vectors().unwrap_or(0)) {
            if i < share.count {
                let step = share.begin + i * comptime!(blueprint.team.size() as usize);
                let value = staged.as_ref().unwrap().get(i, blueprint);
                let result = own_result::<T>(value, step, row, bound, blueprint);
                compare::<T::A, T::N>(&mut mine, result);
            }
        }
    } else {
        for i in 0..share.count {
            let step = share.begin + i * comptime!(blueprint.team.size() as usize);
            let value = read::<T>(bound.source, &row.source, step, blueprint);
            let result = own_result::<T>(value, step, row, bound, blueprint);
            compare::<T::A, T::N>(&mut mine, result);
        }
    }
    let of_largest = comptime!(Team {
        merge: Merge::Scaled { squares: false },
        ..blueprint.team
    });
    let merged = merge_team::<T::A, T::N>(&mine, of_largest);
    let largest = merged.mean.extract(0usize);
    let format = comptime!(blueprint.quantization.unwrap().0);
    let largest = f32::cast_from(largest);
    let scale = select(
        largest < LEAST_QUANTIZED,
        1.0f32,
        largest / comptime!(format.largest()),
    );
    // Bits, since compilers may take NaN for impossible in arithmetic.
    let bits = Vector::<u32, One>::reinterpret(Vector::<f32, One>::new(scale)).extract(0usize);
    let bits = select(largest < f32::MAX, bits, NAN);
    T::A::cast_from(Vector::<f32, One>::reinterpret(Vector::<u32, One>::new(bits)).extract(0usize))
}

/// Takes the magnitudes of a step into account. NaN and infinity count as the largest number.
#[cube]
fn compare<A: Float, N: Size>(mine: &mut Moments<A, N>, result: Vector<A, N>) {
    let magnitude = Vector::<f32, N>::cast_from(result).abs();
    let bits = Vector::<u32, N>::reinterpret(magnitude);
    let is_finite = bits.less_than(&Vector::new(INFINITY));
    let most = Vector::<A, N>::new(A::new(f32::MAX));
    let magnitude = select_many(is_finite, Vector::<A, N>::cast_from(magnitude), most);
    mine.mean = select_many(mine.mean.less_than(&magnitude), magnitude, mine.mean);
}

/// The result of a step, with the parameters of that step.
#[cube]
fn own_result<T: Types>(
    value: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    bound: &Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let affine = &row.result.affine;
    let own = affine_step::<T>(bound.affine, affine, step, bound.epsilon(), blueprint);
    result_of_step::<T>(value, step, row, &own, bound, blueprint)
}

/// Writes the scale of a row.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is built, the inner one is not"
)]
fn write_scale<T: Types>(
    scale: T::A,
    item: &Item,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    if comptime!(blueprint.written_statistics.is_some()) {
        if item.in_bounds && member(blueprint.team) == 0 {
            let (_, dims) = comptime!(blueprint.written_statistics.unwrap());
            let access = comptime!(AccessBlueprint::of_numbers(dims, 0));
            let tensor = bound.results.statistics.as_mut().unwrap();
            let place =
                row_offset::<T::A, One>(&*tensor, item.row, access, Vectorization::Parallel);
            tensor[place] = Vector::new(scale);
        }
    }
}

/// Writes the codes of a step, and the sum of input and residual if requested.
#[cube]
fn write_codes<T: Types>(
    value: Vector<T::A, T::N>,
    factor: Vector<T::A, T::N>,
    step: usize,
    row: &Row<T::A, T::N>,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: Blueprint,
) {
    let result = own_result::<T>(value, step, row, &*bound, blueprint);
    let scaled = Vector::<f32, T::N>::cast_from(result * factor);
    let (format, _) = comptime!(blueprint.quantization.unwrap());
    let codes = if comptime!(format == CodeFormat::Int8) {
        int8::<T::N>(scaled)
    } else {
        e4m3::<T::N>(scaled)
    };
    let words = packed::<T::N, T::Output>(codes);
    if row.result.in_bounds {
        let output = &mut bound.results.output;
        let access = comptime!(blueprint.output);
        store_words::<T::O, T::Output, T::N>(output, row.result.output, step, words, access);
        if comptime!(blueprint.writes_sum) {
            let sum = bound.results.sum.as_mut().unwrap();
            let access = comptime!(blueprint.sum());
            let lanes = comptime!(blueprint.team.vector / CODES_PER_WORD);
            let base = row.result.sum;
            store_quarters::<T::F, T::Output, T::A, T::N>(sum, base, step, value, lanes, access);
        }
    }
}

/// Limits numbers to the range of a format. NaN becomes the smallest number.
#[cube]
fn limited<N: Size>(value: Vector<f32, N>, #[comptime] format: CodeFormat) -> Vector<f32, N> {
    let most = Vector::<f32, N>::new(comptime!(format.largest()));
    let least = Vector::<f32, N>::new(comptime!(-format.largest()));
    let value = select_many(least.less_than(&value), value, least);
    select_many(value.less_than(&most), value, most)
}

/// Rounds to the nearest integer, ties to even, in the lowest byte.
#[cube]
fn int8<N: Size>(value: Vector<f32, N>) -> Vector<u32, N> {
    let sum = limited::<N>(value, CodeFormat::Int8) + Vector::new(ROUNDING);
    Vector::<u32, N>::reinterpret(sum) & Vector::new(0xffu32)
}

/// Rounds to the nearest number of e4m3, ties to even. All devices have this arithmetic of bits.
#[cube]
fn e4m3<N: Size>(value: Vector<f32, N>) -> Vector<u32, N> {
    let given = Vector::<u32, N>::reinterpret(value);
    let is_nan = Vector::<u32, N>::new(INFINITY).less_than(&(given & Vector::new(0x7fff_ffffu32)));
    let magnitude = limited::<N>(value, CodeFormat::E4M3).abs();
    let bits = Vector::<u32, N>::reinterpret(magnitude);
    let is_odd = (bits >> Vector::new(comptime!(SPARE_DIGITS))) & Vector::new(1u32);
    let half = comptime!((1u32 << (SPARE_DIGITS - 1)) - 1);
    let rounded = (bits + is_odd + Vector::new(half)) >> Vector::new(comptime!(SPARE_DIGITS));
    // The number of a subnormal is a multiple of 2^-9.
    let multiples = magnitude * Vector::new(SUBNORMALS) + Vector::new(ROUNDING);
    let multiples = Vector::<u32, N>::reinterpret(multiples) & Vector::new(0xffu32);
    let is_subnormal = magnitude.less_than(&Vector::new(LEAST_NORMAL));
    // Wraps for a subnormal, which is not selected.
    let normal = rounded - Vector::new(comptime!(EXPONENTS));
    let code = select_many(is_subnormal, multiples, normal);
    let sign = (given >> Vector::new(24u32)) & Vector::new(0x80u32);
    select_many(is_nan, Vector::new(0x7fu32), code | sign)
}

/// Packs four codes per word, the first in the lowest byte.
#[cube]
fn packed<N: Size, S: Size>(codes: Vector<u32, N>) -> Vector<u32, S> {
    let mut words = Vector::<u32, S>::empty();
    #[unroll]
    for i in 0..S::value() {
        let first = comptime!(i * CODES_PER_WORD);
        let low = codes.extract(first) | (codes.extract(comptime!(first + 1)) << 8);
        let high = (codes.extract(comptime!(first + 2)) << 16)
            | (codes.extract(comptime!(first + 3)) << 24);
        words.insert(i, low | high);
    }
    words
}
