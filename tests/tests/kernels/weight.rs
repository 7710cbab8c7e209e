//! Offset of the scale, and rounding of the normalized value before the scale.

use cubenorm_core::{
    DType, Layout, NormDesc, NormError, Rounding, Statistics, StrategyChoice, TensorDesc,
};
use cubenorm_kernels::{LaunchError, plan_for};
use cubenorm_tests::case::{Case, round};
use cubenorm_tests::device::{TestDevice, devices};

use super::{check_all, choices};

fn norm(shape: &[usize], axes: &[usize], scale: &[usize], dtype: DType) -> NormDesc {
    let statistics = Statistics::MeanVariance;
    NormDesc::new(TensorDesc::contiguous(shape, dtype), axes, statistics)
        .with_scale(TensorDesc::contiguous(scale, dtype))
        .with_bias(TensorDesc::contiguous(scale, dtype))
}

/// A norm of each way that kernels read a scale.
fn scales(dtype: DType) -> Vec<NormDesc> {
    let [n, c, h, w] = [2, 12, 5, 7];
    let last = Layout::strided([n, 3, 4, h, w], [c * h * w, 4, 1, c * w, c]);
    let provided = |shape: &[usize]| Statistics::Provided {
        mean: TensorDesc::contiguous(shape, dtype),
        variance: TensorDesc::contiguous(shape, dtype),
    };
    vec![
        // Along the row, for each row, and for each segment of a row.
        norm(&[9, 256], &[1], &[256], dtype),
        norm(&[5, 50], &[1], &[50], dtype),
        norm(&[4, 24, 20], &[1], &[24, 1], dtype),
        norm(&[n, c, h, w], &[2, 3], &[c, 1, 1], dtype),
        norm(&[n, 3, 4, h, w], &[2, 3, 4], &[3, 4, 1, 1], dtype),
        NormDesc {
            input: TensorDesc::new(last, dtype),
            ..norm(&[n, 3, 4, h, w], &[2, 3, 4], &[3, 4, 1, 1], dtype)
        },
        NormDesc {
            statistics: provided(&[c, 1, 1]),
            ..norm(&[n, c, h, w], &[], &[c, 1, 1], dtype)
        },
        NormDesc {
            statistics: provided(&[c]),
            ..norm(&[40, c], &[], &[c], dtype)
        },
    ]
}

#[test]
fn adds_the_offset_to_the_scale() {
    for device in devices() {
        for dtype in device.dtypes() {
            for (seed, desc) in scales(dtype).into_iter().enumerate() {
                let case = Case::new(desc.with_offset(1.0), seed as u64);
                match dtype {
                    DType::F32 => check_all(&device, &case),
                    _ => case
                        .check(&device, StrategyChoice::Inferred)
                        .unwrap_or_else(|error| panic!("{error}")),
                }
            }
        }
    }
}

#[test]
fn offset_keeps_the_digits_of_f64() {
    for device in devices() {
        if !device.dtypes().contains(&DType::F64) {
            continue;
        }
        // Not a value of f32.
        let desc = norm(&[3, 64], &[1], &[64], DType::F64).with_offset(0.1);
        check_all(&device, &Case::new(desc, 1));
    }
}

#[test]
fn offset_needs_a_scale() {
    for device in devices() {
        let plain = norm(&[4, 32], &[1], &[32], DType::F32).with_scale(None);
        let with_offset = plain.clone().with_offset(1.0);
        let plan = |desc: &NormDesc| plan_for(&device.client, desc, StrategyChoice::Inferred);
        assert_eq!(plan(&with_offset).unwrap(), plan(&plain).unwrap());
        check_all(&device, &Case::new(with_offset, 1));
    }
}

#[test]
fn offsets_are_finite() {
    for device in devices() {
        for offset in [f64::NAN, f64::INFINITY] {
            let desc = norm(&[4, 32], &[1], &[32], DType::F32).with_offset(offset);
            let case = Case::new(desc.clone().with_offset(0.0), 1);
            let tensors = case.tensors(&device.client);
            let launched = cubenorm_kernels::launch_forward(
                &device.client,
                &desc,
                &tensors,
                StrategyChoice::Inferred,
            );
            let error = launched.expect_err("it is refused");
            assert!(
                matches!(error, LaunchError::Description(NormError::Offset { .. })),
                "{}: {error}",
                device.name
            );
            let found = if offset.is_nan() { "NaN" } else { "inf" };
            assert_eq!(
                error.to_string(),
                format!("offset is {found}: expected a finite number")
            );
        }
    }
}

/// The values of `round(xhat)` on a device: the output without scale and bias.
fn normalized(device: &TestDevice, case: &Case, choice: StrategyChoice) -> Vec<f64> {
    let mut plain = case.clone();
    plain.desc = NormDesc {
        scale: None,
        bias: None,
        rounding: Rounding::None,
        ..case.desc.clone()
    };
    plain.run(&device.client, choice).unwrap().output
}

#[test]
fn rounds_before_the_scale() {
    for device in devices() {
        for dtype in [DType::F16, DType::BF16] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            for desc in scales(dtype) {
                // The bias would be added to a product that is not rounded.
                let desc = desc.with_bias(None).with_offset(0.5);
                let case = Case::new(desc.with_rounding(Rounding::BeforeScale), 3);
                for choice in choices(&device, &case.desc) {
                    check_rounded(&device, &case, choice);
                }
            }
        }
    }
}

/// Compares with the product of the device's own normalized values, which are rounded. Both runs
/// may have plans that sum in another order, which turns a few near ties.
#[track_caller]
fn check_rounded(device: &TestDevice, case: &Case, choice: StrategyChoice) {
    let dtype = case.desc.input.dtype;
    let actual = case.run(&device.client, choice).unwrap().output;
    let factors = case.factors();
    let rounded = normalized(device, case, choice);
    let mut unrounded = case.clone();
    unrounded.desc.rounding = Rounding::None;
    let unrounded = unrounded.run(&device.client, choice).unwrap().output;
    let expected = rounded.iter().zip(&factors);
    let expected: Vec<f64> = expected
        .map(|(x, factor)| round(dtype, x * factor))
        .collect();
    let unlike = |other: &[f64]| actual.iter().zip(other).filter(|(a, b)| a != b).count();
    let (off, plain) = (unlike(&expected), unlike(&unrounded));
    let at = format!("{} {choice:?} {:?}", device.name, case.desc);
    assert!(
        off * 50 <= actual.len(),
        "{off} of {} values are not the rounded ones: {at}",
        actual.len()
    );
    assert!(
        plain > 4 * off.max(1),
        "{plain} values are rounded, {off} are off: {at}"
    );
}

#[test]
fn rounding_in_the_accumulation_dtype_changes_no_plan() {
    for device in devices() {
        for dtype in [DType::F32, DType::F64] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            for desc in scales(dtype) {
                let rounded = desc.clone().with_rounding(Rounding::BeforeScale);
                let plan = |desc| plan_for(&device.client, desc, StrategyChoice::Inferred);
                assert_eq!(plan(&rounded).unwrap(), plan(&desc).unwrap());
            }
        }
    }
}
