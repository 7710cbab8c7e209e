//! Times of norms with and without `install`. Ignored: they are read, not checked.
//!
//! ```text
//! cargo test -p cubenorm-tests --features burn,cpu --test install -- --ignored --nocapture measure
//! ```
//!
//! The same with `CUBENORM_INSTALL=off` has the times of Burn alone.

use std::time::{Duration, Instant};

use burn::nn;
use burn::tensor::{DType, Device, Tensor};

use crate::{devices, installed, noise};

/// Names the only graph to measure.
const ONLY: &str = "CUBENORM_MEASURE";

type Graph = Box<dyn Fn(Tensor<2>) -> Tensor<2>>;

fn graphs(cols: usize, device: &Device) -> Vec<(&'static str, Graph)> {
    let layer = nn::LayerNormConfig::new(cols).init(device);
    let rms = nn::RmsNormConfig::new(cols).init(device);
    let (layer2, rms2, layer3) = (layer.clone(), rms.clone(), layer.clone());
    let batch = nn::BatchNormConfig::new(cols).init(device);
    vec![
        ("layer", Box::new(move |x| layer.forward(x))),
        ("rms", Box::new(move |x| rms.forward(x))),
        (
            "x + x, layer",
            Box::new(move |x| layer3.forward(x.clone() + x)),
        ),
        (
            "tanh, layer, exp",
            Box::new(move |x| layer2.forward(x.tanh()).exp()),
        ),
        (
            "tanh, rms, exp",
            Box::new(move |x| rms2.forward(x.tanh()).exp()),
        ),
        ("batch", Box::new(move |x| batch.forward(x))),
    ]
}

/// Median time of a graph.
fn time(graph: &Graph, x: &Tensor<2>, device: &Device) -> Duration {
    let runs = 16;
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let start = Instant::now();
            // An output that is dropped before it is computed is not written.
            let kept: Vec<_> = (0..runs).map(|_| graph(x.clone())).collect();
            device.sync().expect("the device runs");
            let elapsed = start.elapsed() / runs;
            drop(kept);
            elapsed
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "prints times: cargo test -p cubenorm-tests --features burn,cpu --test install -- --ignored --nocapture measure"]
fn measure() {
    let _guard = installed();
    cubenorm_tests::guard::leave_out();
    for (name, device) in devices() {
        for [rows, cols] in [
            [1, 64],
            [16, 64],
            [128, 64],
            [1, 768],
            [16, 768],
            [128, 768],
            [1024, 768],
            [2048, 1024],
        ] {
            let (x, _) = noise([rows, cols], 1, DType::F32, &device);
            device.sync().expect("the device runs");
            for (graph_name, graph) in graphs(cols, &device) {
                if std::env::var(ONLY).is_ok_and(|only| only != graph_name) {
                    continue;
                }
                let before = cubenorm::install_report().norms();
                let time = time(&graph, &x, &device);
                let norms = cubenorm::install_report().norms() - before;
                println!(
                    "{name} [{rows}, {cols}] {graph_name}: {:.1} us, {norms} norms",
                    time.as_secs_f64() * 1e6
                );
            }
        }
    }
}
