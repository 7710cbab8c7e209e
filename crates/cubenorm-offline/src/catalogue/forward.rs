//! Forward cases: the benchmark's problems, and variants of a kernel that these do not reach.

use cubenorm_core::{
    Activation, CodeFormat, DType, Epsilon, NormDesc, Quantization, ResidualPlace, RotatedPairs,
    Rotation, Rounding, Statistics, TensorDesc, WrittenStatistics,
};

use super::descriptions::{Of, REDUCED, WithStatistics, activations};
use super::{Breadth, Case};

/// The benchmark's problems, which exclude f64.
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
        measured: dtype != DType::F64,
        ..Case::forward(format!("{name} {shape:?}"), desc)
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
    // Short rows, long ones and odd ones. The first case of a feature map has columns.
    let all_strategies = [
        "2048, 4096",
        "32768, 256",
        "64, 65536",
        "1021, 1021",
        "8, 64,",
    ];
    for case in &mut cases {
        if all_strategies.iter().any(|shape| case.name.contains(shape)) {
            case.breadth = Breadth::Strategies;
        }
    }
    cases[0].breadth = Breadth::of_candidates(dtype);
    cases
}

/// Variants of a kernel that no problem of the benchmark reaches.
pub(super) fn variants(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    // Rows along the innermost axis, and perpendicular to it.
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
        let statistics = Statistics::Provided {
            mean: given.clone(),
            variance: given,
        };
        add("provided statistics", plain(statistics));
        add(
            "variance written",
            base.clone()
                .with_written_statistics(WrittenStatistics::MeanVariance),
        );
        add(
            "epsilon outside sqrt",
            base.clone().with_epsilon(Epsilon::AddedToDeviation(1e-9)),
        );
        add("weight offset", base.clone().with_offset(1.0));
        add(
            "rounding before the scale",
            base.clone().with_rounding(Rounding::BeforeScale),
        );
        let residual = base.clone().with_residual(input.clone());
        add("residual", residual.clone());
        add("residual and sum", residual.clone().with_sum());
        if input.dtype.is_half() {
            let stream = TensorDesc::new(input.layout.clone(), DType::F32);
            let output = Some(input.clone());
            let mixed = NormDesc {
                input: stream,
                output,
                ..residual.clone()
            };
            add("f32 residual and sum", mixed.with_sum());
        }
        for (name, place) in [
            ("gate in front", ResidualPlace::InputGate),
            ("gate behind", ResidualPlace::OutputGate),
        ] {
            let gated = residual.clone().with_residual_place(place);
            add(name, gated.with_activation(Activation::Silu));
        }
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
        layout("unaligned rows", of.strided(&flat, &[1025, 1])),
        layout("transposed", of.strided(&flat, &[1, 512])),
        layout("every other element", of.strided(&flat, &[1536, 2])),
        layout("one row, repeated", of.strided(&flat, &[0, 1])),
        Case::forward(
            "feature maps, channels-last",
            NormDesc {
                input: of.strided(&[8, 64, 32, 32], &[65536, 1, 2048, 64]),
                ..of.instance_norm(&[8, 64, 32, 32])
            },
        ),
        Case::forward(
            "groups, channels-last",
            of.group_norm_channels_last([8, 320, 64, 64])
                .with_written_statistics(WrittenStatistics::MeanRstd),
        ),
        // A prime number of channels per group: a few vectors never hold whole groups.
        Case::forward(
            "groups of 37 channels, channels-last",
            of.group_norm_channels_last([2, 1184, 16, 16]),
        ),
        // More elements than 32 bits can address.
        Case::forward("wide addresses", of.layer_norm(&[1 << 20, 1 << 13])),
    ]);
    cases.extend(activated(dtype));
    cases
}

/// Every activation.
pub(super) fn activated(dtype: DType) -> Vec<Case> {
    let base = Of(dtype).layer_norm(&[512, 768]);
    let case = |activation| {
        let desc = base.clone().with_activation(activation);
        Case::forward(format!("{activation}"), desc)
    };
    activations().into_iter().map(case).collect()
}

/// Norms of the heads of query and key, some with a rotation.
pub(super) fn heads(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let norm = |heads: usize, dim: Option<usize>, pairs| {
        let rotation = dim.map(|dim| Rotation {
            table: TensorDesc::contiguous([1, 16, 1, 2 * dim], dtype.accumulation()),
            pairs,
        });
        of.rms_norm(&[2, 16, heads, 128]).with_rotation(rotation)
    };
    let pair = |dim, pairs| [norm(32, dim, pairs), norm(8, dim, pairs)];
    let (split, interleaved) = (RotatedPairs::HalfSplit, RotatedPairs::Interleaved);
    vec![
        Case::pair("query and key", pair(None, split)),
        Case::pair("query and key, rotated", pair(Some(128), split)),
        Case::pair("query and key, interleaved", pair(Some(64), interleaved)),
        Case::forward("heads, rotated in part", norm(8, Some(96), split)),
    ]
}

/// Codes of each format, with a residual, and with a given scale.
pub(super) fn quantized(dtype: DType) -> Vec<Case> {
    let base = Of(dtype).rms_norm(&[512, 768]);
    let residual = base.input.clone();
    let codes = |format| Quantization {
        format,
        scale: None,
    };
    let given = Quantization {
        format: CodeFormat::Int8,
        scale: Some(TensorDesc::contiguous([1, 1], dtype.accumulation())),
    };
    let added = base.clone().with_residual(residual).with_sum();
    let floats = base.clone().with_quantization(codes(CodeFormat::E4M3));
    vec![
        Case::forward(
            "int8 with residual",
            added.with_quantization(codes(CodeFormat::Int8)),
        ),
        Case::forward("e4m3", floats),
        Case::forward("int8, given scale", base.with_quantization(given)),
    ]
}

/// Mixed dtypes, a sum rounded to the input's dtype, and rows that are strided in memory.
pub(super) fn mixed(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let base = of.layer_norm(&[512, 768]);
    let residual = base.input.clone();
    let wide = TensorDesc::contiguous([768], dtype.accumulation());
    let given = Statistics::Provided {
        mean: wide.clone(),
        variance: wide.clone(),
    };
    let columns = NormDesc::new(of.tensor(&[16, 64, 1024]), [1], Statistics::MeanVariance);
    let anywhere = of.strided(&[512, 768], &[769, 1]);
    vec![
        Case::forward(
            "unaligned scale and output",
            base.clone()
                .with_scale(anywhere.clone())
                .with_output(anywhere),
        ),
        Case::forward(
            "wide parameters",
            base.clone()
                .with_scale(wide.clone())
                .with_bias(wide.clone()),
        ),
        Case::forward(
            "wide provided statistics",
            base.clone().with_statistics(given),
        ),
        Case::forward("residual and sum", base.with_residual(residual).with_sum())
            .with(Breadth::Strategies),
        Case::forward("columns", columns).with(Breadth::Strategies),
    ]
}
