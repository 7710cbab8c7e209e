//! Rows of short segments far apart in memory, such as channels-last groups.
//!
//! Partial statistics of channels are combined into the statistics of a row.

use cubenorm_core::{
    DType, Epsilon, Knobs, Layout, NormDesc, Staging, Statistics, StrategyChoice, TensorDesc,
    WrittenStatistics,
};
use cubenorm_kernels::{hardware, plan_for};
use cubenorm_tests::case::{Case, noise};
use cubenorm_tests::device::{TestDevice, devices};

use super::{check_all, kinds};

/// Channels-last group norm of `[samples, groups, channels per group, positions]`.
fn group_norm(shape: [usize; 4], statistics: Statistics, dtype: DType) -> NormDesc {
    let [_, groups, members, pixels] = shape;
    let channels = groups * members;
    let layout = Layout::strided(shape, [pixels * channels, members, 1, channels]);
    let param = TensorDesc::contiguous([groups, members, 1], dtype);
    NormDesc::new(TensorDesc::new(layout, dtype), [2, 3], statistics)
        .with_scale(param.clone())
        .with_bias(param)
}

/// Checks a case under every choice, and that the analytic plan is segmented.
///
/// If a unit combines segments of whole rows, one vector at a time is checked, too.
#[track_caller]
fn check_combined(device: &TestDevice, case: &Case) {
    let plan = plan_for(&device.client, &case.desc, StrategyChoice::Inferred).unwrap();
    assert!(
        plan.blueprint.team.is_segmented(),
        "{}: {plan}",
        device.name
    );
    check_all(device, case);
    if plan.blueprint.combines_within() {
        let single = Knobs {
            rows_per_unit: Some(1),
            ..Knobs::default()
        };
        if let Err(error) = case.check(device, single.into()) {
            panic!("{error}");
        }
    }
}

/// True if a GPU's cubes stage whole rows, which are then not segmented.
///
/// How long a staged row may be depends on the GPU: an H200 stages 50,000 f32.
fn is_held_by_gpu(device: &TestDevice, case: &Case) -> bool {
    let plan = plan_for(&device.client, &case.desc, StrategyChoice::Inferred).unwrap();
    hardware(&device.client).is_gpu() && plan.blueprint.staging != Staging::Reload
}

#[test]
fn channels_last_groups_agree_with_the_reference() {
    // Groups that end within a vector, that fill several vectors, and several groups per vector.
    let shapes = [
        [2, 16, 3, 700],
        [1, 8, 10, 900],
        [3, 32, 2, 500],
        [1, 4, 20, 2500],
        [1, 16, 7, 4100],
    ];
    for device in devices() {
        let mut combined = 0;
        for dtype in device.dtypes() {
            for shape in shapes {
                for kind in kinds(dtype) {
                    let desc = group_norm(shape, kind.clone(), dtype);
                    let case = Case::new(desc, 61);
                    if is_held_by_gpu(&device, &case) {
                        check_all(&device, &case);
                    } else {
                        check_combined(&device, &case);
                        combined += 1;
                    }
                }
            }
        }
        assert!(combined > 0, "{}: no rows were combined", device.name);
    }
}

#[test]
fn cores_combine_segments_of_whole_rows() {
    for device in devices() {
        // Enough feature maps for all cores of any machine.
        let desc = group_norm([256, 16, 3, 200], Statistics::MeanVariance, DType::F32);
        let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
        let has_cores = hardware(&device.client).cpu_cores.is_some();
        assert_eq!(plan.blueprint.combines_within(), has_cores, "{plan}");
        assert_eq!(plan.combine.is_none(), has_cores, "{plan}");
    }
}

#[test]
fn small_feature_maps_are_combined_over_the_batch() {
    for device in devices() {
        for [images, channels, pixels] in [[700, 16, 9], [300, 64, 25], [5000, 8, 4]] {
            let input = TensorDesc::contiguous([images, channels, pixels], DType::F32);
            let param = TensorDesc::contiguous([channels, 1], DType::F32);
            let desc = NormDesc::new(input, [0, 2], Statistics::MeanVariance)
                .with_scale(param.clone())
                .with_bias(param)
                .with_written_statistics(WrittenStatistics::MeanVariance);
            check_combined(&device, &Case::new(desc, 62));
        }
    }
}

#[test]
fn combined_statistics_are_written_once() {
    for device in devices() {
        for written in [WrittenStatistics::MeanRstd, WrittenStatistics::MeanVariance] {
            for epsilon in [Epsilon::InsideSqrt(1e-3), Epsilon::AddedToDeviation(1e-2)] {
                let desc = group_norm([3, 8, 5, 600], Statistics::MeanVariance, DType::F32)
                    .with_epsilon(epsilon)
                    .with_written_statistics(written);
                check_combined(&device, &Case::new(desc, 63));
            }
        }
    }
}

#[test]
fn segments_with_large_offsets_keep_their_digits() {
    for device in devices() {
        // A common offset, and a different offset of each channel in a group.
        for (common, apart) in [(4096.0, 0.0), (0.0, 64.0), (-1000.0, 8.0)] {
            let desc = group_norm([2, 8, 6, 800], Statistics::MeanVariance, DType::F32)
                .with_written_statistics(WrittenStatistics::MeanVariance);
            let case = Case::with_input(desc, 64, |position| {
                common + apart * (position % 48) as f64 + noise(9, position)
            });
            check_combined(&device, &case);
        }
    }
}

#[test]
fn nan_and_infinity_stay_in_their_groups() {
    for device in devices() {
        for statistics in [Statistics::MeanVariance, Statistics::Mean] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                // In the first step, which gives the shifts, and in a later one.
                for position in [21, 48 * 500 + 21] {
                    let desc = group_norm([2, 8, 6, 800], statistics.clone(), DType::F32);
                    let case = Case::with_input(desc, 65, |i| match i == position {
                        true => value,
                        false => noise(10, i),
                    });
                    check_combined(&device, &case);
                }
            }
        }
    }
}

#[test]
fn segments_take_other_layouts_of_residual_and_output() {
    let shape = [2, 8, 6, 700];
    for device in devices() {
        let desc = group_norm(shape, Statistics::MeanVariance, DType::F32);
        let last = desc.input.clone();
        let first = TensorDesc::contiguous(shape, DType::F32);
        for residual in [&last, &first] {
            for output in [None, Some(first.clone())] {
                let mut desc = desc.clone().with_residual(residual.clone()).with_sum();
                desc.output = output;
                check_combined(&device, &Case::new(desc, 66));
            }
        }
        // A residual per channel, and one per group, which ends within a vector.
        for residual in [[8, 6, 1], [8, 1, 1]] {
            let residual = TensorDesc::contiguous(residual, DType::F32);
            let desc = desc.clone().with_residual(residual);
            check_all(&device, &Case::new(desc, 67));
        }
        // A scale per group, and one per element.
        for scale in [[8, 1, 1], [8, 6, 700]] {
            let mut desc = desc.clone();
            desc.scale = Some(TensorDesc::contiguous(scale, DType::F32));
            check_combined(&device, &Case::new(desc, 68));
        }
    }
}

#[test]
fn channels_last_means_and_outliers_cost_no_digits() {
    for device in devices() {
        for dtype in device.dtypes() {
            // The reference itself computes in f64.
            if dtype == DType::F64 {
                continue;
            }
            for shape in [[2, 16, 4, 900], [2, 64, 1, 900]] {
                let desc = group_norm(shape, Statistics::MeanVariance, dtype);
                let mean = Case::with_input(desc.clone(), 1, |i| 100.0 + noise(5, i));
                check_all(&device, &mean);
                // An outlier as the first position, as many deviations off as f16 and bf16 resolve.
                if matches!(dtype, DType::F16 | DType::BF16) {
                    let [_, groups, members, pixels] = shape;
                    let channels = groups * members;
                    let outlier =
                        Case::with_input(desc, 2, |i| match i % (channels * pixels) < channels {
                            true => 1e3,
                            false => noise(6, i),
                        });
                    check_all(&device, &outlier);
                }
            }
        }
    }
}
