//! Times of norms with and without `install`. Ignored: they are read, not checked.
//!
//! ```text
//! cargo test -p cubenorm-tests --features burn,cpu --test install -- --ignored --nocapture measure
//! ```
//!
//! `CUBENORM_MEASURE=rms` measures the graphs with `rms` in their name only.

use std::time::{Duration, Instant};

use burn::nn;
use burn::tensor::{DType, Device, Tensor, activation};

use crate::process::{is_other, without_install};
use crate::{devices, installed, noise};

/// Names the only graphs to measure.
const ONLY: &str = "CUBENORM_MEASURE";

/// Rows and columns of the input. The last three have 1 MiB and more.
const SHAPES: [[usize; 2]; 9] = [
    [1, 64],
    [16, 64],
    [128, 64],
    [1, 768],
    [16, 768],
    [128, 768],
    [512, 512],
    [1024, 768],
    [2048, 1024],
];

type Graph = Box<dyn Fn(Tensor<2>) -> Tensor<2>>;

fn graphs(cols: usize, device: &Device) -> Vec<(&'static str, Graph)> {
    let layer = || nn::LayerNormConfig::new(cols).init(device);
    let rms = || nn::RmsNormConfig::new(cols).init(device);
    let batch = || nn::BatchNormConfig::new(cols).init(device);
    let mut graphs: Vec<(&'static str, Graph)> = Vec::new();
    let mut add = |name, graph: Graph| graphs.push((name, graph));
    let (norm, norm1, norm2, norm3) = (layer(), layer(), layer(), layer());
    add("layer", Box::new(move |x| norm.forward(x)));
    add(
        "x + x, layer",
        Box::new(move |x| norm1.forward(x.clone() + x)),
    );
    add(
        "layer, gelu",
        Box::new(move |x| activation::gelu(norm2.forward(x))),
    );
    add(
        "tanh, layer, exp",
        Box::new(move |x| norm3.forward(x.tanh()).exp()),
    );
    let norm = layer();
    add("tanh, layer", Box::new(move |x| norm.forward(x.tanh())));
    let norm = layer();
    add("layer, exp", Box::new(move |x| norm.forward(x).exp()));
    let (norm, norm1, norm2) = (rms(), rms(), rms());
    add("rms", Box::new(move |x| norm.forward(x)));
    add(
        "x + x, rms",
        Box::new(move |x| norm1.forward(x.clone() + x)),
    );
    add(
        "tanh, rms, exp",
        Box::new(move |x| norm2.forward(x.tanh()).exp()),
    );
    let norm = rms();
    add("tanh, rms", Box::new(move |x| norm.forward(x.tanh())));
    let norm = rms();
    add("rms, exp", Box::new(move |x| norm.forward(x).exp()));
    let (norm, norm1, norm2) = (batch(), batch(), batch());
    add("batch", Box::new(move |x| norm.forward(x)));
    add(
        "batch, relu",
        Box::new(move |x| activation::relu(norm1.forward(x))),
    );
    add(
        "tanh, batch, exp",
        Box::new(move |x| norm2.forward(x.tanh()).exp()),
    );
    graphs
}

/// Shortest time of a graph in a chain of them. Each reads the one before.
fn time(graph: &Graph, x: &Tensor<2>, links: u32, device: &Device) -> Duration {
    let time = |_| {
        let start = Instant::now();
        // An output that is dropped before it is computed is not written.
        let kept = (0..links).fold(x.clone(), |x, _| graph(x));
        device.sync().expect("the device runs");
        let elapsed = start.elapsed() / links;
        drop(kept);
        elapsed
    };
    let rounds = 9 * 16 / links.max(4);
    (0..rounds).map(time).min().expect("there are some")
}

/// A graph on a device, and its time.
struct Measured {
    name: String,
    elements: usize,
    norms: u64,
    seconds: f64,
}

fn measured() -> Vec<Measured> {
    let mut all = Vec::new();
    for (device_name, device) in devices() {
        for [rows, cols] in SHAPES {
            let (x, _) = noise([rows, cols], 1, DType::F32, &device);
            for (graph_name, graph) in graphs(cols, &device) {
                if std::env::var(ONLY).is_ok_and(|only| !graph_name.contains(&only)) {
                    continue;
                }
                for links in [1, 16] {
                    let before = cubenorm::install_report().norms();
                    let time = time(&graph, &x, links, &device);
                    all.push(Measured {
                        name: format!("{device_name} [{rows}, {cols}] {links} x ({graph_name})"),
                        elements: rows * cols,
                        norms: cubenorm::install_report().norms() - before,
                        seconds: time.as_secs_f64(),
                    });
                }
            }
        }
    }
    all
}

#[test]
#[ignore = "prints times: cargo test -p cubenorm-tests --features burn,cpu --test install -- --ignored --nocapture measure"]
fn measure() {
    cubenorm_tests::guard::leave_out();
    let seconds = || vec![measured().iter().map(|graph| graph.seconds).collect()];
    if is_other(seconds) {
        return;
    }
    let without = without_install("measure::measure").concat();
    let _guard = installed();
    let with = measured();
    let mut large = Vec::new();
    for (with, &without) in with.iter().zip(&without) {
        let ratio = without / with.seconds;
        println!(
            "{}: {:.1} -> {:.1} us ({ratio:.2}), {} norms",
            with.name,
            without * 1e6,
            with.seconds * 1e6,
            with.norms
        );
        if with.norms > 0 && with.elements * 4 >= 1 << 20 {
            large.push(ratio.ln());
        }
    }
    let mean = (large.iter().sum::<f64>() / large.len() as f64).exp();
    println!(
        "geometric mean of {} of 1 MiB and more: {mean:.2}",
        large.len()
    );
}
