//! Dtypes of tensors and parameters.

use cubenorm_core::{DType, Epsilon, NormDesc, Statistics, StrategyChoice, TensorDesc};
use cubenorm_kernels::{ForwardTensors, launch_forward};
use cubenorm_tests::activations::activations;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::devices;
use half::f16;

use super::check_all;

#[test]
fn every_dtype_and_statistic_agrees_with_the_reference() {
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
            let given = |dtype| Statistics::Provided {
                mean: TensorDesc::contiguous([6, 1], dtype),
                variance: TensorDesc::contiguous([6, 1], dtype),
            };
            for params in [dtype, dtype.accumulation()] {
                for statistics in [
                    Statistics::MeanVariance,
                    Statistics::MeanSquare,
                    Statistics::Mean,
                    Statistics::L1Norm,
                    Statistics::L2Norm,
                    Statistics::None,
                    given(dtype),
                    given(dtype.accumulation()),
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
fn every_activation_and_dtype_agrees_with_the_reference() {
    for device in devices() {
        for dtype in device.dtypes() {
            for activation in activations() {
                // Without statistics the input reaches the activation unchanged, far from 0 on both
                // sides.
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
fn unsupported_dtypes_name_supported_ones() {
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

#[test]
fn f16_loads_are_exact_and_stores_round_to_nearest() {
    let factors = [
        1.0,
        -3.0,
        0.333,
        1e-3,
        6.1e-5,
        2.0_f32.powi(-11),
        1e3,
        60_000.0,
    ]
    .map(f16::from_f32);
    let (rows, cols) = (64, 1024);
    let halves: Vec<_> = (0..=u16::MAX).map(f16::from_bits).collect();
    let scales: Vec<_> = (0..cols)
        .map(|col| factors[col / 3 % factors.len()])
        .collect();
    let bytes =
        |halves: &[f16]| -> Vec<u8> { halves.iter().flat_map(|half| half.to_le_bytes()).collect() };
    for device in devices() {
        if !device.dtypes().contains(&DType::F16) {
            continue;
        }
        let input = TensorDesc::contiguous([rows, cols], DType::F16);
        let desc = NormDesc::new(input, [1], Statistics::None)
            .with_scale(TensorDesc::contiguous([cols], DType::F16));
        let tensors = ForwardTensors {
            scale: Some(device.client.create_from_slice(&bytes(&scales))),
            ..ForwardTensors::new(device.client.create_from_slice(&bytes(&halves)))
        };
        let outputs = launch_forward(&device.client, &desc, &tensors, StrategyChoice::Inferred)
            .unwrap_or_else(|error| panic!("{}: {error}", device.name));
        let written = device
            .client
            .read_one(outputs.output.handle)
            .expect("the launch succeeds");
        for (position, bits) in written.chunks_exact(2).enumerate() {
            let actual = f16::from_le_bytes([bits[0], bits[1]]);
            let (half, scale) = (halves[position], scales[position % cols]);
            // The product of two f16 numbers is exact in f32.
            let expected = f16::from_f32(half.to_f32() * scale.to_f32());
            assert!(
                actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan(),
                "{}: {half:e} times {scale:e} is {actual:e}, expected {expected:e}",
                device.name,
            );
        }
    }
}
