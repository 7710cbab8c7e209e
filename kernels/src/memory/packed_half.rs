//! Packed f16 pairs in 32-bit words, for drivers that load and store lane by lane.
//!
//! Conversion works on bits and never forms an f32 subnormal. Processors may flush those to zero,
//! although they are normal values in f16.

use cubecl::prelude::*;

/// Exponent offset that maps f16 infinities to f32 infinities, and the factor that compensates it.
const UP: u32 = 224 << 23;
const DOWN: u32 = 15 << 23;

/// Bits of the smallest normal f16 value, 2^-14, and of the first f32 value above the f16 range,
/// 2^16.
const LEAST_NORMAL: u32 = 113 << 23;
const OVERFLOW: u32 = 143 << 23;
const INFINITY: u32 = 255 << 23;

/// Difference in mantissa bits between f32 and f16.
const SPARE_DIGITS: u32 = 13;

/// Unpacks f16 pairs, the low half first.
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
    // A subnormal f16 value has no implicit leading one.
    let least = Vector::<A, N>::reinterpret(Vector::<u32, N>::new(comptime!(LEAST_NORMAL)));
    let value = select_many(value.less_than(&least), value + value - least, value);
    Vector::<A, N>::reinterpret(Vector::<u32, N>::reinterpret(value) | sign)
}

/// Packs to f16 pairs, rounding to nearest even.
#[cube]
pub(crate) fn pack<A: Float, S: Size, N: Size>(value: Vector<A, N>) -> Vector<u32, S> {
    let bits = Vector::<u32, N>::reinterpret(value);
    let all_digits = bits & Vector::new(0x7fff_ffffu32);
    let digits = all_digits.min(Vector::new(comptime!(OVERFLOW)));
    // Adding a number of this magnitude rounds off the spare mantissa bits.
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
    // Selects instead of arithmetic: LLVM scalarizes a sum, shift or `or` for each stored lane and
    // spills its operands. It leaves a select whole.
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
