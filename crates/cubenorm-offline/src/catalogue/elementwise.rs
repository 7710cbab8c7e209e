//! Elementwise cases.

use cubenorm_core::{BlendDesc, DType, Epsilon, TensorDesc};

use super::descriptions::Of;
use super::{Breadth, Case, Work};

/// One case of each kind.
pub(super) fn blends(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let channels = of.tensor(&[64]);
    let wide = TensorDesc::contiguous([64], dtype.accumulation());
    let descs = [
        ("copy", BlendDesc::copy(wide.clone(), channels.clone())),
        (
            "running average",
            BlendDesc {
                previous: Some(channels.clone()),
                momentum: 0.9,
                ..BlendDesc::copy(wide.clone(), channels.clone())
            },
        ),
        (
            "reciprocal deviation",
            BlendDesc {
                deviation: Some(Epsilon::InsideSqrt(1e-5)),
                ..BlendDesc::copy(channels, wide)
            },
        ),
    ];
    let blend = |(name, desc): (&str, BlendDesc)| Case {
        name: name.to_owned(),
        work: Work::Blend(desc),
        breadth: Breadth::Analytic,
        measured: false,
    };
    descs.map(blend).into()
}
