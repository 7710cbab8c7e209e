//! Numbers with a bound of a device's rounding error.
//!
//! A formula of the reference in [`Estimate`]s gives each element and a bound of its rounding error
//! on a device. Each operation propagates the errors of its operands and adds its own. Nothing else
//! widens the bound. A few operations on small numbers must therefore be right to the last digits.

use std::ops::{Add, Div, Mul, Sub};

use cubenorm_core::DType;
use cubenorm_operators::directml::FusedActivation;
use cubenorm_reference::operators::{Moments, Number, activate};
use cubenorm_reference::round;

use crate::tolerance::unit_roundoff;

/// Unit roundoffs of a division: 2.5 ulp of two roundoffs each for a reciprocal in Vulkan and
/// WebGPU, and one for a multiplication.
const DIVISION: f64 = 6.0;

/// Unit roundoffs of a square root. Vulkan and WebGPU allow the inverse of a reciprocal square root
/// of 2 ulp.
const ROOT: f64 = 9.0;

/// Unit roundoffs of an activation: one exponential at most, a logarithm or a division, and a few
/// operations around it.
///
/// Vulkan and WebGPU allow an exponential 3 ulp, and 2 more per unit of its argument. The latter
/// count as an error of the argument, see [`Number::activate`].
const ACTIVATION: f64 = 16.0;

/// Unit roundoff of the reference, which computes in f64 like some devices.
const REFERENCE: f64 = f64::EPSILON / 2.0;

/// Order of a device's summation over a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Summation {
    /// Blocks of at most 64, then their sums, as in our kernels.
    Blocks,
    /// One after another, as Burn's operations may.
    Serial,
}

/// A number and a bound of its absolute error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    value: f64,
    error: f64,
    /// Unit roundoff of the accumulation dtype; 0 for a constant.
    unit: f64,
    summation: Summation,
}

impl Estimate {
    /// A number that a device reads from a tensor: exact, unless it computes in fewer digits.
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

    /// Bound of the absolute error.
    pub fn error(self) -> f64 {
        self.error
    }

    /// True if the bound is too wide for a meaningful comparison, for example after 0 / 0.
    pub fn is_loose(self) -> bool {
        // NaN compares false, so it is loose.
        let known = self.value.is_finite() && self.error <= 0.01 * self.value.abs().max(1.0);
        !known
    }

    /// True if `actual` is a permitted result of a device that stores the number in `dtype`.
    ///
    /// Rounding to nearest is monotonic, so a stored result is between the rounded ends of the
    /// interval. The interval is wider for three reasons:
    ///
    /// - Subnormal numbers may be flushed to 0.
    /// - A number of f64 may be rounded to f32 before f16 or bf16.
    /// - A number just below the largest f32 may overflow before it is scaled.
    pub fn admits(self, actual: f64, dtype: DType) -> bool {
        let lost = match dtype {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F32 => f64::from(f32::MIN_POSITIVE),
            DType::F16 | DType::BF16 => {
                f64::from(f32::MIN_POSITIVE) + unit_roundoff(DType::F32) * self.value.abs()
            }
        };
        // Activations multiply by at most 2 and divide by at least 1/2.
        let large = match dtype {
            DType::F64 => f64::MAX,
            _ => f64::from(f32::MAX) / 4.0,
        };
        let error = self.error + lost;
        // Infinity and NaN may follow from an undefined operation.
        if !self.value.is_finite() || !error.is_finite() {
            return true;
        }
        let (low, high) = (self.value - error, self.value + error);
        let low = if low < -large { f64::NEG_INFINITY } else { low };
        let high = if high > large { f64::INFINITY } else { high };
        round(dtype, low) <= actual && actual <= round(dtype, high)
    }

    /// Result of an operation, from its value, the inherited error and its own roundoffs.
    fn of(self, other: Self, value: f64, inherited: f64, roundoffs: f64) -> Self {
        let unit = self.unit.max(other.unit);
        // Constants have no summation order.
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
        // The smallest divisor gives the largest error.
        let least = (other.value.abs() - other.error).max(0.0);
        let inherited = match self.error == 0.0 && other.error == 0.0 {
            true => 0.0,
            false => (self.error + value.abs() * other.error) / least,
        };
        self.of(other, value, inherited, DIVISION)
    }
}

/// Roundoffs of a mean of `n` numbers.
///
/// The sum costs one per addition, and one per block. `sqrt(n)` would need independent roundings,
/// but elements that a stride of 0 repeats all round the same way.
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
        // Not every activation propagates NaN.
        if !self.value.is_finite() || !self.error.is_finite() {
            return Self {
                value: f64::NAN,
                error: f64::INFINITY,
                ..self
            };
        }
        let value = activate(activation, self.value);
        // The error of an exponential grows like 4 roundoffs of its argument. A factor of the
        // argument costs 4 more.
        let reach = self.error + 8.0 * self.unit * self.value.abs();
        let (low, high) = (self.value - reach, self.value + reach);
        // Activations are monotonic between kinks. The largest error is at an end of the interval
        // or next to a kink inside. The device may be on the other side of a jump.
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

    /// Moments of a row, with the mean computed as in shifted-data variance.
    ///
    /// The shift is an element of the row. The roundoff of the sum is therefore relative to the
    /// distance between elements, not to their distance from 0. The stored mean adds its own.
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

        // Two elements differ by at most twice the largest deviation from the mean.
        let distances = values.iter().map(|x| 2.0 * (x - exact.mean).abs());
        let summed = distances.fold(0.0, f64::max);
        // The mean of equal elements is exact.
        let rounded = match exact.variance == 0.0 {
            true => 0.0,
            false => 2.0 * REFERENCE * exact.mean.abs(),
        };
        let mean = average(&|x| x.error) + off * summed + rounded;
        // An error of the mean changes the variance only to second order. Merging partial variances
        // (Chan et al.) adds squared differences of partial means, with the errors of these means.
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
            // Elements of both signs have the roundoff of their magnitudes.
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

/// Arguments at which an activation has a kink or a jump.
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

/// Largest term of an activation besides its result. Its roundoff remains if terms cancel.
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
    fn quotient_is_bounded_to_last_digits() {
        let quotient = read(1.0) / read(3.0);
        assert!(quotient.admits(f64::from(1.0f32 / 3.0), DType::F32));
        assert!(!quotient.admits(1.0 / 3.0 + 4e-7, DType::F32));
        // The nearest f16 and no other.
        assert!(quotient.admits(half::f16::from_f64(1.0 / 3.0).to_f64(), DType::F16));
        assert!(!quotient.admits(0.333_496_093_75, DType::F16));
    }

    #[test]
    fn nearest_rounds_once() {
        // Above the midpoint of two neighbours by less than one f32 ulp.
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(round(DType::BF16, above), 1.0 + 2f64.powi(-7));
        assert_eq!(round(DType::BF16, 1.0 + 2f64.powi(-8)), 1.0);
        let below = -(1.0 + 3.0 * 2f64.powi(-11)) + 2f64.powi(-40);
        assert_eq!(round(DType::F16, below), -(1.0 + 2f64.powi(-10)));
        assert_eq!(round(DType::F16, 1e300), f64::INFINITY);
        assert_eq!(round(DType::F16, -1e-300), 0.0);
        assert!(round(DType::BF16, f64::NAN).is_nan());
    }

    #[test]
    fn cancellation_keeps_the_absolute_error() {
        let third = read(1.0) / read(3.0);
        let rest = third - read(0.333);
        assert!(rest.error() >= third.error());
        assert!(rest.error() < 1e-6);
    }

    #[test]
    fn equal_elements_have_an_exact_mean() {
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
    fn serial_sums_have_wider_bounds() {
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
    fn both_sides_of_a_jump_are_allowed_only_near_it() {
        let relu = FusedActivation::ThresholdedRelu { alpha: 1.0 };
        let near = (read(1.0) / read(3.0) * read(3.0)).activate(relu);
        assert!(near.admits(0.0, DType::F32) && near.admits(1.0, DType::F32));
        let far = read(1.0 + 1e-3).activate(relu);
        assert!(!far.admits(0.0, DType::F32));
    }

    #[test]
    fn undefined_quotients_are_loose() {
        assert!((read(0.0) / read(0.0)).is_loose());
        assert!((read(1.0) / read(0.0)).is_loose());
        assert!(!(read(1.0) / read(3.0)).is_loose());
    }
}
