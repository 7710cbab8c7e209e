//! Inputs that break inaccurate formulas.

use cubenorm_core::{DType, Epsilon, NormDesc, Statistics, StrategyChoice, TensorDesc};
use cubenorm_tests::case::{Case, noise};
use cubenorm_tests::device::{TestDevice, devices};

use super::{check_all, choices};

fn desc(dtype: DType, rows: usize, cols: usize) -> NormDesc {
    NormDesc::new(
        TensorDesc::contiguous([rows, cols], dtype),
        [1],
        Statistics::MeanVariance,
    )
    .with_epsilon(Epsilon::InsideSqrt(0.0))
}

#[test]
fn large_means_cost_no_digits() {
    for device in devices() {
        for cols in [64, 1000, 4096, 40_000] {
            // Uniform around 1e4 with a variance of 1, which E[x^2] - E[x]^2 loses in f32.
            let case = Case::with_input(desc(DType::F32, 4, cols), 1, |i| {
                1e4 + 3f64.sqrt() * noise(5, i)
            });
            let expected = case.expected().output;
            let norm = expected.iter().map(|y| y * y).sum::<f64>().sqrt();
            for choice in choices(&device, &case.desc) {
                let actual = case.run(&device.client, choice).unwrap().output;
                let error = expected.iter().zip(&actual).map(|(e, a)| (e - a).powi(2));
                let relative = error.sum::<f64>().sqrt() / norm;
                assert!(
                    relative < 1e-5,
                    "{} {choice:?} [4, {cols}]: {relative:e}",
                    device.name
                );
            }
            check_all(&device, &case);
        }
    }
}

#[test]
fn outlier_as_first_element_costs_few_digits() {
    for device in devices() {
        for cols in [64, 256, 4096] {
            let case = Case::with_input(desc(DType::F32, 3, cols), 1, |i| {
                if i % cols == 0 { 1e6 } else { noise(6, i) }
            });
            let expected = case.expected().output;
            // The shift is the first element, at most sqrt(n) deviations from the mean. Its
            // roundoff enters each element and the mean.
            let bound = 2.0 * (cols as f64).sqrt() * 2f64.powi(-24) * 2.0;
            for choice in choices(&device, &case.desc) {
                let actual = case.run(&device.client, choice).unwrap().output;
                let errors = expected
                    .iter()
                    .zip(&actual)
                    .map(|(e, a)| (e - a).abs() / e.abs().max(1.0));
                let error = errors.fold(0.0, f64::max);
                assert!(
                    error < bound,
                    "{} {choice:?} [3, {cols}]: {error:e}",
                    device.name
                );
            }
        }
    }
}

#[test]
fn outlier_as_first_element_costs_f16_and_bf16_no_digits() {
    for device in devices() {
        // The largest offsets whose squares do not overflow an f32 sum over a row.
        for (dtype, offset) in [(DType::F16, 6e4), (DType::BF16, 1e17)] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            for cols in [7, 32, 96, 250, 512, 768, 1024, 4096] {
                // One outlier, and more of them than lanes of a vector.
                for (outlier, far) in [(offset, 1), (-offset, 1), (100.0, 1), (offset, cols / 4)] {
                    let case = Case::with_input(desc(dtype, 9, cols), 1, |i| {
                        if i % cols < far { outlier } else { noise(6, i) }
                    });
                    check_all(&device, &case);
                }
            }
        }
    }
}

#[test]
fn squares_around_the_mean_do_not_overflow() {
    for device in devices() {
        if !device.dtypes().contains(&DType::BF16) {
            continue;
        }
        // Squares around the first element would overflow f32.
        let case = Case::with_input(desc(DType::BF16, 9, 1024), 1, |i| {
            if i % 1024 == 0 { 1e18 } else { noise(6, i) }
        });
        case.check(&device, StrategyChoice::Inferred)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn constant_rows_give_the_bias() {
    for device in devices() {
        for dtype in device.dtypes() {
            for constant in [0.0, 1.0, -3.7, 1e4] {
                let desc = desc(dtype, 5, 300)
                    .with_epsilon(Epsilon::InsideSqrt(1e-5))
                    .with_bias(TensorDesc::contiguous([300], dtype));
                check_all(&device, &Case::with_input(desc, 2, |_| constant));
            }
        }
    }
}

#[test]
fn constant_rows_normalize_to_zero() {
    for device in devices() {
        for dtype in device.dtypes() {
            for cols in [3, 96, 250, 768, 4096] {
                let desc = desc(dtype, 50, cols).with_epsilon(Epsilon::InsideSqrt(1e-9));
                let case = Case::with_input(desc, 2, |i| noise(5, i / cols) - 3.0);
                for choice in choices(&device, &case.desc) {
                    let output = case.run(&device.client, choice).unwrap().output;
                    let left = output.iter().fold(0.0f64, |left, y| left.max(y.abs()));
                    assert_eq!(left, 0.0, "{} {dtype} {choice:?} {cols}", device.name);
                }
            }
        }
    }
}

#[test]
fn f16_and_bf16_limits_do_not_overflow() {
    for device in devices() {
        for dtype in [DType::F16, DType::BF16] {
            if device.dtypes().contains(&dtype) {
                let case = Case::with_input(desc(dtype, 4, 640), 3, |i| 65_000.0 * noise(7, i));
                check_all(&device, &case);
            }
        }
    }
}

#[test]
fn nan_and_infinity_stay_in_their_rows() {
    for device in devices() {
        for dtype in device.dtypes() {
            let kinds = [
                Statistics::MeanVariance,
                Statistics::MeanSquare,
                Statistics::Mean,
            ];
            let kinds = match dtype {
                DType::F32 => &kinds[..],
                _ => &kinds[..1],
            };
            for statistics in kinds {
                // Rows staged in registers, and reloaded rows, in one block and in several.
                let staged = [(96, 0), (96, 95)];
                let short = [(704, 0), (704, 500)];
                let others = [(700, 0), (700, 7), (700, 500)];
                for (cols, position) in staged.into_iter().chain(short).chain(others) {
                    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                        let desc = NormDesc {
                            statistics: statistics.clone(),
                            ..desc(dtype, 3, cols)
                        };
                        let case = Case::with_input(desc, 4, |i| {
                            if i == cols + position {
                                value
                            } else {
                                noise(8, i)
                            }
                        });
                        check_all(&device, &case);
                    }
                }
            }
        }
    }
}

/// Magnitudes whose squares, or the sums of these, overflow f32 although the result does not.
const MAGNITUDES: [f64; 6] = [1e-32, 1e-25, 1e-12, 1.0, 1e18, 1e37];

#[test]
fn lp_norms_cover_the_range_of_f32() {
    for device in devices() {
        for dtype in [DType::F32, DType::BF16] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            for statistics in [Statistics::L1Norm, Statistics::L2Norm] {
                for (cols, axis) in [(5, 1), (64, 1), (1000, 1), (3001, 1), (40, 0), (700, 0)] {
                    let rows = 2 * MAGNITUDES.len();
                    let shape = match axis {
                        1 => [rows, cols],
                        _ => [cols, rows],
                    };
                    let desc = NormDesc::new(
                        TensorDesc::contiguous(shape, dtype),
                        [axis],
                        statistics.clone(),
                    )
                    .with_epsilon(Epsilon::InsideSqrt(0.0));
                    // Adjacent rows, and thus lanes of a vector, have different magnitudes.
                    let row = move |i: usize| if axis == 1 { i / cols } else { i % rows };
                    let case = Case::with_input(desc, 3, move |i| {
                        MAGNITUDES[row(i) % MAGNITUDES.len()] * noise(11, i)
                    });
                    check_relative(&device, &case, cols);
                }
            }
        }
    }
}

#[test]
fn lp_norm_of_mixed_magnitudes_is_accurate() {
    for device in devices() {
        for cols in [64, 1000, 4099] {
            let desc = NormDesc::new(
                TensorDesc::contiguous([3, cols], DType::F32),
                [1],
                Statistics::L2Norm,
            )
            .with_epsilon(Epsilon::InsideSqrt(0.0));
            let case = Case::with_input(desc, 3, move |i| {
                MAGNITUDES[(i * 7 + i / cols) % MAGNITUDES.len()] * noise(12, i)
            });
            check_relative(&device, &case, cols);
        }
    }
}

/// Compares each element with a relative bound, for every strategy.
fn check_relative(device: &TestDevice, case: &Case, cols: usize) {
    let dtype = case.desc.input.dtype;
    let expected = case.expected().output;
    let unit = match dtype {
        DType::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-23),
    };
    let bound = 2.0 * unit + (cols as f64).sqrt() * 2f64.powi(-22);
    // A device may flush subnormal inputs to zero, which changes the smallest rows by this much.
    let least = 2e-6;
    for choice in choices(device, &case.desc) {
        let actual = case.run(&device.client, choice).unwrap().output;
        for (i, (e, a)) in expected.iter().zip(&actual).enumerate() {
            assert!(
                (e - a).abs() <= bound * e.abs() + least,
                "{} {choice:?} {:?} element {i}: {a}, expected {e}",
                device.name,
                case.desc
            );
        }
    }
}
