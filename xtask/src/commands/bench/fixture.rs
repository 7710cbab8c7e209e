//! Fixed measurements for tests.

use cubenorm_problems::{DType, Layout, Op, Pass, Problem, protocol::About};

use super::{
    measure::{Measured, Measurement, Timed},
    provider::{Baseline, Provider},
    stats::Stats,
    worker::Lost,
};
use crate::device::Device;

/// Three problems forward and one full pass, with every provider.
pub fn measurements() -> Vec<Measurement> {
    let forward = [
        measurement(
            Op::LayerNorm,
            &[2048, 4096],
            Pass::Forward,
            [4.0, 20.0, 6.0, 8.0, 3.0],
        ),
        measurement(
            Op::InstanceNorm,
            &[8, 64, 128, 128],
            Pass::Forward,
            [5.0, 10.0, 4.0, 9.0, 4.0],
        ),
        measurement(
            Op::RmsNorm,
            &[1, 4096],
            Pass::Forward,
            [0.04, 0.05, 0.02, 0.01, 0.01],
        ),
    ];
    let mut full = measurement(
        Op::LayerNorm,
        &[2048, 4096],
        Pass::Full,
        [20.0, 90.0, 50.0, 1.0, 10.0],
    );
    let lost = Lost::Unsupported("ONNX Runtime has no backward pass".to_owned());
    full.providers[3].result = Err(lost);
    [&forward[..], &[full]].concat()
}

/// A problem with these medians: cubenorm, burn, torch, onnxruntime, copy.
pub fn measurement(op: Op, shape: &[usize], pass: Pass, medians: [f64; 5]) -> Measurement {
    let bytes = 4 * shape.iter().product::<usize>();
    let providers = Provider::with(&[Baseline::Burn, Baseline::Torch, Baseline::Onnxruntime]);
    let providers = providers
        .into_iter()
        .zip(medians)
        .map(|(provider, median)| {
            let is_ours = provider == Provider::Cubenorm;
            let about = About {
                runtime: match provider {
                    Provider::Baseline(Baseline::Torch | Baseline::Onnxruntime) => {
                        format!("{provider} 1.2.3")
                    }
                    _ => "cpu".to_owned(),
                },
                plan: is_ours.then(|| "unit: 2 units (a CPU)".to_owned()),
                input_bytes: is_ours.then_some(bytes),
                bytes: is_ours.then_some(if pass == Pass::Forward { 2 } else { 5 } * bytes),
            };
            let stats = |median| Stats {
                median,
                p20: 0.75 * median,
                p80: 1.25 * median,
            };
            // Ours waits for launches. Libraries outside Rust have no device clock.
            let device = match provider {
                Provider::Cubenorm => Some(stats(0.8 * median)),
                Provider::Baseline(Baseline::Torch | Baseline::Onnxruntime) => None,
                _ => Some(stats(median)),
            };
            let wall = stats(median);
            Measured {
                provider,
                result: Ok(Timed {
                    about,
                    wall,
                    device,
                }),
            }
        });
    Measurement {
        device: Device::Cpu,
        providers: providers.collect(),
        problem: Problem {
            op,
            shape: shape.to_vec(),
            layout: Layout::default(),
            dtype: DType::default(),
            pass,
        },
    }
}
