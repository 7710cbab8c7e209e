//! Iteration over the indices of a tensor.

use cubenorm_core::Layout;

/// Every index of a shape in row-major order.
pub(crate) struct Indices<'a> {
    shape: &'a [usize],
    next: Option<Vec<usize>>,
}

impl<'a> Indices<'a> {
    pub(crate) fn new(shape: &'a [usize]) -> Self {
        let next = (!shape.contains(&0)).then(|| vec![0; shape.len()]);
        Self { shape, next }
    }
}

impl Iterator for Indices<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let mut following = current.clone();
        for dim in (0..self.shape.len()).rev() {
            following[dim] += 1;
            if following[dim] < self.shape[dim] {
                self.next = Some(following);
                break;
            }
            following[dim] = 0;
        }
        Some(current)
    }
}

/// Address of an element by an index of `rank` dimensions, broadcast NumPy style: aligned at the
/// last dimension, with sizes of 1 matching any index.
pub(crate) fn address(layout: &Layout, rank: usize, index: &[usize]) -> usize {
    let missing = rank - layout.shape.len();
    layout
        .shape
        .iter()
        .zip(&layout.strides)
        .zip(&index[missing..])
        .map(|((&size, &stride), &position)| if size == 1 { 0 } else { position * stride })
        .sum()
}
