//! Throughput of the kernels in % of copy bandwidth.
//!
//! Layer and RMS norm over rows, and norms of feature maps, forward and backward. Times come from
//! the device's timer if it has one. The ceiling is CubeCL's copy probe for the same working set.

use std::time::Duration;

use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::server::Handle;
use cubecl::std::throughput::measure_peak_throughput;
use cubecl::throughput::{MemoryAccess, MemorySpec, ThroughputKey, ThroughputMode};
use cubenorm_core::{
    BackwardDesc, DType, Knobs, NormDesc, Statistics, StrategyChoice, TensorDesc,
    backward_candidates, forward_candidates, input_problem_on, knobs, problem_on, sums_on,
};
use cubenorm_kernels::{
    BackwardTensors, ForwardTensors, hardware, launch_backward, launch_forward, plan_backward_for,
    plan_for, supports, tuned_backward, tuned_forward,
};
use cubenorm_problems::protocol::Throughput;

use crate::case::{encode, noise};

/// Runs per sample, and samples. The median is reported.
const RUNS: usize = 5;
const SAMPLES: usize = 9;

/// Groups of the group norms.
const GROUPS: usize = 32;

/// A norm whose batch size follows from the selected bytes.
#[derive(Debug, Clone)]
pub enum Norm {
    /// Layer norm; length of a row in elements.
    LayerNorm(usize),
    /// RMS norm; length of a row in elements.
    RmsNorm(usize),
    /// A norm of feature maps: `[channels, height, width]`.
    Maps(OfMaps, [usize; 3]),
}

/// A norm of feature maps, with a per-channel scale and bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfMaps {
    /// Batch norm in training.
    BatchNorm,
    /// Batch norm in training, channels-last.
    BatchNormChannelsLast,
    /// Batch norm with provided statistics.
    BatchNormGiven,
    /// Batch norm with provided statistics, channels-last.
    BatchNormGivenChannelsLast,
    /// Batch norm with provided statistics, with the pitched rows of the runtime's allocator.
    BatchNormGivenPadded,
    /// Group norm of 32 groups.
    GroupNorm,
    /// Group norm of 32 groups, channels-last.
    GroupNormChannelsLast,
    /// Instance norm.
    InstanceNorm,
    /// Instance norm, channels-last.
    InstanceNormChannelsLast,
    /// Layer norm over the channels of each spatial position.
    LayerNormOfChannels,
}

/// Selected measurements.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Size of the input in bytes.
    pub bytes: usize,
    /// Norms to measure.
    pub norms: Vec<Norm>,
    /// Plans to measure for each norm.
    pub candidates: Candidates,
}

/// Selected plans of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// All candidates of the autotuner.
    All,
    /// The analytic plan, and the tuned plan if it differs.
    AnalyticAndTuned,
}

/// Measures on a device and passes on each row, starting with the analytic plan of each problem.
pub fn measure(client: &Client, selection: &Selection, row: &mut dyn FnMut(Throughput)) {
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        if !supports(client, dtype) {
            continue;
        }
        for norm in &selection.norms {
            let problem = Problem::new(client, norm, selection.bytes / dtype.size(), dtype);
            problem.measure(selection.candidates, row);
        }
    }
}

/// Layer and RMS norm of rows of 512 to 65,536 elements, powers of two.
pub fn rows() -> Vec<Norm> {
    of_rows((9..=16).map(|power| 1 << power))
}

/// Layer and RMS norm at hidden sizes of transformers that are no power of two.
pub fn hidden_sizes() -> Vec<Norm> {
    of_rows([768, 1280, 3072, 5120, 7168, 12_288, 14_336, 28_672])
}

fn of_rows(lengths: impl IntoIterator<Item = usize>) -> Vec<Norm> {
    let norms = lengths
        .into_iter()
        .flat_map(|cols| [Norm::LayerNorm(cols), Norm::RmsNorm(cols)]);
    norms.collect()
}

/// Norms of feature maps in ResNet-50, a diffusion UNet, style transfer and ConvNeXt.
pub fn maps() -> Vec<Norm> {
    use OfMaps::*;
    let norms = [
        (BatchNorm, [64, 112, 112]),
        (BatchNorm, [1024, 14, 14]),
        (BatchNorm, [2048, 7, 7]),
        (BatchNormChannelsLast, [64, 112, 112]),
        (BatchNormChannelsLast, [256, 56, 56]),
        (BatchNormChannelsLast, [2048, 7, 7]),
        (BatchNormGiven, [64, 112, 112]),
        (BatchNormGiven, [2048, 7, 7]),
        (BatchNormGivenChannelsLast, [64, 112, 112]),
        (BatchNormGivenChannelsLast, [256, 56, 56]),
        (BatchNormGivenPadded, [256, 56, 56]),
        (BatchNormGivenPadded, [1024, 14, 14]),
        (BatchNormGivenPadded, [2048, 7, 7]),
        (GroupNorm, [320, 64, 64]),
        (GroupNorm, [1280, 16, 16]),
        (GroupNorm, [2048, 7, 7]),
        (GroupNormChannelsLast, [320, 64, 64]),
        (GroupNormChannelsLast, [1280, 16, 16]),
        (InstanceNorm, [64, 128, 128]),
        (InstanceNorm, [128, 45, 45]),
        (InstanceNormChannelsLast, [64, 128, 128]),
        (LayerNormOfChannels, [96, 56, 56]),
        (LayerNormOfChannels, [192, 28, 28]),
        (LayerNormOfChannels, [384, 14, 14]),
        (LayerNormOfChannels, [768, 7, 7]),
    ];
    norms.map(|(op, map)| Norm::Maps(op, map)).to_vec()
}

impl Norm {
    /// Name in the benchmark's rows.
    pub fn name(&self) -> &'static str {
        match self {
            Self::LayerNorm(_) => "layer_norm",
            Self::RmsNorm(_) => "rms_norm",
            Self::Maps(of_maps, _) => match of_maps {
                OfMaps::BatchNorm => "batch_norm",
                OfMaps::BatchNormChannelsLast => "batch_norm_channels_last",
                OfMaps::BatchNormGiven => "batch_norm_given",
                OfMaps::BatchNormGivenChannelsLast => "batch_norm_given_channels_last",
                OfMaps::BatchNormGivenPadded => "batch_norm_given_padded",
                OfMaps::GroupNorm => "group_norm",
                OfMaps::GroupNormChannelsLast => "group_norm_channels_last",
                OfMaps::InstanceNorm => "instance_norm",
                OfMaps::InstanceNormChannelsLast => "instance_norm_channels_last",
                OfMaps::LayerNormOfChannels => "layer_norm_of_channels",
            },
        }
    }

    /// Description of about `elements` elements, with a batch of at least 1.
    fn desc(&self, client: &Client, elements: usize, dtype: DType) -> NormDesc {
        let (of_maps, [channels, height, width]) = match *self {
            Self::LayerNorm(cols) | Self::RmsNorm(cols) => {
                let input = TensorDesc::contiguous([(elements / cols).max(1), cols], dtype);
                let param = TensorDesc::contiguous([cols], dtype);
                let (statistics, bias) = match self {
                    Self::RmsNorm(_) => (Statistics::MeanSquare, None),
                    _ => (Statistics::MeanVariance, Some(param.clone())),
                };
                return NormDesc::new(input, [1], statistics)
                    .with_scale(param)
                    .with_bias(bias);
            }
            Self::Maps(of_maps, map) => (of_maps, map),
        };
        let batch = (elements / channels / height / width).max(1);
        let mut shape = vec![batch, channels, height, width];
        let mut input = TensorDesc::contiguous(shape.clone(), dtype);
        let mut params = vec![1, channels, 1, 1];
        let row = width * channels;
        let channels_last = vec![height * row, 1, row, channels];
        let axes = match of_maps {
            OfMaps::BatchNorm | OfMaps::BatchNormGiven => vec![0, 2, 3],
            OfMaps::BatchNormGivenPadded => {
                let layout = client.empty_tensor(shape.clone().into(), dtype.size());
                input.layout.strides = layout.strides.to_vec();
                vec![0, 2, 3]
            }
            OfMaps::BatchNormChannelsLast | OfMaps::BatchNormGivenChannelsLast => {
                input.layout.strides = channels_last;
                vec![0, 2, 3]
            }
            OfMaps::GroupNorm | OfMaps::GroupNormChannelsLast => {
                let members = channels / GROUPS;
                shape = vec![batch, GROUPS, members, height, width];
                input = TensorDesc::contiguous(shape, dtype);
                if of_maps == OfMaps::GroupNormChannelsLast {
                    input.layout.strides = vec![height * row, members, 1, row, channels];
                }
                params = vec![1, GROUPS, members, 1, 1];
                vec![2, 3, 4]
            }
            OfMaps::InstanceNorm => vec![2, 3],
            OfMaps::InstanceNormChannelsLast => {
                input.layout.strides = channels_last;
                vec![2, 3]
            }
            OfMaps::LayerNormOfChannels => vec![1],
        };
        let param = TensorDesc::contiguous(params, dtype);
        let statistics = match of_maps {
            OfMaps::BatchNormGiven
            | OfMaps::BatchNormGivenChannelsLast
            | OfMaps::BatchNormGivenPadded => Statistics::Provided {
                mean: param.clone(),
                variance: param.clone(),
            },
            _ => Statistics::MeanVariance,
        };
        NormDesc::new(input, axes, statistics)
            .with_scale(param.clone())
            .with_bias(param)
    }
}

/// A norm, forward and backward, with its buffers.
struct Problem<'a> {
    client: &'a Client,
    op: &'static str,
    forward: NormDesc,
    backward: BackwardDesc,
    input: Handle,
    /// Scale, bias and provided statistics, per channel or column.
    param: Handle,
    saved: Handle,
    above: Handle,
}

/// Backward pass whose gradients have the layout of the input.
fn back(forward: &NormDesc) -> BackwardDesc {
    BackwardDesc {
        output_gradient: forward.input.clone(),
        input_gradient: Some(forward.input.clone()),
        ..BackwardDesc::new(forward.clone())
    }
}

impl<'a> Problem<'a> {
    fn new(client: &'a Client, norm: &Norm, elements: usize, dtype: DType) -> Self {
        let forward = norm.desc(client, elements, dtype);
        // One repeated block of noise is enough, since times hardly depend on the values. It is
        // positive, as a provided variance must be.
        let block: Vec<f64> = (0..1 << 16)
            .map(|position| noise(7, position) + 1.5)
            .collect();
        let block = encode(dtype, &block);
        let fill = |desc: &TensorDesc| {
            let layout = &desc.layout;
            // Includes the padding of the last pitched row.
            let elements = layout.shape[0] * layout.strides[0].max(1);
            let elements = elements.max(layout.checked_elements().unwrap_or(0));
            let bytes = elements * dtype.size();
            let repeated = block.repeat(bytes.div_ceil(block.len()));
            client.create_from_slice(&repeated[..bytes])
        };
        let pairs = forward.statistics_desc();
        let rows = pairs.shape().iter().product::<usize>() / 2;
        let pairs = encode(pairs.dtype, &[0.0, 1.0].repeat(rows));
        Self {
            client,
            op: norm.name(),
            backward: back(&forward),
            input: fill(&forward.input),
            param: fill(forward.scale.as_ref().expect("every norm here has one")),
            saved: client.create_from_slice(&pairs),
            above: fill(&forward.input),
            forward,
        }
    }

    fn measure(&self, candidates: Candidates, row: &mut dyn FnMut(Throughput)) {
        let hardware = hardware(self.client);
        let all = knobs(&hardware);

        let tensors = self.forward_tensors();
        let tuned = tuned_forward(self.client, &self.forward, &tensors, Duration::MAX);
        let tuned = tuned.expect("the device can run it");
        let problem = problem_on(&self.forward, &hardware, StrategyChoice::Tuned)
            .expect("a valid description");
        let places = forward_candidates(&problem, &hardware).expect("a plan");
        for (knobs, is_analytic) in chosen(candidates, &all, places, tuned) {
            let plan = plan_for(self.client, &self.forward, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.forward_tensors();
                let outputs = launch_forward(self.client, &self.forward, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            let result = self.row("forward", 2, time, plan.to_string());
            row(marked(result, knobs, is_analytic, tuned));
        }

        if self.is_provided() {
            return;
        }
        let desc = &self.backward;
        let tensors = self.gradient_tensors();
        let tuned = tuned_backward(self.client, desc, &tensors, Duration::MAX)
            .expect("the device can run it");
        let problem = input_problem_on(desc, sums_on(desc, &hardware), &hardware).expect("valid");
        let places = backward_candidates(&problem, &hardware).expect("a plan");
        for (knobs, is_analytic) in chosen(candidates, &all, places, tuned) {
            let plan = plan_backward_for(self.client, desc, knobs.into()).expect("a candidate");
            let time = self.time(|| {
                let tensors = self.gradient_tensors();
                let outputs = launch_backward(self.client, desc, &tensors, knobs.into());
                outputs.expect("it was planned");
            });
            let result = self.row("backward", 3, time, plan.to_string());
            row(marked(result, knobs, is_analytic, tuned));
        }
    }

    fn forward_tensors(&self) -> ForwardTensors {
        let is_provided = self.is_provided();
        ForwardTensors {
            scale: Some(self.param.clone()),
            bias: self.forward.bias.as_ref().map(|_| self.param.clone()),
            mean: is_provided.then(|| self.param.clone()),
            variance: is_provided.then(|| self.param.clone()),
            ..ForwardTensors::new(self.input.clone())
        }
    }

    fn gradient_tensors(&self) -> BackwardTensors {
        BackwardTensors {
            input: self.input.clone(),
            output_gradient: self.above.clone(),
            saved: Some(self.saved.clone()),
            scale: Some(self.param.clone()),
            bias: self.forward.bias.as_ref().map(|_| self.param.clone()),
            input_gradient: None,
        }
    }

    fn is_provided(&self) -> bool {
        matches!(self.forward.statistics, Statistics::Provided { .. })
    }

    /// Median time of a run.
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
        pass: &'static str,
        tensors: usize,
        time: Option<Duration>,
        plan: String,
    ) -> Throughput {
        let dtype = self.forward.input.dtype;
        let problem = self.forward.problem().expect("a valid description");
        let (rows, cols) = (problem.rows, problem.cols);
        let bytes = tensors * rows * cols * dtype.size();
        let seconds = time.map(|time| time.as_secs_f64());
        let rate = seconds.map(|seconds| bytes as f64 / seconds);
        let copy = copy_rate(self.client, bytes);
        Throughput {
            op: self.op.to_owned(),
            pass: pass.to_owned(),
            dtype: dtype.to_string(),
            shape: self.forward.input.shape().to_vec(),
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

/// A row of the plan of these knobs.
fn marked(row: Throughput, knobs: Knobs, is_analytic: bool, tuned: Knobs) -> Throughput {
    Throughput {
        candidate: knobs.to_string().replace(' ', ","),
        analytic: is_analytic,
        tuned: knobs == tuned,
        ..row
    }
}

/// The candidates to measure, and true for the analytic plan, which is the first.
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

/// Bytes per second of CubeCL's copy probe, which caches its results.
fn copy_rate(client: &Client, bytes: usize) -> Option<f64> {
    let spec = MemorySpec::new(MemoryAccess::Copy, bytes as u64);
    let key = ThroughputKey {
        mode: ThroughputMode::Memory(spec),
    };
    let value = measure_peak_throughput(client, key).ok()?;
    Some(value.bytes_per_s(&key))
}
