//! What holds for plans, whatever their numbers.

use cubenorm_core::{
    BackwardDesc, CodeFormat, DType, Grid, Hardware, Knobs, Layout, Level, LoadMode, NormDesc,
    Plan, PlanError, Quantization, ResidualPlace, Staging, StagingPreference, Statistics, Strategy,
    StrategyChoice, TensorDesc, WrittenStatistics, forward_candidates, knobs, plan_backward,
    plan_forward, problem_on, sums_on,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as Strategy_;

use crate::descs::layer_norm;

fn plan(desc: &NormDesc, hardware: &Hardware, choice: impl Into<StrategyChoice>) -> Plan {
    plan_forward(&desc.problem().unwrap(), hardware, choice.into()).unwrap()
}

fn inferred(desc: &NormDesc, hardware: &Hardware) -> Plan {
    plan(desc, hardware, StrategyChoice::Inferred)
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
                assert!(!shares(plan.blueprint.team.level()), "{plan}");
                let desc = BackwardDesc::new(desc);
                let problem = desc.input_problem(desc.param_sums()).unwrap();
                let plan = plan_backward(&problem, &cpu_vulkan, StrategyChoice::Inferred).unwrap();
                assert!(!shares(plan.blueprint.team.level()), "{plan}");
            }
        }
    }
    let problem = layer_norm(1, 4096, DType::F32).problem().unwrap();
    let forced = plan_forward(&problem, &cpu_vulkan, Knobs::from(Strategy::Cube).into());
    let refused = forced.unwrap_err().to_string();
    assert!(refused.contains("cannot share memory"), "{refused}");
}

#[test]
fn a_late_gate_leaves_registers_alone() {
    for (cols, units, vectors) in [
        (2048, 64, 4),
        (4096, 64, 8),
        (8192, 128, 8),
        (16_384, 256, 8),
    ] {
        let tensor = TensorDesc::contiguous([8192, cols], DType::BF16);
        let desc = NormDesc::new(tensor.clone(), [1], Statistics::MeanSquare)
            .with_residual(tensor)
            .with_residual_place(ResidualPlace::OutputGate);
        let plan = inferred(&desc, &Hardware::cuda(132));
        assert_eq!(plan.blueprint.staging, Staging::Shared(vectors), "{plan}");
        assert_eq!(plan.blueprint.team.size(), units, "{plan}");
        // A residual that is added first is staged with the row.
        let desc = desc.with_residual_place(ResidualPlace::Input);
        let plan = inferred(&desc, &Hardware::cuda(132));
        assert_ne!(plan.blueprint.staging, Staging::Shared(vectors), "{plan}");
    }
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
    let sum = layer_norm(8, 64, DType::F32)
        .with_residual(input)
        .with_sum();
    let trained = sum
        .clone()
        .with_written_statistics(WrittenStatistics::MeanRstd);
    for strategy in [Strategy::Unit, Strategy::Cube, Strategy::Split] {
        let plan = plan(&trained, &Hardware::webgpu(), strategy);
        assert!(plan.blueprint.bindings() <= 8, "{plan}");
    }
    let quantized = sum.with_quantization(Quantization {
        format: CodeFormat::Int8,
        scale: None,
    });
    for strategy in [Strategy::Unit, Strategy::Cube] {
        let plan = plan(&quantized, &Hardware::webgpu(), strategy);
        assert!(plan.blueprint.bindings() <= 8, "{plan}");
    }
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
            let members = plan.blueprint.team.size();
            assert!(members.is_power_of_two(), "{max_units_per_cube}: {plan}");
        }
    }
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
fn parameters_of_one_dtype_share_load_mode() {
    let of = |scale: (&[usize], DType), bias: (&[usize], DType)| {
        let [scale, bias] =
            [scale, bias].map(|(shape, dtype)| TensorDesc::contiguous(shape, dtype));
        let desc = layer_norm(64, 4096, DType::F16)
            .with_scale(scale)
            .with_bias(bias);
        let blueprint = inferred(&desc, &Hardware::cpu_vulkan(2)).blueprint;
        let bias = blueprint.bias.unwrap().mode;
        (blueprint.input.mode, blueprint.scale.unwrap().mode, bias)
    };
    let (packed, vector) = (LoadMode::PackedHalf2, LoadMode::Vector);
    let (row, half, float) = ([4096], DType::F16, DType::F32);
    assert_eq!(of((&row, half), (&row, half)), (packed, packed, packed));
    assert_eq!(of((&row, float), (&row, float)), (packed, vector, vector));
    // A kernel has one type for both parameters, and one is no vector.
    let of_rows = of((&row, half), (&[64, 1], half));
    assert_eq!(of_rows, (packed, vector, LoadMode::Broadcast));
}

#[test]
fn packed_rows_and_columns_need_no_lookup() {
    let strided = |shape: [usize; 2], strides: [usize; 2]| {
        TensorDesc::new(Layout::strided(shape, strides), DType::F32)
    };
    let accesses = |stride: usize, axis: usize, scale: TensorDesc| {
        let input = strided([64, 4096], [stride, 1]);
        let desc = NormDesc::new(input, [axis], Statistics::MeanVariance).with_scale(scale);
        let blueprint = inferred(&desc, &Hardware::cuda(132)).blueprint;
        let scale = blueprint.scale.unwrap().has_unit_stride();
        (
            blueprint.input.has_packed_rows(),
            blueprint.output.has_packed_rows(),
            scale,
        )
    };
    let of_columns = || strided([1, 4096], [0, 1]);
    assert_eq!(accesses(4096, 1, of_columns()), (true, true, false));
    assert_eq!(accesses(8192, 1, of_columns()), (false, true, false));
    // A vector spans several rows.
    let of_rows = |stride| strided([64, 1], [stride, 1]);
    assert_eq!(accesses(4096, 0, of_rows(1)), (false, false, true));
    assert_eq!(accesses(4096, 0, of_rows(2)), (false, false, false));
}

#[test]
fn impossible_knobs_become_nearest_possible() {
    let desc = layer_norm(64, 4096, DType::F32);
    let with = |knobs: Knobs| plan(&desc, &Hardware::cuda(132), knobs);
    let vector = Some(3);
    let narrow = with(Knobs {
        vector,
        ..Knobs::default()
    });
    assert_eq!(narrow.blueprint.team.vector, 2);
    let units = Some(1 << 20);
    let large = with(Knobs {
        units,
        ..Strategy::Cube.into()
    });
    assert_eq!(large.grid.cube_dim, [1024, 1, 1]);
    // 128 vectors per unit of a plane exceed its registers.
    let row = Some(StagingPreference::Registers);
    let staged = with(Knobs {
        row,
        ..Strategy::Plane.into()
    });
    assert_eq!(staged.blueprint.staging, Staging::Reload);
    // Rows without a common parameter share no loads.
    let bare = desc.with_scale(None).with_bias(None);
    let rows_per_unit = Some(4);
    let knobs = Knobs {
        rows_per_unit,
        ..Knobs::default()
    };
    assert_eq!(
        plan(&bare, &Hardware::cpu(2, 512), knobs)
            .blueprint
            .rows_per_unit,
        1
    );
}

#[test]
fn column_sums_of_several_rows_have_one_unit() {
    let layer = layer_norm(528, 520, DType::F32);
    let param = TensorDesc::contiguous([24, 1], DType::F32);
    let input = TensorDesc::contiguous([3, 24, 20], DType::F32);
    let over_channels = NormDesc::new(input, [1], Statistics::MeanVariance).with_scale(param);
    for hardware in [
        Hardware::cpu(8, 512),
        Hardware::cpu_vulkan(2),
        Hardware::cuda(132),
    ] {
        let forced = Strategy::ALL.map(|strategy| Knobs {
            plane_size: Some(8),
            rows_per_unit: Some(4),
            ..strategy.into()
        });
        for (norm, knobs) in [&layer, &over_channels].into_iter().flat_map(|norm| {
            forced
                .into_iter()
                .chain(knobs(&hardware))
                .map(move |it| (norm, it))
        }) {
            let desc = BackwardDesc::new(norm.clone());
            let problem = desc.input_problem(desc.param_sums()).unwrap();
            let Ok(plan) = plan_backward(&problem, &hardware, knobs.into()) else {
                continue;
            };
            let (it, is_whole) = (&plan.blueprint, plan.grid.splits == 1);
            assert!(
                it.rows_per_unit == 1 || it.team.level() == Level::Unit,
                "{knobs}: {plan}"
            );
            // The cubes of a cluster stage the sums of their parts.
            let may_stage = is_whole || it.team.cluster_size() > 1;
            assert!(
                it.staged_columns == Staging::Reload || may_stage,
                "{knobs}: {plan}"
            );
        }
    }
}

#[test]
fn only_cores_schedule_dynamically() {
    let is_dynamic = |rows: usize, hardware: &Hardware, dynamic: bool, knobs: Knobs| {
        let dynamic = Some(dynamic);
        let plan = plan(
            &layer_norm(rows, 1024, DType::F32),
            hardware,
            Knobs { dynamic, ..knobs },
        );
        assert_eq!(
            plan.to_string().contains("per chunk"),
            plan.blueprint.team.is_dynamic()
        );
        plan.blueprint.team.is_dynamic()
    };
    let (any, cores) = (Knobs::default(), Hardware::cpu(16, 512));
    assert!(is_dynamic(2047, &cores, true, any));
    assert!(!is_dynamic(4096, &cores, false, any));
    // One row per core, and two launches.
    assert!(!is_dynamic(
        4,
        &Hardware::cpu(4, 512),
        true,
        Strategy::Unit.into()
    ));
    assert!(!is_dynamic(4096, &cores, true, Strategy::Split.into()));
    for other in [
        Hardware::cuda(132),
        Hardware::webgpu(),
        Hardware::cpu_vulkan(16),
    ] {
        assert!(!is_dynamic(4096, &other, true, any));
    }
}

fn hardware() -> impl Strategy_<Value = Hardware> {
    prop_oneof![
        (1u32..64, prop_oneof![Just(128), Just(256), Just(512)])
            .prop_map(|(cores, width)| Hardware::cpu(cores, width)),
        Just(Hardware::webgpu()),
        (1u32..200).prop_map(Hardware::cuda),
    ]
}

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
        let Grid { groups, steps, segment_steps, overlap, .. } = plan.grid;
        let elements = match plan.blueprint.team.has_row_tail() {
            true => (groups * vector - groups / segment_steps * overlap) * steps,
            false => groups * (steps * vector - steps / segment_steps * overlap),
        };
        prop_assert_eq!(elements, problem.rows * problem.cols);
        prop_assert!(plan.grid.splits * plan.grid.steps_per_split >= plan.grid.steps);
        prop_assert!((plan.grid.splits - 1) * plan.grid.steps_per_split < plan.grid.steps);
        let [x, y, z] = plan.grid.cube_dim;
        let units = x * y * z;
        prop_assert!(units <= hardware.max_units_per_cube, "{plan}");
        prop_assert!(plan.grid.cube_count <= hardware.max_cubes, "{plan}");
        let teams = plan.grid.cube_count as usize * (units / plan.blueprint.team.size()) as usize;
        let items = plan.grid.groups * plan.grid.splits;
        let at_first = teams * plan.grid.groups_per_team;
        // With a dynamic schedule, items remain after the first request of every team.
        prop_assert_eq!(at_first < items, plan.blueprint.team.is_dynamic(), "{}", plan);
        prop_assert!(plan.grid.groups_per_team.is_multiple_of(plan.blueprint.rows_per_unit), "{plan}");
        if let Some(vectors) = plan.blueprint.staging.vectors() {
            let members = plan.blueprint.team.size() as usize;
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
