//! Keeps Burn's fusion from merging several runs.

#[cfg(feature = "flex")]
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;
use burn_cubecl::CubeBackend;

/// An operation that orders others.
#[backend_extension(
    Cube,
    Flex: cfg(feature = "flex"),
    Fusion
)]
trait Ordered: Backend {
    /// `input`, once `before` is computed.
    #[fusion(dtype = input, shape = input)]
    fn after(input: FloatTensor<Self>, before: FloatTensor<Self>) -> FloatTensor<Self> {
        drop(before);
        input
    }
}

impl Ordered for CubeBackend {}

#[cfg(feature = "flex")]
impl Ordered for Flex {}

/// Returns `input`, but only once `before` is computed. Fusion then never merges a run that begins
/// with the result with the run of `before`. Nothing waits, as in a network.
///
/// Burn's own means (a flush, or a query of the device) wait for the threads of fusion and of
/// CubeCL's server. That is two round trips a run, on the cores that compute if the device is a
/// CPU. An operation between two others that does nothing is no help: fusion merges the two all the
/// same.
pub fn after<const D: usize, const E: usize>(input: Tensor<D>, before: Tensor<E>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::after(
        input.into_dispatch(),
        before.into_dispatch(),
    ))
}
