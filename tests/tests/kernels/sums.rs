//! Provided sums in the backward kernels, and statistics alone of the forward kernels.

use cubenorm_core::{
    BackwardDesc, DType, Epsilon, Layout, NormDesc, Statistics, StrategyChoice, TensorDesc,
    WrittenStatistics,
};
use cubenorm_kernels::launch_forward;
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::{Case, decode};
use cubenorm_tests::choice::{choices, gradient_runs, runs};
use cubenorm_tests::device::{TestDevice, devices};

fn check_all(device: &TestDevice, norm: NormDesc, seed: u64) {
    let desc = BackwardDesc::new(norm).with_provided_sums();
    let case = BackwardCase::of(desc, seed);
    let runs = |choice: StrategyChoice| gradient_runs(device, &case.desc, choice);
    for choice in choices(device, runs) {
        if let Err(error) = case.check(device, choice) {
            panic!("{error}");
        }
    }
}

fn norm(input: TensorDesc, axes: &[usize], param: &[usize], statistics: Statistics) -> NormDesc {
    let dtype = input.dtype;
    NormDesc::new(input, axes, statistics)
        .with_epsilon(Epsilon::InsideSqrt(1e-3))
        .with_scale(TensorDesc::contiguous(param, dtype))
        .with_bias(TensorDesc::contiguous(param, dtype))
}

#[test]
fn provided_sums_replace_those_of_channels() {
    for device in devices() {
        for dtype in [DType::F32, DType::F16] {
            if !device.dtypes().contains(&dtype) {
                continue;
            }
            for shape in [[4, 3, 16], [3, 5, 7], [2, 16, 49], [1, 4, 1]] {
                let input = TensorDesc::contiguous(shape, dtype);
                let params = [shape[1], 1];
                let desc = norm(input, &[0, 2], &params, Statistics::MeanVariance);
                check_all(&device, desc, 31);
            }
        }
        // Channels-last: a channel is a lane.
        let layout = Layout::strided([2, 8, 9], [72, 1, 8]);
        let input = TensorDesc::new(layout, DType::F32);
        check_all(
            &device,
            norm(input, &[0, 2], &[8, 1], Statistics::MeanVariance),
            32,
        );
    }
}

#[test]
fn provided_sums_replace_those_of_rows() {
    for device in devices() {
        for statistics in [
            Statistics::MeanVariance,
            Statistics::MeanSquare,
            Statistics::Mean,
        ] {
            for shape in [[5, 7], [3, 64], [2, 1024]] {
                let input = TensorDesc::contiguous(shape, DType::F32);
                let desc = norm(input, &[1], &[shape[1]], statistics.clone());
                check_all(&device, desc, 33);
            }
        }
        let input = TensorDesc::contiguous([4, 24], DType::F32);
        let desc = norm(input, &[1], &[24], Statistics::MeanVariance);
        check_all(
            &device,
            desc.with_epsilon(Epsilon::AddedToDeviation(1e-1)),
            34,
        );
    }
}

#[test]
fn provided_sums_of_norms_are_refused() {
    let input = TensorDesc::contiguous([4, 24], DType::F32);
    for statistics in [Statistics::L1Norm, Statistics::L2Norm] {
        let desc = BackwardDesc::new(NormDesc::new(input.clone(), [1], statistics));
        let error = desc.with_provided_sums().validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "saved statistics has shape [4, 1, 4]: expected dimensions that broadcast to the input's, then 2"
        );
    }
}

#[test]
fn statistics_alone_are_those_with_an_output() {
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axes) in [
                ([4, 3, 16], &[0, 2][..]),
                ([2, 16, 49], &[0, 2]),
                ([3, 5, 700], &[2]),
                ([6, 7, 24], &[0]),
            ] {
                let input = TensorDesc::contiguous(shape, dtype);
                let desc = NormDesc::new(input, axes, Statistics::MeanVariance)
                    .with_written_statistics(WrittenStatistics::MeanVariance);
                let alone = desc
                    .clone()
                    .with_statistics_alone(WrittenStatistics::MeanVariance);
                let case = Case::new(desc, 35);
                let tensors = case.tensors(&device.client);
                for choice in choices(&device, |choice| runs(&device, &case.desc, choice)) {
                    let statistics = |desc: &NormDesc| {
                        let outputs = launch_forward(&device.client, desc, &tensors, choice);
                        let tensor = outputs.unwrap().statistics.unwrap();
                        let bytes = device.client.read_one(tensor.handle).unwrap();
                        decode(tensor.desc.dtype, &bytes)
                    };
                    assert_eq!(
                        statistics(&alone),
                        statistics(&case.desc),
                        "{} {dtype} {shape:?} {choice:?}",
                        device.name
                    );
                }
            }
        }
    }
}

#[test]
fn output_is_left_out_for_statistics_alone() {
    let input = TensorDesc::contiguous([4, 24], DType::F32);
    let mut desc = NormDesc::new(input, [1], Statistics::MeanVariance);
    desc.writes_output = false;
    assert_eq!(
        desc.problem().unwrap_err().to_string(),
        "output cannot be written: it is left out, which takes statistics and no sum to be written"
    );
}
