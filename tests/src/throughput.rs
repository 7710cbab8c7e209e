//! How close the kernels come to a copy of the same bytes.
//!
//! Layer and RMS norm over rows, forward and backward. Times are the device's own where it keeps
//! them; the ceiling is CubeCL's copy probe at the same working set.

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
use serde::Serialize;

use crate::case::{encode, noise};

/// Runs of a sample, and samples; the median counts.
const RUNS: usize = 5;
const SAMPLES: usize = 9;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Bytes of the input.
    pub bytes: usize,
    /// Lengths of rows.
    pub cols: Vec<usize>,
    /// Which candidates.
    pub candidates: Candidates,
}

/// Which of the plans that can run a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// All that the tuner measures.
    All,
    /// The analytic plan, and the tuner's choice where that is another.
    AnalyticAndTuned,
}

/// A plan and its time.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The norm.
    pub op: &'static str,
    /// Forward or backward.
    pub pass: &'static str,
    /// Of all its tensors.
    pub dtype: String,
    /// Rows of the input.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// The median time; `None` where the device keeps none.
    pub milliseconds: Option<f64>,
    /// What the pass must move, in 1e9 bytes, in a second.
    pub gigabytes_per_second: Option<f64>,
    /// That, as a share of what a copy moves.
    pub share_of_copy: Option<f64>,
    /// The knobs.
    pub candidate: String,
    /// Whether no knob was turned.
    pub analytic: bool,
    /// Whether the tuner chose it.
    pub tuned: bool,
    /// What ran.
    pub plan: String,
}

/// Measures on a device, the analytic plan of each problem first, and gives each row as it comes.
pub fn measure(client: &Client, selection: &Selection, row: &mut dyn FnMut(Row)) {
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        if !supports(client, dtype) {
            continue;
        }
        for &cols in &selection.cols {
            let rows = (selection.bytes / dtype.size() / cols).max(1);
            for (op, statistics) in [
                ("layer_norm", Statistics::MeanVariance),
                ("rms_norm", Statistics::MeanSquare),
            ] {
                let problem = Problem::new(client, op, [rows, cols], dtype, statistics);
                problem.measure(selection.candidates, row);
            }
        }
    }
}

/// A norm over rows, there and back, with its buffers.
struct Problem<'a> {
    client: &'a Client,
    op: &'static str,
    forward: NormDesc,
    backward: GradientDesc,
    input: Handle,
    scale: Handle,
    bias: Handle,
    saved: Handle,
    above: Handle,
    shape: [usize; 2],
}

impl<'a> Problem<'a> {
    fn new(
        client: &'a Client,
        op: &'static str,
        shape: [usize; 2],
        dtype: DType,
        statistics: Statistics,
    ) -> Self {
        let [rows, cols] = shape;
        let has_bias = statistics == Statistics::MeanVariance;
        let param = TensorDesc::contiguous([cols], dtype);
        let norm = NormDesc::new(TensorDesc::contiguous(shape, dtype), [1], statistics)
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
            op,
            forward,
            backward: GradientDesc::new(norm),
            input: client.create_from_slice(large),
            scale: client.create_from_slice(&small),
            bias: client.create_from_slice(&small),
            saved: client.create_from_slice(&encode(dtype.accumulation(), &pairs)),
            above: client.create_from_slice(large),
            shape,
        }
    }

    fn measure(&self, candidates: Candidates, row: &mut dyn FnMut(Row)) {
        let hardware = hardware(self.client);
        let all = knobs(&hardware);

        let tensors = self.forward_tensors();
        let tuned = tuned_forward(self.client, &self.forward, &tensors);
        let tuned = tuned.expect("the device can run it");
        let problem = self.forward.problem().expect("a valid description");
        let places = forward_candidates(&problem, &hardware).expect("a plan");
        for (knobs, is_analytic) in chosen(candidates, &all, places, tuned) {
            let plan = plan_for(self.client, &self.forward, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.forward_tensors();
                let outputs = launch_forward(self.client, &self.forward, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            let result = self.row("forward", 2, time, plan.to_string());
            row(result.of(knobs, is_analytic, tuned));
        }

        let desc = &self.backward;
        let tensors = self.gradient_tensors();
        let tuned = tuned_gradient(self.client, desc, &tensors).expect("the device can run it");
        let problem = desc.input_problem(desc.param_sums()).expect("valid");
        let places = gradient_candidates(&problem, &hardware).expect("a plan");
        for (knobs, is_analytic) in chosen(candidates, &all, places, tuned) {
            let plan = plan_gradient_for(self.client, desc, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.gradient_tensors();
                let outputs = launch_gradient(self.client, desc, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            let result = self.row("backward", 3, time, plan.to_string());
            row(result.of(knobs, is_analytic, tuned));
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

    fn row(&self, pass: &'static str, tensors: usize, time: Option<Duration>, plan: String) -> Row {
        let dtype = self.forward.input.dtype;
        let [rows, cols] = self.shape;
        let bytes = tensors * rows * cols * dtype.size();
        let seconds = time.map(|time| time.as_secs_f64());
        let rate = seconds.map(|seconds| bytes as f64 / seconds);
        let copy = copy_rate(self.client, bytes);
        Row {
            op: self.op,
            pass,
            dtype: dtype.to_string(),
            rows,
            cols,
            milliseconds: seconds.map(|seconds| 1e3 * seconds),
            gigabytes_per_second: rate.map(|rate| rate / 1e9),
            share_of_copy: rate.zip(copy).map(|(rate, copy)| rate / copy),
            candidate: String::new(),
            analytic: false,
            tuned: false,
            plan,
        }
    }
}

impl Row {
    fn of(self, knobs: Knobs, is_analytic: bool, tuned: Knobs) -> Self {
        Self {
            candidate: knobs.to_string().replace(' ', ","),
            analytic: is_analytic,
            tuned: knobs == tuned,
            ..self
        }
    }
}

/// The candidates to measure, and whether each is the analytic plan, which is the first of them.
fn chosen(
    candidates: Candidates,
    all: &[Knobs],
    places: impl IntoIterator<Item = usize>,
    tuned: Knobs,
) -> Vec<(Knobs, bool)> {
    places
        .into_iter()
        .enumerate()
        .map(|(number, place)| (all[place], number == 0))
        .filter(|&(knobs, is_analytic)| {
            candidates == Candidates::All || is_analytic || knobs == tuned
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
