use std::ops::{Add, Div, Mul, Sub};

use cubenorm_core::DType;
use cubenorm_operators::directml::FusedActivation;

use super::activate;
use crate::Sum;

/// What formulas are computed in.
pub trait Number:
    Copy + From<f64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The number itself.
    fn value(self) -> f64;

    /// The square root.
    fn sqrt(self) -> Self;

    /// An activation of it.
    fn activate(self, activation: FusedActivation) -> Self;

    /// As it is after an operator has rounded it to a dtype. `f64` keeps all its digits.
    fn rounded(self, dtype: DType) -> Self;

    /// What a row's elements, at least one, come to.
    fn moments(row: &[Self]) -> Moments<Self>;
}

/// What the elements of a row come to.
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
        f64::sqrt(self)
    }

    fn activate(self, activation: FusedActivation) -> Self {
        activate(activation, self)
    }

    fn rounded(self, _: DType) -> Self {
        self
    }

    fn moments(row: &[Self]) -> Moments<Self> {
        let n = row.len() as f64;
        let sum = |of: &dyn Fn(f64) -> f64| {
            let mut sum = Sum::default();
            row.iter().for_each(|&x| sum.add(of(x)));
            sum.total()
        };
        // What rounding the mean leaves is made up for, so that a row of equal elements is 0 from it.
        let rough = sum(&|x| x) / n;
        let mean = rough + sum(&|x| x - rough) / n;
        let squares = sum(&|x| x * x);
        Moments {
            mean,
            variance: sum(&|x| (x - mean) * (x - mean)) / n,
            mean_square: squares / n,
            total: sum(&|x| x),
            magnitudes: sum(&f64::abs),
            squares,
        }
    }
}
