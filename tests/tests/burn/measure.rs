//! Times of norms vs. Burn's composition of the same formula. Ignored: they are read, not checked.
//!
//! ```text
//! cargo test -p cubenorm-tests --features burn,cpu --test burn -- --ignored --nocapture measure
//! ```

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::nn::RotaryEncodingConfig;
use burn::tensor::{Device, Tensor, activation};
use cubenorm::{Activation, CodeFormat, GateOptions, HeadNormOptions, NormOptions, Rope};

use crate::{devices, noise};

type Formula = Box<dyn Fn([Tensor<4>; 2], Tensor<1>) -> Tensor<4>>;

/// A norm, as this project and as Burn compute it, of two tensors of a shape and a parameter.
struct Compared {
    name: &'static str,
    shape: [usize; 4],
    ours: Formula,
    composed: Formula,
}

fn rms(x: Tensor<4>) -> Tensor<4> {
    let square = x.clone().square().mean_dim(3);
    x / (square + 1e-5).sqrt()
}

fn norms(shape: [usize; 4]) -> Vec<Compared> {
    let gated = |norm_before_gate: bool| {
        let options = GateOptions::new().with_norm_before_gate(norm_before_gate);
        move |[x, gate]: [Tensor<4>; 2], gamma| cubenorm::gated_rms_norm(x, gate, gamma, &options)
    };
    let wide = |gamma: Tensor<1>| gamma.unsqueeze::<4>();
    vec![
        Compared {
            name: "RMS norm, gate",
            shape,
            ours: Box::new(gated(true)),
            composed: Box::new(move |[x, z], gamma| rms(x) * wide(gamma) * activation::silu(z)),
        },
        Compared {
            name: "gate, RMS norm",
            shape,
            ours: Box::new(gated(false)),
            composed: Box::new(move |[x, z], gamma| rms(x * activation::silu(z)) * wide(gamma)),
        },
        // Both results, as in a block: each has a gradient.
        Compared {
            name: "sum, RMS norm",
            shape,
            ours: Box::new(|[x, residual], gamma| {
                let (y, sum) = cubenorm::add_rms_norm(x, residual, gamma, 1e-5);
                y * sum
            }),
            composed: Box::new(move |[x, residual], gamma| {
                let sum = x + residual;
                rms(sum.clone()) * wide(gamma) * sum
            }),
        },
        Compared {
            name: "dynamic tanh",
            shape,
            ours: Box::new(|[x, _], gamma| {
                let alpha = gamma.clone().narrow(0, 0, 1);
                cubenorm::dynamic_tanh(x, alpha, gamma, None)
            }),
            composed: Box::new(move |[x, _], gamma| {
                let alpha = gamma.clone().narrow(0, 0, 1);
                (x * alpha.unsqueeze::<4>()).tanh() * wide(gamma)
            }),
        },
        Compared {
            name: "gate, sum, modulated RMS norm",
            shape,
            ours: Box::new(move |[x, residual], gamma| {
                let gate = wide(gamma);
                let scale = gate.clone();
                let parts = (Some(gate), Some(scale));
                let (y, sum) =
                    cubenorm::add_modulated_rms_norm(x, residual, parts.0, parts.1, None, 1e-5);
                y * sum
            }),
            composed: Box::new(move |[x, residual], gamma| {
                let sum = residual + wide(gamma.clone()) * x;
                rms(sum.clone()) * (wide(gamma) + 1.0) * sum
            }),
        },
    ]
}

/// Norms of query and key of `[batch, tokens, heads, d]`.
fn heads(shape: [usize; 4], device: &Device) -> Vec<Compared> {
    let [_, tokens, _, features] = shape;
    let rotary =
        RotaryEncodingConfig::new(tokens, features).init(&device.clone().without_autodiff());
    let rope = Rope::from(&rotary);
    let wide = |gamma: Tensor<1>| gamma.unsqueeze::<4>();
    let turned = move |x: Tensor<4>| {
        let rotary = match x.device().is_autodiff() {
            true => rotary.clone().train(),
            false => rotary.clone(),
        };
        rotary.forward(x.swap_dims(1, 2)).swap_dims(1, 2)
    };
    vec![
        Compared {
            name: "query and key",
            shape,
            ours: Box::new(|[q, k], gamma: Tensor<1>| {
                let (q, k) = cubenorm::qk_norm(q, k, gamma.clone(), gamma, 1e-5);
                q * k
            }),
            composed: Box::new(move |[q, k], gamma| {
                rms(q) * wide(gamma.clone()) * (rms(k) * wide(gamma))
            }),
        },
        Compared {
            name: "query and key, rotated",
            shape,
            ours: Box::new(move |[q, k], gamma: Tensor<1>| {
                let options = HeadNormOptions::default();
                let (q, k) = cubenorm::qk_norm_rope(q, k, gamma.clone(), gamma, &rope, 0, &options);
                q * k
            }),
            composed: Box::new(move |[q, k], gamma| {
                let normalized = |x| rms(x) * wide(gamma.clone());
                turned(normalized(q)) * turned(normalized(k))
            }),
        },
    ]
}

/// RMS norms rounded to int8. Burn has no int8 tensor everywhere, so its composition writes f32.
fn quantized(shape: [usize; 4]) -> Vec<Compared> {
    let wide = |gamma: Tensor<1>| gamma.unsqueeze::<4>();
    let codes = |y: Tensor<4>| {
        let scale = y.clone().abs().max_dim(3) / 127.0;
        (y / scale.clone()).round().clamp(-127.0, 127.0) * scale
    };
    vec![
        Compared {
            name: "int8 RMS norm",
            shape,
            ours: Box::new(|[x, _], gamma| {
                let options = NormOptions::new();
                cubenorm::quantized_rms_norm(x, gamma, CodeFormat::Int8, &options).scale
            }),
            composed: Box::new(move |[x, _], gamma| codes(rms(x) * wide(gamma))),
        },
        Compared {
            name: "sum, int8 RMS norm",
            shape,
            ours: Box::new(|[x, residual], gamma| {
                let (options, format) = (NormOptions::new(), CodeFormat::Int8);
                let (y, sum) =
                    cubenorm::add_quantized_rms_norm(x, residual, gamma, format, &options);
                drop(y);
                sum
            }),
            composed: Box::new(move |[x, residual], gamma| {
                let sum = x + residual;
                codes(rms(sum.clone()) * wide(gamma)) + sum
            }),
        },
    ]
}

fn group_norms([batch, channels, height, width]: [usize; 4]) -> Vec<Compared> {
    let channel = move |gamma: Tensor<1>| gamma.reshape([1, channels, 1, 1]);
    let normalized = move |x: Tensor<4>, gamma| {
        let x = x.reshape([batch, 32, channels / 32 * height * width]);
        let centered = x.clone() - x.mean_dim(2);
        let variance = centered.clone().square().mean_dim(2);
        let y = centered / (variance + 1e-5).sqrt();
        y.reshape([batch, channels, height, width]) * channel(gamma)
    };
    let ours = |x, residual, gamma| {
        cubenorm::group_norm_with(x, residual, Some(gamma), None, 32, 1e-5, Activation::Silu)
    };
    vec![
        Compared {
            name: "group norm, SiLU",
            shape: [batch, channels, height, width],
            ours: Box::new(move |[x, _], gamma| ours(x, None, gamma)),
            composed: Box::new(move |[x, _], gamma| activation::silu(normalized(x, gamma))),
        },
        Compared {
            name: "residual, group norm, SiLU",
            shape: [batch, channels, height, width],
            ours: Box::new(move |[x, r], gamma| ours(x, Some(r), gamma)),
            composed: Box::new(move |[x, r], gamma| activation::silu(normalized(x + r, gamma))),
        },
    ]
}

/// Shortest time of a run.
fn time(device: &Device, run: impl Fn()) -> Duration {
    let time = |_| {
        device.sync().expect("the device runs");
        let start = Instant::now();
        run();
        device.sync().expect("the device runs");
        start.elapsed()
    };
    (0..12).map(time).min().expect("there are some")
}

fn forward(device: &Device, shape: [usize; 4], features: usize, formula: &Formula) -> Duration {
    let tensors = [1, 2].map(|seed| noise(shape, seed, device));
    let gamma = noise([features], 3, device);
    time(device, || {
        let y = formula(tensors.clone(), gamma.clone());
        device.sync().expect("the device runs");
        drop(y);
    })
}

fn both(device: &Device, shape: [usize; 4], features: usize, formula: &Formula) -> Duration {
    let device = device.clone().autodiff();
    let tensors = [1, 2].map(|seed| noise(shape, seed, &device).require_grad());
    let gamma = noise([features], 3, &device).require_grad();
    time(&device, || {
        // Without a loss, whose operations would be in both times.
        let gradients = formula(tensors.clone(), gamma.clone()).backward();
        let kept = (
            tensors.each_ref().map(|it| it.grad(&gradients)),
            gamma.grad(&gradients),
        );
        device.sync().expect("the device runs");
        drop(kept);
    })
}

#[test]
#[ignore = "prints times: cargo test -p cubenorm-tests --features burn,cpu --test burn -- --ignored --nocapture measure"]
fn measure() {
    cubenorm_tests::guard::leave_out_everywhere();
    for (name, device) in devices() {
        let rows = [[1, 1, 2048, 1024], [1, 1, 1024, 4096]].map(norms);
        let maps = [[2, 320, 64, 64], [2, 640, 32, 32]].map(group_norms);
        let of_heads = [[4, 512, 16, 64], [1, 1, 16, 128]].map(|shape| heads(shape, &device));
        let codes = [[1, 1, 2048, 1024], [1, 1, 1024, 4096], [1, 1, 16, 4096]].map(quantized);
        let all = rows.into_iter().chain(maps).chain(of_heads).chain(codes);
        for norm in all.flatten() {
            let Compared {
                name: norm_name,
                shape,
                ours,
                composed,
            } = norm;
            let features = if norm_name.contains("group") {
                shape[1]
            } else {
                shape[3]
            };
            for (pass, run) in [
                ("forward", forward as fn(&_, _, _, &_) -> _),
                ("both", both),
            ] {
                // Codes have no gradient.
                if pass == "both" && norm_name.contains("int8") {
                    continue;
                }
                let [ours, composed] =
                    [&ours, &composed].map(|formula| run(&device, shape, features, formula));
                let ratio = composed.as_secs_f64() / ours.as_secs_f64();
                println!(
                    "{name} {shape:?} {norm_name}, {pass}: {composed:.2?} -> {ours:.2?} ({ratio:.2})"
                );
            }
        }
    }
}

#[test]
#[ignore = "prints times: cargo test -p cubenorm-tests --features burn,cpu --test burn -- --ignored --nocapture measure_invariance"]
fn measure_invariance() {
    cubenorm_tests::guard::leave_out_everywhere();
    for (name, device) in devices() {
        let mut ratios = vec![];
        for cols in [768, 4096] {
            for rows in [1, 4, 16, 64, 256, 1024, 4096] {
                let x = noise([rows, cols], 1, &device);
                let gamma = noise([cols], 2, &device);
                let run = |is_on| {
                    time(&device, || {
                        let norm = || cubenorm::rms_norm(x.clone(), gamma.clone(), 1e-5);
                        let y = cubenorm::with_batch_invariant(is_on, norm);
                        device.sync().expect("the device runs");
                        drop(y);
                    })
                };
                let [usual, invariant] = [false, true].map(run);
                let ratio = invariant.as_secs_f64() / usual.as_secs_f64();
                println!("{name} {rows} x {cols}: {usual:.2?} -> {invariant:.2?} ({ratio:.2})");
                ratios.push(ratio.ln());
            }
        }
        let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
        println!("{name}: {mean:.3} times the time, geometric mean");
    }
}
