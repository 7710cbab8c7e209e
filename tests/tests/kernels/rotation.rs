//! Rotation of a normalized row, alone and of two tensors in one launch.

use cubenorm_core::{
    DType, Layout, NormDesc, RotatedPairs, Rotation, Rounding, Statistics, StrategyChoice,
    TensorDesc,
};
use cubenorm_kernels::PreparedPair;
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

use super::check_all;

const PAIRS: [RotatedPairs; 2] = [RotatedPairs::HalfSplit, RotatedPairs::Interleaved];

/// Norm of heads with a rotation of `dim` elements, by a table of this shape without its last dimension.
fn heads(input: TensorDesc, dim: usize, of_tokens: &[usize], pairs: RotatedPairs) -> NormDesc {
    let rank = input.shape().len();
    let mut shape = of_tokens.to_vec();
    shape.push(2 * dim);
    let table = TensorDesc::contiguous(shape, DType::F32);
    let gamma = TensorDesc::contiguous(&input.shape()[rank - 1..], input.dtype);
    NormDesc::new(input, [rank - 1], Statistics::MeanSquare)
        .with_scale(gamma)
        .with_rotation(Rotation { table, pairs })
}

#[test]
fn pairs_are_turned_under_every_strategy() {
    for device in devices() {
        for pairs in PAIRS {
            for (features, dim) in [(64, 64), (128, 96), (24, 8), (12, 6), (40, 2), (2, 2)] {
                let input = TensorDesc::contiguous([2, 5, 3, features], DType::F32);
                let desc = heads(input, dim, &[1, 5, 1], pairs);
                check_all(&device, &Case::new(desc, 41));
            }
        }
        // Rows that are staged, split and reloaded.
        let input = TensorDesc::contiguous([3, 6000], DType::F32);
        let desc = heads(input, 4000, &[3], RotatedPairs::HalfSplit);
        check_all(&device, &Case::new(desc, 42));
    }
}

#[test]
fn rotations_take_any_layout_and_dtype() {
    let (split, interleaved) = (RotatedPairs::HalfSplit, RotatedPairs::Interleaved);
    for device in devices() {
        for dtype in device.dtypes() {
            // A view of a joint projection, heads in front of tokens, features that are not innermost, padded rows.
            let layouts = [
                Layout::strided([2, 5, 3, 32], [5 * 160, 160, 32, 1]),
                Layout::strided([2, 5, 3, 32], [480, 32, 160, 1]),
                Layout::strided([2, 5, 3, 32], [480, 1, 5, 15]),
                Layout::strided([2, 5, 3, 32], [495, 99, 33, 1]),
            ];
            for (layout, pairs) in layouts.into_iter().zip([split, interleaved].repeat(2)) {
                let input = TensorDesc::new(layout, dtype);
                let mut desc = heads(input, 16, &[2, 5, 1], pairs);
                if let Some(rotation) = &mut desc.rotation {
                    rotation.table.dtype = dtype.accumulation();
                }
                check_all(&device, &Case::new(desc, 43));
            }
        }
    }
}

#[test]
fn rotations_go_with_the_other_options() {
    for device in devices() {
        let input = TensorDesc::contiguous([4, 6, 48], DType::F32);
        let mut desc = heads(input.clone(), 32, &[6], RotatedPairs::HalfSplit)
            .with_bias(TensorDesc::contiguous([48], DType::F32))
            .with_residual(input)
            .with_offset(1.0)
            .with_rounding(Rounding::BeforeScale)
            .with_sum();
        desc.statistics = Statistics::MeanVariance;
        check_all(&device, &Case::new(desc, 44));
    }
}

#[test]
fn rows_are_turned_without_statistics() {
    for device in devices() {
        for dtype in device.dtypes() {
            let layouts = [
                Layout::contiguous([2, 5, 3, 32]),
                Layout::strided([2, 5, 3, 32], [480, 32, 160, 1]),
                Layout::strided([2, 5, 3, 32], [480, 1, 5, 15]),
                Layout::contiguous([1, 5, 1, 30]),
            ];
            for (layout, pairs) in layouts.into_iter().zip(PAIRS.repeat(2)) {
                let input = TensorDesc::new(layout, dtype);
                let mut desc = heads(input, 16, &[1, 5, 1], pairs);
                (desc.statistics, desc.scale) = (Statistics::None, None);
                if let Some(rotation) = &mut desc.rotation {
                    rotation.table.dtype = dtype.accumulation();
                }
                check_all(&device, &Case::new(desc, 45));
            }
        }
    }
}

#[test]
fn rotations_refuse_what_they_cannot_turn() {
    let input = TensorDesc::contiguous([4, 8], DType::F32);
    let desc = |dim| heads(input.clone(), dim, &[4], RotatedPairs::HalfSplit);
    let message = |desc: NormDesc| desc.problem().unwrap_err().to_string();
    assert_eq!(
        message(desc(10)),
        "rotation table has shape [4, 20]: expected cosines and sines of an even number of elements, 8 at most"
    );
    assert!(message(desc(3)).contains("an even number"));
    let mut other = desc(4);
    other.axes = vec![0];
    assert_eq!(
        message(other),
        "a rotation turns the last dimension of a row: expected statistics of the last axis alone, or none"
    );
    let wide = TensorDesc::contiguous([3, 16], DType::F32);
    let mut short = desc(8);
    short.rotation = Some(Rotation {
        table: wide,
        pairs: RotatedPairs::HalfSplit,
    });
    assert!(message(short).starts_with("rotation table with shape [3, 16] does not broadcast"));
}

/// Runs both as a pair, and compares each with the reference.
fn check_pair(device: &TestDevice, descs: [NormDesc; 2]) -> bool {
    let client = &device.client;
    let cases =
        [(descs[0].clone(), 51), (descs[1].clone(), 52)].map(|(desc, seed)| Case::new(desc, seed));
    let tensors = cases.each_ref().map(|case| case.tensors(client));
    let (descs, tensors) = (descs.each_ref(), tensors.each_ref());
    let pair = PreparedPair::new(client, descs, tensors, StrategyChoice::Inferred).unwrap();
    let written = pair.launch(client, tensors).unwrap();
    for ((case, written), output) in cases.iter().zip(written).zip(pair.outputs()) {
        if let Err(error) = case.compare_output(client, output, written.output) {
            panic!("{} {:?}: {error}", device.name, case.desc);
        }
    }
    pair.is_one_launch()
}

#[test]
fn query_and_key_share_a_launch() {
    for device in devices() {
        for dtype in device.dtypes() {
            for (tokens, pairs) in [(1, PAIRS[0]), (5, PAIRS[1]), (130, PAIRS[0])] {
                for dim in [0, 32, 64] {
                    let of_heads = |heads: usize| {
                        let input = TensorDesc::contiguous([2, tokens, heads, 64], dtype);
                        let mut desc = self::heads(input, dim.max(2), &[1, tokens, 1], pairs);
                        if let Some(rotation) = &mut desc.rotation {
                            rotation.table.dtype = dtype.accumulation();
                        }
                        if dim == 0 {
                            desc.rotation = None;
                        }
                        desc
                    };
                    let is_one = check_pair(&device, [of_heads(32), of_heads(8)]);
                    // The table is bound twice, which exceeds the buffers that WebGPU guarantees.
                    assert!(is_one || dim > 0, "{} {dtype} {tokens}", device.name);
                }
            }
        }
    }
}

#[test]
fn unlike_norms_take_two_launches() {
    for device in devices() {
        let of = |features: usize, dtype| {
            let input = TensorDesc::contiguous([3, 7, features], dtype);
            NormDesc::new(input, [2], Statistics::MeanSquare)
        };
        check_pair(&device, [of(64, DType::F32), of(63, DType::F32)]);
        check_pair(&device, [of(64, DType::F32), of(8192, DType::F32)]);
        if device.dtypes().contains(&DType::F16) {
            assert!(!check_pair(
                &device,
                [of(64, DType::F32), of(64, DType::F16)]
            ));
        }
        let empty = TensorDesc::contiguous([0, 64], DType::F32);
        let empty = NormDesc::new(empty, [1], Statistics::MeanSquare);
        assert!(!check_pair(&device, [of(64, DType::F32), empty]));
    }
}
