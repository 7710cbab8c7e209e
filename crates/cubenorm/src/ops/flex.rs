//! Burn's own backend for the CPU, without CubeCL.
//!
//! Burn has a loop of its own for layer norm there. It rounds the mean of a row before taking it off,
//! which a large offset makes the largest error of all, so that norms are composed here too.

use burn::backend::Flex;

use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    portable,
};

impl NormBackend for Flex {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        portable::normalize::<Self>(operands, &spec)
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        portable::normalize_backward::<Self>(operands, &spec)
    }
}
