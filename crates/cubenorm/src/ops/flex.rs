//! Burn's own backend for the CPU, without CubeCL.

use burn::backend::ops::ModuleOps;
use burn::backend::{Flex, TensorMetadata};
use cubenorm_core::{Activation, Epsilon};

use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Reduction, portable,
};

impl NormBackend for Flex {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        match is_its_own(&operands, &spec) {
            Some(epsilon) => {
                let gamma = operands.scale.into_option().expect("asked for");
                let beta = operands.bias.into_option();
                Normalized {
                    output: Self::layer_norm(operands.input, gamma, beta, epsilon),
                    sum: None.into(),
                    statistics: None.into(),
                }
            }
            None => portable::normalize::<Self>(operands, &spec),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        portable::normalize_backward::<Self>(operands, &spec)
    }
}

/// The epsilon of a layer norm as Burn has it, for which the backend has a loop of its own.
fn is_its_own(operands: &Operands<Flex>, spec: &NormSpec) -> Option<f64> {
    let Epsilon::InsideSqrt(epsilon) = spec.epsilon else {
        return None;
    };
    let shape = operands.input.shape();
    let last = shape.num_dims() - 1;
    let dtype = operands.input.dtype();
    let is_vector = |tensor: Option<&burn::backend::tensor::FloatTensor<Flex>>| {
        tensor.is_none_or(|tensor| {
            tensor.shape().num_dims() == 1
                && tensor.shape()[0] == shape[last]
                && tensor.dtype() == dtype
        })
    };
    let plain = spec.axes == [last]
        && spec.reduction == Reduction::MeanVariance
        && spec.activation == Activation::Identity
        && !spec.writes_sum
        && spec.written_statistics.is_none()
        && dtype == burn::tensor::DType::F32
        && operands.residual.as_option().is_none()
        && operands.scale.as_option().is_some()
        && is_vector(operands.scale.as_option())
        && is_vector(operands.bias.as_option())
        && shape.num_elements() > 0;
    plain.then_some(epsilon)
}
