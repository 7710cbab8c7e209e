//! Normalizations: those that the benchmark measures, and parts of a kernel that none of those has.

use cubenorm_core::{
    Activation, DType, Epsilon, NormDesc, ResidualPlace, Statistics, TensorDesc, WrittenStatistics,
};

use super::descriptions::{Of, REDUCED, activations};
use super::{Breadth, Case};

/// What the benchmark measures.
pub(super) fn measured(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let layers = [
        &[2048, 4096][..],
        &[32768, 256],
        &[64, 65536],
        &[4096, 384],
        &[4096, 768],
        &[8, 56, 56, 96],
        &[4, 16],
        &[1021, 1021],
        &[65536, 1],
        &[1, 1 << 24],
    ];
    let rms = [&[2048, 4096][..], &[512, 8192], &[1, 4096], &[65537, 3]];
    let pictures = [[8, 64, 128, 128], [8, 2048, 7, 7], [16, 3, 223, 223]];
    let groups = [[2, 320, 64, 64], [2, 1280, 16, 16], [1, 32, 4, 4]];
    let named = |name: &str, shape: &[usize], desc: NormDesc| Case {
        measured: true,
        ..Case::forward(format!("{name} {shape:?}"), desc).with(Breadth::Strategies)
    };
    let mut cases = Vec::new();
    cases.extend(layers.map(|shape| named("layer_norm", shape, of.layer_norm(shape))));
    cases.extend(rms.map(|shape| named("rms_norm", shape, of.rms_norm(shape))));
    for shape in pictures {
        let descs = [
            ("instance_norm", of.instance_norm(&shape)),
            ("batch_norm", of.batch_norm_inference(&shape)),
        ];
        cases.extend(descs.map(|(name, desc)| named(name, &shape, desc)));
    }
    cases.extend(groups.map(|shape| named("group_norm", &shape, of.group_norm(shape))));
    for case in cases.iter_mut().take(3) {
        case.breadth = Breadth::Candidates;
    }
    cases
}

/// Parts of a kernel that no problem of the benchmark has.
pub(super) fn variants(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    // Rows along the innermost axis, and across it.
    let flat = [512, 768];
    let deep = [16, 64, 1024];
    let bases = [
        ("rows", of.tensor(&flat), 1, vec![768]),
        ("columns", of.tensor(&deep), 1, vec![64, 1]),
    ];
    let mut cases = Vec::new();
    for (place, input, axis, params) in &bases {
        let params = of.tensor(params);
        let plain = |statistics| NormDesc::new(input.clone(), [*axis], statistics);
        let base = plain(Statistics::MeanVariance)
            .with_scale(params.clone())
            .with_bias(params.clone());
        let mut add = |name: &str, desc: NormDesc| {
            cases.push(Case::forward(format!("{name}, {place}"), desc));
        };
        for (name, statistics) in &REDUCED {
            add(name, plain(statistics.clone()));
            let written =
                plain(statistics.clone()).with_written_statistics(WrittenStatistics::MeanRstd);
            add(&format!("{name}, written"), written);
        }
        add(
            "no statistics",
            plain(Statistics::None).with_scale(params.clone()),
        );
        let given = TensorDesc::contiguous([1], dtype);
        let statistics = Statistics::Given {
            mean: given.clone(),
            variance: given,
        };
        add("given statistics", plain(statistics));
        add(
            "variance written",
            base.clone()
                .with_written_statistics(WrittenStatistics::MeanVariance),
        );
        add(
            "epsilon beside the root",
            base.clone().with_epsilon(Epsilon::AddedToDeviation(1e-9)),
        );
        let residual = base.clone().with_residual(input.clone());
        add("residual", residual.clone());
        add("residual and sum", residual.clone().with_sum());
        add(
            "residual added last",
            residual
                .with_residual_place(ResidualPlace::Output)
                .with_activation(Activation::Relu),
        );
        add(
            "row residual",
            base.clone().with_residual(params.clone()).with_sum(),
        );
        let wide = TensorDesc::contiguous(params.shape(), dtype.accumulation());
        add(
            "wide parameters",
            base.clone().with_scale(wide.clone()).with_bias(wide),
        );
    }
    for case in &mut cases {
        let all_strategies = ["mean and variance, ", "mean square, ", "residual and sum, "];
        if all_strategies
            .iter()
            .any(|name| case.name.starts_with(name))
        {
            case.breadth = Breadth::Strategies;
        }
    }
    let base = of.layer_norm(&flat);
    let layout = |name: &str, input: TensorDesc| {
        let desc = NormDesc {
            input,
            ..base.clone()
        };
        Case::forward(name, desc)
    };
    cases.extend([
        layout("padded rows", of.strided(&flat, &[1024, 1])),
        layout("transposed", of.strided(&flat, &[1, 512])),
        layout("every other element", of.strided(&flat, &[1536, 2])),
        layout("one row, repeated", of.strided(&flat, &[0, 1])),
        Case::forward(
            "pictures, channels last",
            NormDesc {
                input: of.strided(&[8, 64, 32, 32], &[65536, 1, 2048, 64]),
                ..of.instance_norm(&[8, 64, 32, 32])
            },
        ),
        // More elements than 32 bits count.
        Case::forward("wide addresses", of.layer_norm(&[1 << 20, 1 << 13])),
    ]);
    cases.extend(activations().into_iter().map(|activation| {
        let desc = base.clone().with_activation(activation);
        Case::forward(format!("{activation}"), desc)
    }));
    cases
}
