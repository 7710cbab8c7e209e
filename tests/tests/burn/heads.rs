//! Norms of query and key, with and without rotary position embedding.

use burn::tensor::{DType, Device, Int, Tensor};
use cubenorm::{HeadNormOptions, NormOptions, Positions, Rope, RotatedPairs};
use cubenorm_tests::tensors::supports;

use crate::{devices, difference, noise, values};

const PAIRS: [RotatedPairs; 2] = [RotatedPairs::HalfSplit, RotatedPairs::Interleaved];

fn rms(x: Tensor<4>, gamma: &Tensor<1>) -> Tensor<4> {
    let mean = x.clone().square().mean_dim(3);
    x / (mean + 1e-5).sqrt() * gamma.clone().reshape([1, 1, 1, -1])
}

/// Rotates `[batch, tokens, heads, d]` by positions of `[batch, tokens]`, written out of the formula.
fn rotate(x: Tensor<4>, positions: &[[usize; 5]; 2], dim: usize, pairs: RotatedPairs) -> Tensor<4> {
    let [batch, tokens, heads, features] = x.dims();
    let device = x.device();
    let partner = |i: usize| match pairs {
        RotatedPairs::HalfSplit => (i + dim / 2) % dim,
        RotatedPairs::Interleaved => i ^ 1,
    };
    let index = |i: usize| match pairs {
        RotatedPairs::HalfSplit => i % (dim / 2),
        RotatedPairs::Interleaved => i / 2,
    };
    let is_first = |i: usize| match pairs {
        RotatedPairs::HalfSplit => i < dim / 2,
        RotatedPairs::Interleaved => i.is_multiple_of(2),
    };
    let mut factors = [vec![], vec![]];
    let mut order = vec![];
    for of_sample in positions.iter().take(batch) {
        for &position in of_sample.iter().take(tokens) {
            for i in 0..features {
                let angle = position as f64 * 100f64.powf(-2.0 * index(i) as f64 / dim as f64);
                let (cos, sin) = match i < dim {
                    true => (angle.cos(), angle.sin()),
                    false => (1.0, 0.0),
                };
                factors[0].push(cos as f32);
                factors[1].push(if is_first(i) { -sin as f32 } else { sin as f32 });
            }
        }
    }
    order.extend((0..features).map(|i| if i < dim { partner(i) as i32 } else { i as i32 }));
    let [cos, sin] = factors.map(|it| {
        let flat = Tensor::<1>::from_floats(it.as_slice(), &device);
        flat.reshape([batch, tokens, 1, features])
    });
    let order = Tensor::<1, Int>::from_ints(order.as_slice(), &device);
    let _ = heads;
    x.clone() * cos + x.select(3, order) * sin
}

/// Positions per sample, and positions that begin at 3.
const POSITIONS: [[[usize; 5]; 2]; 2] = [[[7, 0, 2, 2, 9], [1, 8, 3, 4, 5]], [[3, 4, 5, 6, 7]; 2]];

fn positions(of: &[[usize; 5]; 2], is_first: bool, device: &Device) -> Positions {
    if is_first {
        return 3.into();
    }
    let of = of.map(|of| of.map(|position| position as i32));
    Tensor::<2, Int>::from_ints(of, device).into()
}

#[test]
fn heads_of_query_and_key_are_normalized() {
    for (name, device) in devices() {
        let joint = noise([2, 5, 12, 16], 1, &device);
        let (gamma_q, gamma_k) = (noise([16], 2, &device), noise([16], 3, &device));
        // Views of a joint projection, and heads in front of tokens.
        let q = joint.clone().slice([0..2, 0..5, 0..8, 0..16]);
        let k = joint.slice([0..2, 0..5, 8..10, 0..16]);
        for swaps in [false, true] {
            let seen = |x: &Tensor<4>| {
                if swaps {
                    x.clone().swap_dims(1, 2)
                } else {
                    x.clone()
                }
            };
            let (y, z) =
                cubenorm::qk_norm(seen(&q), seen(&k), gamma_q.clone(), gamma_k.clone(), 1e-5);
            assert!(
                difference(y, rms(seen(&q), &gamma_q)) < 1e-4,
                "{name}: query"
            );
            assert!(difference(z, rms(seen(&k), &gamma_k)) < 1e-4, "{name}: key");
        }
        let options = HeadNormOptions::new(NormOptions::new().with_offset(1.0)).with_mean(true);
        let (y, z) = cubenorm::qk_norm_with(q.clone(), k, gamma_q.clone(), None, &options);
        let expected = cubenorm::layer_norm(q, gamma_q + 1.0, None, 1e-5);
        assert!(difference(y, expected) < 1e-4, "{name}: layer norm");
        let mean = z.mean_dim(3);
        assert!(difference(mean.clone(), mean.zeros_like()) < 1e-5, "{name}");
    }
}

#[test]
fn rotated_heads_agree_with_the_formula() {
    for (name, device) in devices() {
        let (q, k) = (
            noise([2, 5, 4, 32], 1, &device),
            noise([2, 5, 2, 32], 2, &device),
        );
        let (gamma_q, gamma_k) = (noise([32], 3, &device), noise([32], 4, &device));
        for pairs in PAIRS {
            for dim in [32, 24, 2] {
                let rope = Rope::new(10, dim, 100.0, pairs, &device);
                for (of, is_first) in POSITIONS.iter().zip([false, true]) {
                    let at = format!("{name} {pairs:?} {dim} {of:?}");
                    let (y, z) = cubenorm::qk_norm_rope(
                        q.clone(),
                        k.clone(),
                        gamma_q.clone(),
                        gamma_k.clone(),
                        &rope,
                        positions(of, is_first, &device),
                        &HeadNormOptions::default(),
                    );
                    let expected = rotate(rms(q.clone(), &gamma_q), of, dim, pairs);
                    assert!(difference(y, expected) < 2e-4, "{at}: query");
                    let expected = rotate(rms(k.clone(), &gamma_k), of, dim, pairs);
                    assert!(difference(z, expected) < 2e-4, "{at}: key");
                }
            }
        }
    }
}

#[test]
fn rotated_heads_have_gradients() {
    for (name, device) in devices() {
        for device in [
            device.clone().autodiff(),
            device.autodiff().gradient_checkpointing(),
        ] {
            let leaf = |heads, seed| noise([2, 5, heads, 16], seed, &device).require_grad();
            let gamma = |seed| noise([16], seed, &device).require_grad();
            let weights = |heads| noise([2, 5, heads, 16], 9, &device);
            for pairs in PAIRS {
                let (q, k, gq, gk) = (leaf(4, 1), leaf(2, 2), gamma(3), gamma(4));
                let rope = Rope::new(16, 12, 100.0, pairs, &device);
                let options = HeadNormOptions::default();
                let (y, z) = cubenorm::qk_norm_rope(
                    q.clone(),
                    k.clone(),
                    gq.clone(),
                    gk.clone(),
                    &rope,
                    3,
                    &options,
                );
                let of = ((y * weights(4)).sum() + (z * weights(2)).sum()).backward();
                let [y, z] = [(&q, &gq), (&k, &gk)]
                    .map(|(x, gamma)| rotate(rms(x.clone(), gamma), &POSITIONS[1], 12, pairs));
                let expected = ((y * weights(4)).sum() + (z * weights(2)).sum()).backward();
                for (what, tensor) in [("query", q), ("key", k)] {
                    let off =
                        difference(tensor.grad(&of).unwrap(), tensor.grad(&expected).unwrap());
                    assert!(off < 5e-4, "{name} {pairs:?}: d{what} is off by {off}");
                }
                for gamma in [gq, gk] {
                    let off = difference(gamma.grad(&of).unwrap(), gamma.grad(&expected).unwrap());
                    assert!(off < 1e-3, "{name} {pairs:?}: dgamma is off by {off}");
                }
            }
        }
    }
}

#[test]
fn one_of_two_rotated_heads_can_be_trained() {
    for (name, device) in devices() {
        let device = device.autodiff();
        let gamma = noise([16], 3, &device);
        let rope = Rope::new(16, 12, 100.0, RotatedPairs::HalfSplit, &device);
        let options = HeadNormOptions::default();
        for is_query_tracked in [true, false] {
            let q = noise([2, 5, 4, 16], 1, &device).set_require_grad(is_query_tracked);
            let k = noise([2, 5, 2, 16], 2, &device).require_grad();
            let weights = noise([2, 5, 2, 16], 9, &device);
            let (q_gamma, k_gamma) = (gamma.clone(), gamma.clone());
            let (_, z) =
                cubenorm::qk_norm_rope(q.clone(), k.clone(), q_gamma, k_gamma, &rope, 3, &options);
            let of = (z * weights.clone()).sum().backward();
            let z = rotate(rms(k.clone(), &gamma), &POSITIONS[1], 12, PAIRS[0]);
            let expected = (z * weights).sum().backward();
            let off = difference(k.grad(&of).unwrap(), k.grad(&expected).unwrap());
            assert!(off < 5e-4, "{name}: dkey is off by {off}");
            let of_query = q.grad(&of).map(|it| it.abs().max().into_scalar::<f32>());
            assert_eq!(of_query, is_query_tracked.then_some(0.0), "{name}: dquery");
        }
    }
}

#[test]
fn narrow_heads_are_rounded_once() {
    for (name, device) in devices() {
        for (dtype, unit) in [(DType::F16, 1.0 / 2048.0), (DType::BF16, 1.0 / 256.0)] {
            if !supports(name, &device, dtype) {
                println!("{name}: skipped, has no {dtype:?}");
                continue;
            }
            let q = noise([2, 5, 4, 32], 1, &device).cast(dtype);
            let rope = Rope::new(10, 32, 100.0, RotatedPairs::HalfSplit, &device);
            let options = HeadNormOptions::default();
            let run = |q: Tensor<4>| {
                let k = q.clone().slice([0..2, 0..5, 0..1, 0..32]);
                cubenorm::qk_norm_rope(q, k, None, None, &rope, 3, &options).0
            };
            let y = run(q.clone());
            assert_eq!(y.dtype(), dtype, "{name}");
            let expected = values(run(q.cast(DType::F32)));
            for (actual, expected) in values(y).into_iter().zip(expected) {
                let off = (actual - expected).abs();
                assert!(
                    off <= unit * expected.abs() + 1e-6,
                    "{name} {dtype:?}: {actual}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn positions_outside_of_the_rope_are_nan_or_errors() {
    for (name, device) in devices() {
        let q = noise([1, 2, 1, 4], 1, &device);
        let options = HeadNormOptions::default();
        let rope = Rope::new(3, 4, 100.0, RotatedPairs::HalfSplit, &device);
        let run = |positions: Positions| {
            cubenorm::try_qk_norm_rope(q.clone(), q.clone(), None, None, &rope, positions, &options)
        };
        let error = run(2.into()).unwrap_err().to_string();
        assert_eq!(
            error, "rope has shape [3, 4]: expected 2 positions or more from 2 on",
            "{name}"
        );
        let of = |of: [[i32; 2]; 1]| Tensor::<2, Int>::from_ints(of, &device);
        let (y, _) = run(of([[2, 3]]).into()).unwrap();
        let is_nan: Vec<bool> = values(y).into_iter().map(f64::is_nan).collect();
        assert_eq!(is_nan, [[false; 4], [true; 4]].concat(), "{name}");
        let (y, _) = run(of([[-1, 0]]).into()).unwrap();
        assert!(values(y)[0].is_nan(), "{name}");

        let other = noise([1, 3, 1, 4], 1, &device);
        let error = cubenorm::try_qk_norm_rope(q.clone(), other, None, None, &rope, 0, &options);
        let message =
            "key has shape [1, 3, 1, 4]: expected the query's batch and tokens, [1, 2, heads, d]";
        assert_eq!(error.unwrap_err().to_string(), message, "{name}");
        let gamma = noise([3], 1, &device);
        let error = cubenorm::try_qk_norm(q.clone(), q.clone(), None, gamma, 1e-5);
        let message =
            "key_gamma has shape [3]: expected [4], a number for each of the input's 4 features";
        assert_eq!(error.unwrap_err().to_string(), message, "{name}");
        let error = Rope::try_new(3, 5, 100.0, RotatedPairs::HalfSplit, &device).unwrap_err();
        let message =
            "rope has shape [3, 5]: expected an even number of rotated elements, 2 or more";
        assert_eq!(error.to_string(), message, "{name}");
    }
}
