//! Shapes around the limits at which a strategy changes.

use cubenorm_core::{
    Activation, DType, Hardware, Knobs, Layout, NormDesc, ResidualPlace, Staging,
    StagingPreference, Statistics, Strategy, StrategyChoice, TensorDesc, WrittenStatistics,
    plan_forward,
};
use cubenorm_kernels::hardware;
use cubenorm_tests::case::{Case, noise};
use cubenorm_tests::choice::runs;
use cubenorm_tests::device::devices;

use super::check_all;

fn layer_norm(rows: usize, cols: usize) -> NormDesc {
    NormDesc::new(
        TensorDesc::contiguous([rows, cols], DType::F32),
        [1],
        Statistics::MeanVariance,
    )
    .with_scale(TensorDesc::contiguous([cols], DType::F32))
    .with_bias(TensorDesc::contiguous([cols], DType::F32))
}

#[test]
fn every_strategy_agrees_at_every_row_length() {
    // One element; below, at and above the size of a vector, a plane, a staged row, a block of 64
    // steps and a cube; primes in between.
    let lengths = [
        1, 2, 3, 4, 5, 8, 31, 32, 33, 64, 127, 256, 257, 1000, 1024, 4096, 4099, 16384,
    ];
    for device in devices() {
        for cols in lengths {
            check_all(&device, &Case::new(layer_norm(3, cols), cols as u64));
        }
    }
}

#[test]
fn every_strategy_agrees_at_every_row_count() {
    for device in devices() {
        for rows in [1, 2, 7, 63, 64, 65, 257] {
            check_all(&device, &Case::new(layer_norm(rows, 40), rows as u64));
        }
    }
}

#[test]
fn more_rows_than_cubes_are_all_written() {
    for device in devices() {
        let case = Case::new(layer_norm(65_537 + 63, 4), 9);
        check_all(&device, &case);
    }
}

#[test]
fn contiguous_kept_axes_use_perpendicular_vectors() {
    for device in devices() {
        for (reduced, kept) in [(1, 8), (3, 4), (100, 64), (1000, 12), (37, 7), (4096, 32)] {
            let desc = NormDesc::new(
                TensorDesc::contiguous([reduced, kept], DType::F32),
                [0],
                Statistics::MeanVariance,
            )
            .with_scale(TensorDesc::contiguous([kept], DType::F32))
            .with_bias(TensorDesc::contiguous([reduced, 1], DType::F32));
            let column = StrategyChoice::from(Strategy::Perpendicular);
            if kept % 4 == 0 && device.shares_memory() {
                assert!(runs(&device, &desc, column));
                Case::new(desc.clone(), 3).check(&device, column).unwrap();
            }
            check_all(&device, &Case::new(desc, 3));
        }
    }
}

/// Rows of each kind that a cluster of cubes may share.
fn shared_rows(dtype: DType) -> Vec<NormDesc> {
    let tensor = |shape: &[usize]| TensorDesc::contiguous(shape, dtype);
    let rows = NormDesc::new(tensor(&[5, 20_480]), [1], Statistics::MeanVariance)
        .with_scale(tensor(&[20_480]))
        .with_bias(tensor(&[20_480]));
    // Two samples of three groups of ten channels.
    let shape = [2, 3, 10, 1849];
    let groups = |input: TensorDesc| {
        NormDesc::new(input, [2, 3], Statistics::MeanVariance)
            .with_scale(tensor(&[3, 10, 1]))
            .with_bias(tensor(&[3, 10, 1]))
            .with_activation(Activation::Silu)
    };
    let strides = [30 * 1849, 10, 1, 30];
    let last = TensorDesc::new(Layout::strided(shape, strides), dtype);
    let written = groups(last.clone()).with_written_statistics(WrittenStatistics::MeanRstd);
    let residual = rows.clone().with_residual(rows.input.clone()).with_sum();
    let square = NormDesc::new(tensor(&[2, 30_001]), [1], Statistics::MeanSquare);
    vec![rows, groups(tensor(&shape)), written, residual, square]
}

#[test]
fn cubes_of_a_cluster_share_rows() {
    for device in devices() {
        if !(hardware(&device.client).inter_cube_atomics && device.shares_memory()) {
            println!("{}: skipped, no cooperating cubes", device.name);
            continue;
        }
        let mut shared = 0;
        let stagings = [
            None,
            Some(StagingPreference::Reload),
            Some(StagingPreference::Registers),
            Some(StagingPreference::Shared),
            Some(StagingPreference::Mixed),
        ];
        // A word has room for an f32.
        let dtypes = device.dtypes().into_iter();
        let dtypes = dtypes.filter(|dtype| dtype.accumulation() == DType::F32);
        for desc in dtypes.flat_map(shared_rows) {
            // A mean far from zero, and equal elements.
            let far = Case::with_input(desc.clone(), 5, |i| 100.0 + noise(5, i));
            let equal = Case::with_input(desc.clone(), 6, |_| 0.1);
            for case in [Case::new(desc.clone(), 4), far, equal] {
                for (row, cluster_size) in stagings.into_iter().zip([2, 4, 8, 2, 4]) {
                    let choice = StrategyChoice::Forced(Knobs {
                        row,
                        cluster_size: Some(cluster_size),
                        ..Strategy::Cube.into()
                    });
                    if !runs(&device, &desc, choice) {
                        continue;
                    }
                    let plan = cubenorm_kernels::plan_for(&device.client, &desc, choice).unwrap();
                    shared += usize::from(plan.blueprint.team.cluster_size() == cluster_size);
                    case.check(&device, choice).unwrap();
                    let again = || case.run(&device.client, choice).unwrap();
                    assert_eq!(again(), again(), "{plan}");
                }
            }
        }
        assert!(shared > 0, "{}", device.name);
        println!("{}: {shared} rows are shared", device.name);
    }
}

#[test]
fn loads_in_flight_cover_all_steps() {
    // Vectors of one element: units have from one step to three times the loads in flight.
    let again = |strategy: Strategy, units: u32, plane_size: Option<u32>| {
        StrategyChoice::Forced(Knobs {
            vector: Some(1),
            units: Some(units),
            row: Some(StagingPreference::Reload),
            plane_size,
            ..strategy.into()
        })
    };
    for device in devices() {
        let mut asked = 0;
        for cols in [32, 100, 127, 128, 150, 256, 390] {
            let input = TensorDesc::contiguous([5, cols], DType::F32);
            let row = layer_norm(5, cols).with_residual(input).with_sum();
            let across = TensorDesc::contiguous([cols, 6], DType::F32);
            let column = NormDesc::new(across, [0], Statistics::MeanVariance)
                .with_scale(TensorDesc::contiguous([cols, 1], DType::F32))
                .with_bias(TensorDesc::contiguous([6], DType::F32));
            // Lavapipe: all steps of a row or of a channel have the same parameters.
            let param = |shape: &[usize]| TensorDesc::contiguous(shape, DType::F32);
            let same = NormDesc::new(param(&[5, cols]), [1], Statistics::MeanVariance)
                .with_scale(param(&[5, 1]));
            let channels = NormDesc::new(param(&[5, 3, cols]), [1, 2], Statistics::MeanSquare)
                .with_scale(param(&[3, 1]))
                .with_bias(param(&[5, 3, 1]));
            for (strategy, desc) in [
                (Strategy::Cube, &row),
                (Strategy::Plane, &row),
                (Strategy::Split, &row),
                (Strategy::Perpendicular, &column),
                (Strategy::Unit, &same),
                (Strategy::Unit, &channels),
            ] {
                let choice = again(strategy, 32, device.plane_size);
                if !runs(&device, desc, choice) {
                    continue;
                }
                let plan = cubenorm_kernels::plan_for(&device.client, desc, choice).unwrap();
                asked += usize::from(plan.blueprint.loads_in_flight > 1);
                Case::new(desc.clone(), 17).check(&device, choice).unwrap();
            }
        }
        let hardware = hardware(&device.client);
        let of_units = if hardware.is_cpu_vulkan() { 14 } else { 0 };
        match device.shares_memory() && hardware.cpu_cores.is_none() {
            true => assert!(asked >= 14 + of_units, "{}: {asked}", device.name),
            false => println!("{}: skipped, each unit owns a row", device.name),
        }
    }
}

#[test]
fn planes_use_the_plane_operations_of_the_device() {
    for device in devices() {
        let Some(plane_size) = device.plane_size else {
            println!("{}: skipped, no planes of several units", device.name);
            continue;
        };
        let choice = StrategyChoice::Forced(Knobs {
            plane_size: Some(plane_size),
            ..Strategy::Plane.into()
        });
        let desc = layer_norm(19, 96);
        let plan = cubenorm_kernels::plan_for(&device.client, &desc, choice).unwrap();
        assert_eq!(plan.blueprint.team.plane_size(), plane_size);
        Case::new(desc, 5).check(&device, choice).unwrap();
    }
}

#[test]
fn statistics_are_written_in_the_order_of_the_kept_axes() {
    for device in devices() {
        for axes in [
            vec![2],
            vec![0],
            vec![1],
            vec![0, 2],
            vec![1, 2],
            vec![0, 1, 2],
        ] {
            for statistics in [Statistics::MeanVariance, Statistics::MeanSquare] {
                let input = TensorDesc::contiguous([3, 8, 20], DType::F32);
                let desc = NormDesc::new(input, axes.clone(), statistics)
                    .with_written_statistics(WrittenStatistics::MeanRstd);
                check_all(&device, &Case::new(desc, 7));
            }
        }
    }
}

#[test]
fn residual_is_added_first_and_the_sum_written() {
    for device in devices() {
        for cols in [12, 500, 4096] {
            let input = TensorDesc::contiguous([5, cols], DType::F32);
            let desc = layer_norm(5, cols)
                .with_residual(input)
                .with_sum()
                .with_written_statistics(WrittenStatistics::MeanRstd);
            check_all(&device, &Case::new(desc, 8));
        }
    }
}

#[test]
fn gates_multiply_the_input_or_the_result() {
    for device in devices() {
        for place in [ResidualPlace::InputGate, ResidualPlace::OutputGate] {
            for (cols, activation) in [
                (12, Activation::Silu),
                (500, Activation::Sigmoid),
                (4099, Activation::Silu),
            ] {
                let input = TensorDesc::contiguous([5, cols], DType::F32);
                let desc = layer_norm(5, cols)
                    .with_residual(input)
                    .with_residual_place(place)
                    .with_activation(activation)
                    .with_written_statistics(WrittenStatistics::MeanRstd);
                check_all(&device, &Case::new(desc, 9));
            }
        }
    }
}

#[test]
fn plans_run_within_webgpu_limits() {
    let hardware = Hardware::webgpu();
    for device in devices() {
        if device.client.properties().hardware.num_cpu_cores.is_some() {
            println!(
                "{}: skipped, cubes of a CPU have one unit per core",
                device.name
            );
            continue;
        }
        if !device.shares_memory() {
            continue;
        }
        for (rows, cols) in [(3, 64), (5, 1000), (2, 9000), (1, 70_000)] {
            let input = TensorDesc::contiguous([rows, cols], DType::F32);
            let desc = layer_norm(rows, cols)
                .with_residual(input)
                .with_sum()
                .with_written_statistics(WrittenStatistics::MeanRstd);
            let case = Case::new(desc, 41);
            for strategy in [Strategy::Unit, Strategy::Cube, Strategy::Split] {
                let choice = StrategyChoice::from(strategy);
                let actual = case.run_within(&device.client, choice, &hardware);
                case.compare(&actual.unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn rows_larger_than_registers_use_shared_memory() {
    // Few units: a row of 8 KiB does not fit in their registers, but in shared memory or in both.
    let hardware = Hardware {
        max_units_per_cube: 32,
        max_cube_dim: [32, 32, 1],
        max_shared_memory: 32 << 10,
        ..Hardware::webgpu()
    };
    for device in devices() {
        if device.client.properties().hardware.num_cpu_cores.is_some() {
            println!(
                "{}: skipped, a CPU's shared memory is its cache",
                device.name
            );
            continue;
        }
        if !device.shares_memory() {
            continue;
        }
        // Columns that fill the capacity, and fewer.
        for cols in [2048, 2000] {
            for (row, expected) in [
                (StagingPreference::Shared, Staging::Shared(16)),
                (
                    StagingPreference::Mixed,
                    Staging::Mixed {
                        registers: 8,
                        shared: 8,
                    },
                ),
            ] {
                let choice = StrategyChoice::Forced(Knobs {
                    row: Some(row),
                    ..Strategy::Cube.into()
                });
                let desc = layer_norm(7, cols);
                let plan = plan_forward(&desc.problem().unwrap(), &hardware, choice).unwrap();
                assert_eq!(plan.blueprint.staging, expected);
                assert_eq!(plan.blueprint.team.exact_vectors().is_some(), cols == 2048);
                let case = Case::new(desc, 42);
                let actual = case.run_within(&device.client, choice, &hardware);
                case.compare(&actual.unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn long_rows_survive_the_drivers_loop_limit() {
    // Lavapipe ends loops after 65,535 iterations without an error. One unit per row would take
    // 50,000 steps of four elements for the first shape, and 100,003 steps for the odd length.
    for device in devices() {
        for shape in [[8, 200_000], [1, 100_003]] {
            for statistics in [Statistics::MeanVariance, Statistics::None] {
                let input = TensorDesc::contiguous(shape, DType::F32);
                let desc = NormDesc::new(input, [1], statistics);
                let case = Case::new(desc, 43);
                case.check(&device, StrategyChoice::Inferred).unwrap();
            }
        }
    }
}

#[test]
fn teams_stage_several_rows_per_unit() {
    for device in devices() {
        let mut several = 0;
        // The last team has fewer rows than one iteration.
        for (rows, cols) in [(37, 96), (3, 100), (131, 64)] {
            for strategy in [Strategy::Plane, Strategy::Cube] {
                for rows_per_unit in [2, 4] {
                    let choice = StrategyChoice::Forced(Knobs {
                        plane_size: device.plane_size,
                        rows_per_unit: Some(rows_per_unit),
                        row: Some(StagingPreference::Registers),
                        ..strategy.into()
                    });
                    let desc =
                        layer_norm(rows, cols).with_written_statistics(WrittenStatistics::MeanRstd);
                    if !runs(&device, &desc, choice) {
                        continue;
                    }
                    let problem = desc.problem().unwrap();
                    let plan = plan_forward(&problem, &hardware(&device.client), choice).unwrap();
                    several += usize::from(plan.blueprint.rows_per_unit == rows_per_unit);
                    Case::new(desc, 44).check(&device, choice).unwrap();
                }
            }
        }
        // A CPU has too few units for teams that stage several rows.
        let is_cpu = hardware(&device.client).cpu_cores.is_some();
        let may = device.shares_memory() && !is_cpu;
        assert!(
            several > 0 || !may,
            "{}: one row per unit only",
            device.name
        );
    }
}
