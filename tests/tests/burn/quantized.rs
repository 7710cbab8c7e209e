//! Norms rounded to codes of 8 bits.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
use cubenorm::{CodeFormat, Codes, NormOptions, Quantized, Rounding};
use cubenorm_tests::tensors::supports;

use crate::{devices, difference, noise, values};

const FORMATS: [CodeFormat; 2] = [CodeFormat::Int8, CodeFormat::E4M3];

/// Largest error of dequantised rows of `scale`, in parts of what rounding to nearest allows.
fn error<const D: usize>(result: &Quantized<D>, exact: Tensor<D>) -> f32 {
    let exact = exact.cast(DType::F32);
    let (scale, numbers) = (
        result.scale.clone().cast(DType::F32),
        result.dequantized().cast(DType::F32),
    );
    let step = match result.format {
        CodeFormat::Int8 => exact.clone().zeros_like() + scale * 0.5,
        CodeFormat::E4M3 => {
            let of_subnormals = exact.clone().zeros_like() + scale / 1024.0;
            of_subnormals.max_pair(exact.clone().abs() / 16.0)
        }
    };
    ((numbers - exact).abs() / step).max().into_scalar()
}

fn codes(words: Tensor<2, Int>) -> Vec<u8> {
    let words = words.into_data().try_to_vec::<u32>().unwrap();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn codes_are_those_of_the_nearest_numbers() {
    for (name, device) in devices() {
        for dtype in [DType::F32, DType::F16, DType::F64] {
            if !supports(name, &device, dtype) {
                continue;
            }
            let cast = |x: Tensor<3>| x.cast(dtype);
            // A view whose rows are not adjacent.
            let x = cast(noise([4, 6, 80], 1, &device)).slice([0..4, 0..6, 0..64]);
            let residual = cast(noise([4, 6, 64], 2, &device));
            let gamma = noise([64], 3, &device).cast(dtype);
            let beta = noise([64], 4, &device).cast(dtype);
            let options = NormOptions::new().with_offset(1.0);
            let bound = if dtype == DType::F16 { 1.2 } else { 1.001 };
            for format in FORMATS {
                let at = format!("{name} {dtype:?} {format:?}");
                let y = cubenorm::quantized_rms_norm(x.clone(), gamma.clone(), format, &options);
                assert_eq!(y.words.dims(), [4, 6, 16]);
                assert_eq!(y.scale.dims(), [4, 6, 1]);
                assert_eq!(y.words.dtype(), DType::U32);
                let exact = cubenorm::rms_norm_with(x.clone(), gamma.clone(), &options);
                let off = error(&y, exact.clone());
                assert!(off <= bound, "{at}: {off}");
                let largest = exact.cast(DType::F32).abs().max_dim(2);
                let scale = y.scale.cast(DType::F32) * format.largest();
                assert!(difference(scale, largest) < 2e-3, "{at}: scale");

                let (y, sum) = cubenorm::add_quantized_layer_norm(
                    x.clone(),
                    residual.clone(),
                    gamma.clone(),
                    beta.clone(),
                    format,
                    &options,
                );
                assert!(
                    difference(sum, x.clone() + residual.clone()) < 1e-5,
                    "{at}: sum"
                );
                let wide = |x: Tensor<3>| x.cast(DType::F32);
                let exact = cubenorm::layer_norm_with(
                    wide(x.clone()) + wide(residual.clone()),
                    gamma.clone().cast(DType::F32),
                    beta.clone().cast(DType::F32),
                    &options,
                );
                let off = error(&y, exact);
                assert!(off <= bound, "{at}: {off} with residual");
            }
        }
    }
}

#[test]
fn every_device_has_the_same_codes() {
    for (name, device) in devices() {
        let x = Tensor::<2>::from_floats(
            [
                [1.0, -3.0, 0.5, 127.0, 0.001, -0.2, 60.0, -127.0],
                [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            ],
            &device,
        );
        // The norm divides by the root of the mean square, and the scale undoes it.
        let options = NormOptions::new().with_epsilon(1e-30);
        let y = cubenorm::quantized_rms_norm(x.clone(), None, CodeFormat::Int8, &options);
        let expected = [1, 0xfd, 0, 127, 0, 0, 60, 0x81, 0, 0, 0, 0, 0, 0, 0, 0];
        let actual = codes(y.words);
        // Half of a step may go either way.
        assert_eq!(actual[..2], expected[..2], "{name}");
        assert_eq!(actual[3..], expected[3..], "{name}");
        assert_eq!(values(y.scale)[1], 1.0, "{name}");
        let y = cubenorm::quantized_rms_norm(x, None, CodeFormat::E4M3, &options);
        let actual = codes(y.words);
        let exact = [1.0f32, -3.0, 0.5, 127.0, 0.001, -0.2, 60.0, -127.0];
        for (&code, value) in actual.iter().zip(exact) {
            let near = CodeFormat::E4M3.code(value * 448.0 / 127.0);
            assert!(code.abs_diff(near) <= 1, "{name}: {code:x} for {value}");
        }
    }
}

#[test]
fn given_scales_are_kept_and_saturate() {
    for (name, device) in devices() {
        let x = noise([3, 128], 5, &device);
        let scale = Tensor::<1>::from_floats([0.01], &device);
        for format in FORMATS {
            let given = Codes::new(format).with_scale(scale.clone());
            let options = NormOptions::new();
            let y = cubenorm::quantized_rms_norm(x.clone() * 100.0, None, given, &options);
            assert_eq!(y.scale.dims(), [1, 1]);
            let exact = cubenorm::rms_norm(x.clone(), None, 1e-10);
            let most = 0.01 * format.largest();
            let limited = exact.clamp(-most, most);
            let off = error(&y, limited);
            assert!(off <= 1.01, "{name} {format:?}: {off}");
        }
        let two = Codes::new(CodeFormat::Int8).with_scale(Tensor::ones([2], &device));
        let options = NormOptions::new();
        let error = cubenorm::try_quantized_rms_norm(x.clone(), None, two, &options).unwrap_err();
        assert!(error.to_string().contains("expected [1]"), "{error}");
        for options in [
            NormOptions::new().with_rounding(Rounding::BeforeScale),
            NormOptions::new().with_output_dtype(FloatDType::F32),
        ] {
            let refused =
                cubenorm::try_quantized_rms_norm(x.clone(), None, CodeFormat::Int8, &options);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("codes have no"), "{error}");
        }
        let odd = x.slice([0..3, 0..30]);
        let error = cubenorm::try_quantized_rms_norm(odd, None, CodeFormat::Int8, &options);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("expected a multiple of 4 elements"),
            "{error}"
        );
    }
}

#[test]
fn sums_keep_the_dtype_of_the_residual() {
    for (name, device) in devices() {
        if !supports(name, &device, DType::F16) {
            continue;
        }
        let wide = [1, 2].map(|seed| noise([3, 64], seed, &device));
        let gamma = noise([64], 3, &device).cast(DType::F16);
        let [x, residual] =
            [(0, DType::F16), (1, DType::F32)].map(|(at, dtype)| wide[at].clone().cast(dtype));
        let options = NormOptions::new();
        let (y, sum) = cubenorm::add_quantized_rms_norm(
            x.clone(),
            residual.clone(),
            gamma.clone(),
            CodeFormat::Int8,
            &options,
        );
        assert_eq!(sum.dtype(), DType::F32, "{name}");
        let exact = x.cast(DType::F32) + residual;
        assert!(difference(sum, exact.clone()) < 1e-6, "{name}");
        let exact = cubenorm::rms_norm_with(exact, gamma.cast(DType::F32), &options);
        assert!(error(&y, exact) <= 1.001, "{name}");
    }
}

#[test]
fn rows_of_any_number_and_length_have_codes() {
    for (name, device) in devices() {
        let options = NormOptions::new();
        for format in FORMATS {
            let x = noise([4], 1, &device);
            let y = cubenorm::quantized_rms_norm(x.clone(), None, format, &options);
            assert_eq!((y.words.dims(), y.scale.dims()), ([1], [1]), "{name}");
            assert!(
                error(&y, cubenorm::rms_norm(x, None, 1e-5)) <= 1.001,
                "{name}"
            );
            let x = noise([2, 300_000], 2, &device);
            let y = cubenorm::quantized_layer_norm(x.clone(), None, None, format, &options);
            let exact = cubenorm::layer_norm(x, None, None, 1e-5);
            assert!(error(&y, exact) <= 1.01, "{name}: a long row");
            let none = Tensor::<2>::zeros([0, 8], &device);
            let y = cubenorm::quantized_rms_norm(none, None, format, &options);
            assert_eq!((y.words.dims(), y.scale.dims()), ([0, 2], [0, 1]), "{name}");
        }
    }
}

#[test]
fn codes_do_not_depend_on_the_batch() {
    for (name, device) in devices() {
        let x = noise([600, 512], 9, &device);
        let codes = |x: Tensor<2>| {
            let run = || {
                cubenorm::quantized_rms_norm(x.clone(), None, CodeFormat::Int8, &NormOptions::new())
            };
            let y = cubenorm::with_batch_invariant(true, run);
            (codes(y.words), values(y.scale))
        };
        let (all, scales) = codes(x.clone());
        for rows in [1, 7, 300] {
            let (some, of_some) = codes(x.clone().slice([0..rows, 0..512]));
            assert_eq!(some, all[..rows * 512], "{name}: {rows} rows");
            assert_eq!(of_some, scales[..rows], "{name}: {rows} rows");
        }
    }
}

#[test]
fn codes_track_no_gradient() {
    for (name, device) in devices() {
        let device: Device = device.autodiff();
        let x = noise([2, 64], 7, &device).require_grad();
        let options = NormOptions::new();
        let (y, sum) = cubenorm::add_quantized_rms_norm(
            x.clone(),
            x.clone(),
            Tensor::ones([64], &device),
            CodeFormat::Int8,
            &options,
        );
        assert!(
            !y.scale.is_require_grad() && !sum.is_require_grad(),
            "{name}"
        );
        assert!(values(y.scale).iter().all(|scale| *scale > 0.0), "{name}");
    }
}

#[test]
fn codes_become_quantised_tensors_of_burn() {
    for (name, device) in devices() {
        let given = Codes::new(CodeFormat::Int8).with_scale(Tensor::from_floats([0.03], &device));
        // Blocks of 128, of 4 and of 32.
        for cols in [1024, 12, 96] {
            let x = noise([2, 5, cols], 8, &device);
            for codes in [Codes::from(CodeFormat::Int8), given.clone()] {
                let y = cubenorm::quantized_rms_norm(x.clone(), None, codes, &NormOptions::new());
                let numbers = y.dequantized();
                let tensor = y.into_burn();
                assert!(matches!(tensor.dtype(), DType::QFloat(_)), "{name} {cols}");
                assert_eq!(tensor.dims(), [2, 5, cols]);
                let off = difference(tensor.dequantize(), numbers);
                assert!(off < 1e-6, "{name} {cols}: {off}");
            }
        }
        for device in [device.clone(), device.clone().autodiff()] {
            let empty = Tensor::<2>::zeros([0, 8], &device);
            let one = Tensor::<1>::ones([8], &device);
            let options = NormOptions::new();
            let y = cubenorm::quantized_rms_norm(empty, None, CodeFormat::Int8, &options);
            assert_eq!(y.into_burn().dims(), [0, 8]);
            let y = cubenorm::quantized_rms_norm(one, None, CodeFormat::Int8, &options);
            let numbers = y.dequantized();
            assert!(
                difference(y.into_burn().dequantize(), numbers) < 1e-6,
                "{name}"
            );
        }
        let x = noise([2, 8], 9, &device);
        let floats = cubenorm::quantized_rms_norm(x, None, CodeFormat::E4M3, &NormOptions::new());
        let error = floats.try_into_burn().unwrap_err();
        assert_eq!(
            error.to_string(),
            "codes of E4M3 have no quantised tensor of Burn: expected Int8"
        );
    }
}
