//! The libraries whose layers are measured: this project's and Burn's, which share an API.

use burn::tensor::{Tensor, activation};
use cubenorm::{Activation, CodeFormat, GateOptions, NormOptions};

use super::norm::{Forward, Library, Order, Results};
use crate::problems::{ALPHA, EPSILON, Op, Problem};

/// One elementwise operation of Burn's, for the host's cost of a call.
pub(super) struct AddOne;

impl Library for AddOne {
    const IS_NORM: bool = false;

    fn forward<const D: usize>(&self, _: &Problem, _: Tensor<1>, _: Tensor<1>) -> Forward<D> {
        Box::new(|input, _| Results::One(input.add_scalar(1.0)))
    }
}

/// A library of layers named as `burn::nn` names them.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident, $nn:path, $orders:expr, $other:path) => {
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

                if !problem.op.is_classic() {
                    return $other(problem, gamma, beta);
                }
                let device = gamma.device();
                let size = problem.parameters();
                let (gamma, beta) = (Param::from_tensor(gamma), Param::from_tensor(beta));
                macro_rules! layer {
                    ($config:expr, $gamma:expr, $beta:expr) => {{
                        let mut layer = $config.with_epsilon(EPSILON).init(&device);
                        (layer.gamma, layer.beta) = ($gamma, $beta);
                        Box::new(move |input, _| Results::One(layer.forward(input)))
                    }};
                }
                match problem.op {
                    Op::LayerNorm => layer!(LayerNormConfig::new(size), gamma, Some(beta)),
                    Op::RmsNorm => {
                        let config = RmsNormConfig::new(size).with_epsilon(EPSILON);
                        let mut layer = config.init(&device);
                        layer.gamma = gamma;
                        Box::new(move |input, _| Results::One(layer.forward(input)))
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
                    other => unreachable!("{other} is not classic"),
                }
            }
        }
    };
}

library!(
    /// This project: an operation of a pass, which fusion merges with nothing.
    Cubenorm,
    cubenorm::nn,
    &[Order::Free, Order::ByTensors, Order::ByAsking],
    fused
);
library!(
    /// Burn's own layers.
    Burn,
    burn::nn,
    &[Order::ByTensors, Order::ByAsking],
    composed
);

/// The operators that have no layer in both, as this project's functions.
fn fused<const D: usize>(problem: &Problem, gamma: Tensor<1>, beta: Tensor<1>) -> Forward<D> {
    use Results::{Codes, One, Two};

    let options = NormOptions::new().with_epsilon(EPSILON);
    let second = |it: Option<Tensor<D>>| it.expect("the operator has a second tensor");
    match problem.op {
        Op::OffsetRmsNorm => {
            let options = options.with_offset(problem.op.offset());
            Box::new(move |x, _| One(cubenorm::rms_norm_with(x, gamma.clone(), &options)))
        }
        Op::AddRmsNorm => Box::new(move |x, residual| {
            let (y, sum) = cubenorm::add_rms_norm(x, second(residual), gamma.clone(), EPSILON);
            Two(y, sum)
        }),
        Op::GatedRmsNorm => {
            let options = GateOptions::new().with_epsilon(EPSILON);
            Box::new(move |x, z| {
                let gamma = gamma.clone();
                One(cubenorm::gated_rms_norm(x, second(z), gamma, &options))
            })
        }
        Op::ModulatedLayerNorm => {
            let per_sample = per_sample::<D>(problem);
            Box::new(move |x, _| {
                let [scale, shift] = [&gamma, &beta].map(&per_sample);
                One(cubenorm::modulated_layer_norm(x, scale, shift, EPSILON))
            })
        }
        Op::SiluGroupNorm => {
            let groups = problem.groups();
            Box::new(move |x, _| {
                let (gamma, beta) = (Some(gamma.clone()), Some(beta.clone()));
                let silu = Activation::Silu;
                One(cubenorm::group_norm_with(
                    x, None, gamma, beta, groups, EPSILON, silu,
                ))
            })
        }
        Op::QkNorm => Box::new(move |q, k| {
            let (q, k) = cubenorm::qk_norm(q, second(k), gamma.clone(), gamma.clone(), EPSILON);
            Two(q, k)
        }),
        Op::QuantizedRmsNorm => Box::new(move |x, _| {
            let format = CodeFormat::Int8;
            Codes(cubenorm::quantized_rms_norm(
                x,
                gamma.clone(),
                format,
                &options,
            ))
        }),
        Op::DynamicTanh => {
            let alpha = Tensor::full([1], ALPHA, (&gamma.device(), gamma.dtype()));
            Box::new(move |x, _| {
                let (gamma, beta) = (gamma.clone(), beta.clone());
                One(cubenorm::dynamic_tanh(x, alpha.clone(), gamma, beta))
            })
        }
        classic => unreachable!("{classic} has a layer"),
    }
}

/// The same operators, composed of Burn's operations. Its codes are floats: Burn has no int8 everywhere.
fn composed<const D: usize>(problem: &Problem, gamma: Tensor<1>, beta: Tensor<1>) -> Forward<D> {
    use Results::{One, Two};

    fn rms<const D: usize>(x: Tensor<D>, gamma: Tensor<1>) -> Tensor<D> {
        let square = x.clone().square().mean_dim(D - 1);
        x / (square + EPSILON).sqrt() * gamma.unsqueeze::<D>()
    }
    let second = |it: Option<Tensor<D>>| it.expect("the operator has a second tensor");
    match problem.op {
        Op::OffsetRmsNorm => {
            let offset = problem.op.offset();
            Box::new(move |x, _| One(rms(x, gamma.clone() + offset)))
        }
        Op::AddRmsNorm => Box::new(move |x, residual| {
            let sum = x + second(residual);
            Two(rms(sum.clone(), gamma.clone()), sum)
        }),
        Op::GatedRmsNorm => {
            Box::new(move |x, z| One(rms(x, gamma.clone()) * activation::silu(second(z))))
        }
        Op::ModulatedLayerNorm => {
            let per_sample = per_sample::<D>(problem);
            let offset = problem.op.offset();
            Box::new(move |x, _| {
                let [scale, shift] = [&gamma, &beta].map(&per_sample);
                let centered = x.clone() - x.mean_dim(D - 1);
                let variance = centered.clone().square().mean_dim(D - 1);
                let normalized = centered / (variance + EPSILON).sqrt();
                One(normalized * (scale + offset) + shift)
            })
        }
        Op::SiluGroupNorm => {
            let config = burn::nn::GroupNormConfig::new(problem.groups(), problem.parameters());
            let mut layer = config.with_epsilon(EPSILON).init(&gamma.device());
            layer.gamma = Some(burn::module::Param::from_tensor(gamma));
            layer.beta = Some(burn::module::Param::from_tensor(beta));
            Box::new(move |x, _| One(activation::silu(layer.forward(x))))
        }
        Op::QkNorm => {
            Box::new(move |q, k| Two(rms(q, gamma.clone()), rms(second(k), gamma.clone())))
        }
        Op::QuantizedRmsNorm => Box::new(move |x, _| {
            let y = rms(x, gamma.clone());
            let scale = y.clone().abs().max_dim(D - 1) / 127.0;
            let codes = (y / scale.clone()).round().clamp(-127.0, 127.0);
            // What a user of the codes reads.
            One(codes * scale)
        }),
        Op::DynamicTanh => Box::new(move |x, _| {
            let (gamma, beta) = (
                gamma.clone().unsqueeze::<D>(),
                beta.clone().unsqueeze::<D>(),
            );
            One((x * ALPHA).tanh() * gamma + beta)
        }),
        classic => unreachable!("{classic} has a layer"),
    }
}

/// Views parameters as one row per sample, axis 0, along the last axis. A step of autodiff is run once, so each run views
/// them anew.
fn per_sample<const D: usize>(problem: &Problem) -> impl Fn(&Tensor<1>) -> Tensor<D> + use<D> {
    let mut shape = [1; D];
    (shape[0], shape[D - 1]) = (problem.shape[0], problem.row());
    move |values| values.clone().reshape(shape)
}
