use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{MAX_RANK, NormError};

/// Sizes and strides of a tensor, both in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Size of each dimension.
    pub shape: Vec<usize>,
    /// Elements between adjacent indices of each dimension. 0 repeats one element.
    pub strides: Vec<usize>,
}

impl Layout {
    /// A layout of any strides.
    pub fn strided(shape: impl Into<Vec<usize>>, strides: impl Into<Vec<usize>>) -> Self {
        Self {
            shape: shape.into(),
            strides: strides.into(),
        }
    }

    /// The row-major layout without gaps.
    pub fn contiguous(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let mut strides = vec![1; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = shape[dim].max(1).saturating_mul(strides[dim]);
        }
        Self { shape, strides }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements, or `None` if it exceeds a `usize`.
    pub fn checked_elements(&self) -> Option<usize> {
        // A dimension of 0 makes the tensor empty, even if the other sizes overflow.
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size))
    }

    /// Elements from the first address to one past the last. `None` if that exceeds a `usize`, 0
    /// for an empty tensor.
    pub fn checked_span(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape
            .iter()
            .zip(&self.strides)
            .try_fold(1usize, |span, (&size, &stride)| {
                span.checked_add((size - 1).checked_mul(stride)?)
            })
    }

    /// True for a permutation of a contiguous tensor: each element has its own address, and the
    /// span has no gaps.
    pub fn is_dense(&self) -> bool {
        let mut dims: Vec<_> = self.significant().collect();
        dims.sort_unstable_by_key(|&(_, stride)| stride);
        let mut expected = 1;
        dims.into_iter().all(|(size, stride)| {
            let dense = stride == expected;
            expected = stride.saturating_mul(size);
            dense
        })
    }

    /// The layout of a result of the same shape: this one without gaps, with the same dimension
    /// order in memory. Contiguous if elements share an address.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::Layout;
    ///
    /// // Channels-last, with rows padded to 16 elements.
    /// let padded = Layout::strided([2, 10, 7, 7], [784, 1, 112, 16]);
    /// assert_eq!(padded.kept(), Layout::strided([2, 10, 7, 7], [490, 1, 70, 10]));
    /// let repeated = Layout::strided([2, 3], [0, 1]);
    /// assert_eq!(repeated.kept(), Layout::contiguous([2, 3]));
    /// ```
    pub fn kept(&self) -> Self {
        if self.is_dense() {
            return self.clone();
        }
        let mut kept = Self::contiguous(self.shape.clone());
        if self.overlaps() {
            return kept;
        }
        let mut dims: Vec<usize> = (0..self.rank())
            .filter(|&dim| self.shape[dim] > 1)
            .collect();
        dims.sort_by_key(|&dim| self.strides[dim]);
        let mut stride = 1usize;
        for dim in dims {
            kept.strides[dim] = stride;
            stride = stride.saturating_mul(self.shape[dim]);
        }
        kept
    }

    /// True if two different indices may share an address.
    ///
    /// Exact for layouts that result from slicing and permuting. Layouts that interleave in other
    /// ways are reported as overlapping.
    pub fn overlaps(&self) -> bool {
        let mut dims: Vec<_> = self.significant().collect();
        dims.sort_unstable_by_key(|&(_, stride)| stride);
        let mut reached = 0usize;
        for (size, stride) in dims {
            if stride <= reached {
                return true;
            }
            reached = reached.saturating_add((size - 1).saturating_mul(stride));
        }
        false
    }

    /// The strides after broadcasting to `shape`, NumPy style: aligned at the last dimension, with
    /// a stride of 0 for sizes of 1 and missing dimensions. `None` if the shapes do not broadcast.
    pub(crate) fn broadcast_to(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let missing = shape.len().checked_sub(self.rank())?;
        let mut strides = vec![0; shape.len()];
        for (dim, (&size, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let target = shape[missing + dim];
            strides[missing + dim] = match size {
                _ if size == target => stride,
                1 => 0,
                _ => return None,
            };
        }
        Some(strides)
    }

    /// A view of the same elements, in the same order, in another shape. Dimensions are split, or
    /// merged if they are contiguous with each other. `None` if the view would require a copy.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::Layout;
    ///
    /// // Channels-last: the channel dimension splits into groups, the spatial ones merge.
    /// let maps = Layout::strided([2, 6, 4, 4], [96, 1, 24, 6]);
    /// let groups = maps.reshaped(&[2, 3, 2, 16]).unwrap();
    /// assert_eq!(groups.strides, [96, 2, 1, 6]);
    /// assert_eq!(groups.reshaped(&[2, 6, 4, 4]), Some(maps.clone()));
    /// // Channels and spatial positions do not merge.
    /// assert_eq!(maps.reshaped(&[2, 96]), None);
    /// ```
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        if self.shape.contains(&0) || shape.contains(&0) {
            let contiguous = Self::contiguous(shape);
            return (contiguous.checked_elements() == self.checked_elements())
                .then_some(contiguous);
        }
        let mut from: Vec<_> = self.significant().collect();
        let mut strides = vec![1; shape.len()];
        // From the innermost dimension outwards: the remaining size of the current dimension, and
        // its stride.
        let (mut left, mut step) = (1, 1);
        for (dim, &size) in shape.iter().enumerate().rev() {
            if left == 1
                && size > 1
                && let Some((next, stride)) = from.pop()
            {
                (left, step) = (next, stride);
            }
            strides[dim] = step;
            while left % size != 0 {
                let (next, stride) = from.pop()?;
                if stride != step.saturating_mul(left) {
                    return None;
                }
                left *= next;
            }
            step = step.saturating_mul(size);
            left /= size;
        }
        (left == 1 && from.is_empty()).then(|| Self::strided(shape, strides))
    }

    /// Sizes and strides of the dimensions of more than one element.
    fn significant(&self) -> impl Iterator<Item = (usize, usize)> {
        self.shape
            .iter()
            .copied()
            .zip(self.strides.iter().copied())
            .filter(|&(size, _)| size > 1)
    }
}

/// A tensor of a description: a layout and a dtype.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorDesc {
    /// Sizes and strides.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
}

impl TensorDesc {
    /// A tensor of any layout.
    pub fn new(layout: Layout, dtype: DType) -> Self {
        Self { layout, dtype }
    }

    /// A row-major tensor without gaps.
    pub fn contiguous(shape: impl Into<Vec<usize>>, dtype: DType) -> Self {
        Self::new(Layout::contiguous(shape), dtype)
    }

    /// Sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Checks the rank, the number of strides and that the size fits a `usize`.
    pub(crate) fn validate(&self, tensor: &'static str) -> Result<(), NormError> {
        let Layout { shape, strides } = &self.layout;
        let rank = shape.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return Err(NormError::Rank { tensor, rank });
        }
        if strides.len() != rank {
            return Err(NormError::StrideCount {
                tensor,
                rank,
                strides: strides.len(),
            });
        }
        let countable = |count: Option<usize>| {
            count.is_some_and(|count| count <= isize::MAX as usize / self.dtype.size())
        };
        if !countable(self.layout.checked_elements()) || !countable(self.layout.checked_span()) {
            return Err(NormError::TooLarge {
                tensor,
                shape: shape.clone(),
            });
        }
        Ok(())
    }

    /// Checks that a buffer of `elements` covers the span of this description.
    ///
    /// # Errors
    ///
    /// [`NormError::BufferTooSmall`], or the error of an invalid description.
    pub fn fits(&self, tensor: &'static str, elements: usize) -> Result<(), NormError> {
        self.validate(tensor)?;
        let expected = self.layout.checked_span().unwrap_or(usize::MAX);
        if expected > elements {
            return Err(NormError::BufferTooSmall {
                tensor,
                shape: self.layout.shape.clone(),
                strides: self.layout.strides.clone(),
                expected,
                actual: elements,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permuted_tensors_are_dense() {
        assert!(Layout::contiguous([2, 3, 4]).is_dense());
        assert!(Layout::strided([4, 2, 3], [1, 12, 4]).is_dense());
        assert!(Layout::strided([2, 1, 4], [4, 999, 1]).is_dense());
        assert!(!Layout::strided([2, 3], [4, 1]).is_dense());
        assert!(!Layout::strided([2, 3], [0, 1]).is_dense());
    }

    #[test]
    fn result_layout_keeps_memory_order_without_gaps() {
        let sliced = Layout::strided([2, 1, 3, 4], [48, 7, 8, 1]);
        assert_eq!(sliced.kept(), Layout::contiguous([2, 1, 3, 4]));
        let transposed = Layout::strided([3, 4], [1, 5]);
        assert_eq!(transposed.kept(), Layout::strided([3, 4], [1, 3]));
        let dense = Layout::strided([2, 1, 4], [4, 999, 1]);
        assert_eq!(dense.kept(), dense);
        let repeated = Layout::strided([3, 4, 2], [1, 0, 8]);
        assert_eq!(repeated.kept(), Layout::contiguous([3, 4, 2]));
    }

    #[test]
    fn only_layouts_with_shared_addresses_overlap() {
        assert!(!Layout::contiguous([2, 3, 4]).overlaps());
        assert!(!Layout::strided([2, 3], [8, 2]).overlaps());
        assert!(!Layout::strided([2, 1], [1, 0]).overlaps());
        assert!(Layout::strided([2, 3], [0, 1]).overlaps());
        assert!(Layout::strided([3, 3], [1, 1]).overlaps());
    }

    #[test]
    fn span_ends_at_last_reached_element() {
        assert_eq!(Layout::strided([2, 3], [8, 2]).checked_span(), Some(13));
        assert_eq!(Layout::strided([2, 0], [8, 2]).checked_span(), Some(0));
        assert_eq!(
            Layout::strided([usize::MAX, 3], [2, 2]).checked_span(),
            None
        );
    }

    #[test]
    fn reshapes_without_copying() {
        let strides = |layout: Layout, shape: &[usize]| layout.reshaped(shape).map(|it| it.strides);
        let contiguous = Layout::contiguous([4, 6, 5]);
        assert_eq!(contiguous.reshaped(&[120]), Some(Layout::contiguous([120])));
        assert_eq!(
            contiguous.reshaped(&[2, 2, 1, 30]),
            Some(Layout::contiguous([2, 2, 1, 30]))
        );
        // A dimension of the new shape ends inside an old one, which continues in the next outer
        // one.
        assert_eq!(strides(contiguous.clone(), &[8, 15]), Some(vec![15, 1]));
        assert_eq!(contiguous.reshaped(&[7, 17]), None);
        assert_eq!(contiguous.reshaped(&[4, 6]), None);
        assert_eq!(contiguous.reshaped(&[4, 6, 5, 2]), None);
        // Pitched rows can be split but not merged.
        let padded = Layout::strided([4, 6, 5], [48, 8, 1]);
        assert_eq!(
            strides(padded.clone(), &[2, 2, 6, 5]),
            Some(vec![96, 48, 8, 1])
        );
        assert_eq!(strides(padded.clone(), &[24, 5]), Some(vec![8, 1]));
        assert_eq!(padded.reshaped(&[4, 30]), None);
        assert_eq!(padded.reshaped(&[8, 15]), None);
        // Sizes of 1 may have any stride. Repeated elements merge with repeated elements.
        let repeated = Layout::strided([1, 4, 3, 2], [999, 0, 0, 1]);
        assert_eq!(strides(repeated, &[12, 1, 2]).unwrap()[0], 0);
        let empty = Layout::contiguous([4, 0, 5]);
        assert_eq!(empty.reshaped(&[0, 7]), Some(Layout::contiguous([0, 7])));
        assert_eq!(empty.reshaped(&[7]), None);
    }

    #[test]
    fn broadcasting_aligns_at_last_dimension() {
        let bias = Layout::contiguous([3, 1]);
        assert_eq!(bias.broadcast_to(&[2, 3, 4]), Some(vec![0, 1, 0]));
        assert_eq!(bias.broadcast_to(&[2, 4, 4]), None);
        assert_eq!(bias.broadcast_to(&[3]), None);
    }
}
