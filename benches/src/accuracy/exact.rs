//! The norms with twice the digits of float64.
//!
//! Numbers are pairs of float64 whose sum is the number, with about 106 significant bits
//! ("double-double", after Dekker, 1971, and Knuth). The formulas are the same as in
//! `cubenorm-reference`, and the tests compare with that.

use super::cases::{Case, Data, Op};

/// The sum of two float64 that do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    high: f64,
    low: f64,
}

impl From<f64> for Pair {
    fn from(high: f64) -> Self {
        Self { high, low: 0.0 }
    }
}

impl Pair {
    /// The nearest float64.
    pub fn nearest(self) -> f64 {
        self.high + self.low
    }

    /// The distance of `other` from this. All digits of the difference count.
    pub fn distance(self, other: f64) -> f64 {
        (self.minus(other.into())).nearest().abs()
    }

    /// `a + b` and its rounding error, for `a` at least as large as `b`.
    fn renormalized(a: f64, b: f64) -> Self {
        let high = a + b;
        // An infinity has lost nothing that is a number.
        let low = if high.is_finite() {
            b - (high - a)
        } else {
            0.0
        };
        Self { high, low }
    }

    /// `a + b` and its rounding error.
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let part = high - a;
        let low = (a - (high - part)) + (b - part);
        Self { high, low }
    }

    fn plus(self, other: Self) -> Self {
        let (high, low) = (
            Self::sum(self.high, other.high),
            Self::sum(self.low, other.low),
        );
        let high = Self::renormalized(high.high, high.low + low.high);
        Self::renormalized(high.high, high.low + low.low)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self {
            high: -other.high,
            low: -other.low,
        })
    }

    fn times(self, other: Self) -> Self {
        let high = self.high * other.high;
        let lost = self.high.mul_add(other.high, -high);
        let crossed = self.high * other.low + self.low * other.high;
        Self::renormalized(high, lost + crossed)
    }

    fn over(self, other: Self) -> Self {
        let first = self.high / other.high;
        let rest = self.minus(other.times(first.into()));
        let second = rest.high / other.high;
        let rest = rest.minus(other.times(second.into()));
        let third = rest.high / other.high;
        Self::renormalized(first, second).plus(third.into())
    }

    /// One step of Newton's from the root of the larger part.
    fn root(self) -> Self {
        if self.high <= 0.0 {
            return Self::default();
        }
        let root = Self::from(self.high.sqrt());
        let rest = self.minus(root.times(root));
        root.plus((rest.high / (2.0 * root.high)).into())
    }
}

/// The exact result of a case.
pub fn reference(case: &Case, data: &Data) -> Vec<Pair> {
    let length = Pair::from(case.row() as f64);
    let mut output = Vec::with_capacity(data.input.len());
    for (row, values) in data.input.chunks_exact(case.row()).enumerate() {
        let given = |parameter: &Option<Vec<f64>>| {
            let values = parameter.as_ref();
            values.map(|values| Pair::from(values[case.parameter(row, 0)]))
        };
        let mean = match case.op {
            Op::RmsNorm => Pair::default(),
            _ => given(&data.mean).unwrap_or_else(|| {
                let sum = values
                    .iter()
                    .fold(Pair::default(), |sum, &x| sum.plus(x.into()));
                sum.over(length)
            }),
        };
        let centered: Vec<Pair> = values.iter().map(|&x| Pair::from(x).minus(mean)).collect();
        let variance = given(&data.variance).unwrap_or_else(|| {
            let squares = centered.iter().map(|x| x.times(*x));
            squares.fold(Pair::default(), Pair::plus).over(length)
        });
        let deviation = variance.plus(data.epsilon.into()).root();
        for (column, x) in centered.into_iter().enumerate() {
            let mut value = x.over(deviation);
            if let Some(scale) = &data.scale {
                value = value.times(scale[case.parameter(row, column)].into());
            }
            if let Some(bias) = &data.bias {
                value = value.plus(bias[case.parameter(row, column)].into());
            }
            output.push(value);
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use cubenorm_core::{DType, Epsilon, NormDesc, Statistics, TensorDesc};
    use cubenorm_reference::{Tensors, forward};

    use super::*;
    use crate::accuracy::cases::{Input, Suite};

    #[test]
    fn pairs_keep_what_float64_loses() {
        let third = Pair::from(1.0).over(3.0.into());
        let one = third.plus(third).plus(third);
        assert!(one.distance(1.0) < 1e-31, "{one:?}");
        let two = Pair::from(2.0).root();
        assert!(two.times(two).distance(2.0) < 1e-30);
        let tiny = Pair::from(1.0).plus(1e-25.into()).minus(1.0.into());
        assert_eq!(tiny.nearest(), 1e-25);
        assert_eq!(Pair::from(0.0).root().nearest(), 0.0);
    }

    /// The project's reference has float64's digits, and a large offset takes four of them.
    #[test]
    fn exact_agrees_with_the_reference_crate() {
        for case in Suite::Quick.cases() {
            if case.input == Input::WideRange {
                continue;
            }
            let data = case.data();
            let tensor = || TensorDesc::contiguous(case.shape.clone(), DType::F64);
            let parameter = || {
                let mut shape = vec![1; case.shape.len()];
                match case.op {
                    Op::LayerNorm | Op::RmsNorm => shape[1] = case.row(),
                    _ => shape[1] = case.shape[1],
                }
                TensorDesc::contiguous(shape, DType::F64)
            };
            let (axes, statistics) = match case.op {
                Op::LayerNorm => (vec![1], Statistics::MeanVariance),
                Op::RmsNorm => (vec![1], Statistics::MeanSquare),
                Op::InstanceNorm => (vec![2, 3], Statistics::MeanVariance),
                Op::MeanVarianceNorm => (vec![0, 1, 2, 3], Statistics::MeanVariance),
                Op::BatchNorm => (
                    vec![0, 2, 3],
                    Statistics::Provided {
                        mean: parameter(),
                        variance: parameter(),
                    },
                ),
            };
            let desc = NormDesc::new(tensor(), axes, statistics)
                .with_epsilon(Epsilon::InsideSqrt(data.epsilon))
                .with_scale(data.scale.as_ref().map(|_| parameter()))
                .with_bias(data.bias.as_ref().map(|_| parameter()));
            let tensors = Tensors {
                input: &data.input,
                residual: None,
                scale: data.scale.as_deref(),
                bias: data.bias.as_deref(),
                mean: data.mean.as_deref(),
                variance: data.variance.as_deref(),
                rotation: None,
            };
            let expected = forward(&desc, &tensors).output;
            let actual = reference(&case, &data);
            for (actual, expected) in actual.iter().zip(&expected) {
                let distance = actual.distance(*expected);
                assert!(distance < 1e-11, "{case}: {actual:?} {expected}");
            }
        }
    }
}
