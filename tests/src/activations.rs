//! One activation of each kind.

use cubenorm_core::{Activation, ActivationKind};
use strum::IntoEnumIterator;

/// One activation of each kind, with parameters that differ from kind to kind.
pub fn activations() -> impl Iterator<Item = Activation> {
    ActivationKind::iter().map(example)
}

fn example(kind: ActivationKind) -> Activation {
    match kind {
        ActivationKind::Identity => Activation::Identity,
        ActivationKind::Relu => Activation::Relu,
        ActivationKind::LeakyRelu => Activation::LeakyRelu { alpha: 0.2 },
        ActivationKind::ThresholdedRelu => Activation::ThresholdedRelu { alpha: 0.3 },
        ActivationKind::Elu => Activation::Elu { alpha: 0.7 },
        ActivationKind::Celu => Activation::Celu { alpha: 0.8 },
        ActivationKind::ScaledElu => Activation::ScaledElu {
            alpha: 1.5,
            gamma: 1.1,
        },
        ActivationKind::Linear => Activation::Linear {
            alpha: -2.0,
            beta: 0.25,
        },
        ActivationKind::HardSigmoid => Activation::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        ActivationKind::Sigmoid => Activation::Sigmoid,
        ActivationKind::Tanh => Activation::Tanh,
        ActivationKind::ScaledTanh => Activation::ScaledTanh {
            alpha: 1.2,
            beta: 0.7,
        },
        ActivationKind::Softplus => Activation::Softplus { steepness: 1.5 },
        ActivationKind::ParametricSoftplus => Activation::ParametricSoftplus {
            alpha: 0.9,
            beta: 1.2,
        },
        ActivationKind::Softsign => Activation::Softsign,
        ActivationKind::Shrink => Activation::Shrink {
            bias: 0.1,
            threshold: 0.4,
        },
        ActivationKind::Gelu => Activation::Gelu,
        ActivationKind::GeluTanh => Activation::GeluTanh,
        ActivationKind::Silu => Activation::Silu,
        ActivationKind::HardSwish => Activation::HardSwish,
        ActivationKind::Mish => Activation::Mish,
    }
}
