//! Batch invariance: the bits of a row's result do not depend on the rows that are computed with it.

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::{Activation, GateOptions, with_batch_invariant};
use cubenorm_tests::tensors::supports;

use crate::{devices, noise};

/// Numbers of rows, up to the most.
const ROWS: [usize; 12] = [1, 2, 3, 5, 8, 31, 64, 100, 257, 1024, 2049, 4096];

/// A norm of `[rows, d]`.
type Norm = (&'static str, fn(Tensor<2>) -> Tensor<2>);

fn gamma(x: &Tensor<2>) -> Tensor<1> {
    let device = x.device();
    noise([x.dims()[1]], 7, &device).cast(x.dtype())
}

const NORMS: [Norm; 5] = [
    ("layer norm", |x| {
        let gamma = gamma(&x);
        cubenorm::layer_norm(x, gamma.clone(), gamma, 1e-5)
    }),
    ("RMS norm", |x| {
        let gamma = gamma(&x);
        cubenorm::rms_norm(x, gamma, 1e-5)
    }),
    ("sum and RMS norm", |x| {
        let (gamma, residual) = (gamma(&x), x.clone() * 0.5);
        let (y, sum) = cubenorm::add_rms_norm(x, residual, gamma, 1e-5);
        y + sum
    }),
    ("gated norm", |x| {
        let gate = x.clone() * 0.25;
        let options = GateOptions::new().with_activation(Activation::Silu);
        cubenorm::gated_rms_norm(x, gate, None, &options)
    }),
    ("group norm", |x| {
        let [rows, cols] = x.dims();
        let x = x.reshape([rows, 8, cols / 8]);
        cubenorm::group_norm(x, None, None, 4, 1e-5).reshape([rows, cols])
    }),
];

/// The bits of a tensor, row by row.
fn bits(tensor: Tensor<2>) -> Vec<Vec<u8>> {
    let [rows, _] = tensor.dims();
    let data: TensorData = tensor.into_data();
    let bytes = data.as_bytes();
    bytes
        .chunks(bytes.len() / rows)
        .map(<[u8]>::to_vec)
        .collect()
}

fn check(at: &str, norm: fn(Tensor<2>) -> Tensor<2>, x: &Tensor<2>, counts: &[usize]) {
    let [rows, cols] = x.dims();
    let run = |x: Tensor<2>| bits(with_batch_invariant(true, || norm(x)));
    let all = run(x.clone());
    let reversed = run(x.clone().flip([0]));
    assert!(
        all.iter().eq(reversed.iter().rev()),
        "{at}: the order of rows changes results"
    );
    for &count in counts.iter().filter(|count| **count < rows) {
        // The last rows: their position in the call changes too.
        let first = rows - count;
        let some = run(x.clone().slice([first..rows, 0..cols]));
        assert!(
            all[first..] == some,
            "{at}: {count} rows have other results than {rows}"
        );
    }
}

fn dtypes(name: &str, device: &Device) -> Vec<DType> {
    let all = [DType::F32, DType::F16];
    let there = all
        .into_iter()
        .filter(|dtype| supports(name, device, *dtype));
    there.collect()
}

#[test]
fn bits_of_a_row_do_not_depend_on_its_batch() {
    for (name, device) in devices() {
        for dtype in dtypes(name, &device) {
            for cols in [64, 1000, 4096] {
                let x = noise([4096, cols], 1, &device).cast(dtype);
                for (norm_name, norm) in NORMS {
                    check(
                        &format!("{name} {dtype:?} {norm_name} of {cols}"),
                        norm,
                        &x,
                        &ROWS,
                    );
                }
            }
            // Few rows of this length are split, unless all are to have the same bits.
            let x = noise([24, 65_536], 1, &device).cast(dtype);
            check(
                &format!("{name} {dtype:?} long rows"),
                NORMS[1].1,
                &x,
                &[1, 2, 7],
            );
        }
    }
}

#[test]
fn bits_depend_on_the_batch_without_the_setting() {
    // Else the test above would show nothing.
    for (name, device) in devices() {
        let x = noise([24, 65_536], 1, &device);
        let run = |rows: usize| {
            let x = x.clone().slice([24 - rows..24, 0..65_536]);
            bits(with_batch_invariant(false, || NORMS[1].1(x)))
        };
        let all = run(24);
        let differs = |rows: &usize| all[24 - rows..] != run(*rows);
        let differing: Vec<usize> = [1, 2, 7].into_iter().filter(differs).collect();
        println!("{name}: other bits with {differing:?} rows");
        assert!(name != "wgpu" || !differing.is_empty(), "{name}");
    }
}

#[test]
fn samples_of_feature_maps_do_not_depend_on_their_batch() {
    for (name, device) in devices() {
        let x = noise([16, 32, 14, 14], 2, &device);
        // Channels-last in memory.
        let last = x.clone().permute([0, 2, 3, 1]).reshape([16, 196, 32]);
        let last = last.swap_dims(1, 2).reshape([16, 32, 14, 14]);
        for (layout, x) in [("channels first", x), ("channels last", last)] {
            let run = |x: Tensor<4>| {
                let samples = x.dims()[0];
                let y = with_batch_invariant(true, || cubenorm::group_norm(x, None, None, 8, 1e-5));
                bits(y.reshape([samples, 32 * 196]))
            };
            let all = run(x.clone());
            for count in [1, 3, 8] {
                let some = run(x.clone().slice([16 - count..16, 0..32, 0..14, 0..14]));
                assert!(
                    all[16 - count..] == some,
                    "{name} {layout}: {count} samples"
                );
            }
        }
    }
}

#[test]
fn gradients_of_a_row_do_not_depend_on_its_batch() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let run = |x: Tensor<2>| {
            let x = x.require_grad();
            let gamma = gamma(&x).require_grad();
            let y =
                with_batch_invariant(true, || cubenorm::layer_norm(x.clone(), gamma, None, 1e-5));
            let of = (y.clone() * y.tanh()).sum().backward();
            bits(x.grad(&of).expect("it is tracked"))
        };
        for cols in [96, 3000] {
            let x = noise([700, cols], 3, &device);
            let all = run(x.clone());
            for count in [1, 2, 9, 130] {
                let some = run(x.clone().slice([700 - count..700, 0..cols]));
                assert!(all[700 - count..] == some, "{name}: {count} rows of {cols}");
            }
        }
    }
}

#[test]
fn the_tuner_does_not_choose_invariant_plans() {
    let before = cubenorm::tuning();
    for (name, device) in devices() {
        let x = noise([512, 3072], 4, &device);
        let norm =
            |x: Tensor<2>| with_batch_invariant(true, || bits(cubenorm::rms_norm(x, None, 1e-5)));
        let untuned = norm(x.clone());
        cubenorm::set_tuning(cubenorm::Tuning::OnFirstCall);
        let tuned = norm(x);
        cubenorm::set_tuning(before);
        assert!(untuned == tuned, "{name}: the tuner changed results");
    }
}
