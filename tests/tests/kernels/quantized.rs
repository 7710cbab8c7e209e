//! Quantised output: codes of 8 bits and a scale per row.

use cubenorm_core::{
    Activation, CodeFormat, DType, Layout, NormDesc, NormError, Offset, Quantization,
    ResidualPlace, Rounding, Statistics, StrategyChoice, TensorDesc, WrittenStatistics,
};
use cubenorm_kernels::{LaunchError, launch_forward, supports};
use cubenorm_reference::{decoded, encoded, row_scale};
use cubenorm_tests::case::{Case, decode, encode};
use cubenorm_tests::device::{TestDevice, devices};
use cubenorm_tests::guard::buffer;
use cubenorm_tests::tolerance::unit_roundoff;

use super::choices;

/// Results of a device: codes, row-major, and the scale of each row.
struct Quantized {
    codes: Vec<u8>,
    scales: Option<Vec<f64>>,
    sum: Option<Vec<f64>>,
}

fn computed(format: CodeFormat) -> Quantization {
    Quantization {
        format,
        scale: None,
    }
}

fn run(
    device: &TestDevice,
    case: &Case,
    given: Option<&[f64]>,
    choice: StrategyChoice,
) -> Result<Quantized, LaunchError> {
    let client = &device.client;
    let scale = case.desc.quantization.as_ref();
    let scale = scale.and_then(|it| it.scale.as_ref());
    let mut tensors = case.tensors(client);
    tensors.codes_scale = scale
        .zip(given)
        .map(|(desc, values)| buffer(client, &encode(desc.dtype, values)));
    let outputs = launch_forward(client, &case.desc, &tensors, choice)?;
    let read = |handle| client.read_one(handle).expect("the launch succeeds");
    let numbers =
        |tensor: cubenorm_kernels::Tensor| decode(tensor.desc.dtype, &read(tensor.handle));
    assert_eq!(outputs.output.desc, case.desc.codes_desc());
    Ok(Quantized {
        codes: read(outputs.output.handle).to_vec(),
        scales: outputs.statistics.map(numbers),
        sum: outputs.sum.map(numbers),
    })
}

/// The results of the norm without quantisation, by the reference.
fn expected(case: &Case) -> Vec<f64> {
    let mut plain = case.clone();
    plain.desc.quantization = None;
    plain.desc.written_statistics = None;
    plain.expected().output
}

/// Compares codes and scales with the reference's. Their last digits may differ.
#[track_caller]
fn check(device: &TestDevice, case: &Case, choice: StrategyChoice) {
    let at = format!("{} {choice:?} {:?}", device.name, case.desc);
    let format = case.desc.quantization.as_ref().unwrap().format;
    let actual = run(device, case, None, choice).unwrap_or_else(|error| panic!("{at}: {error}"));
    let cols = *case.desc.input.shape().last().unwrap();
    let values = expected(case);
    let scales = actual.scales.unwrap();
    assert_eq!(
        (actual.codes.len(), scales.len() * cols),
        (values.len(), values.len()),
        "{at}"
    );
    let rows = values.chunks(cols).zip(actual.codes.chunks(cols));
    for ((row, codes), &scale) in rows.zip(&scales) {
        let wanted = row_scale(format, row);
        assert!(
            (scale - wanted).abs() <= 1e-5 * wanted,
            "{at}: {scale}, not {wanted}"
        );
        for (&value, &code) in row.iter().zip(codes) {
            let number = decoded(format, code);
            let exact = encoded(format, value / scale);
            // Another code only where both are as near.
            let (off, best) = (
                (number * scale - value).abs(),
                (decoded(format, exact) * scale - value).abs(),
            );
            let digits = 1e-5 * (value.abs() + scale);
            assert!(off <= best + digits, "{at}: {value} is {number} * {scale}");
        }
    }
    if case.desc.writes_sum {
        let dtype = case.desc.input.dtype;
        for (actual, wanted) in actual.sum.unwrap().iter().zip(&case.expected().sum) {
            assert!(
                (actual - wanted).abs() <= 1.01 * unit_roundoff(dtype) * wanted.abs() + 1e-30,
                "{at}"
            );
        }
    }
}

fn rms_norm(shape: &[usize], dtype: DType) -> NormDesc {
    let cols = *shape.last().unwrap();
    NormDesc::new(
        TensorDesc::contiguous(shape, dtype),
        [shape.len() - 1],
        Statistics::MeanSquare,
    )
    .with_scale(TensorDesc::contiguous([cols], dtype))
}

#[test]
fn codes_agree_under_every_strategy() {
    for device in devices() {
        for shape in [
            vec![7, 64],
            vec![3, 5, 1024],
            vec![2, 4100],
            vec![1, 20_000],
        ] {
            for format in CodeFormat::ALL {
                let desc = rms_norm(&shape, DType::F32).with_quantization(computed(format));
                let case = Case::new(desc.clone(), 71);
                for choice in choices(&device, &desc) {
                    check(&device, &case, choice);
                }
            }
        }
    }
}

#[test]
fn codes_take_any_dtype_and_layout() {
    for device in devices() {
        for dtype in device.dtypes() {
            let shape = [6, 5, 36];
            let layouts = [
                Layout::strided(shape, [5 * 50, 50, 1]),
                Layout::strided(shape, [1, 6 * 36, 6]),
                Layout::strided(shape, [36, 6 * 36, 1]),
                Layout::strided(shape, [0, 37, 1]),
            ];
            for (seed, layout) in layouts.into_iter().enumerate() {
                let input = TensorDesc::new(layout, dtype);
                let residual = TensorDesc::contiguous(shape, dtype);
                let bias = TensorDesc::contiguous([36], dtype);
                let plain = NormDesc::new(input, [2], Statistics::MeanVariance).with_bias(bias);
                let added = plain.clone().with_residual(residual.clone()).with_sum();
                let gated = NormDesc {
                    residual_place: ResidualPlace::OutputGate,
                    activation: Activation::Relu,
                    ..plain.clone().with_residual(residual)
                };
                // A kernel for each would take a CPU long to compile.
                let desc = [plain, added.clone(), gated, added][seed].clone();
                for format in CodeFormat::ALL {
                    let desc = desc.clone().with_quantization(computed(format));
                    check(
                        &device,
                        &Case::new(desc, seed as u64),
                        StrategyChoice::Inferred,
                    );
                }
            }
        }
    }
}

#[test]
fn given_scales_saturate() {
    for device in devices() {
        for format in CodeFormat::ALL {
            let mut desc = rms_norm(&[5, 256], DType::F32);
            desc.offset = Offset::new(1.0);
            let given = TensorDesc::contiguous([5, 1], DType::F32);
            let desc = desc.with_quantization(Quantization {
                format,
                scale: Some(given),
            });
            let case = Case::new(desc, 5);
            // The largest numbers of some rows are outside of the range.
            let largest = f64::from(format.largest());
            let scales =
                [0.5, 1.0, 4.0, 8.0, 100.0].map(|range: f64| f64::from((range / largest) as f32));
            let actual = run(&device, &case, Some(&scales), StrategyChoice::Inferred).unwrap();
            assert_eq!(actual.scales, None);
            let mut saturated = 0;
            let rows = expected(&case);
            for ((row, codes), scale) in rows.chunks(256).zip(actual.codes.chunks(256)).zip(scales)
            {
                for (&value, &code) in row.iter().zip(codes) {
                    let number = decoded(format, code);
                    let near = decoded(format, encoded(format, value / scale));
                    saturated +=
                        usize::from(value.abs() > largest * scale && number.abs() == largest);
                    let step = (near.abs() / 8.0).max(1.0);
                    assert!(
                        (number - near).abs() <= step,
                        "{}: {number}, not {near}",
                        device.name
                    );
                    let off = (number - value / scale).abs() - (near - value / scale).abs();
                    assert!(
                        off <= 1e-3,
                        "{}: {number} for {}",
                        device.name,
                        value / scale
                    );
                }
            }
            assert!(saturated > 10, "{}: {saturated} of {format:?}", device.name);
        }
    }
}

#[test]
fn zeros_have_scale_one_and_nan_stays_in_its_row() {
    for device in devices() {
        for format in CodeFormat::ALL {
            let desc = NormDesc::new(
                TensorDesc::contiguous([4, 128], DType::F32),
                [1],
                Statistics::MeanSquare,
            )
            .with_quantization(computed(format));
            let case = Case::with_input(desc, 3, |position| match position {
                0..128 => 0.0,
                200 => f64::NAN,
                300 => f64::INFINITY,
                _ => 1.0 + (position % 7) as f64,
            });
            let actual = run(&device, &case, None, StrategyChoice::Inferred).unwrap();
            let scales = actual.scales.unwrap();
            assert_eq!(scales[0], 1.0, "{}", device.name);
            assert!(
                actual.codes[..128].iter().all(|code| *code == 0),
                "{}",
                device.name
            );
            assert!(
                scales[1].is_nan() && scales[2].is_nan(),
                "{}: {scales:?}",
                device.name
            );
            assert!(scales[3].is_finite(), "{}: {scales:?}", device.name);

            let given = TensorDesc::contiguous([1, 1], DType::F32);
            let desc = NormDesc {
                quantization: None,
                written_statistics: None,
                ..case.desc.clone()
            };
            let desc = desc.with_quantization(Quantization {
                format,
                scale: Some(given),
            });
            let mut case = case.clone();
            case.desc = desc;
            let actual = run(&device, &case, Some(&[0.5]), StrategyChoice::Inferred).unwrap();
            let nan = encoded(format, f64::NAN);
            let codes = &actual.codes[128..256];
            assert!(codes.iter().all(|code| *code == nan), "{}", device.name);
        }
    }
}

#[test]
fn quantisation_refuses_what_has_no_scale() {
    for device in devices() {
        let refused = |desc: NormDesc| {
            let error = run(&device, &Case::new(desc, 1), None, StrategyChoice::Inferred);
            error.err().expect("it is refused").to_string()
        };
        let quantized = |shape: &[usize]| {
            rms_norm(shape, DType::F32).with_quantization(computed(CodeFormat::Int8))
        };
        let message = refused(quantized(&[3, 30]));
        assert!(
            message.contains("expected a multiple of 4 elements"),
            "{message}"
        );
        let mut other_axis = quantized(&[8, 8]);
        other_axis.axes = vec![0];
        assert!(refused(other_axis).contains("the last axis alone"));
        let mut rounded = quantized(&[8, 8]);
        rounded.rounding = Rounding::BeforeScale;
        assert!(refused(rounded).contains("no rounding before the scale"));
        let mut without = quantized(&[8, 8]);
        without.written_statistics = None;
        assert!(refused(without).contains("given or written"));
        let alone = rms_norm(&[8, 8], DType::F32).with_written_statistics(WrittenStatistics::Scale);
        assert!(refused(alone).contains("not quantised"));
        let per_element = rms_norm(&[8, 8], DType::F32).with_quantization(Quantization {
            format: CodeFormat::E4M3,
            scale: Some(TensorDesc::contiguous([8, 8], DType::F32)),
        });
        let error = per_element.problem().unwrap_err();
        assert!(
            matches!(
                error,
                NormError::Shape {
                    tensor: "scale of the codes",
                    ..
                }
            ),
            "{error}"
        );
        if supports(&device.client, DType::F32) {
            let split = StrategyChoice::Forced(cubenorm_core::Strategy::Split.into());
            let error = run(&device, &Case::new(quantized(&[4, 4096]), 1), None, split).err();
            assert!(
                error
                    .unwrap()
                    .to_string()
                    .contains("largest of all its elements")
            );
        }
    }
}
