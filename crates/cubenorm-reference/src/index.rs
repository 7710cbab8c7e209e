//! Iteration over the indices of a tensor.

use std::ops::Deref;

use cubenorm_core::{Layout, MAX_RANK};

/// One index of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index {
    positions: [usize; MAX_RANK],
    rank: usize,
}

impl Deref for Index {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.positions[..self.rank]
    }
}

/// Every index of a shape in row-major order.
pub(crate) struct Indices<'a> {
    shape: &'a [usize],
    next: Option<Index>,
}

impl<'a> Indices<'a> {
    pub(crate) fn new(shape: &'a [usize]) -> Self {
        let first = Index {
            positions: [0; MAX_RANK],
            rank: shape.len(),
        };
        let next = (!shape.contains(&0)).then_some(first);
        Self { shape, next }
    }
}

impl Iterator for Indices<'_> {
    type Item = Index;

    fn next(&mut self) -> Option<Index> {
        let current = self.next.take()?;
        let mut following = current;
        for dim in (0..self.shape.len()).rev() {
            following.positions[dim] += 1;
            if following.positions[dim] < self.shape[dim] {
                self.next = Some(following);
                break;
            }
            following.positions[dim] = 0;
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
