//! What keeps Burn's fusion from making one of several runs.

#[cfg(feature = "flex")]
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

/// An operation that orders others.
#[backend_extension(
    Cube: cfg(feature = "cube"),
    Flex: cfg(feature = "flex"),
    Fusion: cfg(feature = "cube")
)]
trait Ordered: Backend {
    /// `input`, once `before` is computed.
    #[fusion(dtype = input, shape = input)]
    fn after(input: FloatTensor<Self>, before: FloatTensor<Self>) -> FloatTensor<Self> {
        drop(before);
        input
    }
}

#[cfg(feature = "cube")]
impl Ordered for CubeBackend {}

#[cfg(feature = "flex")]
impl Ordered for Flex {}

/// The same tensor, with which fusion can do nothing before it has computed the other one: a run that begins with it is
/// never made one with the run that the other is of. Nothing waits, as in a network.
///
/// What Burn itself has for that (a flush, or a question to the device) waits for the threads of fusion and of CubeCL's
/// server: two round trips a run, on the cores that compute where the device is a CPU. An operation that does nothing and
/// stands between two others is no help: fusion makes one of those two all the same.
pub fn after<const D: usize, const E: usize>(input: Tensor<D>, before: Tensor<E>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::after(
        input.into_dispatch(),
        before.into_dispatch(),
    ))
}
