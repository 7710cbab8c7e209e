//! Ranks, axes, strides and broadcasting.

use cubenorm_core::{
    Activation, DType, Hardware, Knobs, Layout, LoadMode, NormDesc, ResidualPlace, Statistics,
    StrategyChoice, TensorDesc, WrittenStatistics, plan_forward, problem_on,
};
use cubenorm_kernels::{hardware, launch_forward_within, plan_for, supports};
use cubenorm_tests::case::{Case, download, noise};
use cubenorm_tests::device::{TestDevice, devices};
use cubenorm_tests::tolerance;

use super::{check_all, kinds};

fn f32(layout: Layout) -> TensorDesc {
    TensorDesc::new(layout, DType::F32)
}

#[test]
fn every_rank_and_axes_agree_with_the_reference() {
    let shapes: [&[usize]; 8] = [
        &[24],
        &[6, 8],
        &[3, 4, 8],
        &[2, 3, 4, 4],
        &[2, 2, 3, 2, 4],
        &[2, 1, 2, 3, 2, 4],
        &[1, 2, 2, 1, 2, 3, 4],
        &[2, 1, 2, 2, 1, 2, 2, 4],
    ];
    for device in devices() {
        for shape in shapes {
            let sets = 1usize << shape.len();
            // All sets of axes up to rank 4, a sample above.
            for set in (0..sets).step_by((sets / 16).max(1)) {
                let axes: Vec<usize> = (0..shape.len())
                    .filter(|axis| set >> axis & 1 == 1)
                    .collect();
                let scale: Vec<usize> = (0..shape.len())
                    .map(|dim| {
                        if (set >> (dim / 2)) & 1 == 1 {
                            shape[dim]
                        } else {
                            1
                        }
                    })
                    .collect();
                let desc = NormDesc::new(
                    TensorDesc::contiguous(shape, DType::F32),
                    axes,
                    Statistics::MeanVariance,
                )
                .with_scale(TensorDesc::contiguous(scale, DType::F32))
                .with_bias(TensorDesc::contiguous(
                    &shape[shape.len() - 1..],
                    DType::F32,
                ));
                let case = Case::new(desc, set as u64);
                case.check(&device, Default::default()).unwrap();
            }
        }
    }
}

#[test]
fn strided_inputs_are_read_in_place() {
    let layouts = [
        ("permuted", Layout::strided([8, 12, 16], [1, 8, 96])),
        (
            "channels last",
            Layout::strided([2, 16, 5, 3], [240, 1, 48, 16]),
        ),
        ("sliced with gaps", Layout::strided([4, 6, 8], [128, 16, 1])),
        (
            "every second element",
            Layout::strided([4, 6, 8], [96, 16, 2]),
        ),
        ("rows that repeat", Layout::strided([4, 6, 8], [0, 8, 1])),
        ("columns that repeat", Layout::strided([4, 6, 8], [6, 1, 0])),
        ("odd gaps", Layout::strided([4, 6, 8], [61, 10, 1])),
    ];
    for device in devices() {
        for (name, layout) in &layouts {
            let rank = layout.rank();
            for axes in [vec![rank - 1], vec![0], vec![1, 2], vec![0, 2]] {
                println!("{}: {name} over {axes:?}", device.name);
                let channels = layout.shape[1];
                let mut scale = vec![1; rank];
                scale[1] = channels;
                let desc = NormDesc::new(f32(layout.clone()), axes, Statistics::MeanVariance)
                    .with_scale(TensorDesc::contiguous(scale, DType::F32));
                check_all(&device, &Case::new(desc, 11));
            }
        }
    }
}

#[test]
fn rows_with_a_tail_use_a_tail_vector() {
    // Segments of a few vectors, whose second part has the tail only, and of many vectors. Rows of
    // several segments, each with a tail.
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[7, 33], &[1]),
        (&[5, 49], &[1]),
        (&[9, 197], &[1]),
        (&[3, 1021], &[1]),
        (&[1, 16 * 128 + 1], &[1]),
        (&[4, 3, 7, 7], &[0, 2, 3]),
        (&[4200, 2, 7, 7], &[0, 2, 3]),
        (&[70, 2, 37], &[0, 2]),
        (&[2, 5, 65, 3], &[1, 2, 3]),
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axes) in shapes {
                for kind in kinds(dtype) {
                    let mut scale = shape.to_vec();
                    scale[0] = 1;
                    let input = TensorDesc::contiguous(shape, dtype);
                    let desc = NormDesc::new(input.clone(), axes.to_vec(), kind.clone())
                        .with_scale(TensorDesc::contiguous(scale.clone(), dtype))
                        .with_residual(input)
                        .with_sum();
                    let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                    let is_cpu = hardware(&device.client).cpu_cores.is_some();
                    let has_tail = plan.blueprint.team.has_tail();
                    assert_eq!(has_tail, is_cpu, "{} {shape:?}: {plan}", device.name);
                    check_all(&device, &Case::new(desc, 51));
                }
            }
        }
    }
}

#[test]
fn groups_with_a_tail_are_split_into_channel_segments() {
    // Groups of two and three channels; one long group, which is split.
    let shapes = [[2, 3, 2, 1021], [3, 2, 3, 67], [1, 1, 5, 4099]];
    for device in devices() {
        for dtype in device.dtypes() {
            for shape in shapes {
                let [_, groups, channels, _] = shape;
                let of_channels = TensorDesc::contiguous([1, groups, channels, 1], dtype);
                let input = TensorDesc::contiguous(shape, dtype);
                // Residuals: like the input, with permuted axes, and one number per channel.
                let [a, b, c, d] = shape;
                let residuals = [
                    input.clone(),
                    TensorDesc::new(Layout::strided(shape, [c * d, a * c * d, d, 1]), dtype),
                    TensorDesc::new(Layout::strided(shape, [b * c, c, 1, 0]), dtype),
                ];
                for residual in residuals {
                    let desc = NormDesc::new(input.clone(), [2, 3], Statistics::MeanVariance)
                        .with_scale(of_channels.clone())
                        .with_bias(of_channels.clone())
                        .with_residual(residual)
                        .with_sum();
                    let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                    let is_cpu = hardware(&device.client).cpu_cores.is_some();
                    let has_tail = plan.blueprint.team.has_tail();
                    assert_eq!(has_tail, is_cpu, "{} {shape:?}: {plan}", device.name);
                    check_all(&device, &Case::new(desc, 53));
                }
            }
        }
    }
}

#[test]
fn kept_axes_with_a_tail_use_a_tail_vector() {
    // Parameters per column, per row and both; few rows, which are split; several segments of rows.
    let shapes: [(&[usize], &[usize], &[usize]); 5] = [
        (&[7, 197], &[0], &[197]),
        (&[3, 5, 7, 7], &[1], &[5, 1, 1]),
        (&[4, 3, 2, 49], &[0, 2], &[3, 1, 49]),
        (&[2, 600, 35], &[1], &[600, 1]),
        (&[70, 4, 37], &[1], &[70, 1, 1]),
    ];
    for device in devices() {
        for dtype in device.dtypes() {
            for (shape, axes, scale) in shapes {
                let input = TensorDesc::contiguous(shape, dtype);
                let desc = NormDesc::new(input.clone(), axes, Statistics::MeanVariance)
                    .with_scale(TensorDesc::contiguous(scale, dtype))
                    .with_residual(input)
                    .with_sum();
                let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                let is_cpu = hardware(&device.client).cpu_cores.is_some();
                let has_tail = plan.blueprint.team.has_row_tail();
                assert_eq!(has_tail, is_cpu, "{} {shape:?}: {plan}", device.name);
                check_all(&device, &Case::new(desc, 52));
            }
        }
    }
}

/// Norms of `[samples, channels, positions]` that CPUs compute in tiles of adjacent rows.
///
/// Channels-last over each sample and over the batch, and contiguous over the channels.
fn of_tile(dtype: DType, statistics: &Statistics) -> Vec<NormDesc> {
    // One sample for all cores, and three; positions with a tail.
    let shapes = [[1, 192, 70], [3, 320, 20], [2, 100, 33]];
    let of_shape = |shape: [usize; 3]| {
        let [_, channels, pixels] = shape;
        let last = Layout::strided(shape, [channels * pixels, 1, channels]);
        let last = TensorDesc::new(last, dtype);
        let contiguous = TensorDesc::contiguous(shape, dtype);
        let param = TensorDesc::contiguous([channels, 1], dtype);
        let norm = |input: TensorDesc, axes: &[usize]| {
            NormDesc::new(input.clone(), axes, statistics.clone())
                .with_scale(param.clone())
                .with_bias(param.clone())
        };
        let of_all = norm(last.clone(), &[0, 2]);
        let of_all = match statistics {
            Statistics::MeanVariance => {
                of_all.with_written_statistics(WrittenStatistics::MeanVariance)
            }
            _ => of_all,
        };
        [
            norm(last.clone(), &[2]),
            of_all,
            norm(contiguous.clone(), &[1]),
            norm(last.clone(), &[2]).with_residual(last).with_sum(),
        ]
    };
    shapes.into_iter().flat_map(of_shape).collect()
}

#[test]
fn tiles_of_adjacent_rows_agree_with_the_reference() {
    for device in devices() {
        for dtype in device.dtypes() {
            for kind in kinds(dtype) {
                for desc in of_tile(dtype, kind) {
                    let case = Case::new(desc, 53);
                    match dtype {
                        DType::F32 => case.check(&device, StrategyChoice::Inferred).unwrap(),
                        _ => check_all(&device, &case),
                    }
                }
            }
        }
    }
}

#[test]
fn tiled_rows_agree_with_single_rows() {
    for device in devices() {
        if hardware(&device.client).cpu_cores.is_none() {
            println!("{}: skipped, not a CPU", device.name);
            continue;
        }
        let mut tile = 0;
        for dtype in device.dtypes() {
            for desc in of_tile(dtype, &Statistics::MeanVariance) {
                let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                tile += usize::from(plan.blueprint.team.is_tile());
                let alone = Knobs {
                    rows_per_unit: Some(1),
                    ..Knobs::default()
                };
                // An offset shows a missing shift. In f64 the reference would lose these digits.
                let offset = if dtype == DType::F64 { 0.0 } else { 300.0 };
                let case = Case::with_input(desc, 54, |i| offset + noise(54, i));
                let [together, alone] = [StrategyChoice::Inferred, alone.into()].map(|choice| {
                    let actual = case.run(&device.client, choice).unwrap();
                    case.compare(&actual).unwrap();
                    actual
                });
                // They differ by one more addition per eight steps.
                let unit = 16.0 * tolerance::unit_roundoff(dtype);
                let pairs = together.output.iter().zip(&alone.output);
                for (place, (together, alone)) in pairs.enumerate() {
                    let is_close = (together - alone).abs() <= unit * (1.0 + alone.abs());
                    assert!(
                        is_close,
                        "{} {dtype} at {place}: {together}, alone {alone}",
                        device.name
                    );
                }
            }
        }
        assert!(tile > 0, "{}", device.name);
    }
}

#[test]
fn large_cubes_agree_with_the_reference_on_full_gpus() {
    for device in devices() {
        let Some(rows) = device.rows_that_fill_a_gpu() else {
            continue;
        };
        for (channels, pixels) in [(384, 49), (768, 49)] {
            for dtype in [DType::F32, DType::F16] {
                let shape = [2 * rows.div_ceil(pixels), channels, pixels];
                let param = TensorDesc::contiguous([channels, 1], dtype);
                let input = TensorDesc::contiguous(shape, dtype);
                let desc = NormDesc::new(input, [1], Statistics::MeanVariance)
                    .with_scale(param.clone())
                    .with_bias(param);
                let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                let units: u32 = plan.grid.cube_dim.iter().product();
                assert!(units > 256, "{}: {plan}", device.name);
                let case = Case::new(desc, 55);
                case.check(&device, StrategyChoice::Inferred).unwrap();
            }
        }
    }
}

#[test]
fn outputs_may_be_strided() {
    for device in devices() {
        let shape = [6, 8, 4];
        for strides in [[1, 6, 48], [64, 8, 1], [64, 8, 2], [4, 24, 1]] {
            for axes in [vec![2], vec![0], vec![0, 1]] {
                let desc = NormDesc::new(
                    TensorDesc::contiguous(shape, DType::F32),
                    axes,
                    Statistics::MeanVariance,
                )
                .with_residual(TensorDesc::contiguous([8, 1], DType::F32))
                .with_sum()
                .with_output(f32(Layout::strided(shape, strides)));
                check_all(&device, &Case::new(desc, 12));
            }
        }
    }
}

#[test]
fn dense_inputs_keep_their_layout() {
    let permuted = Layout::strided([4, 6, 8], [1, 32, 4]);
    let desc = NormDesc::new(f32(permuted.clone()), [2], Statistics::MeanVariance);
    assert_eq!(desc.problem().unwrap().output_layout, permuted);
    let gaps = Layout::strided([4, 6, 8], [96, 16, 2]);
    let desc = NormDesc::new(f32(gaps), [2], Statistics::MeanVariance);
    let contiguous = Layout::contiguous([4, 6, 8]);
    assert_eq!(desc.problem().unwrap().output_layout, contiguous);
}

#[test]
fn parameters_broadcast_in_any_dimension() {
    let shape = [3, 4, 8];
    let sizes: [&[usize]; 9] = [
        &[8],
        &[1],
        &[4, 1],
        &[4, 8],
        &[3, 1, 1],
        &[3, 1, 8],
        &[3, 4, 1],
        &[3, 4, 8],
        &[1, 1, 1],
    ];
    for device in devices() {
        for scale in sizes {
            for bias in sizes {
                for axes in [vec![2], vec![0, 1]] {
                    let desc = NormDesc::new(
                        TensorDesc::contiguous(shape, DType::F32),
                        axes,
                        Statistics::MeanVariance,
                    )
                    .with_scale(TensorDesc::contiguous(scale, DType::F32))
                    .with_bias(TensorDesc::contiguous(bias, DType::F32));
                    Case::new(desc, 13)
                        .check(&device, Default::default())
                        .unwrap();
                }
            }
        }
    }
}

#[test]
fn provided_statistics_broadcast_in_any_dimension() {
    let sizes: [&[usize]; 4] = [&[4, 1, 1], &[8], &[2, 1, 6, 1], &[2, 4, 6, 8]];
    for device in devices() {
        for mean in sizes {
            for variance in sizes {
                let desc = NormDesc::new(
                    TensorDesc::contiguous([2, 4, 6, 8], DType::F32),
                    [],
                    Statistics::Provided {
                        mean: TensorDesc::contiguous(mean, DType::F32),
                        variance: TensorDesc::contiguous(variance, DType::F32),
                    },
                )
                .with_scale(TensorDesc::contiguous([4, 1, 1], DType::F32))
                .with_bias(TensorDesc::contiguous([4, 1, 1], DType::F32));
                check_all(&device, &Case::new(desc, 14));
            }
        }
    }
}

#[test]
fn empty_tensors_launch_nothing() {
    for device in devices() {
        for shape in [[0, 4], [4, 0], [0, 0]] {
            for axis in [0, 1] {
                let desc = NormDesc::new(
                    TensorDesc::contiguous(shape, DType::F32),
                    [axis],
                    Statistics::MeanVariance,
                )
                .with_sum();
                let actual = Case::new(desc, 0)
                    .run(&device.client, Default::default())
                    .unwrap();
                assert!(actual.output.is_empty());
                assert!(actual.sum.unwrap().is_empty());
            }
        }
    }
}

#[test]
fn statistics_over_no_elements_are_nan() {
    // Channels of an empty batch, with and without segments, and rows without columns.
    let cases: [(&[usize], &[usize], usize); 3] = [
        (&[0, 64, 7, 7], &[0, 2, 3], 64),
        (&[0, 3, 5, 5], &[0, 2, 3], 3),
        (&[4, 0], &[1], 4),
    ];
    for device in devices() {
        for (shape, axes, rows) in cases {
            for written in [WrittenStatistics::MeanRstd, WrittenStatistics::MeanVariance] {
                let input = TensorDesc::contiguous(shape, DType::F32);
                let desc = NormDesc::new(input, axes, Statistics::MeanVariance)
                    .with_written_statistics(written);
                for choice in [StrategyChoice::Inferred, StrategyChoice::Tuned] {
                    let actual = Case::new(desc.clone(), 0)
                        .run(&device.client, choice)
                        .unwrap();
                    assert!(actual.output.is_empty());
                    let statistics = actual.statistics.unwrap();
                    assert_eq!(statistics.len(), 2 * rows, "{}", device.name);
                    assert!(statistics.iter().all(|number| number.is_nan()));
                }
            }
        }
    }
}

#[test]
fn provided_statistics_work_with_several_rows_per_unit() {
    for device in devices() {
        // Enough rows for several per unit on any device. They share the scale.
        let param = |shape: [usize; 2]| TensorDesc::contiguous(shape, DType::F32);
        for (mean, variance) in [
            ([2048, 1], [2048, 1]),
            ([2048, 1], [1, 24]),
            ([1, 24], [1, 24]),
        ] {
            let given = Statistics::Provided {
                mean: param(mean),
                variance: param(variance),
            };
            let desc = NormDesc::new(param([2048, 24]), [1], given).with_scale(param([1, 24]));
            let case = Case::new(desc, 60);
            if let Err(error) = case.check(&device, Default::default()) {
                panic!("{error}");
            }
        }
    }
}

#[test]
fn parameters_stay_in_registers_between_rows() {
    // Rows of less than one vector, of one, of several, and too long for registers.
    for device in devices() {
        let mut kept = 0;
        for (cols, dtype) in [3, 16, 64, 96, 1024]
            .into_iter()
            .flat_map(|cols| [(cols, DType::F32), (cols, DType::F16)])
            .filter(|(_, dtype)| supports(&device.client, *dtype))
        {
            let param = TensorDesc::contiguous([cols], dtype);
            let input = TensorDesc::contiguous([517, cols], dtype);
            let given = Statistics::Provided {
                mean: param.clone(),
                variance: param.clone(),
            };
            let plain = NormDesc::new(input.clone(), [1], given);
            let scaled = plain.clone().with_scale(param.clone());
            let added = scaled.clone().with_bias(param.clone());
            let last = added
                .clone()
                .with_residual(input.clone())
                .with_residual_place(ResidualPlace::Output)
                .with_activation(Activation::Relu);
            for desc in [plain.with_bias(param), scaled, added, last] {
                let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                kept += usize::from(plan.blueprint.team.params_kept().is_some());
                if let Err(error) = Case::new(desc, 61).check(&device, Default::default()) {
                    panic!("{error}");
                }
            }
        }
        let is_cpu = device.client.properties().hardware.num_cpu_cores.is_some();
        assert_eq!(kept > 0, is_cpu, "{}", device.name);
    }
}

#[test]
fn vectors_cross_channel_segments() {
    // Channels of 3 to 35 columns with a tail, in rows of whole vectors.
    let shapes = [[3, 2, 16, 7], [2, 3, 32, 35], [1, 2, 64, 3], [2, 1, 32, 17]];
    for device in devices() {
        let mut over_segments = 0;
        for shape in shapes {
            for dtype in [DType::F32, DType::F16] {
                let [_, groups, channels, _] = shape;
                let param = TensorDesc::contiguous([groups, channels, 1], dtype);
                let input = TensorDesc::contiguous(shape, dtype);
                let desc = NormDesc::new(input, [2, 3], Statistics::MeanVariance)
                    .with_scale(param.clone())
                    .with_bias(param);
                if !supports(&device.client, dtype) {
                    continue;
                }
                let plan = plan_for(&device.client, &desc, StrategyChoice::Inferred).unwrap();
                let mode = plan.blueprint.scale.unwrap().mode;
                over_segments += usize::from(mode == LoadMode::Segments);
                check_all(&device, &Case::new(desc, 23));
            }
        }
        assert!(over_segments > 0, "{}", device.name);
        // Segments with tail vectors do not cross channels.
        let param = f32(Layout::contiguous([4, 3, 1, 1]));
        let input = f32(Layout::contiguous([4, 3, 7, 7]));
        let desc = NormDesc::new(input, [0, 2, 3], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param);
        check_all(&device, &Case::new(desc, 23));
    }
}

/// Hardware for a GPU's plans, with the limits of any device.
fn gpu(device: &TestDevice) -> Hardware {
    Hardware {
        cpu_cores: None,
        cpu_vulkan_cores: None,
        ..hardware(&device.client)
    }
}

/// Batch norm of `[batch, channels, height, width]` with provided statistics.
fn by_provided_statistics(input: TensorDesc) -> NormDesc {
    let channel = TensorDesc::contiguous([input.shape()[1], 1, 1], input.dtype);
    let given = Statistics::Provided {
        mean: channel.clone(),
        variance: channel.clone(),
    };
    NormDesc::new(input, [0, 2, 3], given)
        .with_scale(channel.clone())
        .with_bias(channel)
}

#[test]
fn channels_last_works_with_provided_statistics() {
    for device in devices() {
        for dtype in [DType::F16, DType::F32] {
            if !supports(&device.client, dtype) {
                println!(
                    "{}: skipped {dtype}, which the device does not have",
                    device.name
                );
                continue;
            }
            // Channels of whole vectors, of overlapping tail vectors, and fewer than one vector.
            for channels in [64, 100, 3] {
                let layout = Layout::strided(
                    [2, channels, 5, 9],
                    [45 * channels, 1, 9 * channels, channels],
                );
                let desc = by_provided_statistics(TensorDesc::new(layout.clone(), dtype));
                check_all(&device, &Case::new(desc.clone(), 26));
                if channels == 64 {
                    let with_residual = desc.with_residual(TensorDesc::new(layout, dtype));
                    check_all(&device, &Case::new(with_residual.with_sum(), 26));
                }
            }
        }
    }
}

#[test]
fn joined_channels_keep_their_own_parameters() {
    // Channels are joined into rows of whole vectors that are long enough.
    let shapes = [
        ([3, 16, 7, 7], 16 * 7 * 7),
        ([2, 5, 9, 9], 5 * 9 * 9),
        ([1, 6, 1, 3], 6 * 3),
        ([2, 48, 4, 4], 48 * 4 * 4),
        ([2, 3, 16, 32], 16 * 32),
    ];
    for device in devices() {
        let gpu = gpu(&device);
        for (shape, cols) in shapes {
            let input = TensorDesc::contiguous(shape, DType::F32);
            let desc = by_provided_statistics(input.clone());
            let problem = problem_on(&desc, &gpu, Default::default()).unwrap();
            assert_eq!(problem.cols, cols, "{shape:?}");
            let plan = plan_forward(&problem, &gpu, StrategyChoice::Inferred).unwrap();
            let has_segments = plan.blueprint.scale.unwrap().mode == LoadMode::Segments;
            assert_eq!(has_segments, shape == [3, 16, 7, 7], "{shape:?}: {plan}");
            let with_residual = desc.clone().with_residual(input).with_sum();
            for desc in [desc, with_residual] {
                let case = Case::new(desc, 24);
                let actual = case.run_within(&device.client, StrategyChoice::Inferred, &gpu);
                case.compare(&actual.unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn padding_of_pitched_rows_is_computed_without_reduction() {
    // Shape, strides, and true if whole vectors are worth the padding.
    let layouts = [
        ([2, 16, 7, 7], [896, 56, 8, 1], true),
        ([3, 5, 14, 14], [1120, 224, 16, 1], true),
        ([2, 16, 7, 1], [128, 8, 1, 1], true),
        // Rows of whole vectors need no padding.
        ([2, 3, 5, 56], [960, 320, 64, 1], false),
        // The padding is more than a quarter of a row.
        ([2, 3, 5, 5], [120, 40, 8, 1], false),
        // Channels-last rows, with statistics per column.
        ([2, 30, 3, 4], [384, 1, 128, 32], false),
        // There are other gaps as well.
        ([2, 4, 7, 7], [256, 64, 8, 1], false),
    ];
    for device in devices() {
        let gpu = gpu(&device);
        for (shape, strides, pays) in layouts {
            let layout = Layout::strided(shape, strides);
            let case = Case::new(by_provided_statistics(f32(layout.clone())), 25);
            let padding = match layout.strides.iter().position(|&stride| stride == 8) {
                Some(_) => 1,
                None => 2,
            };
            // A runtime allocates the padding of the last row. A slice may end without it.
            for there in [padding, 0] {
                let tensors = case.tensors_with_padding(&device.client, there);
                let choice = StrategyChoice::Inferred;
                let outputs =
                    launch_forward_within(&device.client, &case.desc, &tensors, choice, &gpu);
                let outputs = outputs.unwrap();
                let expected = match pays && there > 0 {
                    true => layout.clone(),
                    false => layout.kept(),
                };
                assert_eq!(outputs.output.desc.layout, expected, "{}", device.name);
                case.compare(&download(&device.client, outputs)).unwrap();
            }
        }
        // Errors name the original shape.
        let mut desc = by_provided_statistics(f32(Layout::strided([2, 16, 7, 7], [896, 56, 8, 1])));
        desc.bias = Some(f32(Layout::contiguous([15, 1, 1])));
        let case = Case::new(desc, 25);
        let tensors = case.tensors_with_padding(&device.client, 1);
        let choice = StrategyChoice::Inferred;
        let error = launch_forward_within(&device.client, &case.desc, &tensors, choice, &gpu);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("[2, 16, 7, 7]"), "{error}");
    }
}
