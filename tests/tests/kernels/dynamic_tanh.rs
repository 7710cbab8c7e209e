//! Dynamic tanh: nothing is reduced, and the normalized value is a tanh.

use cubenorm_core::{
    Activation, BackwardDesc, DType, Layout, NormDesc, NormError, Statistics, StrategyChoice,
    TensorDesc,
};
use cubenorm_kernels::supports_activation;
use cubenorm_tests::case::{Case, noise};
use cubenorm_tests::device::{TestDevice, devices};

use super::check_all;

fn desc(input: TensorDesc, alpha: &[usize], param: &[usize]) -> NormDesc {
    let dtype = input.dtype;
    let alpha = TensorDesc::contiguous(alpha, dtype);
    NormDesc::new(input, [], Statistics::DynamicTanh { alpha })
        .with_scale(TensorDesc::contiguous(param, dtype))
        .with_bias(TensorDesc::contiguous(param, dtype))
}

fn dtypes(device: &TestDevice) -> Vec<DType> {
    let computes = |dtype: &DType| supports_activation(&device.client, *dtype, Activation::Tanh);
    device.dtypes().into_iter().filter(computes).collect()
}

#[test]
fn dynamic_tanh_agrees_with_the_reference() {
    for device in devices() {
        for dtype in dtypes(&device) {
            let whole = TensorDesc::contiguous([9, 256], dtype);
            let odd = TensorDesc::contiguous([3, 5, 77], dtype);
            let strided = TensorDesc::new(Layout::strided([6, 40], [64, 1]), dtype);
            let swapped = TensorDesc::new(Layout::strided([40, 24], [1, 40]), dtype);
            let cases = [
                desc(whole.clone(), &[1], &[256]),
                desc(whole.clone(), &[256], &[256]),
                desc(whole, &[9, 1], &[256]),
                desc(odd, &[1], &[77]),
                desc(strided, &[1], &[40]),
                desc(swapped, &[1], &[24]),
            ];
            for (seed, desc) in cases.into_iter().enumerate() {
                let case = Case::with_input(desc, seed as u64, |i| 8.0 * noise(seed as u64, i));
                check_all(&device, &case);
            }
            // Alpha and scale in the accumulation dtype, an activation, and large inputs.
            let wide = TensorDesc::contiguous([1], dtype.accumulation());
            let input = TensorDesc::contiguous([5, 64], dtype);
            let statistics = Statistics::DynamicTanh { alpha: wide };
            let wide = NormDesc::new(input, [], statistics).with_activation(Activation::Relu);
            check_all(&device, &Case::with_input(wide, 7, |i| 1e4 * noise(7, i)));
        }
    }
}

#[test]
fn alpha_has_to_broadcast() {
    let input = TensorDesc::contiguous([4, 32], DType::F32);
    let error = desc(input.clone(), &[3], &[32]).problem().unwrap_err();
    assert_eq!(
        error.to_string(),
        "alpha with shape [3] does not broadcast to the input's shape [4, 32]: each of its \
         dimensions, aligned at the last, must be 1 or the input's"
    );
    let alpha = TensorDesc::contiguous([1], DType::F64);
    let wrong = NormDesc::new(input, [], Statistics::DynamicTanh { alpha });
    let error = wrong.problem().unwrap_err().to_string();
    assert_eq!(
        error,
        "alpha has dtype f64: expected f32, as the input has dtype f32"
    );
}

#[test]
fn kernels_have_no_gradient_of_a_dynamic_tanh() {
    let input = TensorDesc::contiguous([4, 32], DType::F32);
    let gradient = BackwardDesc::new(desc(input, &[1], &[32]));
    let error = gradient.validate().unwrap_err();
    assert!(matches!(error, NormError::NothingToWrite { .. }), "{error}");
}

#[test]
fn f64_needs_a_device_that_computes_tanh() {
    for device in devices() {
        if !device.dtypes().contains(&DType::F64) {
            continue;
        }
        let input = TensorDesc::contiguous([4, 32], DType::F64);
        let case = Case::new(desc(input, &[1], &[32]), 1);
        let computes = supports_activation(&device.client, DType::F64, Activation::Tanh);
        let run = case.run(&device.client, StrategyChoice::Inferred);
        assert_eq!(run.is_ok(), computes, "{}", device.name);
    }
}
