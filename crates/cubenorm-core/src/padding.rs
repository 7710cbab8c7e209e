//! Lines of memory that a runtime has padded, as CubeCL's CUDA runtime does for whoever asks it for a tensor.

use crate::{NormDesc, StatisticsKind, TensorDesc};

/// Bytes that a GPU's unit loads at once.
const LOAD: usize = 16;

/// The part of a line that its padding may be at most, one of so many: it is read and written along.
const LEAST_OF_LINE: usize = 4;

impl NormDesc {
    /// The same normalization with the padding of the input's lines taken for elements of theirs. Of each of the result's
    /// lines, the first elements are what this description asks for.
    ///
    /// That is for an input whose lines divide into whole vectors with their padding and not without it, and that has no
    /// gaps then. It is `None` for any other, and
    ///
    /// - where padding would change a result: where something is reduced, or a parameter is not the same along a line;
    /// - where padding is more than a quarter of a line, since it is read and written along;
    /// - where a residual is added, the sum is written, or the output's layout is given.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{DType, Layout, NormDesc, Statistics, TensorDesc};
    ///
    /// // Lines of seven numbers that begin at multiples of eight.
    /// let input = TensorDesc::new(Layout::strided([2, 64, 7, 7], [3584, 56, 8, 1]), DType::F16);
    /// let channel = TensorDesc::contiguous([64, 1, 1], DType::F16);
    /// let [mean, variance] = [channel.clone(), channel];
    /// let desc = NormDesc::new(input, [0, 2, 3], Statistics::Given { mean, variance });
    /// let padded = desc.with_padding().unwrap();
    /// assert_eq!(padded.input, TensorDesc::contiguous([2, 64, 7, 8], DType::F16));
    /// ```
    pub fn with_padding(&self) -> Option<Self> {
        let reduces = StatisticsKind::of(&self.statistics).reduces();
        let has_more = self.output.is_some() || self.residual.is_some() || self.writes_sum;
        let layout = &self.input.layout;
        if reduces || has_more || layout.is_dense() {
            return None;
        }
        let dims = (0..layout.rank()).filter(|&dim| layout.shape[dim] > 1);
        let innermost = dims.clone().find(|&dim| layout.strides[dim] == 1)?;
        let others = dims.filter(|&dim| dim != innermost);
        let padded = others.map(|dim| layout.strides[dim]).min()?;
        let line = layout.shape[innermost];
        let lanes = LOAD / self.input.dtype.size();
        // Lines that overlap have none.
        let is_little = padded.checked_sub(line)?.saturating_mul(LEAST_OF_LINE) <= line;
        let makes_whole = !line.is_multiple_of(lanes) && padded.is_multiple_of(lanes);
        let from_end = layout.rank() - innermost;
        let is_constant = |tensor: &TensorDesc| {
            let own = tensor.layout.rank().checked_sub(from_end);
            own.is_none_or(|dim| tensor.shape()[dim] == 1)
        };
        if !is_little || !makes_whole || !self.params().all(is_constant) {
            return None;
        }
        let mut desc = self.clone();
        desc.input.layout.shape[innermost] = padded;
        desc.input.layout.is_dense().then_some(desc)
    }
}
