//! What the tuner chooses, on every runtime: right results, chosen once.

use std::time::Instant;

use cubenorm_core::{
    DType, GradientDesc, NormDesc, Statistics, StrategyChoice, TensorDesc, forward_candidates,
    knobs,
};
use cubenorm_kernels::hardware;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::devices;
use cubenorm_tests::gradient::GradientCase;

fn norm(shape: &[usize], axes: &[usize], dtype: DType) -> NormDesc {
    let params: Vec<usize> = (0..shape.len())
        .map(|dim| if axes.contains(&dim) { shape[dim] } else { 1 })
        .collect();
    NormDesc::new(
        TensorDesc::contiguous(shape, dtype),
        axes,
        Statistics::MeanVariance,
    )
    .with_scale(TensorDesc::contiguous(params.clone(), dtype))
    .with_bias(TensorDesc::contiguous(params, dtype))
}

#[test]
fn tuned_results_agree_with_the_reference() {
    for device in devices() {
        for desc in [
            norm(&[64, 512], &[1], DType::F32),
            norm(&[2, 48, 128], &[0, 2], DType::F32),
            norm(&[300, 64], &[0], DType::F32),
            norm(&[1, 40_000], &[1], DType::F32),
        ] {
            let case = Case::new(desc, 5);
            // Measured, then known; and with another shape that shares the key.
            for _ in 0..2 {
                case.check(&device, StrategyChoice::Tuned).unwrap();
            }
        }
        let other = Case::new(norm(&[61, 512], &[1], DType::F32), 6);
        other.check(&device, StrategyChoice::Tuned).unwrap();
    }
}

#[test]
fn tuned_gradients_agree_with_central_differences() {
    for device in devices() {
        for (shape, axes) in [(vec![64, 256], vec![1]), (vec![4, 16, 160], vec![0, 2])] {
            let desc = GradientDesc::new(norm(&shape, &axes, DType::F32));
            let case = GradientCase::of(desc, 3);
            for _ in 0..2 {
                case.check(&device, StrategyChoice::Tuned).unwrap();
            }
        }
    }
}

#[test]
fn a_shape_is_measured_once() {
    for device in devices() {
        // Few others have this shape: nothing is known of it in this process.
        let case = Case::new(norm(&[96, 1536], &[1], DType::F32), 5);
        let time = || {
            let start = Instant::now();
            case.run(&device.client, StrategyChoice::Tuned).unwrap();
            start.elapsed()
        };
        let (first, second) = (time(), time());
        println!("{}: {first:?}, then {second:?}", device.name);
        assert!(
            second <= first,
            "{}: {second:?} after {first:?}",
            device.name
        );
        let problem = case.desc.problem().unwrap();
        let hardware = hardware(&device.client);
        let candidates = forward_candidates(&problem, &hardware).unwrap();
        assert!(candidates.len() > 1, "{}: nothing to choose", device.name);
        for place in candidates {
            println!("{}: {}", device.name, knobs(&hardware)[place]);
        }
    }
}
