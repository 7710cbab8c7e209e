//! Burn's CPU backend without CubeCL.
//!
//! It has a layer norm of its own, which rounds the mean of a row before subtracting it. With a large offset that is the
//! largest error of all. Norms are therefore composed here too.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;

use super::{
    BackwardOperands, BackwardSpec, Gradients, HeadOperands, HeadSpec, Heads, NormBackend,
    NormSpec, Normalized, Operands, Optional, QuantizedOperands, QuantizedParts, QuantizedSpec,
    Running, RunningOperands, portable,
};

impl NormBackend for Flex {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        portable::normalize::<Self>(operands, &spec)
    }

    fn update_running(operands: RunningOperands<Self>, momentum: f64) -> Running<Self> {
        portable::update_running::<Self>(operands, momentum)
    }

    fn row_statistics(input: FloatTensor<Self>, spec: NormSpec) -> FloatTensor<Self> {
        portable::row_statistics::<Self>(input, &spec)
    }

    fn normalize_heads(operands: HeadOperands<Self>, spec: HeadSpec) -> Heads<Self> {
        portable::normalize_heads::<Self>(operands, &spec)
    }

    fn normalize_quantized(
        operands: QuantizedOperands<Self>,
        spec: QuantizedSpec,
    ) -> QuantizedParts<Self> {
        portable::normalize_quantized::<Self>(operands, &spec)
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        match operands.gate {
            Optional::Some(_) => portable::normalize_backward_gated::<Self>(operands, &spec),
            Optional::None => portable::normalize_backward::<Self>(operands, &spec),
        }
    }
}
