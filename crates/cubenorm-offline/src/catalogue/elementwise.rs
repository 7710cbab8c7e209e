//! Elementwise cases.

use cubenorm_core::{DType, Epsilon, LerpDesc, TensorDesc};

use super::descriptions::Of;
use super::{Breadth, Case, Work};

/// One case of each kind.
pub(super) fn lerps(dtype: DType) -> Vec<Case> {
    let of = Of(dtype);
    let channels = of.tensor(&[64]);
    let wide = TensorDesc::contiguous([64], dtype.accumulation());
    let descs = [
        ("copy", LerpDesc::copy(wide.clone(), channels.clone())),
        (
            "running average",
            LerpDesc {
                previous: Some(channels.clone()),
                momentum: 0.9,
                ..LerpDesc::copy(wide.clone(), channels.clone())
            },
        ),
        (
            "reciprocal deviation",
            LerpDesc {
                deviation: Some(Epsilon::InsideSqrt(1e-5)),
                ..LerpDesc::copy(channels, wide)
            },
        ),
    ];
    let lerp = |(name, desc): (&str, LerpDesc)| Case {
        name: name.to_owned(),
        work: Work::Lerp(desc),
        breadth: Breadth::Analytic,
        measured: false,
    };
    descs.map(lerp).into()
}
