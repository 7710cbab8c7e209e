//! Host time of a warm call: heap allocations and microseconds of this project's code.
//!
//! A call has two parts. At the call site it is checked and registered with Burn. Later the backend
//! looks up its plan, allocates outputs and launches. This program measures each part by itself:
//!
//! - `call site`: a call minus an operation that does nothing, both registered with Burn's fusion.
//! - `backend`: [`NormBackend`] on tensors of the device, without the time in CubeCL's allocator and
//!   launcher. [`watch_memory`] tells them apart: the time from the last bound buffer to the end of
//!   the launch is the launcher's.
//!
//! Figures are medians of single calls on one thread. The device is `cpu`, which needs no driver.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use anyhow::{Result, ensure};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Device, Distribution, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::server::Handle;
use cubecl::zspace::metadata::Metadata;
use cubenorm::ops::{
    BackwardOperands, BackwardSpec, NormBackend, NormSpec, Operands, Optional, Reduction, View,
};
use cubenorm::{MeanVarianceOptions, Tuning};
use cubenorm_core::{Kernel, WrittenStatistics};
use cubenorm_kernels::{MemoryWatch, watch_memory};

/// Calls of a measurement, and calls between two waits for the device.
const CALLS: usize = 4_000;
const AT_ONCE: usize = 20;

/// Allocator that counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread may free memory after its locals are gone.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: Every call is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: The caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: The caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Nanoseconds and allocations.
type Cost = [f64; 2];

fn minus(one: Cost, other: Cost) -> Cost {
    [one[0] - other[0], one[1] - other[1]]
}

/// Reading of this thread's clock and allocation counter.
#[derive(Debug, Clone, Copy)]
struct Reading(Instant, u64);

impl Reading {
    fn now() -> Self {
        Self(Instant::now(), ALLOCATIONS.with(Cell::get))
    }

    /// Cost since an earlier reading.
    fn since(self, earlier: Self) -> Cost {
        let time = self.0.duration_since(earlier.0).as_nanos();
        [time as f64, (self.1 - earlier.1) as f64]
    }
}

/// Parts of a call of the backend.
const OURS: usize = 0;
const ALLOCATOR: usize = 1;
const LAUNCHER: usize = 2;

/// A call of the backend, split into its parts.
#[derive(Debug, Clone, Copy)]
struct Split {
    last: Reading,
    parts: [Cost; 3],
    /// Readings of the clock, whose own time is subtracted.
    readings: f64,
}

thread_local! {
    static SPLIT: Cell<Option<Split>> = const { Cell::new(None) };
}

/// Adds the cost since the last reading to a part.
fn charge(part: usize) {
    SPLIT.with(|cell| {
        let Some(mut split) = cell.get() else {
            return;
        };
        let now = Reading::now();
        let [time, allocations] = now.since(split.last);
        split.parts[part][0] += time;
        split.parts[part][1] += allocations;
        split.readings += 1.0;
        split.last = now;
        cell.set(Some(split));
    });
}

fn watch() -> MemoryWatch {
    MemoryWatch {
        allocate: |client: &Client, bytes: usize| {
            charge(OURS);
            let handle = client.empty(bytes);
            charge(ALLOCATOR);
            handle
        },
        upload: |client: &Client, bytes: &[u8]| {
            charge(OURS);
            let handle = client.create_from_slice(bytes);
            charge(ALLOCATOR);
            handle
        },
        bind: |handle: &Handle| {
            charge(OURS);
            handle.clone()
        },
        launched: |_: &Client, _: Kernel| charge(LAUNCHER),
    }
}

/// Median of each column.
fn median(mut rows: Vec<Cost>) -> Cost {
    [0, 1].map(|which| {
        rows.sort_unstable_by(|a, b| a[which].total_cmp(&b[which]));
        rows[rows.len() / 2][which]
    })
}

/// Cost of a call at the call site.
fn call_site<T>(device: &Device, mut call: impl FnMut() -> T) -> Cost {
    let mut rows = Vec::with_capacity(CALLS);
    // Results stay alive: fusion leaves out an operation whose result is dropped.
    let mut kept = Vec::with_capacity(AT_ONCE);
    for round in 0..CALLS / AT_ONCE {
        for _ in 0..AT_ONCE {
            let start = Reading::now();
            let result = call();
            let cost = Reading::now().since(start);
            kept.push(result);
            // The first round plans and compiles.
            if round > 0 {
                rows.push(cost);
            }
        }
        device.sync().expect("the device computes");
        kept.clear();
    }
    median(rows)
}

/// Cost of a call of the backend: this project's part, the allocator's and the launcher's.
fn backend<I, O>(mut input: impl FnMut() -> I, call: impl Fn(I) -> O) -> [Cost; 3] {
    let clock = (0..CALLS).map(|_| {
        let start = Reading::now();
        Reading::now().since(start)
    });
    let clock = median(clock.collect());
    let mut rows: [Vec<Cost>; 3] = Default::default();
    let client = cubecl::Device::Cpu(Default::default()).client();
    for round in 0..CALLS / AT_ONCE {
        let inputs: Vec<I> = (0..AT_ONCE).map(|_| input()).collect();
        for input in inputs {
            SPLIT.set(Some(Split {
                last: Reading::now(),
                parts: Default::default(),
                readings: 0.0,
            }));
            let output = call(input);
            charge(OURS);
            let mut split = SPLIT.take().expect("it was set above");
            drop(output);
            split.parts[OURS][0] -= split.readings * clock[0];
            if round > 0 {
                rows.iter_mut()
                    .zip(split.parts)
                    .for_each(|(rows, part)| rows.push(part));
            }
        }
        cubecl::future::block_on(client.sync()).expect("the device computes");
    }
    rows.map(median)
}

/// Operations that do nothing, with one to three inputs: Burn's own part of a call.
#[backend_extension(Cube, Fusion)]
trait Nothing: Backend {
    #[fusion(dtype = input, shape = input)]
    fn nothing1(input: FloatTensor<Self>) -> FloatTensor<Self> {
        input
    }

    #[fusion(dtype = input, shape = input)]
    fn nothing2(input: FloatTensor<Self>, second: FloatTensor<Self>) -> FloatTensor<Self> {
        drop(second);
        input
    }

    #[fusion(dtype = input, shape = input)]
    fn nothing3(
        input: FloatTensor<Self>,
        second: FloatTensor<Self>,
        third: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        drop((second, third));
        input
    }
}

impl Nothing for CubeBackend {}

/// A tensor of the device's backend, filled with ones.
fn ones<const D: usize>(shape: [usize; D]) -> CubeTensor {
    let device = cubecl::Device::Cpu(Default::default());
    let client = device.client();
    let elements: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..elements).flat_map(|_| 1f32.to_ne_bytes()).collect();
    let mut strides = [1; D];
    for dim in (1..D).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    CubeTensor::new(
        client.clone(),
        client.create_from_slice(&bytes),
        Metadata::new(shape.to_vec(), strides.to_vec()),
        device,
        burn::tensor::DType::F32,
    )
}

fn line(name: &str, ours: Cost, rest: &[Cost]) {
    print!(
        "{name:<44} {:>6.2} us {:>3} allocations",
        ours[0] / 1e3,
        ours[1]
    );
    for (name, cost) in ["allocator", "launcher"].into_iter().zip(rest) {
        print!("   {name} {:>6.2} us {:>3}", cost[0] / 1e3, cost[1]);
    }
    println!();
}

fn call_sites() {
    let device = &Device::cpu();
    let random = |size: usize| Tensor::<1>::random([size], Distribution::Default, device);
    let x = Tensor::<2>::random([8, 64], Distribution::Default, device);
    let (gamma, beta) = (random(64), random(64));
    let maps = Tensor::<4>::random([2, 8, 4, 4], Distribution::Default, device);
    let (scale, bias) = (random(8), random(8));
    let rows = Tensor::<2>::random([2, 64], Distribution::Default, device);
    let batch = Tensor::<3>::random([2, 4, 64], Distribution::Default, device);
    // Clones are part of a call.
    let (x, gamma, beta) = (|| x.clone(), || gamma.clone(), || beta.clone());
    let (maps, scale, bias) = (|| maps.clone(), || scale.clone(), || bias.clone());
    let (rows, batch) = (|| rows.clone(), || batch.clone());
    let one = call_site(device, || Dispatch::nothing1(x().into_dispatch()));
    let two = call_site(device, || {
        Dispatch::nothing2(x().into_dispatch(), gamma().into_dispatch())
    });
    let three = call_site(device, || {
        let last = beta().into_dispatch();
        Dispatch::nothing3(x().into_dispatch(), gamma().into_dispatch(), last)
    });
    println!("Burn's fusion alone:");
    line("custom operation, 1 input", one, &[]);
    line("custom operation, 2 inputs", two, &[]);
    line("custom operation, 3 inputs", three, &[]);
    line("elementwise addition", call_site(device, || x() + x()), &[]);
    println!("call site, minus a custom operation of as many inputs:");
    let report = |name: &str, burn: Cost, cost: Cost| line(name, minus(cost, burn), &[]);
    let cost = call_site(device, || cubenorm::layer_norm(x(), gamma(), beta(), 1e-5));
    report("layer_norm", three, cost);
    let layer = cubenorm::nn::LayerNormConfig::new(64).init(device);
    let cost = call_site(device, || layer.forward(x()));
    report("nn::LayerNorm::forward", three, cost);
    let cost = call_site(device, || cubenorm::rms_norm(x(), gamma(), 1e-5));
    report("rms_norm", two, cost);
    let cost = call_site(device, || cubenorm::add_rms_norm(x(), x(), gamma(), 1e-5));
    report("add_rms_norm (2 outputs)", three, cost);
    let cost = call_site(device, || {
        cubenorm::instance_norm(maps(), scale(), bias(), 1e-5)
    });
    report("instance_norm", three, cost);
    let cost = call_site(device, || {
        cubenorm::group_norm(maps(), scale(), bias(), 4, 1e-5)
    });
    report("group_norm", three, cost);
    let cost = call_site(device, || {
        cubenorm::batch_norm(maps(), None, None, scale(), bias(), 1e-5)
    });
    report("batch_norm (no gamma, beta)", three, cost);
    let cost = call_site(device, || {
        cubenorm::ada_layer_norm(batch(), rows(), rows(), 1e-5)
    });
    report("ada_layer_norm", three, cost);
    let options = MeanVarianceOptions::new([1, 2]);
    let cost = call_site(device, || {
        cubenorm::mean_variance_norm(batch(), None, None, &options)
    });
    report("mean_variance_norm", one, cost);
    let cost = call_site(device, || cubenorm::lp_norm(x(), cubenorm::Lp::L2, 1));
    report("lp_norm", one, cost);
    let device = &device.clone().autodiff();
    let tracked = Tensor::<2>::random([8, 64], Distribution::Default, device).require_grad();
    let cost = call_site(device, || {
        cubenorm::rms_norm(tracked.clone(), gamma(), 1e-5)
    });
    report("rms_norm, tracked (autodiff's part included)", two, cost);
    let cost = call_site(device, || tracked.clone() + tracked.clone());
    line("elementwise addition, tracked, whole", cost, &[]);
}

fn backends() {
    println!("backend, without CubeCL's allocator and launcher:");
    let (x, gamma, beta) = (ones([8, 64]), ones([64]), ones([64]));
    let (maps, scale, bias) = (ones([2, 8, 4, 4]), ones([8]), ones([8]));
    let some = |tensor: &CubeTensor| Optional::Some(tensor.clone());
    let rows = || Operands {
        scale: some(&gamma),
        ..Operands::<CubeBackend>::new(x.clone())
    };
    let channels = || Operands {
        scale: some(&scale),
        bias: some(&bias),
        ..Operands::<CubeBackend>::new(maps.clone())
    };
    let view = |input: [usize; 4], params: [usize; 4]| {
        Some(View {
            input: input.into(),
            params: params.into(),
        })
    };
    let report = |name: &str, [ours, rest @ ..]: [Cost; 3]| line(name, ours, &rest);
    let forward = |name: &str, spec: &NormSpec, operands: &dyn Fn() -> Operands<CubeBackend>| {
        let run = |(operands, spec)| CubeBackend::normalize(operands, spec);
        report(name, backend(|| (operands(), spec.clone()), run));
    };
    let row = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
    let affine = || Operands {
        bias: some(&beta),
        ..rows()
    };
    forward("layer_norm", &row, &affine);
    let mut square = NormSpec {
        reduction: Reduction::MeanSquare,
        ..row.clone()
    };
    forward("rms_norm", &square, &rows);
    square.writes_sum = true;
    let added = || Operands {
        residual: some(&x),
        ..rows()
    };
    forward("add_rms_norm", &square, &added);
    let groups = NormSpec {
        view: view([2, 4, 2, 16], [1, 4, 2, 1]),
        ..NormSpec::new([2, 3], Reduction::MeanVariance, 1e-5)
    };
    forward("group_norm", &groups, &channels);
    let mut batch = NormSpec {
        view: view([2, 8, 4, 4], [1, 8, 1, 1]),
        ..NormSpec::new([0, 2, 3], Reduction::Provided, 1e-5)
    };
    let provided = || Operands {
        mean: some(&scale),
        variance: some(&bias),
        ..channels()
    };
    forward("batch_norm", &batch, &provided);
    batch.reduction = Reduction::MeanVariance;
    batch.written_statistics = Some(WrittenStatistics::MeanVariance);
    forward("batch_norm_train", &batch, &channels);
    let kept = NormSpec {
        written_statistics: Some(WrittenStatistics::MeanRstd),
        ..row.clone()
    };
    let saved = CubeBackend::normalize(affine(), kept).statistics;
    let spec = BackwardSpec {
        norm: row,
        wants_input: true,
        wants_scale: true,
        wants_bias: true,
        wants_gate: false,
    };
    let gradients = || BackwardOperands {
        input: x.clone(),
        output_gradient: x.clone(),
        saved: saved.clone(),
        scale: some(&gamma),
        bias: some(&beta),
        sum_gradient: Optional::None,
        gate: Optional::None,
    };
    let run = |(operands, spec)| CubeBackend::normalize_backward(operands, spec);
    let cost = backend(|| (gradients(), spec.clone()), run);
    report("layer_norm backward", cost);
}

fn main() -> Result<()> {
    cubenorm::set_tuning(Tuning::Off);
    call_sites();
    // After the call sites: their backends run on other threads, without hooks.
    ensure!(watch_memory(watch()), "something else watches the memory");
    backends();
    Ok(())
}
