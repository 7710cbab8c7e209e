//! Plans that once left their buffers or their device, each with the problem that showed it.

use cubenorm_core::{
    BackwardDesc, Buffer, DType, Hardware, Knobs, NormDesc, Plan, Statistics, Strategy,
    StrategyChoice, TensorDesc, plan_forward, schedule_backward,
};

use crate::{simulate, within_limits};

fn mean_variance(shape: impl Into<Vec<usize>>, dtype: DType, axes: &[usize]) -> NormDesc {
    let input = TensorDesc::contiguous(shape, dtype);
    NormDesc::new(input, axes.to_vec(), Statistics::MeanVariance)
}

/// The forward plan, checked whole.
fn checked(norm: &NormDesc, hardware: &Hardware, choice: StrategyChoice) -> Plan {
    let problem = norm.problem().unwrap();
    let plan = plan_forward(&problem, hardware, choice).unwrap();
    within_limits(&plan.footprint(&problem), hardware).unwrap();
    simulate::forward(norm, &problem, &plan).unwrap();
    plan
}

fn check_backward(norm: NormDesc, hardware: &Hardware, choice: StrategyChoice) {
    let desc = BackwardDesc::new(norm);
    let schedule = schedule_backward(&desc, hardware, choice).unwrap();
    within_limits(&schedule.footprint(), hardware).unwrap();
    simulate::backward(&desc, &schedule).unwrap();
}

#[test]
fn split_rows_with_a_tail_fit_their_workspace() {
    let shapes = [
        vec![3, 512, 14, 14],
        vec![1, 4096, 197],
        vec![1, 1600, 13, 13],
        vec![4, 768, 7, 7],
    ];
    for (cores, bits) in [(2, 256), (2, 512), (4, 512), (8, 256), (16, 512)] {
        let cpu = Hardware::cpu(cores, bits);
        for shape in &shapes {
            let norm = mean_variance(shape.clone(), DType::F32, &[1]);
            checked(&norm, &cpu, StrategyChoice::Inferred);
            check_backward(norm, &cpu, StrategyChoice::Inferred);
        }
    }
}

#[test]
fn a_workspace_counts_the_lanes_of_a_tail() {
    let norm = mean_variance([3, 512, 14, 14], DType::F32, &[1]);
    let plan = checked(&norm, &Hardware::cpu(2, 512), StrategyChoice::Inferred);
    assert!(
        plan.blueprint.split() && plan.blueprint.team.has_row_tail(),
        "{plan}"
    );
    let footprint = plan.footprint(&norm.problem().unwrap());
    let touched = footprint[0].elements(Buffer::PartialStatistics);
    // Two numbers for each part of each of 588 rows would be 2,352.
    assert_eq!((touched, plan.workspace), (2688, 2688));
}

#[test]
fn half_gradients_keep_the_units_of_a_device() {
    for columns in [4096, 5120, 8192, 10_240, 12_544, 16_384] {
        for dtype in [DType::F16, DType::BF16] {
            let param = TensorDesc::contiguous([columns], dtype);
            let norm = mean_variance([4096, columns], dtype, &[1])
                .with_scale(param.clone())
                .with_bias(param);
            check_backward(norm, &Hardware::webgpu(), StrategyChoice::Inferred);
        }
    }
}

#[test]
fn columns_merge_within_shared_memory() {
    let device = Hardware {
        max_units_per_cube: 512,
        max_cube_dim: [512, 512, 64],
        ..Hardware::webgpu()
    };
    let norm = mean_variance([32, 1536, 56, 56], DType::F32, &[1])
        .with_scale(TensorDesc::contiguous([1536, 1, 1], DType::F32));
    checked(&norm, &device, StrategyChoice::Inferred);
}

#[test]
fn knobs_of_any_value_do_not_panic() {
    let norm = mean_variance([64, 8192], DType::F32, &[1])
        .with_scale(TensorDesc::contiguous([8192], DType::F32));
    let gpu = Hardware::cuda(132);
    for plane_size in [0, 33, u32::MAX] {
        let no_plane = Knobs {
            plane_size: Some(plane_size),
            ..Strategy::Plane.into()
        };
        checked(&norm, &gpu, no_plane.into());
    }
    let many = Knobs {
        cluster_size: Some(u32::MAX),
        ..Knobs::default()
    };
    check_backward(norm, &gpu, many.into());
}

#[test]
fn a_cpu_refuses_planes() {
    let norm = mean_variance([64, 8192], DType::F32, &[1]);
    let forced = Knobs {
        plane_size: Some(32),
        ..Strategy::Plane.into()
    };
    let plan = plan_forward(
        &norm.problem().unwrap(),
        &Hardware::cpu(2, 512),
        forced.into(),
    );
    assert!(plan.is_err());
}

#[test]
fn the_largest_description_has_a_plan() {
    let norm = mean_variance([1 << 59, 2], DType::F32, &[1]);
    let problem = norm.problem().unwrap();
    for hardware in [
        Hardware::cpu(2, 512),
        Hardware::cuda(132),
        Hardware::webgpu(),
    ] {
        let plan = plan_forward(&problem, &hardware, StrategyChoice::Inferred).unwrap();
        within_limits(&plan.footprint(&problem), &hardware).unwrap();
        assert!(Plan::minimum_bytes(&problem) > 0);
    }
}
