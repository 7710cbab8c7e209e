//! The Burn face, on every runtime of the build: numbers beside Burn's own layers and the f64
//! reference, records in both directions, gradients, errors word for word, and fusion.
#![cfg(feature = "burn")]

mod errors;
mod forward;
mod gradients;
mod pytorch;
mod records;
mod training;

use burn::tensor::Tensor;
use cubenorm::Activation;
use cubenorm_tests::tensors::{devices, noise, supports};

/// Each that there is, beside none.
const ACTIVATIONS: [Activation; 21] = [
    Activation::Relu,
    Activation::LeakyRelu { alpha: 0.1 },
    Activation::ThresholdedRelu { alpha: 0.3 },
    Activation::Elu { alpha: 1.2 },
    Activation::Celu { alpha: 0.8 },
    Activation::ScaledElu {
        alpha: 1.67,
        gamma: 1.05,
    },
    Activation::Linear {
        alpha: 2.0,
        beta: -1.0,
    },
    Activation::HardSigmoid {
        alpha: 0.2,
        beta: 0.5,
    },
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::ScaledTanh {
        alpha: 1.2,
        beta: 0.7,
    },
    Activation::Softplus { steepness: 2.0 },
    Activation::ParametricSoftplus {
        alpha: 0.4,
        beta: 1.5,
    },
    Activation::Softsign,
    Activation::Shrink {
        bias: 0.2,
        threshold: 0.4,
    },
    // Where both of its conditions hold, the first counts.
    Activation::Shrink {
        bias: 0.0,
        threshold: -0.5,
    },
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::HardSwish,
    Activation::Mish,
];

/// The largest absolute difference.
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f64 {
    assert_eq!(a.dims(), b.dims());
    values(a)
        .iter()
        .zip(values(b))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec().expect("the data was converted to f64")
}
