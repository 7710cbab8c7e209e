//! Digests of results, for comparison with another process.

use cubenorm_core::{BackwardDesc, DType, NormDesc, Statistics, StrategyChoice, TensorDesc};
use cubenorm_tests::backward::BackwardCase;
use cubenorm_tests::case::Case;
use cubenorm_tests::choice::{choices, gradient_runs, runs};
use cubenorm_tests::device::devices;

/// FNV-1a hash of the bits of all numbers.
fn digest<'a>(parts: impl IntoIterator<Item = &'a Vec<f64>>) -> u64 {
    let bytes = parts
        .into_iter()
        .flatten()
        .flat_map(|number| number.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn norm(shape: [usize; 2], axis: usize, dtype: DType) -> NormDesc {
    let param = TensorDesc::contiguous([shape[1]], dtype);
    NormDesc::new(
        TensorDesc::contiguous(shape, dtype),
        [axis],
        Statistics::MeanVariance,
    )
    .with_scale(param.clone())
    .with_bias(param)
}

#[test]
#[ignore = "prints digests for comparison with another run: cargo xtask gpu-check"]
fn digests_of_every_strategy() {
    // The harness may print the test's name on the first line.
    println!();
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        let print = |what: &str, choice: StrategyChoice, digest: u64| {
            println!("digest {} {what} {choice:?} {digest:016x}", device.name);
        };
        for dtype in device.dtypes() {
            for (shape, axis) in [
                ([512, 768], 1),
                ([7, 12_345], 1),
                ([1, 300_000], 1),
                ([2048, 64], 0),
            ] {
                let desc = norm(shape, axis, dtype);
                let case = Case::new(desc.clone(), 71);
                for choice in choices(&device, |choice| runs(&device, &desc, choice)) {
                    let actual = case.run(&device.client, choice).unwrap();
                    let what = format!("forward {dtype} {shape:?}");
                    print(&what, choice, digest([&actual.output]));
                }
                let case = BackwardCase::of(BackwardDesc::new(desc), 72);
                let runs = |choice| gradient_runs(&device, &case.desc, choice);
                for choice in choices(&device, runs) {
                    let actual = case.run(&device, choice).unwrap();
                    let parts = [&actual.input, &actual.scale, &actual.bias];
                    let what = format!("backward {dtype} {shape:?}");
                    print(&what, choice, digest(parts.into_iter().flatten()));
                }
            }
        }
    }
}
