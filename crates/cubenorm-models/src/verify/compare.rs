use std::fmt;

use crate::{ArrayError, HostArray};

/// Tolerance of an element: `|actual - expected| <= atol + rtol * |expected|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The relative part.
    pub rtol: f64,
    /// The absolute part.
    pub atol: f64,
    /// True if NaN equals NaN and an infinity equals the same infinity. If false, neither is ever
    /// accepted.
    pub equal_nonfinite: bool,
}

impl Tolerance {
    /// True if an element is within the tolerance.
    pub fn admits(&self, actual: f64, expected: f64) -> bool {
        if actual.is_finite() && expected.is_finite() {
            return (actual - expected).abs() <= self.atol + self.rtol * expected.abs();
        }
        let same = actual == expected || (actual.is_nan() && expected.is_nan());
        self.equal_nonfinite && same
    }
}

/// First element outside the tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Index in row-major order.
    pub index: usize,
    /// Index in each dimension.
    pub position: Vec<usize>,
    /// Actual value.
    pub actual: f64,
    /// Expected value.
    pub expected: f64,
    /// The tolerance.
    pub tolerance: Tolerance,
    /// Number of elements outside the tolerance.
    pub count: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {}", self.index)?;
        if self.position.len() > 1 {
            write!(f, " at {:?}", self.position)?;
        }
        let Tolerance { rtol, atol, .. } = self.tolerance;
        write!(
            f,
            " is {:?}: expected {:?} within {atol:?} + {rtol:?} * {:?} ({} elements differ)",
            self.actual,
            self.expected,
            self.expected.abs(),
            self.count
        )
    }
}

/// Compares elements in row-major order; `None` is not compared.
///
/// # Errors
///
/// A [`Difference`], or `None` if the numbers of elements differ.
pub(crate) fn compare(
    actual: &[f64],
    expected: &[Option<f64>],
    shape: &[usize],
    tolerance: Tolerance,
) -> Result<(), Option<Box<Difference>>> {
    if actual.len() != expected.len() {
        return Err(None);
    }
    let pairs = actual.iter().zip(expected).enumerate();
    let mut wrong = pairs.filter_map(|(index, (&actual, &expected))| {
        let expected = expected?;
        (!tolerance.admits(actual, expected)).then_some((index, actual, expected))
    });
    let Some((index, actual, expected)) = wrong.next() else {
        return Ok(());
    };
    Err(Some(Box::new(Difference {
        index,
        position: position(index, shape),
        actual,
        expected,
        tolerance,
        count: 1 + wrong.count(),
    })))
}

fn position(index: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut position = vec![0; shape.len()];
    for (at, &size) in position.iter_mut().zip(shape).rev() {
        *at = rest % size.max(1);
        rest /= size.max(1);
    }
    position
}

/// Compares two arrays of any element types.
pub(super) fn check_array(
    actual: &HostArray,
    expected: &HostArray,
    tolerance: Tolerance,
) -> Result<(), String> {
    same("shape", &actual.shape, &expected.shape)?;
    let text = |error: ArrayError| error.to_string();
    let expected = expected.to_f64().map_err(text)?;
    let expected: Vec<Option<f64>> = expected.into_iter().map(Some).collect();
    let values = actual.to_f64().map_err(text)?;
    compare(&values, &expected, &actual.shape, tolerance).map_err(different)
}

/// Checks that two values are equal.
pub(super) fn same<T: PartialEq + fmt::Debug>(
    what: &str,
    actual: &T,
    expected: &T,
) -> Result<(), String> {
    match actual == expected {
        true => Ok(()),
        false => Err(format!("the {what} is {actual:?}: expected {expected:?}")),
    }
}

/// Describes the error of [`compare`].
pub(super) fn different(difference: Option<Box<Difference>>) -> String {
    match difference {
        Some(difference) => difference.to_string(),
        None => "the number of elements differs from the expected one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Tolerance = Tolerance {
        rtol: 0.1,
        atol: 0.5,
        equal_nonfinite: false,
    };

    #[test]
    fn tolerances_add_both_parts() {
        assert!(STRICT.admits(11.5, 10.0));
        assert!(!STRICT.admits(11.6, 10.0));
        assert!(STRICT.admits(-0.5, 0.0));
    }

    #[test]
    fn nonfinite_values_equal_themselves_if_allowed() {
        let equal = Tolerance {
            equal_nonfinite: true,
            ..STRICT
        };
        let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0];
        for (i, &actual) in values.iter().enumerate() {
            for (j, &expected) in values.iter().enumerate() {
                assert_eq!(
                    equal.admits(actual, expected),
                    i == j,
                    "{actual} {expected}"
                );
                let strict = i == j && actual.is_finite();
                assert_eq!(
                    STRICT.admits(actual, expected),
                    strict,
                    "{actual} {expected}"
                );
            }
        }
    }

    #[test]
    fn finds_the_first_difference_and_skips_gaps() {
        let expected = [Some(0.0), None, Some(0.0), Some(0.0)];
        assert_eq!(
            compare(&[0.1, 9.0, 0.2, 0.0], &expected, &[2, 2], STRICT),
            Ok(())
        );
        let found = compare(&[0.0, 9.0, 3.0, 4.0], &expected, &[2, 2], STRICT);
        let found = found.unwrap_err().unwrap();
        assert_eq!(
            (found.index, found.position.as_slice(), found.count),
            (2, &[1, 0][..], 2)
        );
        assert_eq!(compare(&[0.0], &expected, &[1], STRICT), Err(None));
    }
}
