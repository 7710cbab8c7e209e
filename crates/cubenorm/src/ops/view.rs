//! Tensors in the shapes that a normalization sees them in.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

use super::NormSpec;

/// The shapes that a normalization sees its tensors in, where they are not the tensors' own: groups as dimensions, a
/// parameter along its axis.
///
/// To reshape them beforehand are operations of their own, up to one for each tensor, which a backend with fusion
/// registers one by one: those of a small group norm were an eighth to a quarter of its time on a software driver.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The shape of input, residual, output and sum.
    pub input: Vec<usize>,
    /// The shape of scale, bias, mean and variance.
    pub params: Vec<usize>,
}

impl NormSpec {
    /// The shape that an input is seen in.
    pub(crate) fn seen_shape(&self, input: &[usize]) -> Shape {
        let shape = self.view.as_ref().map(|view| view.input.as_slice());
        Shape::from(shape.unwrap_or(input).to_vec())
    }

    /// The shape that a parameter or given statistics are seen in.
    pub(crate) fn seen_param_shape(&self, param: &[usize]) -> Shape {
        let shape = self.view.as_ref().map(|view| view.params.as_slice());
        Shape::from(shape.unwrap_or(param).to_vec())
    }

    /// A tensor of the input's shape, as the normalization sees it.
    pub(super) fn see<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let shape = self.seen_shape(&tensor.shape());
        shaped::<B>(tensor, &shape)
    }

    /// A parameter or given statistics, as the normalization sees them.
    pub(super) fn see_param<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let shape = self.seen_param_shape(&tensor.shape());
        shaped::<B>(tensor, &shape)
    }
}

/// A tensor in a shape, which it may have already.
pub(super) fn shaped<B: Backend>(tensor: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    match tensor.shape() == *shape {
        true => tensor,
        false => B::float_reshape(tensor, shape.clone()),
    }
}
