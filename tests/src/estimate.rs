//! Numbers that know how far off a device may be.
//!
//! A formula of the reference, computed in [`Estimate`]s, gives each element together with a bound on
//! what rounding may have done to it on a device: every operation adds what it rounds off and passes
//! on what came in. Nothing is added for any other reason, so that a bound is never wider than the
//! arithmetic, and an element that is computed from small numbers by few operations is held to its last
//! digits.

use std::ops::{Add, Div, Mul, Sub};

use cubenorm_core::DType;
use cubenorm_operators::directml::FusedActivation;
use cubenorm_reference::operators::{Moments, Number, activate};
use half::{bf16, f16};

use crate::tolerance::unit_roundoff;

/// Unit roundoffs that a division costs: 2.5 steps for a reciprocal in Vulkan and WebGPU, of two
/// roundoffs each, and a multiplication.
const DIVISION: f64 = 6.0;

/// Those of a square root, which Vulkan and WebGPU allow to be a division by a reciprocal root of 2
/// steps.
const ROOT: f64 = 9.0;

/// Those of an activation. An exponential, of which there is at most one, has 3 steps and 2 more for
/// each unit of its argument in Vulkan and WebGPU; the latter are counted as an error of the argument,
/// see [`Number::activate`]. The rest is a logarithm or a division, and a few operations around it.
const ACTIVATION: f64 = 16.0;

/// What an operation of the reference itself rounds off, which computes in f64 and is held against
/// devices that do, too.
const REFERENCE: f64 = f64::EPSILON / 2.0;

/// How a device adds up the numbers of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Summation {
    /// At most 64 at a time, and then what those came to, as our kernels do.
    Blocks,
    /// One after another, as Burn's own operations may.
    Serial,
}

/// A number and how far off it may be, absolutely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    value: f64,
    error: f64,
    /// Unit roundoff of the dtype that is computed in; 0 for a constant.
    unit: f64,
    summation: Summation,
}

impl Estimate {
    /// A number as a device reads it from a tensor: exactly, unless what it computes in has fewer
    /// digits.
    pub fn read(value: f64, dtype: DType, computed_in: DType, summation: Summation) -> Self {
        let unit = unit_roundoff(computed_in);
        let error = match unit_roundoff(dtype) < unit {
            true => unit * value.abs(),
            false => 0.0,
        };
        Self {
            value,
            error,
            unit,
            summation,
        }
    }

    /// How far off the number may be.
    pub fn error(self) -> f64 {
        self.error
    }

    /// Whether too little is known for a comparison to mean much: by a division of 0 by 0, say.
    pub fn is_loose(self) -> bool {
        // Written so that what is not a number is loose.
        let known = self.value.is_finite() && self.error <= 0.01 * self.value.abs().max(1.0);
        !known
    }

    /// Whether a device that stores the number in a dtype may have come to `actual`.
    ///
    /// Rounding to nearest keeps the order of numbers, so that what is stored lies between the rounded
    /// ends of the interval that was computed. On the way
    ///
    /// - numbers below the least normal one may have become 0,
    /// - a number of f64 may have been rounded to f32 before it was to a half,
    /// - a number close below the largest of f32 may have come to be more than that, before it was
    ///   scaled.
    pub fn admits(self, actual: f64, dtype: DType) -> bool {
        let lost = match dtype {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F32 => f64::from(f32::MIN_POSITIVE),
            DType::F16 | DType::BF16 => {
                f64::from(f32::MIN_POSITIVE) + unit_roundoff(DType::F32) * self.value.abs()
            }
        };
        // Activations scale by at most 2, by what they multiply and by what they divide by.
        let large = match dtype {
            DType::F64 => f64::MAX,
            _ => f64::from(f32::MAX) / 4.0,
        };
        let error = self.error + lost;
        // What is infinite or not a number cannot be told from what is undefined.
        if !self.value.is_finite() || !error.is_finite() {
            return true;
        }
        let (low, high) = (self.value - error, self.value + error);
        let low = if low < -large { f64::NEG_INFINITY } else { low };
        let high = if high > large { f64::INFINITY } else { high };
        nearest(dtype, low) <= actual && actual <= nearest(dtype, high)
    }

    /// An operation on two estimates: its result, what its operands' errors come to, and how many
    /// roundoffs it costs.
    fn of(self, other: Self, value: f64, inherited: f64, roundoffs: f64) -> Self {
        let unit = self.unit.max(other.unit);
        // A constant is not summed up.
        let summation = match self.unit > 0.0 {
            true => self.summation,
            false => other.summation,
        };
        Self {
            value,
            error: inherited + (roundoffs * unit + REFERENCE) * value.abs(),
            unit,
            summation,
        }
    }
}

impl From<f64> for Estimate {
    fn from(value: f64) -> Self {
        Self {
            value,
            error: 0.0,
            unit: 0.0,
            summation: Summation::Blocks,
        }
    }
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let value = self.value + other.value;
        self.of(other, value, self.error + other.error, 1.0)
    }
}

impl Sub for Estimate {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let value = self.value - other.value;
        self.of(other, value, self.error + other.error, 1.0)
    }
}

impl Mul for Estimate {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let inherited = self.error * other.value.abs()
            + other.error * self.value.abs()
            + self.error * other.error;
        self.of(other, self.value * other.value, inherited, 1.0)
    }
}

impl Div for Estimate {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        // At worst the divisor is as small as it may be.
        let least = (other.value.abs() - other.error).max(0.0);
        let inherited = match self.error == 0.0 && other.error == 0.0 {
            true => 0.0,
            false => (self.error + value.abs() * other.error) / least,
        };
        self.of(other, value, inherited, DIVISION)
    }
}

/// Roundoffs of a sum of `n` numbers and of the few operations that make a mean of it.
///
/// One for each number that is added, and of blocks one for each block. Not `sqrt(n)`, which holds
/// where roundings have nothing to do with each other: elements that are repeated by a stride of 0 are
/// all rounded the same way.
fn sum_roundoffs(n: f64, summation: Summation) -> f64 {
    match summation {
        Summation::Blocks => 4.0 + n.min(64.0 + n / 64.0),
        Summation::Serial => 4.0 + n,
    }
}

impl Number for Estimate {
    fn value(self) -> f64 {
        self.value
    }

    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        let above = (self.value + self.error).sqrt() - value;
        let below = value - (self.value - self.error).max(0.0).sqrt();
        self.of(self, value, above.max(below), ROOT)
    }

    fn activate(self, activation: FusedActivation) -> Self {
        // Not every activation hands on what is not a number.
        if !self.value.is_finite() || !self.error.is_finite() {
            return Self {
                value: f64::NAN,
                error: f64::INFINITY,
                ..self
            };
        }
        let value = activate(activation, self.value);
        // What the argument of an exponential costs is as if the argument was off by 4 roundoffs; and
        // 4 more are for what is multiplied with it.
        let reach = self.error + 8.0 * self.unit * self.value.abs();
        let (low, high) = (self.value - reach, self.value + reach);
        // Between its bends every activation rises or falls, so that it is furthest off at an end of
        // the interval or beside a bend in it. A jump may be missed.
        let bends = bends(activation).into_iter();
        let inside = bends.filter(|bend| (low..=high).contains(bend));
        let beside = inside.flat_map(|bend| [bend.next_down(), bend, bend.next_up()]);
        let off = |x: f64| (activate(activation, x) - value).abs();
        let inherited = [low, high].into_iter().chain(beside).map(off);
        let inherited = inherited.fold(0.0, f64::max);
        Self {
            value,
            error: inherited + ACTIVATION * self.unit * (value.abs() + terms(activation)),
            ..self
        }
    }

    fn rounded(self, dtype: DType) -> Self {
        let error = self.error + unit_roundoff(dtype) * (self.value.abs() + self.error);
        Self { error, ..self }
    }

    /// The mean is the one that is taken off: it is known relative to an element of the row, so that
    /// what the sum rounds off is relative to how far elements are from each other, and not to how far
    /// they are from 0. What storing it rounds off comes on top.
    fn moments(row: &[Self]) -> Moments<Self> {
        let values: Vec<f64> = row.iter().map(|x| x.value).collect();
        let exact = f64::moments(&values);
        let n = row.len() as f64;
        let unit = row.iter().map(|x| x.unit).fold(0.0, f64::max);
        let is_serial = row.iter().any(|x| x.summation == Summation::Serial);
        let summation = match is_serial {
            true => Summation::Serial,
            false => Summation::Blocks,
        };
        let off = sum_roundoffs(n, summation) * unit;
        let average = |of: &dyn Fn(&Self) -> f64| row.iter().map(of).sum::<f64>() / n;

        // Elements are at most twice as far from each other as they are from their mean.
        let distances = values.iter().map(|x| 2.0 * (x - exact.mean).abs());
        let summed = distances.fold(0.0, f64::max);
        // Equal elements have a mean that is exact.
        let rounded = match exact.variance == 0.0 {
            true => 0.0,
            false => 2.0 * REFERENCE * exact.mean.abs(),
        };
        let mean = average(&|x| x.error) + off * summed + rounded;
        // To first order a mean that is off leaves the variance as it is. Merging the variances of
        // parts takes the squares of their means' distances, which cost what those are off by.
        let from_elements = average(&|x| 2.0 * (x.value - exact.mean).abs() * x.error);
        let squared = average(&|x| x.error * x.error);
        let merged = 2.0 * off * (exact.variance + summed * exact.variance.sqrt());
        let variance = from_elements + squared + mean * mean + merged;
        let squares = average(&|x| 2.0 * x.value.abs() * x.error) + squared;
        let estimate = |value: f64, error: f64| Self {
            value,
            error,
            unit,
            summation,
        };
        Moments {
            mean: estimate(exact.mean, mean),
            variance: estimate(exact.variance, variance),
            mean_square: estimate(exact.mean_square, squares + off * exact.mean_square),
            // Elements of both signs round off what their magnitudes would.
            total: estimate(
                exact.total,
                n * average(&|x| x.error) + (off + REFERENCE) * exact.magnitudes,
            ),
            magnitudes: estimate(
                exact.magnitudes,
                n * average(&|x| x.error) + off * exact.magnitudes,
            ),
            squares: estimate(exact.squares, n * squares + off * exact.squares),
        }
    }
}

/// The value of a dtype that is nearest to a number, and the even one of two. `half` rounds an `f64`
/// twice.
fn nearest(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(to_odd(value)).to_f64(),
        DType::BF16 => bf16::from_f32(to_odd(value)).to_f64(),
        DType::F32 => f64::from(value as f32),
        DType::F64 => value,
    }
}

/// Rounded towards 0, and to an odd mantissa where anything is lost: a second rounding to fewer digits
/// then gives what one would have given (Boldo and Melquiond, 2008).
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if near.is_nan() || f64::from(near) == value {
        return near;
    }
    let exceeds_threshold = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(exceeds_threshold)) | 1)
}

/// Where an activation bends or jumps.
fn bends(activation: FusedActivation) -> Vec<f64> {
    use FusedActivation::*;
    match activation {
        Elu { .. } | LeakyRelu { .. } | Relu | ScaledElu { .. } | Celu { .. } => vec![0.0],
        ThresholdedRelu { alpha } => vec![alpha.into()],
        Shrink { threshold, .. } => vec![f64::from(threshold), -f64::from(threshold)],
        HardSigmoid { .. } | Identity | Linear { .. } | ParametricSoftplus { .. } => vec![],
        ScaledTanh { .. } | Sigmoid | Softplus { .. } | Softsign | Tanh => vec![],
    }
}

/// What an activation adds up or subtracts at most, beside its result: whose roundoff it keeps where
/// they cancel.
fn terms(activation: FusedActivation) -> f64 {
    use FusedActivation::*;
    let magnitude = |x: f32| f64::from(x).abs();
    match activation {
        Elu { alpha } | Celu { alpha } => magnitude(alpha),
        ScaledElu { alpha, gamma } => magnitude(alpha) * magnitude(gamma),
        HardSigmoid { beta, .. } => 1.0 + magnitude(beta),
        Linear { beta, .. } => magnitude(beta),
        Shrink { bias, .. } => magnitude(bias),
        ParametricSoftplus { alpha, .. } | ScaledTanh { alpha, .. } => magnitude(alpha),
        Softplus { steepness } => 1.0 / magnitude(steepness),
        Sigmoid | Tanh => 1.0,
        Identity | LeakyRelu { .. } | Relu | Softsign | ThresholdedRelu { .. } => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: f64) -> Estimate {
        Estimate::read(value, DType::F32, DType::F32, Summation::Blocks)
    }

    #[test]
    fn a_quotient_of_constants_is_held_to_its_last_digits() {
        let quotient = read(1.0) / read(3.0);
        assert!(quotient.admits(f64::from(1.0f32 / 3.0), DType::F32));
        assert!(!quotient.admits(1.0 / 3.0 + 4e-7, DType::F32));
        // The nearest half and no other.
        assert!(quotient.admits(f16::from_f64(1.0 / 3.0).to_f64(), DType::F16));
        assert!(!quotient.admits(0.333_496_093_75, DType::F16));
    }

    #[test]
    fn a_number_is_rounded_once() {
        // Just above the middle of two neighbours, by less than a step of f32.
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(nearest(DType::BF16, above), 1.0 + 2f64.powi(-7));
        assert_eq!(nearest(DType::BF16, 1.0 + 2f64.powi(-8)), 1.0);
        let below = -(1.0 + 3.0 * 2f64.powi(-11)) + 2f64.powi(-40);
        assert_eq!(nearest(DType::F16, below), -(1.0 + 2f64.powi(-10)));
        assert_eq!(nearest(DType::F16, 1e300), f64::INFINITY);
        assert_eq!(nearest(DType::F16, -1e-300), 0.0);
        assert!(nearest(DType::BF16, f64::NAN).is_nan());
    }

    #[test]
    fn what_cancels_keeps_the_error_of_what_it_was() {
        let third = read(1.0) / read(3.0);
        let rest = third - read(0.333);
        assert!(rest.error() >= third.error());
        assert!(rest.error() < 1e-6);
    }

    #[test]
    fn equal_elements_have_a_mean_that_takes_all_of_them_off() {
        let row = [read(0.1); 7];
        let moments = Estimate::moments(&row);
        assert_eq!((row[0] - moments.mean).error(), 0.0);
        assert_eq!(
            moments.variance,
            Estimate {
                error: 0.0,
                ..moments.variance
            }
        );
    }

    #[test]
    fn numbers_added_one_after_another_may_be_further_off() {
        let row = |summation| {
            let read = |at: i32| Estimate::read(at.into(), DType::F32, DType::F32, summation);
            (0..1000).map(read).collect::<Vec<_>>()
        };
        let error = |summation| Estimate::moments(&row(summation)).total.error();
        assert!(error(Summation::Serial) > 5.0 * error(Summation::Blocks));
        let serial = row(Summation::Serial)[1];
        assert_eq!((Estimate::from(2.0) * serial).summation, Summation::Serial);
    }

    #[test]
    fn a_jump_may_be_missed_where_it_is_near_and_nowhere_else() {
        let relu = FusedActivation::ThresholdedRelu { alpha: 1.0 };
        let near = (read(1.0) / read(3.0) * read(3.0)).activate(relu);
        assert!(near.admits(0.0, DType::F32) && near.admits(1.0, DType::F32));
        let far = read(1.0 + 1e-3).activate(relu);
        assert!(!far.admits(0.0, DType::F32));
    }

    #[test]
    fn what_is_not_known_is_loose() {
        assert!((read(0.0) / read(0.0)).is_loose());
        assert!((read(1.0) / read(0.0)).is_loose());
        assert!(!(read(1.0) / read(3.0)).is_loose());
    }
}
