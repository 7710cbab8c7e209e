//! Tensors, passes and timing of the providers that run through Burn.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use burn::tensor::{Device, Gradients, Tensor, TensorData, capture};
use cubenorm::Quantized;

use super::Subject;
use crate::{
    check::Outcome,
    clock::Clock,
    fusion,
    problems::{DType, HostData, Layout, Pass, Problem},
};

/// Bytes that inputs, outputs and gradients of one sample may hold together. A GPU with memory of its own has a larger
/// share to give: with one large run per sample, a caller would wait for a round trip.
pub(super) fn memory(device: &Device) -> usize {
    const LEAST: usize = 512 << 20;
    const SHARE: u64 = 16;
    own_memory(device).map_or(LEAST, |all| LEAST.max((all / SHARE) as usize))
}

/// Bytes of a GPU's own memory, as its runtime says; none on a CPU and on its Vulkan drivers.
fn own_memory(device: &Device) -> Option<u64> {
    let client = crate::tune::client(device).ok()?;
    let properties = client.properties();
    let is_apart = properties.hardware.num_cpu_cores.is_none();
    properties.memory.max_memory().filter(|_| is_apart)
}

fn sync(device: &Device) -> Result<()> {
    device.sync().context("the device failed")
}

/// True for a GPU with memory of its own.
fn is_apart(device: &Device) -> bool {
    own_memory(device).is_some()
}

/// Tensors of a sample that differ. Further runs take them again.
pub(super) const TENSORS: usize = 24;

/// Largest number of runs of a sample. CubeCL's queue has room for 64 messages, and a launch with
/// its output takes two. A sender that finds it full spins on a core, which kernels need if the device is a CPU. On a
/// GPU the wait for the end of a sample is longer than many short runs.
pub(super) fn most_runs(device: &Device) -> usize {
    match is_apart(device) {
        true => 8 * TENSORS,
        false => TENSORS,
    }
}

/// A normalization with its parameters in place, of the input and the second tensor, if the operator has one.
pub(super) type Forward<const D: usize> = Box<dyn Fn(Tensor<D>, Option<Tensor<D>>) -> Results<D>>;

/// What a normalization returns.
pub(super) enum Results<const D: usize> {
    One(Tensor<D>),
    /// The output, and the sum or the key.
    Two(Tensor<D>, Tensor<D>),
    Codes(Quantized<D>),
}

impl<const D: usize> Results<D> {
    /// A tensor that is there as soon as all are.
    fn output(&self) -> &Tensor<D> {
        match self {
            Self::One(output) | Self::Two(output, _) => output,
            Self::Codes(codes) => &codes.scale,
        }
    }
}

/// A library that has the operators of the catalogue.
pub(super) trait Library {
    /// False for an operation that is no norm, whose result no reference has.
    const IS_NORM: bool = true;
    /// The orders of runs to choose from, the one of recorded runs first.
    const ORDERS: &'static [Order] = &[Order::ByTensors, Order::ByAsking];

    /// The operator of a problem with its parameters on the device.
    fn forward<const D: usize>(
        &self,
        problem: &Problem,
        gamma: Tensor<1>,
        beta: Tensor<1>,
    ) -> Forward<D>;
}

/// Uploads a problem for a library.
pub(super) fn subject<L: Library>(
    library: &L,
    problem: &Problem,
    data: &HostData,
    device: &Device,
) -> Result<Box<dyn Subject>> {
    Ok(match problem.shape.len() {
        1 => Box::new(Norm::<1>::new(library, problem, data, device)?),
        2 => Box::new(Norm::<2>::new(library, problem, data, device)?),
        3 => Box::new(Norm::<3>::new(library, problem, data, device)?),
        4 => Box::new(Norm::<4>::new(library, problem, data, device)?),
        rank => bail!("a shape of {rank} dimensions is not in the catalogue"),
    })
}

struct Norm<const D: usize> {
    forward: Forward<D>,
    is_norm: bool,
    pass: Pass,
    layout: Layout,
    /// One input per run of a sample. A single one would stay in the device's cache, which no
    /// network does.
    inputs: Vec<(Tensor<D>, Option<Tensor<D>>)>,
    device: Device,
    most_runs: usize,
    orders: &'static [Order],
    order: Order,
}

/// The means by which fusion learns that a run is over, so that it never merges two.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// None: nothing of a run can be merged.
    Free,
    /// A query that it answers when it has run everything. The memory that a run drops is then free
    /// before the next run.
    ByAsking,
    /// A dependency of the next run. Nothing waits, as in a network.
    ByTensors,
}

/// A run's result, kept until the device is idle. With fusion on, an output that is dropped earlier
/// is never computed.
#[allow(
    clippy::large_enum_variant,
    reason = "a handful of them, and a box would be one more allocation to time"
)]
enum Kept<const D: usize> {
    Output(Results<D>),
    Gradients(Tensor<D>, Results<D>, Gradients),
}

impl<const D: usize> Norm<D> {
    fn new<L: Library>(
        library: &L,
        problem: &Problem,
        data: &HostData,
        device: &Device,
    ) -> Result<Self> {
        let device = match problem.pass {
            Pass::Forward => device.clone(),
            Pass::Backward | Pass::Full => device.clone().autodiff(),
        };
        let trains = problem.pass != Pass::Forward;
        let dtype = match problem.dtype {
            DType::F32 => burn::tensor::DType::F32,
            DType::F16 => burn::tensor::DType::F16,
            DType::Bf16 => burn::tensor::DType::BF16,
        };
        let upload = |values: &[f32]| {
            let param = Tensor::<1>::from_data(values, (&device, dtype));
            if trains { param.require_grad() } else { param }
        };
        let mut shape = problem.shape.clone();
        if problem.layout == Layout::ChannelsLast {
            shape[1..].rotate_left(1);
        }
        let second_shape = problem.second_shape();
        // Input and output of a run, and with a backward their gradients and what it saved.
        let one = if problem.pass == Pass::Forward { 2 } else { 5 };
        let tensors = one * (1 + usize::from(second_shape.is_some()));
        let bytes = problem.elements() * problem.dtype.size();
        let runs = (memory(&device) / (tensors * bytes)).clamp(1, most_runs(&device));
        // Uploaded once: the device copies faster than the host converts.
        let uploaded = |values: Vec<f32>, shape: Vec<usize>| {
            Tensor::<D>::from_data(TensorData::new(values, shape), (&device, dtype))
        };
        let input = uploaded(problem.stored(&data.input), shape);
        let second = second_shape.map(|shape| uploaded(data.second.clone(), shape));
        let mut inputs = Vec::new();
        for _ in 0..runs.min(TENSORS) {
            let copy = |tensor: &Tensor<D>| tensor.clone().mul_scalar(1);
            let (input, second) = (copy(&input), second.as_ref().map(copy));
            // Else fusion would merge the copies to a launch with more outputs than some devices bind.
            sync(&device)?;
            let input = match problem.layout {
                Layout::Contiguous => input,
                Layout::ChannelsLast => input.movedim(-1, 1),
            };
            inputs.push((input, second));
        }
        let norm = Self {
            is_norm: L::IS_NORM,
            forward: library.forward(problem, upload(&data.gamma), upload(&data.beta)),
            pass: problem.pass,
            layout: problem.layout,
            inputs,
            device,
            most_runs: runs,
            orders: L::ORDERS,
            order: match problem.pass {
                Pass::Forward | Pass::Full => L::ORDERS[0],
                Pass::Backward => Order::ByAsking,
            },
        };
        norm.sync()?;
        Ok(norm)
    }

    fn sync(&self) -> Result<()> {
        sync(&self.device)
    }

    /// A run's own input, made to depend on the run before it if that is the order.
    fn input(&self, run: usize, before: Option<&Kept<D>>) -> (Tensor<D>, Option<Tensor<D>>) {
        let (input, second) = self.inputs[run % self.inputs.len()].clone();
        let input = match (self.order, before) {
            (Order::ByTensors, Some(Kept::Output(before))) => {
                fusion::after(input, before.output().clone())
            }
            (Order::ByTensors, Some(Kept::Gradients(leaf, _, gradients))) => {
                let before = leaf.grad(gradients).expect("the input has a gradient");
                Tensor::from_inner(fusion::after(input.inner(), before))
            }
            (Order::ByAsking | Order::Free, _) | (_, None) => input,
        };
        (input, second)
    }

    /// Has fusion run its recorded operations, if the order is by asking.
    ///
    /// A flush does that too, but on a CPU it waits until the device is idle, once a run. Neither a
    /// network nor the copy does that. Asking for the memory in use waits for no kernel, only for
    /// the threads between.
    fn hand_over(&self) {
        if let Order::ByAsking = self.order {
            black_box(self.device.memory_pool_usage());
        }
    }

    /// A tracked forward pass. Both tensors have a gradient.
    fn tracked(&self, run: usize, before: Option<&Kept<D>>) -> (Tensor<D>, Results<D>) {
        let (input, second) = self.input(run, before);
        let input = input.require_grad();
        let results = (self.forward)(input.clone(), second.map(Tensor::require_grad));
        (input, results)
    }

    fn gradients(&self, input: Tensor<D>, results: Results<D>) -> Kept<D> {
        let output = results.output().clone();
        // In memory order, so that `dx` has the layout of the input.
        let gradients = match self.layout {
            Layout::Contiguous => output.backward(),
            Layout::ChannelsLast => output.movedim(1, -1).backward(),
        };
        Kept::Gradients(input, results, gradients)
    }

    fn run(&self, run: usize, before: Option<&Kept<D>>) -> Kept<D> {
        match self.pass {
            Pass::Forward => {
                let (input, second) = self.input(run, before);
                Kept::Output((self.forward)(input, second))
            }
            Pass::Backward | Pass::Full => {
                let (input, results) = self.tracked(run, before);
                self.gradients(input, results)
            }
        }
    }

    /// Times `run` with each item and the result for the item before it. Keeps the results until
    /// the device is idle.
    fn timed<T>(
        &self,
        items: impl Iterator<Item = T>,
        run: impl Fn(T, Option<&Kept<D>>) -> Kept<D>,
        clock: &Clock,
    ) -> Result<Duration> {
        self.sync()?;
        let runs = || {
            let mut kept = Vec::with_capacity(self.most_runs);
            for item in items {
                let done = run(item, kept.last());
                self.hand_over();
                kept.push(done);
            }
            kept
        };
        let (time, kept) = clock.time(runs, || self.sync())?;
        black_box(kept);
        Ok(time)
    }
}

impl<const D: usize> Subject for Norm<D> {
    fn most_runs(&self) -> usize {
        self.most_runs
    }

    /// Chooses the faster order. Burn's chains of reductions take up to 1.7 times the time if
    /// nothing waits. A single launch takes 0.6 to 0.9 times.
    fn settle(&mut self, runs: usize) -> Result<()> {
        // A backward pass alone depends on no result of another run.
        if self.pass == Pass::Backward {
            return Ok(());
        }
        const ROUNDS: usize = 3;
        let mut fastest = (Duration::MAX, self.order);
        for _ in 0..ROUNDS {
            for &way in self.orders {
                self.order = way;
                let time = self.time(runs, &Clock::Host)?;
                if time < fastest.0 {
                    fastest = (time, way);
                }
            }
        }
        self.order = fastest.1;
        Ok(())
    }

    fn time(&mut self, runs: usize, clock: &Clock) -> Result<Duration> {
        if self.pass != Pass::Backward {
            return self.timed(0..runs, |run, before| self.run(run, before), clock);
        }
        let forwards: Vec<_> = (0..runs)
            .map(|run| {
                let tracked = self.tracked(run, None);
                self.hand_over();
                tracked
            })
            .collect();
        let back = |(input, results), _: Option<&_>| self.gradients(input, results);
        self.timed(forwards.into_iter(), back, clock)
    }

    fn replay(&mut self, runs: usize, samples: usize) -> Result<Vec<Duration>> {
        /// Replays of a sample: a short graph is nothing beside the wait for its end.
        const REPLAYS: usize = 10;
        // The results of a forward pass outside of the graph would be inputs of it.
        if self.pass == Pass::Backward {
            return Ok(Vec::new());
        }
        // A graph has no place for a query.
        let order = std::mem::replace(&mut self.order, self.orders[0]);
        let this = &*self;
        let record = || {
            let mut kept: Vec<Kept<D>> = Vec::with_capacity(runs);
            for run in 0..runs {
                kept.push(this.run(run, kept.last()));
            }
            kept
        };
        let mut graph = capture(&this.device.clone().without_autodiff(), record);
        let mut times = Vec::new();
        if graph.is_hardware() {
            // The first sample loads the graph.
            for _ in 0..=samples {
                this.sync()?;
                let start = Instant::now();
                for _ in 0..REPLAYS {
                    // SAFETY: 1. The graph and `self` hold all tensors that the runs read and write. 2. No other thread
                    // has them. 3. Nothing is written to them between two replays.
                    unsafe { graph.replay() };
                }
                this.sync()?;
                times.push(start.elapsed().div_f64(REPLAYS as f64));
            }
            times.remove(0);
        }
        drop(graph);
        self.order = order;
        Ok(times)
    }

    fn outcome(&mut self) -> Result<Option<Outcome>> {
        if !self.is_norm {
            return Ok(None);
        }
        // The device casts faster than the host.
        let read = |tensor: Tensor<D>| {
            let data = tensor.cast(burn::tensor::DType::F32).try_into_data();
            let data = data.context("the output could not be read")?;
            data.try_into_vec::<f32>().context("the output is not f32")
        };
        let (results, gradient) = match self.run(0, None) {
            Kept::Output(results) => (results, None),
            Kept::Gradients(input, results, gradients) => {
                let gradient = input.grad(&gradients);
                let gradient = gradient.context("the input has no gradient")?;
                (results, Some(read(gradient)?))
            }
        };
        let (output, second) = match results {
            Results::One(output) => (output, None),
            Results::Two(output, second) => (output, Some(second)),
            Results::Codes(codes) => (codes.dequantized(), None),
        };
        Ok(Some(Outcome {
            output: read(output)?,
            second: second.map(read).transpose()?,
            gradient,
        }))
    }
}
