//! The kernels against the f64 reference, on every runtime of the build.
//!
//! | group | varies | fixed |
//! | --- | --- | --- |
//! | `strategies` | strategy, shapes around its limits | f32, layer norm |
//! | `layouts` | rank, axes, strides, broadcasting | inferred strategy and each that applies |
//! | `dtypes` | dtype of tensors and parameters | a few shapes |
//! | `values` | constant rows, large means, infinity, NaN, limits of f16 | a shape per strategy |
//! | `nontemporal` | outputs larger than a CPU's caches, each dtype and strategy | a few shapes |
//! | `segments` | channels-last groups, partial statistics per channel | a few shapes |
//! | `sums` | provided sums backward, statistics alone forward, each strategy | a few shapes |
//! | `dynamic` | dynamic schedule, each strategy, concurrent threads | a few shapes |
//! | `weight` | offset of the scale, rounding before it, each way to read a scale | a few shapes |
//! | `dynamic_tanh` | layouts, dtypes, shape of alpha | a few shapes |
//! | `quantized` | formats, layouts, dtypes, given and computed scales | a few shapes |
//! | `rotation` | pairs, layouts, dtypes, two tensors in one launch | a few shapes |
//! | `contract` | errors, determinism, compilation | |
//!
//! `property.rs` crosses all of them at random.

mod contract;
mod dtypes;
mod dynamic;
mod dynamic_tanh;
mod layouts;
mod nontemporal;
mod quantized;
mod rotation;
mod segments;
mod strategies;
mod sums;
mod values;
mod weight;

use cubenorm_core::{DType, NormDesc, Statistics, StrategyChoice};
use cubenorm_tests::case::Case;
use cubenorm_tests::choice;
use cubenorm_tests::device::TestDevice;

/// Every choice that can run a description on a device: the inferred one and each strategy.
fn choices(device: &TestDevice, desc: &NormDesc) -> Vec<StrategyChoice> {
    choice::choices(device, |choice| choice::runs(device, desc, choice))
}

/// Statistics to test: all in f32, one in other dtypes, which differ only in loads and stores.
fn kinds(dtype: DType) -> &'static [Statistics] {
    static KINDS: [Statistics; 5] = [
        Statistics::MeanVariance,
        Statistics::MeanSquare,
        Statistics::Mean,
        Statistics::L1Norm,
        Statistics::L2Norm,
    ];
    match dtype {
        DType::F32 => &KINDS,
        _ => &KINDS[..1],
    }
}

/// Checks a case under every choice that can run it.
#[track_caller]
fn check_all(device: &TestDevice, case: &Case) {
    for choice in choices(device, &case.desc) {
        if let Err(error) = case.check(device, choice) {
            panic!("{error}");
        }
    }
}
