use cubenorm_core::TensorDesc;

use crate::index::address;

/// A tensor with its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<N = f64> {
    /// Layout and dtype. A scalar has no dimensions.
    pub desc: TensorDesc,
    /// The buffer that the layout indexes into.
    pub buffer: Vec<N>,
}

impl<N: Copy> Tensor<N> {
    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        self.desc.shape()
    }

    /// The element at an index of a larger tensor, after broadcasting NumPy style.
    pub fn at(&self, index: &[usize]) -> N {
        self.buffer[address(&self.desc.layout, index.len(), index)]
    }
}
