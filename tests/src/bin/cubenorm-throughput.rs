//! How close the kernels come to a copy of the same bytes, on every device of the build.
//!
//! `cubenorm-throughput [MIB]` normalizes tensors of MIB mebibytes (256 where it is not said) in rows
//! of 512 to 65,536 elements, forward and backward, with each candidate of the tuner, the analytic plan
//! first and the tuned one with a star, and prints a table. Times are the device's own where it keeps them; the ceiling is
//! CubeCL's copy probe at the same working set. `CUBENORM_TEST_DEVICES` selects devices.

use std::time::Duration;

use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::server::Handle;
use cubecl::std::throughput::measure_peak_throughput;
use cubecl::throughput::{MemoryAccess, MemorySpec, ThroughputKey, ThroughputMode};
use cubenorm_core::{
    DType, GradientDesc, Knobs, NormDesc, Statistics, TensorDesc, forward_candidates,
    gradient_candidates, knobs,
};
use cubenorm_kernels::{
    ForwardTensors, GradientTensors, hardware, launch_forward, launch_gradient, plan_for,
    plan_gradient_for, supports, tuned_forward, tuned_gradient,
};
use cubenorm_tests::case::{encode, noise};
use cubenorm_tests::device::devices;

/// Runs of a sample, and samples; the median counts.
const RUNS: usize = 5;
const SAMPLES: usize = 9;

fn main() {
    let mebibytes = std::env::args().nth(1);
    let mebibytes: usize = match mebibytes.map(|text| text.parse()) {
        None => 256,
        Some(Ok(mebibytes)) if mebibytes > 0 => mebibytes,
        Some(_) => {
            eprintln!("usage: cubenorm-throughput [MIB]");
            std::process::exit(2);
        }
    };
    for device in devices() {
        let client = &device.client;
        println!("# {} ({})", device.name, client.name());
        println!("op pass dtype rows cols ms GB/s share_of_copy candidate plan");
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            if !supports(client, dtype) {
                println!("{dtype}: not on this device");
                continue;
            }
            for cols in [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] {
                let rows = (mebibytes << 20) / dtype.size() / cols;
                for (op, statistics) in [
                    ("layer_norm", Statistics::MeanVariance),
                    ("rms_norm", Statistics::MeanSquare),
                ] {
                    let problem = Problem::new(client, dtype, rows, cols, statistics);
                    problem.report(op);
                }
            }
        }
    }
}

/// A norm over rows, there and back, with its buffers.
struct Problem<'a> {
    client: &'a Client,
    forward: NormDesc,
    backward: GradientDesc,
    input: Handle,
    scale: Handle,
    bias: Handle,
    saved: Handle,
    above: Handle,
    rows: usize,
    cols: usize,
}

impl<'a> Problem<'a> {
    fn new(
        client: &'a Client,
        dtype: DType,
        rows: usize,
        cols: usize,
        statistics: Statistics,
    ) -> Self {
        let has_bias = statistics == Statistics::MeanVariance;
        let param = TensorDesc::contiguous([cols], dtype);
        let norm = NormDesc::new(TensorDesc::contiguous([rows, cols], dtype), [1], statistics)
            .with_scale(param.clone())
            .with_bias(has_bias.then_some(param));
        let forward = NormDesc {
            written_statistics: None,
            ..norm.clone()
        };
        // A block of noise again and again: bytes are bytes, as long as they are not all the same.
        let block: Vec<f64> = (0..1 << 16).map(|position| noise(7, position)).collect();
        let large = encode(dtype, &block).repeat((rows * cols).div_ceil(block.len()));
        let large = &large[..rows * cols * dtype.size()];
        let small = encode(dtype, &block[..cols]);
        let pairs = [0.0, 1.0].repeat(rows);
        Self {
            client,
            forward,
            backward: GradientDesc::new(norm),
            input: client.create_from_slice(large),
            scale: client.create_from_slice(&small),
            bias: client.create_from_slice(&small),
            saved: client.create_from_slice(&encode(dtype.accumulation(), &pairs)),
            above: client.create_from_slice(large),
            rows,
            cols,
        }
    }

    fn report(&self, op: &str) {
        let forward = || {
            let tensors = self.forward_tensors();
            tuned_forward(self.client, &self.forward, &tensors).expect("the device can run it")
        };
        let hardware = hardware(self.client);
        let all = knobs(&hardware);
        let problem = self.forward.problem().expect("a valid description");
        let candidates = forward_candidates(&problem, &hardware).expect("a plan");
        let measured = candidates.into_iter().map(|place| all[place]);
        for (name, knobs) in named(forward(), measured) {
            let plan = plan_for(self.client, &self.forward, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.forward_tensors();
                let outputs = launch_forward(self.client, &self.forward, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            self.row(op, "forward", 2, time, &name, &plan.to_string());
        }

        let desc = &self.backward;
        let tensors = self.gradient_tensors();
        let tuned = tuned_gradient(self.client, desc, &tensors).expect("the device can run it");
        let problem = desc.input_problem(desc.param_sums()).expect("valid");
        let candidates = gradient_candidates(&problem, &hardware).expect("a plan");
        let measured = candidates.into_iter().map(|place| all[place]);
        for (name, knobs) in named(tuned, measured) {
            let plan = plan_gradient_for(self.client, desc, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.gradient_tensors();
                let outputs = launch_gradient(self.client, desc, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            self.row(op, "backward", 3, time, &name, &plan.to_string());
        }
    }

    fn forward_tensors(&self) -> ForwardTensors {
        ForwardTensors {
            scale: Some(self.scale.clone()),
            bias: self.forward.bias.as_ref().map(|_| self.bias.clone()),
            ..ForwardTensors::new(self.input.clone())
        }
    }

    fn gradient_tensors(&self) -> GradientTensors {
        GradientTensors {
            input: self.input.clone(),
            output_gradient: self.above.clone(),
            saved: Some(self.saved.clone()),
            scale: Some(self.scale.clone()),
            bias: self.forward.bias.as_ref().map(|_| self.bias.clone()),
            input_gradient: None,
        }
    }

    /// The median time of a run.
    fn time(&self, run: impl Fn() + Send + Sync) -> Option<Duration> {
        run();
        let mut samples: Vec<Duration> = (0..SAMPLES)
            .filter_map(|_| {
                let profiled = self
                    .client
                    .profile(|| (0..RUNS).for_each(|_| run()), "norm");
                let (_, duration) = profiled.ok()?;
                Some(block_on(duration.resolve())?.duration() / RUNS as u32)
            })
            .collect();
        samples.sort();
        samples.get(samples.len() / 2).copied()
    }

    fn row(
        &self,
        op: &str,
        pass: &str,
        tensors: usize,
        time: Option<Duration>,
        strategy: &str,
        plan: &str,
    ) {
        let dtype = self.forward.input.dtype;
        let bytes = tensors * self.rows * self.cols * dtype.size();
        let (rows, cols) = (self.rows, self.cols);
        let Some(seconds) = time.map(|time| time.as_secs_f64()) else {
            println!("{op} {pass} {dtype} {rows} {cols} - - - {strategy} {plan}");
            return;
        };
        let rate = bytes as f64 / seconds;
        let share = copy_rate(self.client, bytes).map_or("-".to_owned(), |copy| {
            format!("{:.1}%", 100.0 * rate / copy)
        });
        println!(
            "{op} {pass} {dtype} {rows} {cols} {:.4} {:.0} {share} {strategy} {plan}",
            1e3 * seconds,
            rate / 1e9,
        );
    }
}

/// The candidates by name, the tuned one marked.
fn named(tuned: Knobs, candidates: impl Iterator<Item = Knobs>) -> Vec<(String, Knobs)> {
    let mark = |knobs: Knobs| if knobs == tuned { "*" } else { "" };
    candidates
        .map(|knobs| {
            let name = knobs.to_string().replace(' ', ",");
            (format!("{}{name}", mark(knobs)), knobs)
        })
        .collect()
}

/// Bytes per second of CubeCL's copy probe, which keeps what it has measured.
fn copy_rate(client: &Client, bytes: usize) -> Option<f64> {
    let spec = MemorySpec::new(MemoryAccess::Copy, bytes as u64);
    let key = ThroughputKey {
        mode: ThroughputMode::Memory(spec),
    };
    let value = measure_peak_throughput(client, key).ok()?;
    Some(value.bytes_per_s(&key))
}
