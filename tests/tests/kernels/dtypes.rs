//! Dtypes of tensors and parameters.

use cubenorm_core::{Activation, DType, Epsilon, NormDesc, Statistics, TensorDesc};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::devices;

use super::check_all;

#[test]
fn every_dtype_agrees_with_the_reference_in_every_statistic() {
    for device in devices() {
        let dtypes = device.dtypes();
        for dtype in DType::ALL {
            if !dtypes.contains(&dtype) {
                println!(
                    "{}: skipped {dtype}, which the device does not have",
                    device.name
                );
                continue;
            }
            for params in [dtype, dtype.accumulation()] {
                for statistics in [
                    Statistics::MeanVariance,
                    Statistics::MeanSquare,
                    Statistics::Mean,
                    Statistics::None,
                    Statistics::Given {
                        mean: TensorDesc::contiguous([6, 1], params),
                        variance: TensorDesc::contiguous([6, 1], params),
                    },
                ] {
                    for epsilon in [Epsilon::InsideSqrt(1e-3), Epsilon::AddedToDeviation(1e-3)] {
                        let input = TensorDesc::contiguous([6, 136], dtype);
                        let desc = NormDesc::new(input.clone(), [1], statistics.clone())
                            .with_epsilon(epsilon)
                            .with_residual(input)
                            .with_scale(TensorDesc::contiguous([136], params))
                            .with_bias(TensorDesc::contiguous([6, 1], params));
                        check_all(&device, &Case::new(desc, 21));
                    }
                }
            }
        }
    }
}

#[test]
fn every_activation_agrees_with_the_reference_in_every_dtype() {
    let activations = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu { alpha: 0.01 },
        Activation::ThresholdedRelu { alpha: 0.5 },
        Activation::Elu { alpha: 1.5 },
        Activation::Celu { alpha: 0.7 },
        Activation::ScaledElu {
            alpha: 1.673_263_2,
            gamma: 1.050_701,
        },
        Activation::Linear {
            alpha: -2.0,
            beta: 0.25,
        },
        Activation::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::ScaledTanh {
            alpha: 1.7,
            beta: 0.6,
        },
        Activation::Softplus { steepness: 2.0 },
        Activation::ParametricSoftplus {
            alpha: 0.5,
            beta: 3.0,
        },
        Activation::Softsign,
        Activation::Shrink {
            bias: 0.1,
            threshold: 0.5,
        },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::HardSwish,
        Activation::Mish,
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for activation in activations {
                // No statistics and a scale of about 1: the input reaches the activation as it is,
                // far out on both sides.
                let input = TensorDesc::contiguous([4, 64], dtype);
                let desc = NormDesc::new(input, [1], Statistics::None).with_activation(activation);
                if !cubenorm_kernels::supports_activation(&device.client, dtype, activation) {
                    continue;
                }
                let case = Case::with_input(desc, 22, |i| match i {
                    0 => 100.0,
                    1 => -100.0,
                    2 => 0.0,
                    3 => 65504.0,
                    4 => -65504.0,
                    i => 8.0 * cubenorm_tests::case::noise(3, i),
                });
                case.check(&device, Default::default()).unwrap();
            }
        }
    }
}

#[test]
fn what_a_runtime_cannot_do_is_an_error_that_says_which_can() {
    for device in devices() {
        for dtype in DType::ALL {
            if device.dtypes().contains(&dtype) {
                continue;
            }
            let desc = NormDesc::new(
                TensorDesc::contiguous([2, 4], dtype),
                [1],
                Statistics::MeanVariance,
            );
            let error = Case::new(desc, 0)
                .run(&device.client, Default::default())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(&format!("has no {dtype}: use one of")),
                "{error}"
            );
            assert!(error.contains("or a runtime that has it (cuda"), "{error}");
        }
    }
}
