//! Times of norms beside Burn's composition of the same formula. Ignored: they are read, not checked.
//!
//! ```text
//! cargo test -p cubenorm-tests --features burn,cpu --test burn -- --ignored --nocapture measure
//! ```

use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor, activation};
use cubenorm::{Activation, GateOptions};

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
    let weights = noise(shape, 4, &device);
    time(&device, || {
        let y = formula(tensors.clone(), gamma.clone());
        let gradients = (y * weights.clone()).sum().backward();
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
        for norm in rows.into_iter().chain(maps).flatten() {
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
