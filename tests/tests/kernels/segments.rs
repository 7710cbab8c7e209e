//! Rows that are short runs far apart in memory, whose statistics are joined from those of strands.

use cubenorm_core::{
    DType, Epsilon, Knobs, Layout, NormDesc, Staging, Statistics, StrategyChoice, TensorDesc,
    WrittenStatistics,
};
use cubenorm_kernels::{hardware, plan_for};
use cubenorm_tests::case::{Case, noise};
use cubenorm_tests::device::{TestDevice, devices};

use super::{check_all, kinds};

/// Group norm of maps whose channels are last in memory: `[images, groups, channels of a group, pixels]`.
fn group_norm(shape: [usize; 4], statistics: Statistics, dtype: DType) -> NormDesc {
    let [_, groups, members, pixels] = shape;
    let channels = groups * members;
    let layout = Layout::strided(shape, [pixels * channels, members, 1, channels]);
    let param = TensorDesc::contiguous([groups, members, 1], dtype);
    NormDesc::new(TensorDesc::new(layout, dtype), [2, 3], statistics)
        .with_scale(param.clone())
        .with_bias(param)
}

/// Checks a case under every choice, which is to be done in strands if nobody says how; where a unit has those of whole rows
/// side by side and joins them itself, also with a vector of them at a time.
#[track_caller]
fn check_combined(device: &TestDevice, case: &Case) {
    let plan = plan_for(&device.client, &case.desc, StrategyChoice::Inferred).unwrap();
    assert!(plan.blueprint.team.segmented, "{}: {plan}", device.name);
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

/// Groups of as many channels as some vectors have.
const SEVERAL_VECTORS: [usize; 4] = [1, 4, 20, 2500];

/// Whether a GPU's cubes hold whole rows, so that those do not come as strands: an H200's hold 50,000 floats.
fn is_held_by_gpu(device: &TestDevice, case: &Case) -> bool {
    let plan = plan_for(&device.client, &case.desc, StrategyChoice::Inferred).unwrap();
    hardware(&device.client).is_gpu() && plan.blueprint.staging != Staging::Reload
}

#[test]
fn groups_of_channels_that_are_last_are_joined_from_their_channels() {
    // Groups that end within a vector, that several vectors have, and that a vector has several of.
    let shapes = [
        [2, 16, 3, 700],
        [1, 8, 10, 900],
        [3, 32, 2, 500],
        SEVERAL_VECTORS,
        [1, 16, 7, 4100],
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for shape in shapes {
                for kind in kinds(dtype) {
                    let desc = group_norm(shape, kind.clone(), dtype);
                    let case = Case::new(desc, 61);
                    match shape == SEVERAL_VECTORS && is_held_by_gpu(&device, &case) {
                        true => check_all(&device, &case),
                        false => check_combined(&device, &case),
                    }
                }
            }
        }
    }
}

#[test]
fn a_core_joins_the_strands_of_rows_that_it_has_side_by_side() {
    for device in devices() {
        // Enough maps for the cores of any machine.
        let desc = group_norm([256, 16, 3, 200], Statistics::MeanVariance, DType::F32);
        let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
        let has_cores = hardware(&device.client).cpu_cores.is_some();
        assert_eq!(plan.blueprint.combines_within(), has_cores, "{plan}");
        assert_eq!(plan.combine.is_none(), has_cores, "{plan}");
    }
}

#[test]
fn small_maps_of_a_batch_are_joined_from_their_places() {
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
fn joined_statistics_are_written_once_for_all_strands() {
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
fn strands_far_from_zero_and_from_each_other_keep_their_digits() {
    for device in devices() {
        // A common offset, and one of each channel, which another channel of the group does not have.
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
fn what_is_no_number_stays_in_its_group() {
    for device in devices() {
        for statistics in [Statistics::MeanVariance, Statistics::Mean] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                // In the first step, where strands have their shifts from, and in a later one.
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
fn residual_sum_and_output_of_strands_lie_as_they_like() {
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
        // A residual of each channel, and of each group, which ends within a vector.
        for residual in [[8, 6, 1], [8, 1, 1]] {
            let residual = TensorDesc::contiguous(residual, DType::F32);
            let desc = desc.clone().with_residual(residual);
            check_all(&device, &Case::new(desc, 67));
        }
        // A scale of each group and of each element.
        for scale in [[8, 1, 1], [8, 6, 700]] {
            let mut desc = desc.clone();
            desc.scale = Some(TensorDesc::contiguous(scale, DType::F32));
            check_combined(&device, &Case::new(desc, 68));
        }
    }
}

#[test]
fn what_channels_that_are_last_have_in_common_costs_no_digits() {
    for device in devices() {
        for dtype in device.dtypes() {
            // The reference has no more digits than float64 has.
            if dtype == DType::F64 {
                continue;
            }
            for shape in [[2, 16, 4, 900], [2, 64, 1, 900]] {
                let desc = group_norm(shape, Statistics::MeanVariance, dtype);
                let mean = Case::with_input(desc.clone(), 1, |i| 100.0 + noise(5, i));
                check_all(&device, &mean);
                // A first pixel far from all others, which is as many deviations from the mean as a half has digits for.
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
