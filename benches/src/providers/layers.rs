//! The libraries whose layers are measured: this project's and Burn's, which share an API.

use burn::tensor::Tensor;

use super::norm::{Forward, Library, Order};
use crate::problems::{EPSILON, Op, Problem};

/// One elementwise operation of Burn's, for the host's cost of a call.
pub(super) struct AddOne;

impl Library for AddOne {
    const IS_NORM: bool = false;

    fn forward<const D: usize>(&self, _: &Problem, _: Tensor<1>, _: Tensor<1>) -> Forward<D> {
        Box::new(|input| input.add_scalar(1.0))
    }
}

/// A library of layers named as `burn::nn` names them.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident, $nn:path, $orders:expr) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Library for $name {
            const ORDERS: &'static [Order] = $orders;

            fn forward<const D: usize>(
                &self,
                problem: &Problem,
                gamma: Tensor<1>,
                beta: Tensor<1>,
            ) -> Forward<D> {
                use burn::module::Param;
                use $nn::*;

                let device = gamma.device();
                let size = problem.parameters();
                let (gamma, beta) = (Param::from_tensor(gamma), Param::from_tensor(beta));
                macro_rules! layer {
                    ($config:expr, $gamma:expr, $beta:expr) => {{
                        let mut layer = $config.with_epsilon(EPSILON).init(&device);
                        (layer.gamma, layer.beta) = ($gamma, $beta);
                        Box::new(move |input| layer.forward(input))
                    }};
                }
                match problem.op {
                    Op::LayerNorm => layer!(LayerNormConfig::new(size), gamma, Some(beta)),
                    Op::RmsNorm => {
                        let config = RmsNormConfig::new(size).with_epsilon(EPSILON);
                        let mut layer = config.init(&device);
                        layer.gamma = gamma;
                        Box::new(move |input| layer.forward(input))
                    }
                    Op::BatchNorm => layer!(BatchNormConfig::new(size), gamma, beta),
                    Op::GroupNorm => layer!(
                        GroupNormConfig::new(problem.groups(), size),
                        Some(gamma),
                        Some(beta)
                    ),
                    Op::InstanceNorm => {
                        layer!(InstanceNormConfig::new(size), Some(gamma), Some(beta))
                    }
                }
            }
        }
    };
}

library!(
    /// This project: an operation of a pass, which fusion merges with nothing.
    Cubenorm,
    cubenorm::nn,
    &[Order::Free, Order::ByTensors, Order::ByAsking]
);
library!(
    /// Burn's own layers.
    Burn,
    burn::nn,
    &[Order::ByTensors, Order::ByAsking]
);
