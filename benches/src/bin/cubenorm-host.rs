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
static ALLOCATOR: Counting = Counting;

/// Time and allocations of one call.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nanoseconds: f64,
    allocations: f64,
}

impl std::ops::Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            nanoseconds: self.nanoseconds - other.nanoseconds,
            allocations: self.allocations - other.allocations,
        }
    }
}

/// Reading of this thread's clock and allocation counter.
#[derive(Debug, Clone, Copy)]
struct Reading {
    time: Instant,
    allocations: u64,
}

impl Reading {
    fn now() -> Self {
        Self {
            time: Instant::now(),
            allocations: ALLOCATIONS.with(Cell::get),
        }
    }

    /// Cost since an earlier reading.
    fn since(self, earlier: Self) -> [u64; 2] {
        let time = self.time.duration_since(earlier.time).as_nanos() as u64;
        [time, self.allocations - earlier.allocations]
    }
}

/// Splits a call of the backend: this project's code, CubeCL's allocator, CubeCL's launcher.
#[derive(Debug, Clone, Copy)]
struct Split {
    last: Reading,
    ours: [u64; 2],
    allocator: [u64; 2],
    launcher: [u64; 2],
    /// Readings of the clock, whose own time is subtracted.
    readings: u64,
}

thread_local! {
    static SPLIT: Cell<Option<Split>> = const { Cell::new(None) };
}

/// Adds the cost since the last reading to a part.
fn charge(part: fn(&mut Split) -> &mut [u64; 2]) {
    SPLIT.with(|cell| {
        let Some(mut split) = cell.get() else {
            return;
        };
        let now = Reading::now();
        let [time, allocations] = now.since(split.last);
        let part = part(&mut split);
        part[0] += time;
        part[1] += allocations;
        split.readings += 1;
        split.last = now;
        cell.set(Some(split));
    });
}

fn watch() -> MemoryWatch {
    MemoryWatch {
        allocate: |client: &Client, bytes: usize| {
            charge(|split| &mut split.ours);
            let handle = client.empty(bytes);
            charge(|split| &mut split.allocator);
            handle
        },
        upload: |client: &Client, bytes: &[u8]| {
            charge(|split| &mut split.ours);
            let handle = client.create_from_slice(bytes);
            charge(|split| &mut split.allocator);
            handle
        },
        bind: |handle: &Handle| {
            charge(|split| &mut split.ours);
            handle.clone()
        },
        launched: |_: &Client, _: Kernel| charge(|split| &mut split.launcher),
    }
}

/// Median of each column.
fn median(mut rows: Vec<[f64; 2]>) -> Cost {
    let mut column = |which: usize| {
        rows.sort_unstable_by(|a, b| a[which].total_cmp(&b[which]));
        rows[rows.len() / 2][which]
    };
    Cost {
        nanoseconds: column(0),
        allocations: column(1),
    }
}

/// Time between two readings of the clock.
fn clock_cost() -> f64 {
    let rows = (0..CALLS).map(|_| {
        let start = Reading::now();
        let [time, _] = Reading::now().since(start);
        [time as f64, 0.0]
    });
    median(rows.collect()).nanoseconds
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
            let [time, allocations] = Reading::now().since(start);
            kept.push(result);
            // The first round plans and compiles.
            if round > 0 {
                rows.push([time as f64, allocations as f64]);
            }
        }
        device.sync().expect("the device computes");
        kept.clear();
    }
    median(rows)
}

/// Cost of a call of the backend: this project's part, the allocator's and the launcher's.
fn backend<I, O>(clock: f64, mut input: impl FnMut() -> I, call: impl Fn(I) -> O) -> [Cost; 3] {
    let mut rows: [Vec<[f64; 2]>; 3] = Default::default();
    let client = cubecl::Device::Cpu(Default::default()).client();
    for round in 0..CALLS / AT_ONCE {
        let inputs: Vec<I> = (0..AT_ONCE).map(|_| input()).collect();
        for input in inputs {
            SPLIT.set(Some(Split {
                last: Reading::now(),
                ours: [0; 2],
                allocator: [0; 2],
                launcher: [0; 2],
                readings: 0,
            }));
            let output = call(input);
            charge(|split| &mut split.ours);
            let split = SPLIT.take().expect("it was set above");
            drop(output);
            if round == 0 {
                continue;
            }
            let parts = [split.ours, split.allocator, split.launcher];
            for (which, part) in parts.into_iter().enumerate() {
                let own = match which {
                    0 => split.readings as f64 * clock,
                    _ => 0.0,
                };
                rows[which].push([part[0] as f64 - own, part[1] as f64]);
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
        ours.nanoseconds / 1e3,
        ours.allocations
    );
    for (name, cost) in ["allocator", "launcher"].into_iter().zip(rest) {
        let Cost {
            nanoseconds,
            allocations,
        } = cost;
        print!("   {name} {:>6.2} us {allocations:>3}", nanoseconds / 1e3);
    }
    println!();
}

fn call_sites() {
    let device = Device::cpu();
    let random = |size: usize| Tensor::<1>::random([size], Distribution::Default, &device);
    let x = Tensor::<2>::random([8, 64], Distribution::Default, &device);
    let (gamma, beta) = (random(64), random(64));
    let maps = Tensor::<4>::random([2, 8, 4, 4], Distribution::Default, &device);
    let (scale, bias) = (random(8), random(8));
    let rows = Tensor::<2>::random([2, 64], Distribution::Default, &device);
    let batch = Tensor::<3>::random([2, 4, 64], Distribution::Default, &device);
    let one = call_site(&device, || Dispatch::nothing1(x.clone().into_dispatch()));
    let two = call_site(&device, || {
        Dispatch::nothing2(x.clone().into_dispatch(), gamma.clone().into_dispatch())
    });
    let three = call_site(&device, || {
        Dispatch::nothing3(
            x.clone().into_dispatch(),
            gamma.clone().into_dispatch(),
            beta.clone().into_dispatch(),
        )
    });
    println!("Burn's fusion alone:");
    line("custom operation, 1 input", one, &[]);
    line("custom operation, 2 inputs", two, &[]);
    line("custom operation, 3 inputs", three, &[]);
    let add = call_site(&device, || x.clone() + x.clone());
    line("elementwise addition", add, &[]);
    println!("call site, minus a custom operation of as many inputs:");
    let report = |name: &str, cost: Cost, burn: Cost| line(name, cost - burn, &[]);
    let cost = call_site(&device, || {
        cubenorm::layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5)
    });
    report("layer_norm", cost, three);
    let layer = cubenorm::nn::LayerNormConfig::new(64).init(&device);
    let cost = call_site(&device, || layer.forward(x.clone()));
    report("nn::LayerNorm::forward", cost, three);
    let cost = call_site(&device, || {
        cubenorm::rms_norm(x.clone(), gamma.clone(), 1e-5)
    });
    report("rms_norm", cost, two);
    let cost = call_site(&device, || {
        cubenorm::add_rms_norm(x.clone(), x.clone(), gamma.clone(), 1e-5)
    });
    report("add_rms_norm (2 outputs)", cost, three);
    let cost = call_site(&device, || {
        cubenorm::instance_norm(maps.clone(), scale.clone(), bias.clone(), 1e-5)
    });
    report("instance_norm", cost, three);
    let cost = call_site(&device, || {
        cubenorm::group_norm(maps.clone(), scale.clone(), bias.clone(), 4, 1e-5)
    });
    report("group_norm", cost, three);
    let cost = call_site(&device, || {
        cubenorm::batch_norm(maps.clone(), None, None, scale.clone(), bias.clone(), 1e-5)
    });
    report("batch_norm (no gamma, beta)", cost, three);
    let cost = call_site(&device, || {
        cubenorm::ada_layer_norm(batch.clone(), rows.clone(), rows.clone(), 1e-5)
    });
    report("ada_layer_norm (with an addition)", cost, three);
    let options = MeanVarianceOptions::new([1, 2]);
    let cost = call_site(&device, || {
        cubenorm::mean_variance_norm(batch.clone(), None, None, &options)
    });
    report("mean_variance_norm", cost, one);
    let cost = call_site(&device, || {
        cubenorm::lp_norm(x.clone(), cubenorm::Lp::L2, 1)
    });
    report("lp_norm", cost, one);
    let device = device.autodiff();
    let tracked = Tensor::<2>::random([8, 64], Distribution::Default, &device).require_grad();
    let cost = call_site(&device, || {
        cubenorm::rms_norm(tracked.clone(), gamma.clone(), 1e-5)
    });
    line(
        "rms_norm, tracked (autodiff's part included)",
        cost - two,
        &[],
    );
    let cost = call_site(&device, || tracked.clone() + tracked.clone());
    line("elementwise addition, tracked, whole", cost, &[]);
}

fn backends() {
    let clock = clock_cost();
    println!("backend, without CubeCL's allocator and launcher:");
    let (x, gamma, beta) = (ones([8, 64]), ones([64]), ones([64]));
    let row = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
    let some = |tensor: &CubeTensor| Optional::Some(tensor.clone());
    let report = |name: &str, [ours, rest @ ..]: [Cost; 3]| line(name, ours, &rest);
    let operands = || Operands {
        scale: some(&gamma),
        bias: some(&beta),
        ..Operands::<CubeBackend>::new(x.clone())
    };
    let run = |(operands, spec)| CubeBackend::normalize(operands, spec);
    let cost = backend(clock, || (operands(), row.clone()), run);
    report("layer_norm", cost);
    let square = NormSpec {
        reduction: Reduction::MeanSquare,
        ..row.clone()
    };
    let scaled = || Operands {
        scale: some(&gamma),
        ..Operands::<CubeBackend>::new(x.clone())
    };
    let cost = backend(clock, || (scaled(), square.clone()), run);
    report("rms_norm", cost);
    let sum = NormSpec {
        writes_sum: true,
        ..square.clone()
    };
    let added = || Operands {
        residual: some(&x),
        ..scaled()
    };
    let cost = backend(clock, || (added(), sum.clone()), run);
    report("add_rms_norm", cost);
    let maps = ones([2, 8, 4, 4]);
    let (scale, bias) = (ones([8]), ones([8]));
    let groups = NormSpec {
        view: Some(View {
            input: [2, 4, 2, 16].into(),
            params: [1, 4, 2, 1].into(),
        }),
        ..NormSpec::new([2, 3], Reduction::MeanVariance, 1e-5)
    };
    let mapped = || Operands {
        scale: some(&scale),
        bias: some(&bias),
        ..Operands::<CubeBackend>::new(maps.clone())
    };
    let cost = backend(clock, || (mapped(), groups.clone()), run);
    report("group_norm", cost);
    let channels = NormSpec {
        view: Some(View {
            input: [2, 8, 4, 4].into(),
            params: [1, 8, 1, 1].into(),
        }),
        ..NormSpec::new([0, 2, 3], Reduction::Provided, 1e-5)
    };
    let provided = || Operands {
        mean: some(&scale),
        variance: some(&bias),
        ..mapped()
    };
    let cost = backend(clock, || (provided(), channels.clone()), run);
    report("batch_norm", cost);
    let training = NormSpec {
        reduction: Reduction::MeanVariance,
        written_statistics: Some(WrittenStatistics::MeanVariance),
        ..channels.clone()
    };
    let cost = backend(clock, || (mapped(), training.clone()), run);
    report("batch_norm_train", cost);
    let kept = NormSpec {
        written_statistics: Some(WrittenStatistics::MeanRstd),
        ..row.clone()
    };
    let saved = CubeBackend::normalize(operands(), kept).statistics;
    let spec = BackwardSpec {
        norm: row,
        wants_input: true,
        wants_scale: true,
        wants_bias: true,
    };
    let gradients = || BackwardOperands {
        input: x.clone(),
        output_gradient: x.clone(),
        saved: saved.clone(),
        scale: some(&gamma),
        bias: some(&beta),
    };
    let cost = backend(
        clock,
        || (gradients(), spec.clone()),
        |(operands, spec)| CubeBackend::normalize_backward(operands, spec),
    );
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
