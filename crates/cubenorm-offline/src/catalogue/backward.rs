//! Backward cases.

use cubenorm_core::{
    Activation, BackwardDesc, DType, Epsilon, NormDesc, ResidualPlace, Statistics, TensorDesc,
};

use super::descriptions::{Of, REDUCED, WithStatistics, activations};
use super::{Breadth, Case};

/// Backward passes of the benchmark's problems, and of other variants of a kernel.
pub(super) fn gradients(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let named = |name: &str, shape: &[usize], norm: NormDesc| {
        Case::backward(format!("{name} {shape:?}"), BackwardDesc::new(norm))
    };
    let layers = [
        &[2048, 4096][..],
        &[32768, 256],
        &[64, 65536],
        &[1021, 1021],
        // Rows that a cluster of GPU cubes shares.
        &[2048, 65536],
    ];
    let picture = [8, 64, 128, 128];
    let norm = of.group_norm_channels_last([8, 320, 64, 64]);
    let groups = BackwardDesc {
        output_gradient: norm.input.clone(),
        input_gradient: Some(norm.input.clone()),
        ..BackwardDesc::new(norm)
    };
    let mut cases = Vec::new();
    cases.extend(layers.map(|shape| named("layer_norm", shape, of.layer_norm(shape))));
    cases[3].breadth = Breadth::Strategies;
    cases[0].breadth = Breadth::of_candidates(dtype);
    cases.extend([
        named("rms_norm", &[2048, 4096], of.rms_norm(&[2048, 4096])),
        named("batch_norm", &picture, of.batch_norm(&picture)).with(Breadth::Strategies),
        named(
            "frozen batch_norm",
            &picture,
            of.batch_norm_inference(&picture),
        ),
        named("group_norm", &picture, of.group_norm(picture)),
        named("instance_norm", &picture, of.instance_norm(&picture)),
        Case::backward("groups, channels-last", groups),
    ]);
    let flat = of.layer_norm(&[512, 768]);
    let plain = |axis: usize, input: &[usize], statistics| {
        BackwardDesc::new(NormDesc::new(of.tensor(input), [axis], statistics))
    };
    for (name, statistics) in &REDUCED {
        let rows = plain(1, &[512, 768], statistics.clone());
        let columns = plain(1, &[16, 64, 1024], statistics.clone());
        cases.push(Case::backward(format!("{name}, rows"), rows));
        let mut columns = Case::backward(format!("{name}, columns"), columns);
        if *statistics == Statistics::MeanVariance {
            columns.breadth = Breadth::Strategies;
        }
        cases.push(columns);
    }
    let parameters_only = BackwardDesc {
        input_gradient: None,
        ..BackwardDesc::new(flat.clone())
    };
    let input_only = BackwardDesc {
        wants_scale: false,
        wants_bias: false,
        ..BackwardDesc::new(flat.clone())
    };
    let offset = flat.clone().with_offset(1.0);
    let beside = flat.clone().with_epsilon(Epsilon::AddedToDeviation(1e-9));
    let summed = BackwardDesc::new(flat.clone()).with_sum_gradient(of.tensor(&[512, 768]));
    let gated = |place| {
        let norm = flat.clone().with_residual(of.tensor(&[512, 768]));
        let norm = norm.with_residual_place(place);
        BackwardDesc::new(norm.with_activation(Activation::Silu))
    };
    let unsaved = BackwardDesc::new(flat.clone().with_statistics(Statistics::None));
    let batch = BackwardDesc::new(of.batch_norm(&picture));
    let provided = BackwardDesc {
        wants_scale: false,
        wants_bias: false,
        ..batch.with_provided_sums()
    };
    cases.extend([
        Case::backward("parameters only", parameters_only),
        Case::backward("input only", input_only),
        Case::backward("sum gradient", summed.clone()),
        Case::backward("weight offset", BackwardDesc::new(offset)),
        Case::backward("epsilon outside sqrt", BackwardDesc::new(beside)),
        Case::backward("no statistics", unsaved),
        Case::backward("provided sums", provided),
        Case::backward("gated input", gated(ResidualPlace::InputGate)),
        Case::backward("gated output", gated(ResidualPlace::OutputGate)),
    ]);
    if dtype.is_half() {
        let mut mixed = summed;
        mixed.norm.input.dtype = DType::F32;
        mixed = mixed.with_sum_gradient(TensorDesc::contiguous([512, 768], DType::F32));
        cases.push(Case::backward("sum gradient of f32", mixed));
    }
    cases.extend(activations().into_iter().map(|activation| {
        let desc = BackwardDesc::new(flat.clone().with_activation(activation));
        Case::backward(format!("{activation}"), desc)
    }));
    cases
}
