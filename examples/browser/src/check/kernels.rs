//! The kernels by themselves: all statistics under each strategy that the device can run.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{
    Activation, DType, Epsilon, Knobs, NormDesc, Statistics, Strategy, StrategyChoice, TensorDesc,
};
use cubenorm_kernels::{
    BackwardTensors, ForwardTensors, hardware, launch_backward, launch_forward, plan_backward_for,
    plan_for,
};
use cubenorm_reference::{decode, encode};
use wasm_bindgen::prelude::*;

use super::bound::Bounds;
use super::data::Data;
use super::{Report, Title, compare};
use crate::device::Opened;

const STATISTICS: [(&str, Statistics); 5] = [
    ("mean and variance", Statistics::MeanVariance),
    ("mean square", Statistics::MeanSquare),
    ("mean", Statistics::Mean),
    ("L1 norm", Statistics::L1Norm),
    ("L2 norm", Statistics::L2Norm),
];

/// Rows for a strategy, and the axis to reduce: lengths that no vector and no cube divides.
fn shape(strategy: Strategy) -> ([usize; 2], usize) {
    match strategy {
        Strategy::Unit => ([300, 45], 1),
        Strategy::Plane => ([67, 515], 1),
        Strategy::Cube => ([37, 1_001], 1),
        Strategy::Split => ([3, 20_002], 1),
        Strategy::Perpendicular => ([301, 68], 0),
    }
}

fn cases() -> impl Iterator<Item = (Strategy, &'static str, Statistics)> {
    let each = |strategy| STATISTICS.map(|(name, statistics)| (strategy, name, statistics));
    Strategy::ALL.into_iter().flat_map(each)
}

pub(super) fn titles() -> impl Iterator<Item = Title> {
    cases().map(|(strategy, name, _)| Title {
        group: "strategies",
        name: format!("{strategy}: {name}"),
        shape: format!("{:?}", shape(strategy).0),
    })
}

pub(super) async fn run(case: usize, opened: &Opened) -> Result<Report, JsError> {
    let Some((strategy, _, statistics)) = cases().nth(case) else {
        return Err(JsError::new(&format!(
            "there is no case {case} of the kernels"
        )));
    };
    let client = &opened.client;
    let (shape, axis) = shape(strategy);
    let param = |size| {
        let shape = if axis == 1 { [1, size] } else { [size, 1] };
        TensorDesc::contiguous(shape, DType::F32)
    };
    let input = TensorDesc::contiguous(shape, DType::F32);
    let choice = StrategyChoice::Forced(Knobs {
        plane_size: hardware(client).plane_size,
        ..strategy.into()
    });
    // Some strategies have a buffer too many for a bias or a scale under the guaranteed limits.
    let mut refused = None;
    let mut data = None;
    for params in (0..=2).rev() {
        let desc = NormDesc::new(input.clone(), [axis], statistics.clone())
            .with_epsilon(Epsilon::InsideSqrt(1e-5))
            .with_scale((params > 0).then(|| param(shape[axis])))
            .with_bias((params > 1).then(|| param(shape[axis])))
            .with_activation(Activation::Silu);
        let with = Data::new(desc);
        let plans = plan_for(client, &with.desc, choice).map(drop);
        match plans
            .and_then(|()| plan_backward_for(client, &with.backward_desc(), choice).map(drop))
        {
            Ok(()) => {
                data = Some(with);
                break;
            }
            Err(error) => refused = Some(error.to_string()),
        }
    }
    let Some(data) = data else {
        return Ok(Report {
            left_out: refused,
            ..Report::default()
        });
    };
    let backward_desc = data.backward_desc();

    let upload = |values: &[f64]| client.create_from_slice(&encode(DType::F32, values));
    let expected = data.expected();
    let bounds = Bounds::new(&data.desc, &expected);
    let [scale, bias] = [&data.scale, &data.bias].map(|it| it.as_deref().map(upload));
    let tensors = ForwardTensors {
        scale: scale.clone(),
        bias: bias.clone(),
        ..ForwardTensors::new(upload(&data.input))
    };
    let outputs = launch_forward(client, &data.desc, &tensors, choice)?;
    let actual = download(client, outputs.output.handle).await?;
    let forward = compare(&actual, &expected.output, |at| {
        (bounds.output)(expected.output[at])
    })?;

    let (reference, saved) = data.gradients(&expected);
    let tensors = BackwardTensors {
        saved: backward_desc.reads_saved().then(|| upload(&saved)),
        scale,
        bias,
        ..BackwardTensors::new(tensors.input, upload(&data.output_gradient))
    };
    let outputs = launch_backward(client, &backward_desc, &tensors, choice)?;
    let parts = [
        (outputs.input, &reference.input, bounds.input),
        (outputs.scale, &reference.scale, bounds.params),
        (outputs.bias, &reference.bias, bounds.params),
    ];
    let mut backward = None;
    // The gradient of a parameter that is not there is empty.
    for (tensor, expected, bound) in parts.into_iter().filter(|(_, it, _)| !it.is_empty()) {
        let tensor = tensor.ok_or_else(|| JsError::new("a gradient is missing"))?;
        let actual = download(client, tensor.handle).await?;
        let part = compare(&actual, expected, |_| bound)?;
        backward = Some(backward.map_or(part, |whole: super::Agreement| whole.and(part)));
    }
    Ok(Report {
        forward: Some(forward),
        backward,
        left_out: None,
    })
}

async fn download(client: &Client, handle: Handle) -> Result<Vec<f64>, JsError> {
    let mut bytes = client.read_async(vec![handle]).await?;
    let bytes = bytes
        .pop()
        .ok_or_else(|| JsError::new("nothing was read"))?;
    Ok(decode(DType::F32, &bytes))
}
