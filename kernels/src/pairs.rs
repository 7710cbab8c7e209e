//! Two halves in a number of 32 bits, as a driver likes them that loads and stores lane by lane.
//!
//! Converted by their bits, with no number on the way that is subnormal in float32: a processor may be told to take
//! those for zero, which in float16 are numbers like others.

use cubecl::prelude::*;

/// What is added to the exponent of a half, so that infinities are those of float32, and the number that makes up for it.
const UP: u32 = 224 << 23;
const DOWN: u32 = 15 << 23;

/// The least normal half, 2^-14, and the least number of float32 that is more than any half, 2^16.
const LEAST_NORMAL: u32 = 113 << 23;
const OVERFLOW: u32 = 143 << 23;
const INFINITY: u32 = 255 << 23;

/// Digits of a float32 that a half has no room for.
const SPARE_DIGITS: u32 = 13;

/// The numbers of so many pairs, the first of each in the lower half.
#[cube]
pub(crate) fn unpack<A: Float, S: Size, N: Size>(pairs: Vector<u32, S>) -> Vector<A, N> {
    let mut halves = Vector::<u32, N>::empty();
    #[unroll]
    for i in 0..S::value() {
        let pair = pairs.extract(i);
        halves.insert(comptime!(2 * i), pair << 16);
        halves.insert(comptime!(2 * i + 1), pair);
    }
    let sign = halves & Vector::new(0x8000_0000u32);
    let digits = (halves >> Vector::new(3u32)) & Vector::new(0x0fff_e000u32);
    let high = Vector::<A, N>::reinterpret(digits + Vector::new(comptime!(UP)));
    let value = high * Vector::<A, N>::reinterpret(Vector::<u32, N>::new(comptime!(DOWN)));
    // A subnormal half has no one in front of its digits.
    let least = Vector::<A, N>::reinterpret(Vector::<u32, N>::new(comptime!(LEAST_NORMAL)));
    let value = select_many(value.less_than(&least), value + value - least, value);
    Vector::<A, N>::reinterpret(Vector::<u32, N>::reinterpret(value) | sign)
}

/// [`unpack`], undone: to the nearest half, the even one of two.
#[cube]
pub(crate) fn pack<A: Float, S: Size, N: Size>(value: Vector<A, N>) -> Vector<u32, S> {
    let bits = Vector::<u32, N>::reinterpret(value);
    let all_digits = bits & Vector::new(0x7fff_ffffu32);
    let digits = all_digits.min(Vector::new(comptime!(OVERFLOW)));
    // A sum with a number of that size has no room for the digits that are rounded off.
    let exponent =
        (digits & Vector::new(comptime!(INFINITY))).max(Vector::new(comptime!(LEAST_NORMAL)));
    let large = exponent + Vector::new(comptime!(SPARE_DIGITS << 23));
    let sum = Vector::<A, N>::reinterpret(digits) + Vector::<A, N>::reinterpret(large);
    let rounded = Vector::<u32, N>::reinterpret(sum) - large;
    let above =
        (exponent - Vector::new(comptime!(LEAST_NORMAL))) >> Vector::new(comptime!(SPARE_DIGITS));
    let halves = rounded + above;
    let is_number = all_digits.less_equal(&Vector::new(comptime!(INFINITY)));
    let mut pairs = Vector::<u32, S>::empty();
    // A driver stores lane by lane, and LLVM takes a sum, a shift or an `or` apart for each of them, whose operands it
    // then writes to the stack as often: a select it leaves whole.
    #[unroll]
    for i in 0..S::value() {
        let (a, b) = comptime!((2 * i, 2 * i + 1));
        let sign = (bits.extract(a) >> 16) & 0x8000u32;
        let first = select(is_number.extract(a), halves.extract(a) | sign, 0x7e00u32);
        let sign = bits.extract(b) & 0x8000_0000u32;
        let second = select(
            is_number.extract(b),
            (halves.extract(b) << 16) | sign,
            0x7e00_0000u32,
        );
        pairs.insert(i, first | second);
    }
    pairs
}
