//! Burn's own modules.

use burn::{
    module::Param,
    nn::{InstanceNormConfig, LayerNormConfig, RmsNormConfig},
    tensor::Tensor,
};

use super::norm::{Forward, Library};
use crate::problems::{EPSILON, Op};

pub struct Burn;

impl Library for Burn {
    fn forward<const D: usize>(&self, op: Op, gamma: Tensor<1>, beta: Tensor<1>) -> Forward<D> {
        let device = gamma.device();
        let [size] = gamma.dims();
        let (gamma, beta) = (Param::from_tensor(gamma), Param::from_tensor(beta));
        match op {
            Op::LayerNorm => {
                let mut norm = LayerNormConfig::new(size)
                    .with_epsilon(EPSILON)
                    .init(&device);
                (norm.gamma, norm.beta) = (gamma, Some(beta));
                Box::new(move |input| norm.forward(input))
            }
            Op::RmsNorm => {
                let mut norm = RmsNormConfig::new(size).with_epsilon(EPSILON).init(&device);
                norm.gamma = gamma;
                Box::new(move |input| norm.forward(input))
            }
            Op::InstanceNorm => {
                let mut norm = InstanceNormConfig::new(size)
                    .with_epsilon(EPSILON)
                    .init(&device);
                (norm.gamma, norm.beta) = (Some(gamma), Some(beta));
                Box::new(move |input| norm.forward(input))
            }
        }
    }
}
