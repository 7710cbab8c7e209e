use std::ops::{Add, Div, Mul, Sub};

use cubenorm_core::DType;
use cubenorm_operators::directml::FusedActivation;

use super::activate;
use crate::Sum;

/// The number type of a formula.
pub trait Number:
    Copy + From<f64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The number itself.
    fn value(self) -> f64;

    /// The square root.
    fn sqrt(self) -> Self;

    /// The activation of the number.
    fn activate(self, activation: FusedActivation) -> Self;

    /// The number rounded to a dtype. `f64` is not rounded.
    fn rounded(self, dtype: DType) -> Self;

    /// Moments of a row of at least one element.
    fn moments(row: &[Self]) -> Moments<Self>;
}

/// Moments of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments<N> {
    /// `sum(x) / n`
    pub mean: N,
    /// `sum((x - mean)^2) / n`
    pub variance: N,
    /// `sum(x^2) / n`
    pub mean_square: N,
    /// `sum(x)`
    pub total: N,
    /// `sum(|x|)`
    pub magnitudes: N,
    /// `sum(x^2)`
    pub squares: N,
}

impl Number for f64 {
    fn value(self) -> f64 {
        self
    }

    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }

    fn activate(self, activation: FusedActivation) -> Self {
        activate(activation, self)
    }

    fn rounded(self, _: DType) -> Self {
        self
    }

    fn moments(row: &[Self]) -> Moments<Self> {
        let n = row.len() as Self;
        let sum = |of: &dyn Fn(Self) -> Self| {
            let mut sum = Sum::default();
            row.iter().for_each(|&x| sum.add(of(x)));
            sum.total()
        };
        // A second pass corrects the rounding of the mean, so a row of equal elements has
        // deviations of exactly 0.
        let rough = sum(&|x| x) / n;
        let mean = rough + sum(&|x| x - rough) / n;
        let squares = sum(&|x| x * x);
        Moments {
            mean,
            variance: sum(&|x| (x - mean) * (x - mean)) / n,
            mean_square: squares / n,
            total: sum(&|x| x),
            magnitudes: sum(&Self::abs),
            squares,
        }
    }
}
