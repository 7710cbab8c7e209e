//! Pitched rows: padding at the end of each row, as CubeCL's CUDA runtime allocates on request.

use crate::desc::NormDesc;
use crate::layout::TensorDesc;
use crate::statistics::StatisticsKind;

/// Bytes of one vectorized load of a GPU unit.
const LOAD: usize = 16;

/// Largest fraction of a row that may be padding, as its denominator: padding is read and written
/// too.
const LEAST_OF_LINE: usize = 4;

impl NormDesc {
    /// The same normalization with the padding of the input's rows treated as elements. The first
    /// elements of each row of the result are the result of this description.
    ///
    /// This applies to an input whose rows divide into whole vectors with their padding only, and
    /// that has no other gaps. It is `None` for any other input, and
    ///
    /// - if padding would change a result: a statistic is reduced, or a parameter changes along a
    ///   row;
    /// - if padding exceeds a quarter of a row, because it is read and written too;
    /// - if a residual is added, the sum is written, or the output's layout is given.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{DType, Layout, NormDesc, Statistics, TensorDesc};
    ///
    /// // Rows of 7 elements with a pitch of 8.
    /// let input = TensorDesc::new(Layout::strided([2, 64, 7, 7], [3584, 56, 8, 1]), DType::F16);
    /// let channel = TensorDesc::contiguous([64, 1, 1], DType::F16);
    /// let [mean, variance] = [channel.clone(), channel];
    /// let desc = NormDesc::new(input, [0, 2, 3], Statistics::Provided { mean, variance });
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
        // Overlapping rows have no padding.
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
