//! Plans of problems on described devices, without real ones.

use cubenorm_core::{
    BackwardDesc, BackwardPlan, DType, Grid, Hardware, Knobs, Layout, Level, LoadMode, NormDesc,
    ParamSums, Plan, PlanError, RowBuffering, Staging, StagingPreference, Statistics, Strategy,
    StrategyChoice, TensorDesc, Vectorization, WrittenStatistics, forward_candidates,
    input_problem_on, knobs, plan_backward, plan_forward, problem_on, sums_on,
};
use proptest::prelude::*;

fn layer_norm(rows: usize, cols: usize, dtype: DType) -> NormDesc {
    NormDesc::new(
        TensorDesc::contiguous([rows, cols], dtype),
        [1],
        Statistics::MeanVariance,
    )
    .with_scale(TensorDesc::contiguous([cols], dtype))
    .with_bias(TensorDesc::contiguous([cols], dtype))
}

fn plan(desc: &NormDesc, hardware: &Hardware, choice: impl Into<StrategyChoice>) -> Plan {
    plan_forward(&desc.problem().unwrap(), hardware, choice.into()).unwrap()
}

fn inferred(desc: &NormDesc, hardware: &Hardware) -> Plan {
    plan(desc, hardware, StrategyChoice::Inferred)
}

#[test]
fn cpu_core_gets_block_of_rows() {
    let plan = inferred(&layer_norm(2048, 4096, DType::F32), &Hardware::cpu(2, 512));
    assert_eq!(
        plan.to_string(),
        "unit: 1 cubes of 2x1x1 units, vectors of 16 along the reduced axes, 1024 row groups per \
         team, 4 rows per unit, row reloaded (a plane has one unit on a CPU)"
    );
}

#[test]
fn rows_per_unit_fit_registers() {
    let (wide, narrow) = (32 * 512, 16 * 256);
    let rows_per_unit = |cols, register_bits| {
        let hardware = Hardware {
            register_bits,
            ..Hardware::cpu(2, 512)
        };
        let desc = layer_norm(2048, cols, DType::F32);
        let back = BackwardDesc::new(desc.clone());
        let problem = back.input_problem(back.param_sums()).unwrap();
        let gradient = plan_backward(&problem, &hardware, StrategyChoice::Inferred).unwrap();
        let forward = inferred(&desc, &hardware).blueprint.rows_per_unit;
        (forward, gradient.blueprint.rows_per_unit)
    };
    assert_eq!(rows_per_unit(16384, wide), (4, 4));
    assert_eq!(rows_per_unit(16384, narrow), (4, 2));
    assert_eq!(rows_per_unit(4096, wide), (4, 4));
    // Shorter rows are faster one at a time, because row, result and parameters fit in the
    // first-level cache.
    assert_eq!(rows_per_unit(2048, wide).0, 4);
    assert_eq!(rows_per_unit(2048 - 16, wide), (1, 4));
    // Backward processes one row at a time too, while the column sums stay in that cache.
    assert_eq!(rows_per_unit(1280, wide), (1, 4));
    assert_eq!(rows_per_unit(1024, wide), (1, 1));
    assert_eq!(rows_per_unit(320, wide), (1, 1));
    assert_eq!(rows_per_unit(768, wide), (1, 1));
    assert_eq!(rows_per_unit(768, narrow), (1, 1));
    // The compiler vectorizes a row of odd length, but not several at once.
    assert_eq!(rows_per_unit(1021, wide), (1, 1));
    assert_eq!(rows_per_unit(16387, wide), (4, 1));
    assert_eq!(rows_per_unit(16387, narrow), (2, 1));
}

#[test]
fn core_stages_rows_that_fit_registers() {
    let hardware = Hardware::cpu(2, 512);
    let staged = |cols, dtype| {
        let blueprint = inferred(&layer_norm(2048, cols, dtype), &hardware).blueprint;
        (
            blueprint.staging,
            blueprint.rows_per_unit,
            blueprint.team.vector,
        )
    };
    assert_eq!(staged(96, DType::F32), (Staging::Registers(6), 2, 16));
    assert_eq!(staged(96, DType::F16), (Staging::Registers(6), 4, 16));
    assert_eq!(staged(128, DType::F32), (Staging::Registers(8), 1, 16));
    assert_eq!(staged(256, DType::F32), (Staging::Registers(16), 1, 16));
    assert_eq!(staged(256, DType::BF16), (Staging::Registers(16), 2, 16));
    assert_eq!(staged(272, DType::F32), (Staging::Reload, 1, 16));
    // Rows that need too many narrow vectors use vectors as wide as in memory.
    assert_eq!(staged(384, DType::F16), (Staging::Registers(12), 1, 32));
    assert_eq!(staged(544, DType::F16), (Staging::Reload, 1, 32));
}

#[test]
fn cpu_vulkan_rows_per_unit_stay_cached() {
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    let rows_per_unit = |desc: NormDesc| {
        let plan = inferred(&desc, &cpu_vulkan);
        (plan.blueprint.rows_per_unit, plan.grid.groups_per_team)
    };
    assert_eq!(rows_per_unit(layer_norm(32768, 256, DType::F32)), (4, 4));
    assert_eq!(rows_per_unit(layer_norm(2048, 4096, DType::F32)), (2, 2));
    // These rows leave the caches anyway.
    assert_eq!(rows_per_unit(layer_norm(512, 16384, DType::F32)), (4, 4));
    // Too few rows to leave units idle, or no parameters to share.
    assert_eq!(rows_per_unit(layer_norm(64, 65536, DType::F32)), (1, 1));
    let bare = layer_norm(32768, 256, DType::F32);
    let bare = bare.with_scale(None).with_bias(None);
    assert_eq!(rows_per_unit(bare), (1, 1));
}

#[test]
fn cpu_vulkan_lanes_share_few_rows() {
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    let forward = |rows, cols| {
        let plan = inferred(&layer_norm(rows, cols, DType::F32), &cpu_vulkan);
        (plan.strategy, plan.grid.cube_dim[0], plan.grid.splits)
    };
    // One lane, all lanes of a core, all lanes of both cores.
    assert_eq!(forward(1, 512), (Strategy::Unit, 8, 1));
    assert_eq!(forward(1, 1024), (Strategy::Cube, 8, 1));
    assert_eq!(forward(1, 16384), (Strategy::Split, 8, 16));
    assert_eq!(forward(2, 4096), (Strategy::Unit, 8, 1));

    let backward = |rows, cols| {
        let desc = BackwardDesc::new(layer_norm(rows, cols, DType::F32));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &cpu_vulkan, StrategyChoice::Inferred).unwrap();
        (plan.strategy, plan.grid.splits)
    };
    assert_eq!(backward(1, 1024), (Strategy::Unit, 1));
    assert_eq!(backward(1, 2048), (Strategy::Split, 8));
    assert_eq!(backward(4, 4096), (Strategy::Split, 4));
    assert_eq!(backward(8, 2048), (Strategy::Unit, 1));
}

#[test]
fn no_shared_memory_if_units_cannot_share() {
    let cpu_vulkan = Hardware {
        shares_memory: false,
        ..Hardware::cpu_vulkan(2)
    };
    let shares = |level: Level| matches!(level, Level::Cube | Level::Perpendicular);
    for rows in [1, 3, 64, 5000] {
        for cols in [1, 7, 512, 4096, 16384, 100_000] {
            for axes in [[0], [1]] {
                let input = TensorDesc::contiguous([rows, cols], DType::F16);
                let param = TensorDesc::contiguous(
                    if axes == [0] { [rows, 1] } else { [1, cols] },
                    DType::F16,
                );
                let desc = NormDesc::new(input, axes, Statistics::MeanVariance)
                    .with_scale(param.clone())
                    .with_bias(param);
                let plan = inferred(&desc, &cpu_vulkan);
                assert!(!shares(plan.blueprint.team.level), "{plan}");
                let desc = BackwardDesc::new(desc);
                let problem = desc.input_problem(desc.param_sums()).unwrap();
                let plan = plan_backward(&problem, &cpu_vulkan, StrategyChoice::Inferred).unwrap();
                assert!(!shares(plan.blueprint.team.level), "{plan}");
            }
        }
    }
    let problem = layer_norm(1, 4096, DType::F32).problem().unwrap();
    let forced = plan_forward(&problem, &cpu_vulkan, Knobs::from(Strategy::Cube).into());
    let refused = forced.unwrap_err().to_string();
    assert!(refused.contains("cannot share memory"), "{refused}");
}

#[test]
fn loops_stay_within_lavapipe_iteration_limit() {
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    let check = |grid: &Grid, rows_per_unit: usize| {
        // Reduction steps, prologues of blocks of 64, and the same number of writing steps.
        let unroll = (4 / rows_per_unit).max(1);
        let steps = grid.steps_per_split;
        let row = steps.div_ceil(unroll) + 4 + 3 * steps.div_ceil(64) + steps;
        let iterations = grid.groups_per_team / rows_per_unit * row;
        assert!(
            iterations < 65_535,
            "{rows_per_unit} rows per unit, {grid:?}: {iterations}"
        );
    };
    for rows in [16, 61, 512, 4099, 1 << 20] {
        for cols in [
            1, 255, 4096, 32_764, 65_532, 65_536, 100_004, 131_068, 262_140,
        ] {
            if rows * cols > 1 << 32 {
                continue;
            }
            let desc = layer_norm(rows, cols, DType::F32);
            let back = BackwardDesc::new(desc.clone());
            let back = back.input_problem(back.param_sums()).unwrap();
            for knobs in knobs(&cpu_vulkan) {
                if let Ok(plan) = plan_forward(&desc.problem().unwrap(), &cpu_vulkan, knobs.into())
                {
                    check(&plan.grid, plan.blueprint.rows_per_unit);
                }
                if let Ok(plan) = plan_backward(&back, &cpu_vulkan, knobs.into()) {
                    check(&plan.grid, plan.blueprint.rows_per_unit);
                }
            }
        }
    }
}

#[test]
fn sums_stay_within_accurate_length() {
    let cpu = Hardware::cpu(2, 512);
    for (rows, cols) in [(3, 715_827_883), (1, 1 << 26), (5, (1 << 25) + 1)] {
        let desc = layer_norm(rows, cols, DType::F16);
        let grid = inferred(&desc, &cpu).grid;
        assert!(grid.steps_per_split <= 1 << 18, "{rows} {cols}: {grid:?}");
        let unit = plan_forward(&desc.problem().unwrap(), &cpu, Strategy::Unit.into());
        let refused = unit.unwrap_err().to_string();
        assert!(refused.contains("keeps the digits"), "{refused}");
    }
    for hardware in [cpu, Hardware::cuda(132)] {
        let desc = BackwardDesc::new(layer_norm(1 << 26, 256, DType::F32));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &hardware, StrategyChoice::Inferred).unwrap();
        assert!(plan.grid.groups_per_team <= 1 << 14, "{plan}");
    }
}

#[test]
fn cpu_splits_fewer_rows_than_cores() {
    let plan = inferred(&layer_norm(1, 1 << 20, DType::F32), &Hardware::cpu(4, 256));
    assert_eq!((plan.strategy, plan.grid.splits), (Strategy::Split, 4));
    assert_eq!(plan.workspace, 8);
}

#[test]
fn gpu_uses_plane_for_short_and_cube_for_long_rows() {
    let h200 = Hardware::cuda(132);
    let short = inferred(&layer_norm(4096, 512, DType::F32), &h200);
    assert_eq!(short.strategy, Strategy::Plane);
    assert_eq!(short.blueprint.staging, Staging::Registers(4));
    let long = inferred(&layer_norm(4096, 8192, DType::BF16), &h200);
    assert_eq!(long.strategy, Strategy::Cube);
    assert_eq!(long.blueprint.team.vector, 8);
    assert_eq!(long.grid.cube_dim, [256, 1, 1]);
    assert_eq!(long.blueprint.staging, Staging::Registers(4));
    let few = inferred(&layer_norm(2, 1 << 24, DType::F32), &h200);
    assert_eq!(few.strategy, Strategy::Split);
}

#[test]
fn gpu_splits_few_long_rows() {
    let h200 = Hardware::cuda(132);
    let strategy = |rows, cols, dtype| inferred(&layer_norm(rows, cols, dtype), &h200).strategy;
    for rows in [4, 33, 64, 131] {
        assert_eq!(strategy(rows, 1 << 16, DType::F16), Strategy::Cube);
        assert_eq!(strategy(rows, 1 << 20, DType::F32), Strategy::Split);
    }
    // A fourth of the multiprocessors, a third, half.
    assert_eq!(strategy(33, 1 << 17, DType::F32), Strategy::Split);
    assert_eq!(strategy(44, 1 << 17, DType::F32), Strategy::Cube);
    assert_eq!(strategy(64, 1 << 18, DType::F32), Strategy::Cube);
    let desc = BackwardDesc::new(layer_norm(64, 1 << 16, DType::F16));
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let plan = plan_backward(&problem, &h200, StrategyChoice::Inferred).unwrap();
    assert_eq!(plan.strategy, Strategy::Cube);
}

#[test]
fn channels_last_batch_norm_uses_column_strategy() {
    let desc = NormDesc::new(
        TensorDesc::contiguous([64, 56, 56, 256], DType::F32),
        [0, 1, 2],
        Statistics::MeanVariance,
    );
    let plan = inferred(&desc, &Hardware::cuda(132));
    assert_eq!(plan.strategy, Strategy::Perpendicular);
    assert_eq!(plan.blueprint.team.lanes, Vectorization::Perpendicular);
    assert!(plan.grid.splits > 1);
}

#[test]
fn inapplicable_strategy_fails_with_reason() {
    let desc = layer_norm(8, 64, DType::F32);
    let problem = desc.problem().unwrap();
    let refused = |strategy: Strategy| {
        plan_forward(&problem, &Hardware::webgpu(), strategy.into())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(Strategy::Plane),
        "the plane strategy cannot run this problem: the device reports no plane operations of \
         one size"
    );
    assert_eq!(
        refused(Strategy::Perpendicular),
        "the perpendicular strategy cannot run this problem: the reduced axis is innermost: there is no \
         kept axis to run vectors along"
    );
}

#[test]
fn too_few_bindings_is_an_error() {
    let mut hardware = Hardware::webgpu();
    hardware.max_bindings = 4;
    let desc = layer_norm(8, 64, DType::F32);
    assert_eq!(
        plan_forward(&desc.problem().unwrap(), &hardware, Default::default()),
        Err(PlanError::Bindings {
            needed: 5,
            available: 4
        })
    );
}

#[test]
fn all_buffers_fit_webgpu_bindings() {
    let input = TensorDesc::contiguous([8, 64], DType::F32);
    let desc = layer_norm(8, 64, DType::F32)
        .with_residual(input)
        .with_sum()
        .with_written_statistics(WrittenStatistics::MeanRstd);
    for strategy in [Strategy::Unit, Strategy::Cube, Strategy::Split] {
        let plan = plan(&desc, &Hardware::webgpu(), strategy);
        assert!(plan.blueprint.bindings() <= 8, "{plan}");
    }
}

#[test]
fn odd_row_length_uses_scalar_loads() {
    let plan = inferred(&layer_norm(8, 63, DType::F32), &Hardware::webgpu());
    assert_eq!(plan.blueprint.team.vector, 1);
}

#[test]
fn per_row_parameter_is_broadcast_to_lanes() {
    let desc = layer_norm(8, 64, DType::F32).with_bias(TensorDesc::contiguous([8, 1], DType::F32));
    let plan = inferred(&desc, &Hardware::webgpu());
    assert_eq!(plan.blueprint.bias.unwrap().mode, LoadMode::Broadcast);
    assert_eq!(plan.blueprint.scale.unwrap().mode, LoadMode::Vector);
}

#[test]
fn cpu_vulkan_packs_f16_pairs() {
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    let modes = |desc: &NormDesc, hardware: &Hardware, choice: StrategyChoice| {
        let blueprint = plan(desc, hardware, choice).blueprint;
        let scale = blueprint.scale.unwrap().mode;
        (blueprint.input.mode, scale, blueprint.output.mode)
    };
    let inferred = |desc: &NormDesc| modes(desc, &cpu_vulkan, StrategyChoice::Inferred);
    let (pairs, vectors) = (LoadMode::PackedHalf2, LoadMode::Vector);
    let halves = layer_norm(64, 4096, DType::F16);
    assert_eq!(inferred(&halves), (pairs, pairs, pairs));
    let plan = plan(&halves, &cpu_vulkan, StrategyChoice::Inferred);
    assert_eq!(plan.blueprint.team.vector, 8);
    // Each dtype separately: a kernel has one type for all tensors of a dtype.
    let params = [&halves.scale, &halves.bias].map(|_| TensorDesc::contiguous([4096], DType::F32));
    let [scale, bias] = params;
    let mixed = halves.clone().with_scale(scale).with_bias(bias);
    assert_eq!(inferred(&mixed), (pairs, vectors, pairs));
    let repeated = halves
        .clone()
        .with_bias(TensorDesc::contiguous([64, 1], DType::F16));
    assert_eq!(inferred(&repeated), (pairs, vectors, pairs));
    // Rows that no vector divides, other dtypes, other devices.
    let odd = layer_norm(64, 63, DType::F16);
    assert_eq!(inferred(&odd), (vectors, vectors, vectors));
    for dtype in [DType::BF16, DType::F32] {
        let desc = layer_norm(64, 4096, dtype);
        assert_eq!(inferred(&desc), (vectors, vectors, vectors), "{dtype}");
    }
    for hardware in [
        Hardware::webgpu(),
        Hardware::cuda(132),
        Hardware::cpu(2, 512),
    ] {
        let plain = modes(&halves, &hardware, StrategyChoice::Inferred);
        assert_eq!(plain, (vectors, vectors, vectors));
    }
    // Shared memory has space for unpacked rows only.
    let staged = Knobs {
        row: Some(StagingPreference::Shared),
        ..Strategy::Cube.into()
    };
    let staged = modes(&halves, &cpu_vulkan, staged.into());
    assert_eq!(staged, (vectors, vectors, vectors));
    let gradient = BackwardDesc::new(halves);
    let problem = gradient.input_problem(gradient.param_sums()).unwrap();
    let plan = plan_backward(&problem, &cpu_vulkan, StrategyChoice::Inferred).unwrap();
    assert_eq!(plan.blueprint.input.mode, pairs);
    assert_eq!(plan.blueprint.output_gradient.mode, pairs);
    assert_eq!(plan.blueprint.input_gradient.unwrap().mode, pairs);
    assert_eq!(plan.blueprint.scale.unwrap().mode, pairs);
}

#[test]
fn channel_scale_is_read_once_per_segment() {
    let cpu = Hardware::cpu(2, 512);
    let run = |shape: &[usize], params: &[usize], hardware: &Hardware| {
        let input = TensorDesc::contiguous(shape, DType::F32);
        let desc = NormDesc::new(input, [2, 3], Statistics::MeanVariance)
            .with_scale(TensorDesc::contiguous(params, DType::F32))
            .with_bias(TensorDesc::contiguous(params, DType::F32));
        let plan = inferred(&desc, hardware);
        let runs = plan.blueprint.params_by_run;
        runs.then_some(plan.grid.run)
    };
    // Two samples, 32 groups of 10 channels.
    let groups = [2, 32, 10, 4096];
    let of_channels = [1, 32, 10, 1];
    assert_eq!(run(&groups, &of_channels, &cpu), Some(256));
    assert_eq!(
        run(&groups, &of_channels, &Hardware::cpu_vulkan(2)),
        Some(1024)
    );
    // No vector divides 49 columns, nor 343.
    let seven = |channels: usize| run(&[2, 32, channels, 49], &[1, 32, channels, 1], &cpu);
    assert_eq!(seven(7), Some(49));
    // Vectors cross segments if a row is whole.
    assert_eq!(seven(64), None);
    // One parameter per column, one for all, short segments, or rows shared by units.
    assert_eq!(run(&groups, &[10, 4096], &cpu), None);
    assert_eq!(run(&groups, &[1, 32, 1, 1], &cpu), None);
    assert_eq!(run(&[2, 32, 10, 16], &of_channels, &cpu), None);
    assert_eq!(run(&groups, &of_channels, &Hardware::cuda(132)), None);
}

#[test]
fn equal_parameter_rows_are_decoded_once() {
    let alike = |scale: &[usize], bias: Option<&[usize]>, axes: &[usize]| {
        let param = |shape: &[usize]| TensorDesc::contiguous(shape, DType::F32);
        let desc = NormDesc::new(param(&[8, 32, 7, 7]), axes, Statistics::MeanVariance)
            .with_scale(param(scale))
            .with_bias(bias.map(param));
        let plan = inferred(&desc, &Hardware::cpu(2, 512));
        plan.blueprint.params_alike
    };
    let (of_channels, of_samples) = ([32, 1, 1], [8, 1, 1, 1]);
    assert!(alike(&of_channels, Some(&of_channels), &[2, 3]));
    // A single parameter, different row addressing, or parameters shared by all rows.
    assert!(!alike(&of_channels, None, &[2, 3]));
    assert!(!alike(&of_channels, Some(&of_samples), &[2, 3]));
    assert!(!alike(&[7, 7], Some(&[7, 7]), &[2, 3]));
}

#[test]
fn core_keeps_parameters_of_few_channels() {
    let kept =
        |desc: NormDesc, hardware: &Hardware| inferred(&desc, hardware).blueprint.params_kept;
    let given = |pixels: usize, channels: usize, of_rows: bool| {
        let param = match of_rows {
            true => TensorDesc::contiguous([pixels, 1], DType::F32),
            false => TensorDesc::contiguous([channels], DType::F32),
        };
        let statistics = Statistics::Provided {
            mean: param.clone(),
            variance: param,
        };
        let input = TensorDesc::contiguous([pixels, channels], DType::F32);
        NormDesc::new(input, [1], statistics)
    };
    let (cpu, gpu) = (Hardware::cpu(2, 512), Hardware::cuda(132));
    assert_eq!(kept(given(4096, 64, false), &cpu), Some(4));
    assert_eq!(kept(given(4096, 3, false), &cpu), Some(3));
    // Too many channels, parameters per row, a GPU, or computed statistics.
    assert_eq!(kept(given(4096, 1024, false), &cpu), None);
    assert_eq!(kept(given(4096, 64, true), &cpu), None);
    assert_eq!(kept(given(4096, 64, false), &gpu), None);
    assert_eq!(kept(layer_norm(4096, 64, DType::F32), &cpu), None);
}

#[test]
fn vectors_cross_segments_if_much_wider() {
    let scale = |channels: usize, pixels: usize, dtype: DType, hardware: &Hardware| {
        let input = TensorDesc::contiguous([2, 32, channels, pixels], dtype);
        let param = TensorDesc::contiguous([32, channels, 1], dtype);
        let desc = NormDesc::new(input, [2, 3], Statistics::MeanVariance).with_scale(param);
        let blueprint = inferred(&desc, hardware).blueprint;
        (blueprint.team.vector, blueprint.scale.unwrap().mode)
    };
    let (cpu, gpu) = (Hardware::cpu(2, 512), Hardware::cuda(132));
    assert_eq!(scale(64, 49, DType::F32, &cpu), (16, LoadMode::Segments));
    assert_eq!(scale(64, 49, DType::F32, &gpu), (4, LoadMode::Segments));
    assert_eq!(scale(64, 49, DType::F16, &gpu), (8, LoadMode::Segments));
    // Vectors of half the width end with the segment. Here vectors of a quarter of the width are
    // all that divide the row.
    assert_eq!(scale(64, 196, DType::F16, &gpu), (4, LoadMode::Broadcast));
    assert_eq!(scale(20, 49, DType::F32, &cpu), (1, LoadMode::Broadcast));
    // A vector would be longer than a segment.
    assert_eq!(scale(64, 3, DType::F32, &gpu).0, 1);
}

#[test]
fn reloaded_rows_have_several_loads_in_flight() {
    let loads_in_flight = |desc: &NormDesc, hardware: &Hardware| {
        let input = BackwardDesc::new(desc.clone()).input_problem(ParamSums::Elsewhere);
        let back = plan_backward(&input.unwrap(), hardware, StrategyChoice::Inferred);
        let forward = inferred(desc, hardware).blueprint.loads_in_flight;
        (forward, back.unwrap().blueprint.loads_in_flight)
    };
    let gpu = Hardware::cuda(132);
    assert_eq!(
        loads_in_flight(&layer_norm(512, 1 << 17, DType::F32), &gpu),
        (4, 2)
    );
    assert_eq!(
        loads_in_flight(&layer_norm(512, 1 << 17, DType::BF16), &gpu),
        (4, 4)
    );
    // Staged rows need no loads, a core has a cache, and unreduced rows are read once.
    assert_eq!(
        loads_in_flight(&layer_norm(512, 4096, DType::F32), &gpu).0,
        1
    );
    let cpu = Hardware::cpu(2, 512);
    assert_eq!(
        loads_in_flight(&layer_norm(512, 1 << 17, DType::F32), &cpu),
        (1, 1)
    );
    let channel = TensorDesc::contiguous([1, 64, 1, 1], DType::F32);
    let given = Statistics::Provided {
        mean: channel.clone(),
        variance: channel,
    };
    let input = TensorDesc::contiguous([64, 64, 56, 56], DType::F32);
    let desc = NormDesc::new(input, [0, 2, 3], given);
    assert_eq!(loads_in_flight(&desc, &gpu), (1, 1));
    // A unit of a CPU Vulkan driver loads ahead if several steps have the same parameters.
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    assert_eq!(loads_in_flight(&desc, &cpu_vulkan), (4, 4));
    let layer = layer_norm(512, 1 << 17, DType::F32);
    assert_eq!(loads_in_flight(&layer, &cpu_vulkan), (1, 1));
    let input = TensorDesc::contiguous([16, 32, 10, 4096], DType::F32);
    let channels = TensorDesc::contiguous([32, 10, 1], DType::F32);
    let groups = NormDesc::new(input, [2, 3], Statistics::MeanVariance).with_scale(channels);
    assert_eq!(loads_in_flight(&groups, &cpu_vulkan), (4, 1));
}

#[test]
fn column_cubes_stage_or_shorten_rows() {
    let gpu = Hardware::cuda(132);
    let cube = |channels: usize, dtype: DType| {
        let input = TensorDesc::contiguous([4096, channels, 784], dtype);
        let plan = inferred(&NormDesc::new(input, [1], Statistics::MeanVariance), &gpu);
        let [x, y, _] = plan.grid.cube_dim;
        (x, y, plan.blueprint.team.vector, plan.blueprint.staging)
    };
    assert_eq!(cube(96, DType::F32), (32, 8, 2, Staging::Registers(12)));
    assert_eq!(cube(192, DType::F32), (16, 16, 2, Staging::Registers(12)));
    assert_eq!(cube(384, DType::F32), (8, 32, 2, Staging::Registers(12)));
    // More units stage more.
    assert_eq!(cube(768, DType::F32), (8, 64, 2, Staging::Registers(12)));
    // Too many to stage, or bf16, which does not pay: several steps for each unit.
    assert_eq!(cube(3072, DType::F32), (8, 32, 4, Staging::Reload));
    assert_eq!(cube(192, DType::BF16), (32, 8, 4, Staging::Reload));
    assert_eq!(cube(384, DType::BF16), (16, 16, 4, Staging::Reload));
    assert_eq!(cube(768, DType::BF16), (8, 32, 4, Staging::Reload));
}

#[test]
fn unreduced_rows_are_split_in_one_launch() {
    let cubes = |images: usize, statistics: bool| {
        let input = TensorDesc::contiguous([images, 2048, 7, 7], DType::F32);
        let channel = TensorDesc::contiguous([1, 2048, 1, 1], DType::F32);
        let given = Statistics::Provided {
            mean: channel.clone(),
            variance: channel,
        };
        let desc = match statistics {
            true => NormDesc::new(input, [0, 2, 3], given),
            false => NormDesc::new(input, [1, 2, 3], Statistics::MeanVariance),
        };
        let hardware = Hardware::cuda(132);
        let problem = problem_on(&desc, &hardware, Default::default()).unwrap();
        let plan = plan_forward(&problem, &hardware, StrategyChoice::Inferred).unwrap();
        assert!(!plan.blueprint.split);
        (plan.strategy, plan.grid.cube_count / images as u32)
    };
    assert_eq!(cubes(668, true), (Strategy::Split, 13));
    assert_eq!(cubes(64, true), (Strategy::Split, 25));
    assert_eq!(cubes(1 << 14, true), (Strategy::Cube, 1));
    assert_eq!(cubes(668, false), (Strategy::Cube, 1));
}

#[test]
fn empty_batch_has_problem_but_no_plan() {
    // An empty batch with segments of 7 x 7, and an empty column dimension.
    for (shape, axes) in [(&[0, 64, 7, 7][..], &[0, 2, 3][..]), (&[3, 2, 0], &[0])] {
        let desc = NormDesc::new(
            TensorDesc::contiguous(shape, DType::F32),
            axes,
            Statistics::MeanVariance,
        );
        let back = BackwardDesc::new(desc.clone());
        for hardware in [
            Hardware::cpu(8, 512),
            Hardware::cpu_vulkan(2),
            Hardware::cuda(132),
        ] {
            let problem = problem_on(&desc, &hardware, StrategyChoice::Inferred).unwrap();
            assert!(problem.is_empty());
            let plan = plan_forward(&problem, &hardware, StrategyChoice::Inferred);
            assert_eq!(plan, Err(PlanError::Empty));
            let problem = back.input_problem(sums_on(&back, &hardware)).unwrap();
            let plan = plan_backward(&problem, &hardware, StrategyChoice::Inferred);
            assert_eq!(plan.unwrap_err(), PlanError::Empty);
        }
    }
}

#[test]
fn column_team_sizes_are_powers_of_two() {
    for max_units_per_cube in [192, 256, 288, 320, 384, 1000] {
        let hardware = Hardware {
            max_units_per_cube,
            ..Hardware::webgpu()
        };
        for shape in [[64, 600, 256], [64, 600, 7], [2, 5000, 40]] {
            let desc = NormDesc::new(
                TensorDesc::contiguous(shape, DType::F32),
                [1],
                Statistics::MeanVariance,
            );
            let plan = plan(&desc, &hardware, Strategy::Perpendicular);
            let members = plan.blueprint.team.size;
            assert!(members.is_power_of_two(), "{max_units_per_cube}: {plan}");
        }
    }
}

#[test]
fn adjacent_columns_need_no_lookup() {
    let tile = |stride: usize, lanes: Vectorization| {
        let axis = match lanes {
            Vectorization::Perpendicular => 0,
            Vectorization::Parallel => 1,
        };
        let input = TensorDesc::contiguous([64, 96], DType::F32);
        let layout = match lanes {
            Vectorization::Perpendicular => Layout::strided([64, 1], [stride, 1]),
            Vectorization::Parallel => Layout::strided([96], [stride]),
        };
        let desc = NormDesc::new(input, [axis], Statistics::MeanVariance);
        let desc = desc.with_scale(TensorDesc::new(layout, DType::F32));
        let blueprint = inferred(&desc, &Hardware::cuda(132)).blueprint;
        assert_eq!(blueprint.team.lanes, lanes);
        blueprint.scale.unwrap().unit_stride
    };
    assert!(tile(1, Vectorization::Perpendicular));
    assert!(!tile(2, Vectorization::Perpendicular));
    // Here the columns are within a vector.
    assert!(!tile(1, Vectorization::Parallel));
}

#[test]
fn packed_rows_need_no_lookup() {
    let gpu = Hardware::cuda(132);
    let rows_packed = |desc: &NormDesc, hardware: &Hardware| {
        let blueprint = inferred(desc, hardware).blueprint;
        let places = [
            Some(blueprint.input),
            Some(blueprint.output),
            blueprint.scale,
        ];
        places.map(|access| access.is_some_and(|access| access.rows_packed))
    };
    let dense = layer_norm(64, 4096, DType::F32);
    assert_eq!(rows_packed(&dense, &gpu), [true, true, false]);
    let input = TensorDesc::new(Layout::strided([64, 4096], [8192, 1]), DType::F32);
    let apart = NormDesc {
        input,
        ..dense.clone()
    };
    assert_eq!(rows_packed(&apart, &gpu), [false, true, false]);
    // A vector spans several rows.
    let across = NormDesc::new(dense.input.clone(), [0], Statistics::MeanSquare);
    assert_eq!(rows_packed(&across, &gpu), [false; 3]);
    // The tail vector of a row overlaps the vector before it.
    let has_tail = layer_norm(64, 1021, DType::F32);
    assert_eq!(rows_packed(&has_tail, &Hardware::cpu(2, 512)), [false; 3]);
}

#[test]
fn minimum_bytes_count_each_element_once() {
    let problem = layer_norm(2048, 4096, DType::F16).problem().unwrap();
    let params = 2 * 4096;
    assert_eq!(
        Plan::minimum_bytes(&problem),
        2 * (2 * 2048 * 4096 + params)
    );
    // A parameter per row, or for all rows, counts once.
    let input = TensorDesc::contiguous([8, 64], DType::F32);
    let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
    let desc = desc.with_scale(TensorDesc::contiguous([8, 1], DType::F32));
    let desc = desc.with_bias(TensorDesc::contiguous([1], DType::F32));
    let bytes = Plan::minimum_bytes(&desc.problem().unwrap());
    assert_eq!(bytes, 4 * (2 * 8 * 64 + 8 + 1));
}

fn hardware() -> impl Strategy_<Value = Hardware> {
    prop_oneof![
        (1u32..64, prop_oneof![Just(128), Just(256), Just(512)])
            .prop_map(|(cores, width)| Hardware::cpu(cores, width)),
        Just(Hardware::webgpu()),
        (1u32..200).prop_map(Hardware::cuda),
    ]
}

use proptest::strategy::Strategy as Strategy_;

proptest! {
    /// For every problem and device, a plan covers each step of each row once and exceeds no limit.
    #[test]
    fn plan_covers_problem_within_limits(
        shape in prop::collection::vec(1usize..200, 1..5),
        mask in 0usize..32,
        dtype in prop::sample::select(DType::ALL.to_vec()),
        hardware in hardware(),
        forced in prop::option::of(prop::sample::select(Strategy::ALL.to_vec())),
    ) {
        let axes: Vec<usize> = (0..shape.len()).filter(|axis| mask >> axis & 1 == 1).collect();
        let desc = NormDesc::new(
            TensorDesc::contiguous(shape, dtype),
            axes,
            Statistics::MeanVariance,
        );
        let problem = desc.problem().unwrap();
        let choice = forced.map_or(StrategyChoice::Inferred, StrategyChoice::from);
        let Ok(plan) = plan_forward(&problem, &hardware, choice) else {
            prop_assert!(forced.is_some(), "an inferred plan always applies");
            return Ok(());
        };
        let vector = plan.blueprint.team.vector;
        let Grid { groups, steps, run, overlap, .. } = plan.grid;
        let elements = match plan.blueprint.team.has_row_tail {
            true => (groups * vector - groups / run * overlap) * steps,
            false => groups * (steps * vector - steps / run * overlap),
        };
        prop_assert_eq!(elements, problem.rows * problem.cols);
        prop_assert!(plan.grid.splits * plan.grid.steps_per_split >= plan.grid.steps);
        prop_assert!((plan.grid.splits - 1) * plan.grid.steps_per_split < plan.grid.steps);
        let [x, y, z] = plan.grid.cube_dim;
        let units = x * y * z;
        prop_assert!(units <= hardware.max_units_per_cube, "{plan}");
        prop_assert!(plan.grid.cube_count <= hardware.max_cubes, "{plan}");
        let teams = plan.grid.cube_count as usize * (units / plan.blueprint.team.size) as usize;
        let items = plan.grid.groups * plan.grid.splits;
        let at_first = teams * plan.grid.groups_per_team;
        // With a dynamic schedule, items remain after the first request of every team.
        prop_assert_eq!(at_first < items, plan.blueprint.team.dynamic, "{}", plan);
        prop_assert!(plan.grid.groups_per_team.is_multiple_of(plan.blueprint.rows_per_unit), "{plan}");
        if let Some(vectors) = plan.blueprint.staging.vectors() {
            let members = plan.blueprint.team.size as usize;
            prop_assert!(vectors * members >= plan.grid.steps_per_split, "{plan}");
        }
        let (_, vectors) = plan.blueprint.staging.places();
        if vectors > 0 {
            let staged = match plan.blueprint.stages_input() {
                true => dtype,
                false => dtype.accumulation(),
            };
            let bytes = vectors * units as usize * vector * staged.size();
            prop_assert!(bytes <= hardware.max_shared_memory, "{plan}");
        }
    }
}

#[test]
fn candidates_are_distinct_and_start_analytic() {
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    for hardware in [Hardware::cpu(2, 512), Hardware::cuda(132), cpu_vulkan] {
        let all = knobs(&hardware);
        for (rows, cols) in [(2048, 4096), (1, 1 << 20), (32768, 256), (7, 13)] {
            let desc = layer_norm(rows, cols, DType::F16);
            let problem = desc.problem().unwrap();
            let candidates = forward_candidates(&problem, &hardware).unwrap();
            assert_eq!(candidates[0], 0);
            assert!((1..=10).contains(&candidates.len()), "{candidates:?}");
            let plans: Vec<_> = candidates
                .iter()
                .map(|&place| {
                    let plan = plan(&desc, &hardware, all[place]);
                    (plan.blueprint, plan.grid)
                })
                .collect();
            assert_eq!(all[0].to_string(), "analytic");
            assert_eq!(plans[0].0, inferred(&desc, &hardware).blueprint);
            for (i, plan) in plans.iter().enumerate() {
                assert!(!plans[..i].contains(plan), "{rows}x{cols}: {plan:?} twice");
            }
        }
    }
    let problem = layer_norm(4096, 8192, DType::F32).problem().unwrap();
    let hardware = Hardware::cuda(132);
    assert!(forward_candidates(&problem, &hardware).unwrap().len() > 5);
}

#[test]
fn impossible_knobs_become_nearest_possible() {
    let desc = layer_norm(64, 4096, DType::F32);
    let gpu = Hardware::cuda(132);
    let with = |knobs: Knobs| plan(&desc, &gpu, knobs);
    let narrow = with(Knobs {
        vector: Some(3),
        ..Knobs::default()
    });
    assert_eq!(narrow.blueprint.team.vector, 2);
    let large = with(Knobs {
        units: Some(1 << 20),
        ..Strategy::Cube.into()
    });
    assert_eq!(large.grid.cube_dim, [1024, 1, 1]);
    // 128 vectors per unit of a plane exceed its registers.
    let staged = with(Knobs {
        row: Some(StagingPreference::Registers),
        ..Strategy::Plane.into()
    });
    assert_eq!(staged.blueprint.staging, Staging::Reload);
    let bare = desc.clone().with_scale(None).with_bias(None);
    let rows_per_unit = Knobs {
        rows_per_unit: Some(4),
        ..Knobs::default()
    };
    // Rows without a common parameter share no loads.
    assert_eq!(
        plan(&bare, &Hardware::cpu(2, 512), rows_per_unit)
            .blueprint
            .rows_per_unit,
        1
    );
    assert_eq!(
        plan(&desc, &Hardware::cpu(2, 512), rows_per_unit)
            .blueprint
            .rows_per_unit,
        4
    );
}

#[test]
fn only_unit_teams_sum_columns_of_several_rows() {
    let desc = BackwardDesc::new(layer_norm(528, 520, DType::F32));
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let cpu_vulkan = Hardware::cpu_vulkan(2);
    for hardware in [Hardware::cpu(8, 512), cpu_vulkan, Hardware::cuda(132)] {
        for strategy in [Strategy::Unit, Strategy::Plane, Strategy::Cube] {
            for rows_per_unit in [None, Some(4)] {
                let choice = StrategyChoice::Forced(Knobs {
                    plane_size: Some(8),
                    rows_per_unit,
                    ..strategy.into()
                });
                let Ok(plan) = plan_backward(&problem, &hardware, choice) else {
                    continue;
                };
                let blueprint = plan.blueprint;
                let is_alone = blueprint.team.level == Level::Unit;
                assert!(
                    blueprint.rows_per_unit == 1 || is_alone,
                    "{strategy} {plan}"
                );
            }
        }
    }
}

#[test]
fn gpu_stages_rows_that_fit() {
    let hopper = Hardware {
        max_shared_memory: 227 << 10,
        ..Hardware::cuda(132)
    };
    let plan = |cols: usize, dtype: DType| {
        let rows = (1 << 26) / cols;
        let problem = layer_norm(rows, cols, dtype).problem().unwrap();
        plan_forward(&problem, &hopper, StrategyChoice::Inferred).unwrap()
    };
    let both = |registers, shared| Staging::Mixed { registers, shared };
    for (cols, dtype, staging) in [
        (8192, DType::F32, Staging::Registers(4)),
        (16384, DType::F32, both(8, 8)),
        (32768, DType::F32, Staging::Registers(8)),
        (65536, DType::F32, both(6, 10)),
        (16384, DType::F16, both(4, 12)),
        (32768, DType::F16, Staging::Shared(16)),
        (65536, DType::F16, both(6, 10)),
        (131_072, DType::F32, Staging::Reload),
    ] {
        let plan = plan(cols, dtype);
        assert_eq!(plan.blueprint.staging, staging, "{cols} {dtype}: {plan}");
        assert_eq!(
            plan.blueprint.team.exact_vectors,
            staging.vectors(),
            "{cols} {dtype}"
        );
    }
    // Without a mean and a bias more registers are free.
    let input = TensorDesc::contiguous([1024, 65536], DType::F32);
    let rms_norm = NormDesc::new(input, [1], Statistics::MeanSquare);
    assert_eq!(inferred(&rms_norm, &hopper).blueprint.staging, both(8, 8));
    // A unit processes several short f16/bf16 rows together, in narrow vectors.
    for (cols, dtype, vector, rows_per_unit) in [
        (512, DType::F16, 4, 2),
        (256, DType::BF16, 4, 4),
        (1024, DType::F16, 8, 1),
        (512, DType::F32, 4, 1),
    ] {
        let blueprint = plan(cols, dtype).blueprint;
        let (level, width) = (blueprint.team.level, blueprint.team.vector);
        assert_eq!(
            (level, width, blueprint.rows_per_unit),
            (Level::Plane, vector, rows_per_unit),
            "{cols} {dtype}"
        );
    }
    // Some units have one vector less than others.
    assert_eq!(plan(16380, DType::F32).blueprint.team.exact_vectors, None);
}

#[test]
fn units_divide_rows_evenly() {
    let hopper = Hardware {
        max_shared_memory: 227 << 10,
        ..Hardware::cuda(132)
    };
    let both = |registers, shared| Staging::Mixed { registers, shared };
    // Five, six and seven vectors per unit, instead of half of that in twice the units.
    for (cols, dtype, units, staging) in [
        (1280, DType::BF16, 32, both(4, 1)),
        (5120, DType::BF16, 128, both(4, 1)),
        (12288, DType::BF16, 256, both(4, 2)),
        (14336, DType::BF16, 256, both(4, 3)),
        (5120, DType::F32, 256, Staging::Registers(5)),
        (12288, DType::F32, 512, Staging::Registers(6)),
        (28672, DType::F32, 1024, Staging::Registers(7)),
        // Narrow vectors, with more of them per unit.
        (2025, DType::F32, 128, Staging::Registers(16)),
    ] {
        let plan = inferred(&layer_norm(4096, cols, dtype), &hopper);
        assert_eq!(plan.grid.cube_dim[0], units, "{cols} {dtype}: {plan}");
        assert_eq!(plan.blueprint.staging, staging, "{cols} {dtype}: {plan}");
    }
    for (cols, dtype, units, staging) in [
        (384, DType::BF16, 32, Staging::Registers(3)),
        (768, DType::BF16, 32, Staging::Shared(6)),
        (1280, DType::BF16, 64, Staging::Shared(5)),
        (5120, DType::BF16, 256, Staging::Shared(5)),
        (7168, DType::BF16, 256, Staging::Shared(7)),
        (1280, DType::F32, 64, Staging::Shared(5)),
        (3072, DType::F32, 256, Staging::Registers(3)),
    ] {
        let desc = BackwardDesc::new(layer_norm(1 << 15, cols, dtype));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        assert_eq!(plan.grid.cube_dim[0], units, "{cols} {dtype}: {plan}");
        assert_eq!(
            plan.blueprint.staged_columns, staging,
            "{cols} {dtype}: {plan}"
        );
        assert_eq!(
            plan.blueprint.team.exact_vectors,
            staging.vectors(),
            "{cols} {dtype}"
        );
    }
    // In other rows each unit has all vectors but the last. It skips their bounds checks if there
    // are two sums.
    for (cols, dtype, unguarded_vectors) in [(4000, DType::F32, 1), (4000, DType::BF16, 1)] {
        let desc = BackwardDesc::new(layer_norm(1 << 15, cols, dtype));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        let team = plan.blueprint.team;
        assert_eq!(
            (team.exact_vectors, team.unguarded_vectors),
            (None, unguarded_vectors),
            "{plan}"
        );
    }
    let light = |cols: usize| {
        let desc = BackwardDesc::new(layer_norm(1 << 15, cols, DType::F32).with_bias(None));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        let team = plan.blueprint.team;
        (
            plan.grid.cube_dim[0],
            team.exact_vectors,
            team.unguarded_vectors,
        )
    };
    assert_eq!(light(5120), (512, None, 0));
    assert_eq!(light(14336), (512, Some(7), 0));
}

#[test]
fn long_rows_split_into_balanced_parts() {
    let hopper = Hardware::cuda(132);
    let parts = |channels: usize, pixels: usize| {
        let input = TensorDesc::contiguous([64, channels, pixels], DType::F32);
        let norm = NormDesc::new(input, [0, 2], Statistics::MeanVariance);
        let plan = inferred(&norm, &hopper);
        (plan.strategy, plan.grid.splits)
    };
    assert_eq!(parts(64, 16384), (Strategy::Split, 2));
    assert_eq!(parts(70, 16384), (Strategy::Split, 7));
    assert_eq!(parts(3, 1 << 18), (Strategy::Split, 44));
}

#[test]
fn narrow_column_vectors_allow_staging() {
    let staged = |channels: usize, dtype: DType| {
        let input = TensorDesc::contiguous([64, channels, 3136], dtype);
        let norm = NormDesc::new(input, [1], Statistics::MeanVariance);
        let blueprint = inferred(&norm, &Hardware::cuda(132)).blueprint;
        (blueprint.staging, blueprint.team.vector)
    };
    assert_eq!(staged(64, DType::F32), (Staging::Registers(8), 4));
    assert_eq!(staged(96, DType::F32), (Staging::Registers(12), 2));
    // f16 rows are reloaded. Rows that fit in no width keep their wide vectors.
    assert_eq!(staged(96, DType::F16), (Staging::Reload, 4));
    assert_eq!(staged(3072, DType::F32), (Staging::Reload, 4));
}

#[test]
fn column_teams_fuse_channel_sums_and_read_once() {
    let back = |channels: usize, pixels: usize, dtype: DType, hardware: &Hardware| {
        let input = TensorDesc::contiguous([512, channels, pixels], dtype);
        let param = TensorDesc::contiguous([channels, 1], dtype);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param);
        let back = BackwardDesc::new(desc);
        let problem = back.input_problem(back.param_sums()).unwrap();
        plan_backward(&problem, hardware, StrategyChoice::Inferred).unwrap()
    };
    let gpu = Hardware::cuda(132);
    for (channels, pixels, dtype, vector, cube) in [
        (96, 3136, DType::F32, 4, [32, 8, 1]),
        (96, 3136, DType::BF16, 8, [32, 8, 1]),
        (192, 784, DType::BF16, 8, [16, 16, 1]),
        (384, 196, DType::F32, 4, [8, 32, 1]),
    ] {
        let plan = back(channels, pixels, dtype, &gpu);
        let blueprint = plan.blueprint;
        assert_eq!(blueprint.column_sums.count(), 2, "{plan}");
        assert_eq!(blueprint.staged_columns, Staging::Registers(12), "{plan}");
        assert_eq!(blueprint.row, RowBuffering::Single, "{plan}");
        assert_eq!((blueprint.team.vector, plan.grid.cube_dim), (vector, cube));
        assert_eq!(plan.parts_of_columns(), plan.grid.cube_count as usize);
        assert_eq!(plan.columns_of_part(channels), channels);
    }
    // With any knobs, a unit that has a part of a row stages no sums.
    let input = TensorDesc::contiguous([3, 24, 20], DType::F32);
    let param = TensorDesc::contiguous([24, 1], DType::F32);
    let few = NormDesc::new(input, [1], Statistics::MeanVariance).with_scale(param);
    let few = BackwardDesc::new(few);
    let problem = few.input_problem(few.param_sums()).unwrap();
    let strategies = Strategy::ALL.map(Knobs::from);
    for knobs in strategies.into_iter().chain(knobs(&gpu)) {
        if let Ok(plan) = plan_backward(&problem, &gpu, knobs.into()) {
            let is_staged_row = plan.blueprint.staged_columns != Staging::Reload;
            assert!(!is_staged_row || plan.grid.splits == 1, "{knobs}: {plan}");
        }
    }
    // More channels than the registers hold, and units without neighbours in a cube.
    let many = back(1024, 196, DType::F32, &gpu);
    let alone = back(96, 3136, DType::F32, &Hardware::cpu_vulkan(2));
    for plan in [many, alone] {
        assert!(!plan.blueprint.column_sums.any(), "{plan}");
    }
}

#[test]
fn candidates_include_columns_staged_in_registers() {
    let gpu = Hardware::cuda(132);
    for (channels, dtype, vector) in [
        (192, DType::F16, 2),
        (384, DType::BF16, 4),
        (384, DType::F32, 4),
    ] {
        let input = TensorDesc::contiguous([512, channels, 196], dtype);
        let param = TensorDesc::contiguous([channels, 1], dtype);
        let problem = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param)
            .problem()
            .unwrap();
        let candidates = forward_candidates(&problem, &gpu).unwrap();
        let plans = candidates.into_iter().map(|place| {
            let knobs = knobs(&gpu)[place];
            plan_forward(&problem, &gpu, knobs.into()).unwrap()
        });
        let is_tried = |plan: &Plan| {
            let blueprint = plan.blueprint;
            blueprint.team.level == Level::Perpendicular
                && blueprint.staging == Staging::Registers(12)
                && blueprint.team.vector == vector
        };
        let plans: Vec<_> = plans.collect();
        assert!(plans.iter().any(is_tried), "{channels} {dtype}: {plans:#?}");
    }
}

#[test]
fn plane_sums_each_channel_of_group() {
    let hopper = Hardware::cuda(132);
    let back = |images: usize, channels: usize, pixels: usize, dtype: DType| {
        let input = TensorDesc::contiguous([images, 32, channels, pixels], dtype);
        let param = TensorDesc::contiguous([32, channels, 1], dtype);
        let norm = NormDesc::new(input, [2, 3], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param);
        let desc = BackwardDesc::new(norm);
        assert_eq!(desc.param_sums(), ParamSums::Runs);
        assert_eq!(
            desc.summed_shape(ParamSums::Runs),
            [images, 32, channels, 1]
        );
        let problem = desc.input_problem(ParamSums::Runs).unwrap();
        assert_eq!(problem.summed_run(), Some(pixels));
        let plan = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        let run = plan.blueprint.sums_runs().then_some(plan.grid.run);
        (plan.grid.cube_dim[0], run)
    };
    assert_eq!(back(64, 40, 256, DType::F32), (512, Some(64)));
    // A plane for each channel, and equal units for narrow and wide f16 vectors.
    assert_eq!(back(64, 16, 1024, DType::F32), (512, Some(256)));
    assert_eq!(back(64, 10, 4096, DType::F32), (512, Some(1024)));
    assert_eq!(back(64, 2, 1 << 16, DType::F32), (256, Some(1 << 14)));
    assert_eq!(back(128, 40, 256, DType::F16), (256, Some(64)));
    // No vector divides the feature maps, or planes would have too few steps.
    assert_eq!(back(64, 64, 49, DType::F32).1, None);
    assert_eq!(back(64, 64, 16, DType::F32).1, None);
    // An empty segment has no sum.
    let input = TensorDesc::contiguous([2, 32, 4, 0], DType::F32);
    let param = TensorDesc::contiguous([32, 4, 1], DType::F32);
    let norm = NormDesc::new(input, [2, 3], Statistics::MeanVariance).with_scale(param);
    let empty = BackwardDesc::new(norm).input_problem(ParamSums::Runs);
    assert_eq!(empty.unwrap().summed_run(), None);
    // More sums than one accumulator keeps accurate.
    assert_eq!(back(1, 1 << 13, 256, DType::F32).1, None);
}

#[test]
fn backward_uses_more_units_for_long_rows() {
    let hopper = Hardware {
        max_shared_memory: 227 << 10,
        ..Hardware::cuda(132)
    };
    let input = TensorDesc::contiguous([4096, 16384], DType::F32);
    let norm = NormDesc::new(input, [1], Statistics::MeanVariance);
    assert_eq!(inferred(&norm, &hopper).grid.cube_dim[0], 256);
    let desc = BackwardDesc::new(norm);
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let back = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
    assert_eq!(back.grid.cube_dim[0], 1024, "{back}");
}

#[test]
fn persistent_gpu_teams_stage_column_sums() {
    let gradient = |rows: usize, cols: usize, dtype: DType| {
        let desc = BackwardDesc::new(layer_norm(rows, cols, dtype));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        plan_backward(&problem, &Hardware::cuda(132), StrategyChoice::Inferred).unwrap()
    };
    let plan = gradient(16384, 4096, DType::F32);
    assert_eq!(plan.blueprint.staged_columns, Staging::Registers(2));
    assert_eq!((plan.grid.cube_dim[0], plan.grid.cube_count), (512, 261));
    assert_eq!(plan.blueprint.row, RowBuffering::Single);
    // Short rows: each unit has one f32 vector, whose sums leave registers for the next row, or two
    // f16 vectors, whose sums are in shared memory.
    for (dtype, units, staging) in [
        (DType::F32, 256, Staging::Registers(1)),
        (DType::F16, 128, Staging::Shared(2)),
    ] {
        let short = gradient(16384, 1024, dtype);
        assert_eq!(short.strategy, Strategy::Cube, "{short}");
        assert_eq!(short.blueprint.staged_columns, staging, "{short}");
        assert_eq!(short.grid.cube_dim[0], units, "{short}");
        assert_eq!(short.blueprint.team.exact_vectors, staging.vectors());
        assert_eq!(short.blueprint.row, RowBuffering::Prefetch, "{short}");
        assert!(short.blueprint.row.is_ahead(), "{short}");
    }
    // Many columns per unit leave no registers for converted values.
    let norm = NormDesc {
        statistics: Statistics::MeanSquare,
        ..layer_norm(16384, 8192, DType::F16).with_bias(None)
    };
    let desc = BackwardDesc::new(norm);
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let many = plan_backward(&problem, &Hardware::cuda(132), StrategyChoice::Inferred).unwrap();
    assert_eq!(many.grid.cube_dim[0], 512, "{many}");
    assert_eq!(many.blueprint.row, RowBuffering::Prefetch, "{many}");
    let few = Knobs {
        units: Some(256),
        ..Strategy::Cube.into()
    };
    let wide = plan_backward(&problem, &Hardware::cuda(132), few.into()).unwrap();
    assert_eq!(wide.blueprint.row, RowBuffering::DoubleBuffer, "{wide}");
    assert_eq!(wide.blueprint.team.exact_vectors, Some(8), "{wide}");
    // Half the units, because a vector has twice the columns.
    let halves = gradient(16384, 4096, DType::F16);
    assert_eq!(halves.blueprint.team.vector, 8);
    assert_eq!(halves.blueprint.staged_columns, Staging::Registers(2));
    assert_eq!(halves.blueprint.row, RowBuffering::Prefetch);
    // Sums that exceed the registers are staged in shared memory.
    let hopper = Hardware {
        max_shared_memory: 227 << 10,
        ..Hardware::cuda(132)
    };
    let desc = BackwardDesc::new(layer_norm(4096, 16384, DType::F32));
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let long = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
    assert_eq!(long.blueprint.staged_columns, Staging::Shared(4));
    assert_eq!((long.grid.cube_dim[0], long.grid.cube_count), (1024, 128));
    assert_eq!(long.blueprint.row, RowBuffering::Single);
    // A bf16 row leaves registers for the next row, and for a bf16 scale.
    let halves = layer_norm(4096, 16384, DType::BF16);
    let scaled = |scale: TensorDesc| {
        let norm = halves.clone().with_bias(None).with_scale(scale);
        let desc = BackwardDesc::new(norm);
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap()
    };
    for (scale, staging) in [
        (
            TensorDesc::contiguous([16384], DType::BF16),
            Staging::Registers(8),
        ),
        (
            TensorDesc::contiguous([16384], DType::F32),
            Staging::Shared(8),
        ),
    ] {
        let plan = scaled(scale);
        assert_eq!(plan.grid.cube_dim[0], 512, "{plan}");
        assert_eq!(plan.blueprint.staged_columns, Staging::Shared(8), "{plan}");
        assert_eq!(plan.blueprint.row, RowBuffering::DoubleBuffer, "{plan}");
        assert_eq!(plan.blueprint.staged_scale, staging, "{plan}");
    }
    // Sums that exceed shared memory, without clusters.
    let desc = BackwardDesc::new(layer_norm(4096, 32768, DType::BF16));
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let silent = Hardware {
        inter_cube_atomics: false,
        ..hopper.clone()
    };
    let longest = plan_backward(&problem, &silent, StrategyChoice::Inferred).unwrap();
    assert_eq!(
        longest.blueprint.staged_columns,
        Staging::Mixed {
            registers: 2,
            shared: 6
        }
    );
    assert_eq!(
        (longest.grid.cube_dim[0], longest.grid.cube_count),
        (1024, 128)
    );
    assert_eq!(longest.blueprint.row, RowBuffering::Reload);
    assert_eq!(longest.blueprint.team.vector, 4);
    // With clusters, each cube has few enough columns to buffer the next row, up to the largest
    // cluster.
    for (dtype, cols, cluster_size, units, row) in [
        (DType::F32, 20003, 4, 512, RowBuffering::DoubleBuffer),
        (DType::F32, 32768, 4, 512, RowBuffering::DoubleBuffer),
        (DType::F32, 65536, 8, 256, RowBuffering::DoubleBuffer),
        (DType::F32, 131072, 8, 256, RowBuffering::Single),
        (DType::BF16, 32768, 2, 512, RowBuffering::DoubleBuffer),
        (DType::BF16, 65536, 4, 512, RowBuffering::DoubleBuffer),
    ] {
        let desc = BackwardDesc::new(layer_norm(4096, cols, dtype));
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let shared = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        let team = shared.blueprint.team;
        assert_eq!(
            (team.cluster_size, team.size),
            (cluster_size, units),
            "{shared}"
        );
        let teams = 132 / cluster_size;
        assert_eq!(shared.grid.cube_count, teams * cluster_size, "{shared}");
        assert_eq!(
            shared.grid.teams(&shared.blueprint.team),
            teams as usize,
            "{shared}"
        );
        assert_eq!(shared.parts_of_columns(), teams as usize);
        assert_eq!(shared.blueprint.row, row, "{shared}");
        let takes_turns = row == RowBuffering::DoubleBuffer;
        assert_eq!(shared.blueprint.publishes_ahead(), takes_turns, "{shared}");
        let scale = shared.blueprint.staged_scale;
        let in_registers = shared.blueprint.staged_columns.vectors();
        let in_registers = in_registers.filter(|_| takes_turns);
        assert_eq!(scale.places().0, in_registers.unwrap_or(0), "{shared}");
        assert!(!shared.blueprint.split, "{shared}");
    }
    // f32 rows use vectors of half the width, unless those are too many to stage.
    for (cols, statistics, vector) in [
        (32768, Statistics::MeanVariance, 2),
        (65536, Statistics::MeanSquare, 4),
    ] {
        let norm = NormDesc {
            statistics,
            ..layer_norm(2048, cols, DType::F32).with_bias(None)
        };
        let desc = BackwardDesc::new(norm);
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let plan = plan_backward(&problem, &silent, StrategyChoice::Inferred).unwrap();
        assert_ne!(plan.blueprint.staged_columns, Staging::Reload, "{cols}");
        assert_eq!(plan.blueprint.team.vector, vector, "{cols}");
    }
    // f16 sums are added in accesses without bank conflicts.
    let desc = BackwardDesc::new(layer_norm(8192, 8192, DType::F16));
    let problem = desc.input_problem(desc.param_sums()).unwrap();
    let halves = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
    assert!(matches!(
        halves.blueprint.staged_columns,
        Staging::Shared(_)
    ));
    assert_eq!(halves.blueprint.team.vector, 4);
    // Too many columns for the registers of a cube, or too few rows for persistent teams.
    for (rows, cols) in [(1024, 65536), (256, 4096)] {
        let plan = gradient(rows, cols, DType::F32);
        assert_eq!(
            plan.blueprint.staged_columns,
            Staging::Reload,
            "{rows}x{cols}"
        );
        assert!(!plan.blueprint.column_sums.any(), "{rows}x{cols}");
    }
    // Each of the two launches then uses f16 accesses of the same size.
    let desc = BackwardDesc::new(layer_norm(2048, 65536, DType::F16));
    for problem in [
        desc.input_problem(ParamSums::Elsewhere),
        desc.param_problem(&[1, 65536]),
    ] {
        let plan = plan_backward(&problem.unwrap(), &hopper, StrategyChoice::Inferred).unwrap();
        assert_eq!(plan.blueprint.team.vector, 4);
    }
}

#[test]
fn cpu_rows_end_in_tail_vector() {
    let cpu = Hardware::cpu(2, 512);
    let of = |shape: &[usize], axes: &[usize], dtype| {
        NormDesc::new(
            TensorDesc::contiguous(shape, dtype),
            axes.to_vec(),
            Statistics::MeanVariance,
        )
    };
    let ends = |plan: &Plan| {
        let team = plan.blueprint.team;
        let grid = plan.grid;
        assert_eq!(plan.blueprint.input.has_tail, team.has_tail);
        team.has_tail
            .then_some((team.vector, grid.steps, grid.run, grid.overlap))
    };
    let on_cpu = |desc: &NormDesc| ends(&inferred(desc, &cpu));
    // 64 vectors of 16 exceed a row by three elements. Each sample of a batch ends with its own
    // tail vector.
    let row = of(&[8, 1021], &[1], DType::F32);
    assert_eq!(on_cpu(&row), Some((16, 64, 64, 3)));
    let row_of_halves = of(&[8, 1021], &[1], DType::F16);
    assert_eq!(on_cpu(&row_of_halves), Some((32, 32, 32, 3)));
    let pictures = of(&[8, 64, 7, 7], &[0, 2, 3], DType::F32);
    assert_eq!(on_cpu(&pictures), Some((16, 8 * 4, 4, 15)));
    // Each sample is a block. With many samples, parts of a row are summed separately.
    let many = plan_forward(
        &of(&[40_000, 3, 7, 7], &[0, 2, 3], DType::F32)
            .problem()
            .unwrap(),
        &cpu,
        StrategyChoice::Inferred,
    );
    let many = many.unwrap();
    assert_eq!(many.strategy, Strategy::Split, "{many}");
    assert!(
        many.grid.steps_per_split / many.grid.run <= 1 << 12,
        "{many}"
    );
    // Lengths that a full or half vector divides, short rows, and a scale with other segments.
    for cols in [1024, 1000, 7, 3] {
        assert_eq!(on_cpu(&of(&[8, cols], &[1], DType::F32)), None, "{cols}");
    }
    let scale = TensorDesc::contiguous([3, 7, 1], DType::F32);
    let cut = of(&[8, 3, 7, 49], &[1, 2, 3], DType::F32).with_scale(scale);
    assert_eq!(on_cpu(&cut), None);
    // Neither on a GPU, nor if units share a row.
    assert_eq!(ends(&inferred(&row, &Hardware::webgpu())), None);
    let problem = row.problem().unwrap();
    let cube = plan_forward(&problem, &cpu, Strategy::Cube.into()).unwrap();
    assert_eq!(ends(&cube), None);
    // Backward, column sums have one slot per lane.
    let has_tail = |desc: NormDesc| {
        let gradient = BackwardDesc::new(desc);
        let problem = gradient.input_problem(gradient.param_sums()).unwrap();
        let plan = plan_backward(&problem, &cpu, StrategyChoice::Inferred).unwrap();
        plan.blueprint.team.has_tail
    };
    let param = |shape: &[usize]| TensorDesc::contiguous(shape, DType::F32);
    assert!(has_tail(row.clone().with_scale(param(&[8, 1]))));
    assert!(!has_tail(row.with_scale(param(&[1021]))));
}

#[test]
fn cpu_wakes_cores_by_work() {
    let hardware = Hardware::cpu(4, 512);
    let cores = |rows: usize, cols: usize| {
        let plan = inferred(&layer_norm(rows, cols, DType::F32), &hardware);
        (plan.strategy, plan.grid.cube_dim[0])
    };
    assert_eq!(cores(4, 16), (Strategy::Unit, 1));
    // A row is split into two launches exactly if it occupies two cores.
    assert_eq!(cores(1, 1 << 17), (Strategy::Unit, 1));
    assert_eq!(cores(1, 1 << 18), (Strategy::Split, 2));
    assert_eq!(cores(256, 1 << 10), (Strategy::Unit, 2));
    assert_eq!(cores(2048, 1 << 12), (Strategy::Unit, 4));
    // Each row has a square root, even if it is short.
    assert_eq!(cores(1 << 12, 3), (Strategy::Unit, 1));
    assert_eq!(cores(1 << 14, 3), (Strategy::Unit, 4));
}

#[test]
fn core_sums_short_f16_rows_as_one_block() {
    let one_block = |statistics, cols, dtype| {
        let input = TensorDesc::contiguous([4096, cols], dtype);
        let desc = NormDesc::new(input, [1], statistics);
        let blueprint = inferred(&desc, &Hardware::cpu(2, 512)).blueprint;
        // The shift of a single block is a mean, because no later block corrects a distant first
        // element.
        assert!(!(blueprint.one_block && blueprint.first_is_shift));
        blueprint.one_block
    };
    let [layer, rms] = [Statistics::MeanVariance, Statistics::MeanSquare];
    for dtype in [DType::F16, DType::BF16] {
        assert!(one_block(layer.clone(), 768, dtype));
        assert!(one_block(layer.clone(), 2048, dtype));
        assert!(!one_block(layer.clone(), 2080, dtype));
        // Staged rows, and statistics without a mean.
        assert!(!one_block(layer.clone(), 256, dtype));
        assert!(!one_block(rms.clone(), 768, dtype));
    }
    assert!(!one_block(layer, 768, DType::F32));
    // Rows that are not reduced use one kernel, for any length.
    let one = TensorDesc::contiguous([768], DType::F16);
    let [mean, variance] = [one.clone(), one];
    assert!(!one_block(
        Statistics::Provided { mean, variance },
        768,
        DType::F16
    ));
}

#[test]
fn f16_vectors_leave_registers_for_sums() {
    let vector = |statistics, dtype, register_bits| {
        let hardware = Hardware {
            register_bits,
            ..Hardware::cpu(2, 512)
        };
        let input = TensorDesc::contiguous([2048, 4096], dtype);
        let plan = inferred(&NormDesc::new(input, [1], statistics), &hardware);
        assert_eq!(plan.blueprint.staging, Staging::Reload);
        plan.blueprint.team.vector
    };
    let (wide, narrow) = (32 * 512, 16 * 256);
    assert_eq!(vector(Statistics::MeanVariance, DType::F16, wide), 32);
    assert_eq!(vector(Statistics::MeanVariance, DType::F16, narrow), 16);
    // Half the sums, or elements that are as wide in memory as in registers.
    assert_eq!(vector(Statistics::MeanSquare, DType::F16, narrow), 32);
    assert_eq!(vector(Statistics::MeanVariance, DType::F32, narrow), 16);
}

/// Group norm of 32 groups in square channels-last feature maps.
fn group_norm_channels_last(members: usize, width: usize, dtype: DType) -> NormDesc {
    let channels = 32 * members;
    let shape = [8, 32, members, width, width];
    let row = width * channels;
    let layout = Layout::strided(shape, [width * row, members, 1, row, channels]);
    let param = TensorDesc::contiguous([32, members, 1, 1], dtype);
    let input = TensorDesc::new(layout, dtype);
    NormDesc::new(input, [2, 3, 4], Statistics::MeanVariance)
        .with_scale(param.clone())
        .with_bias(param)
}

#[test]
fn short_channel_runs_become_segments() {
    let (cpu, hopper) = (Hardware::cpu(2, 512), Hardware::cuda(132));
    let segments = |desc: &NormDesc, hardware: &Hardware, choice: StrategyChoice| {
        problem_on(desc, hardware, choice).unwrap().segments
    };
    let inferred = StrategyChoice::Inferred;
    let ten = group_norm_channels_last(10, 64, DType::F16);
    assert_eq!(segments(&ten, &cpu, inferred), 10);
    assert_eq!(segments(&ten, &hopper, inferred), 10);
    // Units of a cube share whole rows.
    assert_eq!(segments(&ten, &hopper, Strategy::Cube.into()), 1);
    assert_eq!(segments(&ten, &hopper, Strategy::Split.into()), 10);
    // Staged rows are read once, if their adjacent channels are worth a load.
    let forty = group_norm_channels_last(40, 16, DType::F16);
    assert_eq!(segments(&forty, &cpu, inferred), 40);
    assert_eq!(segments(&forty, &hopper, inferred), 1);
    let four = group_norm_channels_last(4, 64, DType::F16);
    assert_eq!(segments(&four, &hopper, inferred), 4);
    // Long segments, and adjacent rows that fill no vector.
    let many = group_norm_channels_last(256, 8, DType::F32);
    assert_eq!(segments(&many, &cpu, inferred), 1);
    let batch_norm = |images: usize, channels: usize, pixels: usize| {
        let input = TensorDesc::contiguous([images, channels, pixels], DType::F32);
        NormDesc::new(input, [0, 2], Statistics::MeanVariance)
    };
    assert_eq!(segments(&batch_norm(256, 2048, 49), &cpu, inferred), 49);
    assert_eq!(segments(&batch_norm(256, 2048, 196), &cpu, inferred), 1);
    assert_eq!(segments(&batch_norm(256, 3, 49), &cpu, inferred), 1);
    // Too few elements per segment for a core to pay for per-lane coefficients.
    assert_eq!(segments(&batch_norm(64, 2048, 49), &cpu, inferred), 1);
    assert_eq!(segments(&batch_norm(64, 2048, 49), &hopper, inferred), 49);
    let back = |images: usize| BackwardDesc::new(batch_norm(images, 2048, 49));
    assert_eq!(sums_on(&back(64), &hopper), ParamSums::Segments);
    assert_eq!(sums_on(&back(64), &cpu), back(64).param_sums());
    assert_eq!(sums_on(&back(256), &cpu), ParamSums::Segments);
    // The same elements in a different grouping.
    let problem = problem_on(&ten, &cpu, inferred).unwrap();
    assert_eq!((problem.rows, problem.cols), (8 * 320, 64 * 64));
    // Five vectors of 32 are 16 whole rows, which a core combines itself. One vector is not.
    let plan = plan_forward(&problem, &cpu, inferred).unwrap();
    assert!(plan.blueprint.combines_within(), "{plan}");
    assert_eq!((plan.blueprint.rows_per_unit, plan.workspace), (5, 0));
    assert_eq!(plan.combine, None);
    assert!(
        plan.to_string().contains(", 10 segments combined ("),
        "{plan}"
    );
    let single = Knobs {
        rows_per_unit: Some(1),
        ..Knobs::default()
    };
    let plan = plan_forward(&problem, &cpu, single.into()).unwrap();
    assert!(!plan.blueprint.combines_within(), "{plan}");
    let combine = plan.combine.unwrap();
    assert_eq!((combine.grid.groups, combine.grid.steps), (8 * 32, 10));
    assert_eq!(plan.workspace, 3 * 8 * 320);
    assert_eq!(combine.workspace, 3 * 8 * 32);
    // Segments of split rows are combined between two launches.
    let plan = plan_forward(&problem, &cpu, Strategy::Split.into()).unwrap();
    assert_eq!(plan.combine.is_some(), plan.grid.splits > 1, "{plan}");
    let problem = problem_on(&ten, &hopper, inferred).unwrap();
    let plan = plan_forward(&problem, &hopper, inferred).unwrap();
    assert_eq!(plan.grid.cube_dim, [32, 4, 1], "{plan}");
    assert!(!plan.blueprint.combines_within(), "{plan}");
}

#[test]
fn core_combines_segments_of_whole_rows() {
    let cpu = Hardware::cpu(2, 512);
    let planned_on = |cpu: &Hardware, members: usize, dtype: DType| {
        let desc = group_norm_channels_last(members, 64, dtype);
        let problem = problem_on(&desc, cpu, StrategyChoice::Inferred).unwrap();
        let plan = plan_forward(&problem, cpu, StrategyChoice::Inferred).unwrap();
        let back = BackwardDesc::new(desc);
        let problem = back.input_problem(ParamSums::Segments).unwrap();
        let gradient = plan_backward(&problem, cpu, StrategyChoice::Inferred).unwrap();
        assert!(gradient.blueprint.combines_within(), "{gradient}");
        // Sums of each segment, for the parameters.
        assert_eq!(gradient.workspace, 2 * problem.rows);
        assert!(plan.blueprint.combines_within(), "{plan}");
        plan.blueprint.rows_per_unit
    };
    let planned = |members: usize, dtype: DType| planned_on(&cpu, members, dtype);
    // Four vectors if these are whole rows.
    assert_eq!([8, 16].map(|members| planned(members, DType::F32)), [4; 2]);
    assert_eq!([8, 16].map(|members| planned(members, DType::F16)), [4; 2]);
    // Otherwise the fewest vectors that are whole rows.
    assert_eq!(
        [10, 20, 40].map(|members| planned(members, DType::F16)),
        [5; 3]
    );
    assert_eq!(planned(30, DType::F32), 15);
    // Whole tiles of 640 and 768 bytes in vectors of 32, if they balance over the cores.
    let [two, three] = [2, 3].map(|cores| Hardware::cpu(cores, 256));
    assert_eq!(planned_on(&two, 10, DType::F16), 10);
    assert_eq!(planned_on(&two, 6, DType::F32), 6);
    assert_eq!(planned_on(&two, 8, DType::F32), 4);
    assert_eq!(planned_on(&three, 10, DType::F16), 5);
    // A core cannot keep the statistics of this many f16 channels.
    let problem = problem_on(
        &group_norm_channels_last(60, 64, DType::F16),
        &cpu,
        StrategyChoice::Inferred,
    )
    .unwrap();
    let plan = plan_forward(&problem, &cpu, StrategyChoice::Inferred).unwrap();
    assert!(!plan.blueprint.combines_within(), "{plan}");
}

#[test]
fn core_takes_whole_tile_or_one_vector() {
    let planned = |maps: usize, channels: usize, dtype: DType, knobs: Knobs| {
        let layout = Layout::strided([maps, channels, 900], [900 * channels, 1, channels]);
        let desc = NormDesc::new(
            TensorDesc::new(layout, dtype),
            [2],
            Statistics::MeanVariance,
        );
        let cpu = Hardware::cpu(2, 512);
        let plan = plan(&desc, &cpu, StrategyChoice::from(knobs));
        let back = BackwardDesc::new(desc);
        let problem = back.input_problem(back.param_sums()).unwrap();
        let gradient = plan_backward(&problem, &cpu, knobs.into()).unwrap();
        assert_eq!(
            gradient.blueprint.rows_per_unit,
            plan.blueprint.rows_per_unit
        );
        assert_eq!(gradient.grid.splits, plan.grid.splits);
        let of_all = plan.blueprint.rows_per_unit > 1;
        assert_eq!(plan.blueprint.team.tile, of_all, "{plan}");
        (plan.blueprint.rows_per_unit, plan.grid.splits)
    };
    let rows_per_unit = |rows_per_unit: usize| Knobs {
        rows_per_unit: Some(rows_per_unit),
        ..Knobs::default()
    };
    let inferred = Knobs::default();
    assert_eq!(planned(8, 320, DType::F32, inferred), (5, 1));
    assert_eq!(planned(8, 320, DType::F16, inferred), (5, 1));
    // Larger tiles exceed the first-level cache.
    assert_eq!(planned(8, 1280, DType::F32, inferred), (20, 1));
    assert_eq!(planned(8, 1280, DType::F16, inferred), (20, 1));
    assert_eq!(planned(8, 1344, DType::F16, inferred), (1, 1));
    // Samples that do not balance over the cores are split into parts.
    assert_eq!(planned(1, 320, DType::F32, inferred), (5, 2));
    assert_eq!(planned(3, 320, DType::F32, inferred), (5, 2));
    assert_eq!(planned(9, 320, DType::F32, inferred), (5, 1));
    // Knobs may choose other tiles, if they are a whole sample's rows or an equal share.
    assert_eq!(planned(8, 320, DType::F32, rows_per_unit(1)), (1, 1));
    assert_eq!(planned(8, 320, DType::F32, rows_per_unit(2)), (1, 1));
    assert_eq!(planned(8, 1280, DType::F16, rows_per_unit(4)), (4, 1));
}

#[test]
fn tiles_fold_constant_parameters() {
    let layout = || Layout::strided([8, 320, 900], [320 * 900, 1, 320]);
    let folded = |param: [usize; 2], hardware: &Hardware| {
        let input = TensorDesc::new(layout(), DType::F32);
        let desc = NormDesc::new(input, [2], Statistics::MeanVariance)
            .with_scale(TensorDesc::contiguous(param, DType::F32));
        let plan = inferred(&desc, hardware);
        (plan.blueprint.team.tile, plan.blueprint.folded)
    };
    let cpu = Hardware::cpu(2, 512);
    assert_eq!(folded([320, 1], &cpu), (true, true));
    assert_eq!(folded([1, 900], &cpu), (true, false));
    assert_eq!(folded([320, 1], &Hardware::cuda(132)), (false, false));
}

#[test]
fn provided_deviations_computed_once_per_channel() {
    let given = |channels: usize, dtype: DType, hardware: &Hardware| {
        let layout = Layout::strided([8, channels, 900], [900 * channels, 1, channels]);
        let channel = TensorDesc::contiguous([channels, 1], DType::F32);
        let [mean, variance] = [channel.clone(), channel];
        let input = TensorDesc::new(layout, dtype);
        let desc = NormDesc::new(input, [0, 2], Statistics::Provided { mean, variance });
        let problem = problem_on(&desc, hardware, StrategyChoice::Inferred).unwrap();
        let plan = plan_forward(&problem, hardware, StrategyChoice::Inferred).unwrap();
        (problem.rows, plan.blueprint.rows_per_unit)
    };
    let cpu = Hardware::cpu(2, 512);
    assert_eq!(given(320, DType::F16, &cpu), (320, 5));
    assert_eq!(given(4096, DType::F16, &cpu), (4096, 64));
    // More rows than a core can keep, f32, or rows that no vector divides: one row per spatial
    // position.
    assert_eq!(given(8192, DType::F16, &cpu).0, 7200);
    assert_eq!(given(320, DType::F32, &cpu).0, 7200);
    assert_eq!(given(3, DType::F16, &cpu).0, 7200);
    assert_eq!(given(320, DType::F16, &Hardware::cuda(132)).0, 7200);
}

#[test]
fn long_or_scalar_columns_get_more_units() {
    let cube = |channels: usize, pixels: usize, dtype: DType| {
        let param = TensorDesc::contiguous([channels, 1], dtype);
        let input = TensorDesc::contiguous([1783, channels, pixels], dtype);
        let norm = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param);
        let hopper = Hardware::cuda(132);
        let plan = plan(&norm, &hopper, StrategyChoice::Inferred);
        let desc = BackwardDesc::new(norm);
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        let back = plan_backward(&problem, &hopper, StrategyChoice::Inferred).unwrap();
        let is_staged_row = plan.blueprint.staging != Staging::Reload;
        let [_, forward, _] = plan.grid.cube_dim;
        let [_, backward, _] = back.grid.cube_dim;
        (
            forward,
            is_staged_row,
            backward,
            back.blueprint.column_sums.any(),
        )
    };
    assert_eq!(cube(192, 49, DType::F32), (16, true, 16, true));
    assert_eq!(cube(192, 49, DType::F16), (8, false, 16, true));
    assert_eq!(cube(384, 49, DType::F16), (32, true, 32, true));
    assert_eq!(cube(768, 49, DType::F32), (64, true, 64, true));
    assert_eq!(cube(768, 49, DType::F16), (32, false, 64, true));
    // Vectors divide 64 positions: twice the units hold the sums of slightly more channels.
    assert_eq!(cube(512, 64, DType::F32), (32, true, 32, true));
    assert_eq!(cube(768, 64, DType::F32), (64, true, 64, true));
    assert_eq!(cube(768, 64, DType::F16), (32, false, 64, true));
    assert_eq!(cube(2048, 64, DType::F32), (64, false, 8, false));
}

#[test]
fn core_sums_columns_per_lane_along_rows() {
    let planned = |shape: [usize; 3], hardware: &Hardware| {
        let param = TensorDesc::contiguous([shape[1], 1], DType::F32);
        let input = TensorDesc::contiguous(shape, DType::F32);
        let norm = NormDesc::new(input, [1], Statistics::MeanVariance)
            .with_scale(param.clone())
            .with_bias(param);
        let desc = BackwardDesc::new(norm);
        let problem = desc.input_problem(desc.param_sums()).unwrap();
        assert_eq!(problem.column_sums.count(), 2);
        plan_backward(&problem, hardware, StrategyChoice::Inferred).unwrap()
    };
    let left = |plan: &BackwardPlan| {
        assert_eq!(
            plan.blueprint.team.lanes,
            Vectorization::Perpendicular,
            "{plan}"
        );
        let parts = plan.parts_of_columns();
        let numbers = plan.columns_of_part(96);
        plan.blueprint
            .column_sums
            .any()
            .then_some((parts, plan.lanes_of_column(), numbers))
    };
    let cpu = Hardware::cpu(2, 512);
    // Feature maps that vectors divide, and others.
    assert_eq!(left(&planned([64, 96, 64], &cpu)), Some((2, 64, 96 * 64)));
    let plan = planned([64, 96, 49], &cpu);
    assert!(plan.blueprint.team.has_row_tail, "{plan}");
    assert_eq!(left(&plan), Some((2, 32, 96 * 32)));
    // With parts of all rows, each column belongs to one core.
    let plan = planned([1, 4096, 197], &cpu);
    assert_eq!(plan.grid.splits, 2, "{plan}");
    assert_eq!(left(&plan), Some((1, 32, 96 * 32)));
    // With few rows, the partial sums per lane are as large as the input.
    assert_eq!(left(&planned([2, 8192, 16], &cpu)), None);
    // A CPU Vulkan driver has too many units for a workspace each.
    assert_eq!(left(&planned([64, 96, 64], &Hardware::cpu_vulkan(4))), None);
}

#[test]
fn tile_vectors_span_several_registers() {
    let lanes = |channels: usize, dtype: DType, register_bits: u32| {
        let hardware = Hardware {
            register_bits,
            ..Hardware::cpu(2, if register_bits > 1 << 12 { 512 } else { 256 })
        };
        let layout = Layout::strided([8, channels, 900], [900 * channels, 1, channels]);
        let input = TensorDesc::new(layout, dtype);
        let desc = NormDesc::new(input, [2], Statistics::MeanVariance);
        let plan = plan_forward(&desc.problem().unwrap(), &hardware, Default::default()).unwrap();
        assert_eq!(plan.blueprint.team.lanes, Vectorization::Perpendicular);
        plan.blueprint.team.vector
    };
    let (avx512, avx2) = (32 * 512, 16 * 256);
    assert_eq!(lanes(320, DType::F32, avx512), 64);
    assert_eq!(lanes(320, DType::F16, avx512), 64);
    assert_eq!(lanes(320, DType::F64, avx512), 32);
    assert_eq!(lanes(96, DType::F32, avx512), 32);
    assert_eq!(lanes(320, DType::F32, avx2), 16);
    assert_eq!(lanes(320, DType::F16, avx2), 16);
}

#[test]
fn cpu_vulkan_row_vectors_fill_its_lanes() {
    let lanes = |channels: usize, dtype: DType, choice: StrategyChoice| {
        let layout = Layout::strided([8, channels, 900], [900 * channels, 1, channels]);
        let desc = NormDesc::new(
            TensorDesc::new(layout, dtype),
            [2],
            Statistics::MeanVariance,
        );
        let cpu_vulkan = Hardware::cpu_vulkan(2);
        let plan = plan_forward(&desc.problem().unwrap(), &cpu_vulkan, choice).unwrap();
        assert_eq!(plan.blueprint.team.lanes, Vectorization::Perpendicular);
        plan.blueprint.team.vector
    };
    let inferred = StrategyChoice::Inferred;
    assert_eq!(lanes(32, DType::F32, inferred), 4);
    assert_eq!(lanes(64, DType::F32, inferred), 8);
    assert_eq!(lanes(320, DType::F32, inferred), 16);
    assert_eq!(lanes(320, DType::F16, inferred), 16);
    assert_eq!(lanes(100, DType::F32, inferred), 4);
    // The merge array of a cube would exceed shared memory.
    let forced = StrategyChoice::Forced(Strategy::Perpendicular.into());
    assert_eq!(lanes(320, DType::F32, forced), 4);
}

#[test]
fn cpu_prefetches_next_row() {
    let of_caches = |nontemporal_threshold| Hardware {
        nontemporal_threshold,
        ..Hardware::cpu(2, 256)
    };
    let hardware = of_caches(Some(32 << 20));
    let inferred = StrategyChoice::Inferred;
    let fetches = |desc: &NormDesc, hardware: &Hardware, choice| {
        let plan = plan(desc, hardware, choice);
        let fetches = plan.blueprint.prefetch_next_row;
        assert_eq!(
            plan.to_string().contains("next row prefetched"),
            fetches,
            "{plan}"
        );
        fetches
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (rows, cols) in [(64, 1024), (4096, 4096), (1021, 1021)] {
            let desc = layer_norm(rows, cols, dtype);
            assert!(fetches(&desc, &hardware, inferred), "{desc:?}");
            // The compiler lacks the operation, or the cache size is unknown.
            assert!(!fetches(&desc, &of_caches(None), inferred), "{desc:?}");
        }
    }
    // A core's second-level cache holds two rows of 128 KiB, but not of 256.
    assert!(fetches(
        &layer_norm(64, 1 << 15, DType::F32),
        &hardware,
        inferred
    ));
    assert!(!fetches(
        &layer_norm(64, 1 << 16, DType::F32),
        &hardware,
        inferred
    ));
    // Rows that are read once keep memory busy.
    let pair = || TensorDesc::contiguous([64, 1], DType::F32);
    let given = Statistics::Provided {
        mean: pair(),
        variance: pair(),
    };
    let input = TensorDesc::contiguous([64, 4096], DType::F32);
    let once = NormDesc::new(input, [1], given);
    assert!(!fetches(&once, &hardware, inferred));
    // Columns with a stride of three are gathered.
    let apart = Layout::strided([64, 1024], [3072, 3]);
    let apart = TensorDesc::new(apart, DType::F32);
    let gathered = NormDesc::new(apart, [1], Statistics::MeanVariance);
    assert_eq!(
        plan(&gathered, &hardware, inferred).blueprint.input.mode,
        LoadMode::Gather
    );
    assert!(!fetches(&gathered, &hardware, inferred));
    let desc = layer_norm(4096, 4096, DType::F32);
    // Staged rows are loaded as a whole, and several rows per unit already overlap their loads. A
    // unit with parts of rows has no next row.
    assert!(!fetches(
        &layer_norm(4096, 64, DType::F32),
        &hardware,
        inferred
    ));
    let rows_per_unit = StrategyChoice::Forced(Knobs {
        rows_per_unit: Some(4),
        ..Knobs::default()
    });
    assert!(!fetches(&desc, &hardware, rows_per_unit));
    let split = StrategyChoice::Forced(Strategy::Split.into());
    assert!(!fetches(&desc, &hardware, split));
    for hardware in [Hardware::webgpu(), Hardware::cpu_vulkan(2)] {
        assert!(!fetches(&desc, &hardware, inferred));
    }
}

#[test]
fn many_cores_use_dynamic_schedule() {
    let dynamic = |desc: &NormDesc, hardware: &Hardware, choice| {
        let plan = plan(desc, hardware, choice);
        let dynamic = plan.blueprint.team.dynamic;
        assert_eq!(plan.to_string().contains("per chunk"), dynamic, "{plan}");
        let (grid, team) = (plan.grid, plan.blueprint.team);
        let items = grid.groups * grid.splits;
        // Each team has work to request, in portions small enough to balance.
        assert!(
            !dynamic
                || (1..=16).contains(&items.div_ceil(grid.groups_per_team * grid.teams(&team))),
            "{plan}"
        );
        dynamic
    };
    let inferred = StrategyChoice::Inferred;
    let forced = |knobs: Knobs| {
        StrategyChoice::Forced(Knobs {
            dynamic: Some(true),
            ..knobs
        })
    };
    let desc = layer_norm(4096, 1024, DType::F32);
    for (cores, expected) in [(1, false), (2, false), (3, false), (4, true), (64, true)] {
        let hardware = Hardware::cpu(cores, 512);
        assert_eq!(dynamic(&desc, &hardware, inferred), expected, "{cores}");
    }
    // Small problems gain nothing, but a knob decides either way.
    let hardware = Hardware::cpu(16, 512);
    let (enough, little) = (2048, 2047);
    assert!(dynamic(
        &layer_norm(enough, 1024, DType::F32),
        &hardware,
        inferred
    ));
    let little = layer_norm(little, 1024, DType::F32);
    assert!(!dynamic(&little, &hardware, inferred));
    assert!(dynamic(&little, &hardware, forced(Knobs::default())));
    let never = StrategyChoice::Forced(Knobs {
        dynamic: Some(false),
        ..Knobs::default()
    });
    assert!(!dynamic(&desc, &hardware, never));
    // Vectors of rows, and several rows per unit, which stay together.
    let columns = NormDesc::new(
        TensorDesc::contiguous([64, 512, 512], DType::F32),
        [1],
        Statistics::MeanVariance,
    );
    assert!(dynamic(&columns, &hardware, inferred));
    let rows_per_unit = forced(Knobs {
        rows_per_unit: Some(4),
        ..Knobs::default()
    });
    assert!(dynamic(&desc, &hardware, rows_per_unit));
    // With one row per core, each core has one. Two launches wait for the last core in between.
    let unit = forced(Strategy::Unit.into());
    assert!(!dynamic(
        &layer_norm(4, 4096, DType::F32),
        &Hardware::cpu(4, 512),
        unit
    ));
    assert!(!dynamic(&desc, &hardware, forced(Strategy::Split.into())));
    for other in [
        Hardware::cuda(132),
        Hardware::webgpu(),
        Hardware::cpu_vulkan(16),
    ] {
        assert!(!dynamic(&desc, &other, forced(Knobs::default())));
    }
}

#[test]
fn large_cpu_outputs_use_nontemporal_stores() {
    let of_caches = |nontemporal_threshold| Hardware {
        nontemporal_threshold,
        ..Hardware::cpu(2, 512)
    };
    let hardware = of_caches(Some(32 << 20));
    let forced = |rows_per_unit| {
        StrategyChoice::Forced(Knobs {
            rows_per_unit: Some(rows_per_unit),
            ..Knobs::default()
        })
    };
    let passes = |rows, cols, hardware: &Hardware, choice| {
        let desc = layer_norm(rows, cols, DType::F32);
        let back = BackwardDesc::new(desc.clone());
        let problem = back.input_problem(back.param_sums()).unwrap();
        let gradient = plan_backward(&problem, hardware, choice).unwrap();
        let forward = plan(&desc, hardware, choice);
        let is_told = |plan: String| plan.contains("non-temporal stores");
        let passes = (
            forward.blueprint.output.nontemporal,
            gradient.blueprint.input_gradient.unwrap().nontemporal,
        );
        let words = (is_told(forward.to_string()), is_told(gradient.to_string()));
        assert_eq!(words, passes, "{forward}; {gradient}");
        passes
    };
    let inferred = StrategyChoice::Inferred;
    // Half of the caches is 16 MiB: for two tensors, and for three.
    assert_eq!(passes(4095, 512, &hardware, inferred), (false, true));
    assert_eq!(passes(4096, 512, &hardware, inferred), (true, true));
    assert_eq!(passes(2730, 512, &hardware, inferred), (false, false));
    assert_eq!(
        passes(4096, 512, &of_caches(None), inferred),
        (false, false)
    );
    // With parameters along the row, vectors are unaligned.
    assert_eq!(passes(4097, 1021, &hardware, inferred), (false, false));
    // Forward has one row per unit, unless forced. Backward has several, to share the column sums.
    assert_eq!(
        plan(&layer_norm(2048, 4096, DType::F32), &hardware, inferred)
            .blueprint
            .rows_per_unit,
        1
    );
    assert_eq!(passes(2048, 4096, &hardware, inferred), (true, false));
    assert_eq!(passes(2048, 4096, &hardware, forced(1)), (true, true));
    assert_eq!(passes(2048, 4096, &hardware, forced(4)), (false, false));
}

/// Group norm of contiguous feature maps.
fn groups(shape: [usize; 4], dtype: DType) -> NormDesc {
    let of_channels = TensorDesc::contiguous([1, shape[1], shape[2], 1], dtype);
    NormDesc::new(
        TensorDesc::contiguous(shape, dtype),
        [2, 3],
        Statistics::MeanVariance,
    )
    .with_scale(of_channels.clone())
    .with_bias(of_channels)
}

#[test]
fn long_tailed_segments_use_nontemporal_stores() {
    let hardware = Hardware {
        nontemporal_threshold: Some(32 << 20),
        ..Hardware::cpu(2, 512)
    };
    let passes = |desc: &NormDesc| {
        let problem = problem_on(desc, &hardware, StrategyChoice::Inferred).unwrap();
        let plan = plan_forward(&problem, &hardware, StrategyChoice::Inferred).unwrap();
        assert!(plan.blueprint.team.has_tail, "{plan}");
        plan.blueprint.output.nontemporal
    };
    // Positive: one channel or two per group, and rows without parameters. Negative: outputs within
    // half of the caches, and segments of 31 vectors.
    assert!(passes(&groups([16, 3, 1, 223 * 223], DType::F32)));
    assert!(passes(&groups([16, 32, 2, 73 * 73], DType::F32)));
    let row = TensorDesc::contiguous([4097, 1021], DType::F32);
    let plain = NormDesc::new(row, [1], Statistics::MeanVariance);
    assert!(passes(&plain));
    assert!(!passes(&groups([8, 3, 1, 223 * 223], DType::F32)));
    assert!(!passes(&groups([9000, 1, 1, 497], DType::F32)));
}

#[test]
fn cpu_splits_groups_at_channels_for_wider_vectors() {
    let cpu = Hardware::cpu(2, 512);
    let runs = |desc: &NormDesc, hardware: &Hardware| {
        let problem = problem_on(desc, hardware, StrategyChoice::Inferred).unwrap();
        problem.input.col.len()
    };
    let odd = groups([16, 32, 2, 73 * 73], DType::F32);
    assert_eq!(runs(&odd, &cpu), 2);
    assert_eq!(runs(&odd, &Hardware::cuda(132)), 1);
    assert_eq!(runs(&groups([16, 32, 2, 72 * 72], DType::F32), &cpu), 1);
    // With eight channels vectors cross segments; in f16 with half the lanes.
    assert_eq!(runs(&groups([8, 32, 8, 25 * 34], DType::F32), &cpu), 1);
    assert_eq!(runs(&groups([8, 32, 8, 25 * 34], DType::F16), &cpu), 2);

    // Backward, the sums of channels are then fused, for any width.
    let back = |desc: NormDesc, hardware: &Hardware| {
        let desc = BackwardDesc::new(desc);
        let problem = input_problem_on(&desc, sums_on(&desc, hardware), hardware).unwrap();
        let plan = plan_backward(&problem, hardware, StrategyChoice::Inferred).unwrap();
        (problem.input.col.len(), plan.blueprint.by_runs)
    };
    assert_eq!(back(odd.clone(), &cpu), (2, true));
    assert_eq!(
        back(groups([8, 32, 8, 25 * 34], DType::F32), &cpu),
        (2, true)
    );
    assert_eq!(
        back(groups([16, 32, 2, 72 * 72], DType::F32), &cpu),
        (1, true)
    );
    assert_eq!(back(odd, &Hardware::cuda(132)), (1, false));
}

#[test]
fn nontemporal_rows_are_processed_singly() {
    let hardware = Hardware {
        nontemporal_threshold: Some(32 << 20),
        ..Hardware::cpu(2, 512)
    };
    let plan = |pixels: usize, channels: usize| {
        let of_channels = || TensorDesc::contiguous([1, channels], DType::F32);
        let given = Statistics::Provided {
            mean: of_channels(),
            variance: of_channels(),
        };
        let input = TensorDesc::contiguous([pixels, channels], DType::F32);
        let desc = NormDesc::new(input, [0], given).with_scale(of_channels());
        let problem = problem_on(&desc, &hardware, StrategyChoice::Inferred).unwrap();
        let blueprint = plan_forward(&problem, &hardware, StrategyChoice::Inferred)
            .unwrap()
            .blueprint;
        (blueprint.rows_per_unit, blueprint.output.nontemporal)
    };
    assert_eq!(plan(32 * 224 * 224, 3), (4, false));
    assert_eq!(plan(8 * 112 * 112, 64), (1, true));
    assert_eq!(plan(8 * 28 * 28, 64), (2, false));
}
