use std::collections::HashMap;

use super::{Moments, Number};
use crate::index::Indices;

/// The elements of a shape by a formula of their index, in row-major order.
pub(super) fn each<N>(shape: &[usize], of: impl Fn(&[usize]) -> N) -> Vec<N> {
    Indices::new(shape).map(|index| of(&index)).collect()
}

/// The key that the indices of a row's elements share.
type Common<'a> = Box<dyn Fn(&[usize]) -> Vec<usize> + 'a>;

/// The moments of every row of a tensor. A row is the set of elements with the same key.
pub(super) struct Rows<'a, N> {
    common: Common<'a>,
    moments: HashMap<Vec<usize>, Moments<N>>,
}

impl<'a, N: Number> Rows<'a, N> {
    /// Rows of the elements with the same `common` key.
    pub(super) fn with(
        shape: &[usize],
        common: impl Fn(&[usize]) -> Vec<usize> + 'a,
        x: impl Fn(&[usize]) -> N,
    ) -> Self {
        let mut rows: HashMap<Vec<usize>, Vec<N>> = HashMap::new();
        for index in Indices::new(shape) {
            rows.entry(common(&index)).or_default().push(x(&index));
        }
        let moments = rows
            .into_iter()
            .map(|(common, x)| (common, N::moments(&x)))
            .collect();
        Self {
            common: Box::new(common),
            moments,
        }
    }

    /// Rows of the elements that share their index outside the axes.
    pub(super) fn over(shape: &[usize], axes: &'a [usize], x: impl Fn(&[usize]) -> N) -> Self {
        let outside = move |index: &[usize]| {
            let kept = index.iter().enumerate();
            kept.filter(|(dim, _)| !axes.contains(dim))
                .map(|(_, &i)| i)
                .collect()
        };
        Self::with(shape, outside, x)
    }

    /// The moments of the row that contains an element.
    pub(super) fn of(&self, index: &[usize]) -> Moments<N> {
        self.moments[&(self.common)(index)]
    }

    /// A statistic of the rows of some elements, in row-major order; `None` if one of the rows is
    /// empty.
    pub(super) fn each(&self, shape: &[usize], of: impl Fn(Moments<N>) -> N) -> Option<Vec<N>> {
        let rows = Indices::new(shape).map(|index| self.moments.get(&(self.common)(&index)));
        rows.map(|row| Some(of(*row?))).collect()
    }
}
