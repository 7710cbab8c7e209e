//! Both passes of the norms next to Burn's own operations and a copy.

use burn::nn;
use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm::nn as fused;
use js_sys::{Function, Promise};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_time::Instant;

use crate::device::{Opened, opened, read};

/// Time of a sample in milliseconds. A wait for the device takes one or two.
const SAMPLE: f64 = 60.0;
/// Samples for the median.
const SAMPLES: usize = 5;
/// Most calls of a sample.
const MOST: usize = 64;
/// Calls before the first sample. Burn's tuner measures between them, since a browser cannot wait for it.
const WARM_UP: usize = 3;

/// The default of the layers.
const EPSILON: f64 = 1e-5;

/// Tensors that a forward pass reads and writes at least: x and y.
const FORWARD: usize = 2;
/// The same with the backward pass: x, dy and dx.
const BOTH: usize = FORWARD + 3;

#[derive(Clone, Copy)]
enum Norm {
    Layer,
    Rms,
    AddLayer,
    Group,
    Instance,
    Batch,
}

const NORMS: [(&str, Norm); 6] = [
    ("layer norm", Norm::Layer),
    ("RMS norm", Norm::Rms),
    ("add and layer norm", Norm::AddLayer),
    ("group norm", Norm::Group),
    ("instance norm", Norm::Instance),
    ("batch norm", Norm::Batch),
];

/// A measurement.
#[derive(Serialize)]
pub(crate) struct Title {
    name: &'static str,
    /// `copy`, `forward` or `training`.
    pass: &'static str,
}

/// Medians in milliseconds.
#[derive(Serialize)]
pub(crate) struct Times {
    shape: Vec<usize>,
    /// Tensors of this shape that the device has to read and write at least.
    traffic: usize,
    /// Of the copy, or of the fused norm.
    fused: f64,
    /// Of Burn's operations. None: the copy has none.
    burn: Option<f64>,
}

fn cases() -> impl Iterator<Item = (&'static str, Norm, bool)> {
    let passes = |(name, norm)| [(name, norm, false), (name, norm, true)];
    NORMS.into_iter().flat_map(passes)
}

pub(crate) fn titles() -> Vec<Title> {
    let copy = Title {
        name: "copy",
        pass: "copy",
    };
    let norms = cases().map(|(name, _, trains)| Title {
        name,
        pass: if trains { "training" } else { "forward" },
    });
    std::iter::once(copy).chain(norms).collect()
}

pub(crate) async fn run(case: usize, elements: usize) -> Result<Times, JsError> {
    let opened = opened()?;
    cubenorm::set_tuning(cubenorm::Tuning::Auto);
    let Some(case) = case.checked_sub(1) else {
        return copy(&opened, elements).await;
    };
    let Some((_, norm, trains)) = cases().nth(case) else {
        return Err(JsError::new(&format!("there is no measurement {case}")));
    };
    match trains {
        false => compare(&opened, opened.device.clone(), norm, elements).await,
        true => compare(&opened, opened.device.clone().autodiff(), norm, elements).await,
    }
}

/// Measures both implementations of a norm. On a device with autodiff each call is a training step.
async fn compare(
    opened: &Opened,
    device: Device,
    norm: Norm,
    elements: usize,
) -> Result<Times, JsError> {
    let (rows, maps) = (rows(elements), maps(elements));
    let (columns, channels) = (rows[1], maps[1]);
    let on = &device;
    match norm {
        Norm::Layer => {
            let ours = fused::LayerNormConfig::new(columns).init(on);
            let theirs = nn::LayerNormConfig::new(columns).init(on);
            pair(opened, on, rows, |x| ours.forward(x), |x| theirs.forward(x)).await
        }
        Norm::Rms => {
            let ours = fused::RmsNormConfig::new(columns).init(on);
            let theirs = nn::RmsNormConfig::new(columns).init(on);
            pair(opened, on, rows, |x| ours.forward(x), |x| theirs.forward(x)).await
        }
        Norm::AddLayer => {
            let ours = fused::LayerNormConfig::new(columns).init(on);
            let theirs = nn::LayerNormConfig::new(columns).init(on);
            let residual = filled(rows, 0.5, on);
            let [gamma, beta] = [
                Some(ours.gamma.val()),
                ours.beta.as_ref().map(|it| it.val()),
            ];
            let add = |x| {
                let (gamma, beta) = (gamma.clone(), beta.clone());
                cubenorm::add_layer_norm(x, residual.clone(), gamma, beta, EPSILON).0
            };
            let times = pair(opened, on, rows, add, |x| {
                theirs.forward(x + residual.clone())
            });
            // The residual is read too.
            let times = times.await?;
            Ok(Times {
                traffic: times.traffic + 1,
                ..times
            })
        }
        Norm::Group => {
            let groups = 8;
            let ours = fused::GroupNormConfig::new(groups, channels).init(on);
            let theirs = nn::GroupNormConfig::new(groups, channels).init(on);
            pair(opened, on, maps, |x| ours.forward(x), |x| theirs.forward(x)).await
        }
        Norm::Instance => {
            let ours = fused::InstanceNormConfig::new(channels).init(on);
            let theirs = nn::InstanceNormConfig::new(channels).init(on);
            pair(opened, on, maps, |x| ours.forward(x), |x| theirs.forward(x)).await
        }
        Norm::Batch => {
            let ours = fused::BatchNormConfig::new(channels).init(on);
            let theirs = nn::BatchNormConfig::new(channels).init(on);
            pair(opened, on, maps, |x| ours.forward(x), |x| theirs.forward(x)).await
        }
    }
}

/// `[rows, 1024]`.
fn rows(elements: usize) -> [usize; 2] {
    [(elements >> 10).max(1), 1 << 10]
}

/// `[batch, 64, 64, 64]`.
fn maps(elements: usize) -> [usize; 4] {
    [(elements >> 18).max(1), 64, 64, 64]
}

fn filled<const D: usize>(shape: [usize; D], step: f32, device: &Device) -> Tensor<D> {
    let values = (0..shape.iter().product()).map(|at: usize| (at as f32 * step).sin());
    let data = TensorData::new(values.collect::<Vec<f32>>(), shape);
    Tensor::from_data(data, (device, DType::F32))
}

async fn pair<const D: usize>(
    opened: &Opened,
    device: &Device,
    shape: [usize; D],
    ours: impl Fn(Tensor<D>) -> Tensor<D>,
    theirs: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Result<Times, JsError> {
    let input = filled(shape, 0.7, device);
    let trains = device.is_autodiff();
    Ok(Times {
        shape: shape.to_vec(),
        traffic: if trains { BOTH } else { FORWARD },
        fused: pass(opened, &input, trains, ours).await?,
        burn: Some(pass(opened, &input, trains, theirs).await?),
    })
}

/// Median of a forward pass, or of a training step.
async fn pass<const D: usize>(
    opened: &Opened,
    input: &Tensor<D>,
    trains: bool,
    norm: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Result<f64, JsError> {
    let call = || match trains {
        false => norm(input.clone()),
        true => {
            let leaf = input.clone().require_grad();
            let gradients = norm(leaf.clone()).backward();
            leaf.grad(&gradients).expect("the input is tracked")
        }
    };
    let device = &opened.device;
    for _ in 0..WARM_UP {
        batch(device, 1, &call).await?;
    }
    let mut calls = 1;
    loop {
        let time = batch(device, calls, &call).await?;
        if time >= SAMPLE || calls == MOST {
            break;
        }
        calls = ((calls as f64 * SAMPLE / time.max(1.0)).ceil() as usize).clamp(calls * 2, MOST);
    }
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        samples.push(batch(device, calls, &call).await? / calls as f64);
    }
    Ok(median(samples))
}

/// Time of some calls until the device has done all of them.
async fn batch<const D: usize>(
    device: &Device,
    calls: usize,
    call: &impl Fn() -> Tensor<D>,
) -> Result<f64, JsError> {
    let start = Instant::now();
    for _ in 0..calls {
        let output = call();
        // Without it, fusion merges the calls, or drops those without a reader.
        device.flush()?;
        drop(output);
    }
    // A read waits for everything before it.
    read(Tensor::<1>::from_data([0.0f32], device)).await?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Median of a copy between two buffers.
async fn copy(opened: &Opened, elements: usize) -> Result<Times, JsError> {
    use cubecl::wgpu::wgpu::{BufferDescriptor, BufferUsages};

    let shape = rows(elements);
    let bytes = 4 * shape.iter().product::<usize>() as u64;
    let buffer = || {
        opened.wgpu.create_buffer(&BufferDescriptor {
            label: None,
            size: bytes,
            usage: BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    };
    let (from, to) = (buffer(), buffer());
    let batch = async |calls: usize| -> Result<f64, JsError> {
        let start = Instant::now();
        let mut encoder = opened.wgpu.create_command_encoder(&Default::default());
        for _ in 0..calls {
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, bytes);
        }
        opened.queue.submit([encoder.finish()]);
        done(opened).await?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    batch(1).await?;
    let mut calls = 1;
    while batch(calls).await? < SAMPLE && calls < MOST {
        calls *= 2;
    }
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        samples.push(batch(calls).await? / calls as f64);
    }
    Ok(Times {
        shape: shape.to_vec(),
        traffic: FORWARD,
        fused: median(samples),
        burn: None,
    })
}

/// Waits until the queue is empty.
async fn done(opened: &Opened) -> Result<(), JsError> {
    let promise = Promise::new(&mut |resolve: Function, _| {
        let resolve = Resolve(resolve);
        opened.queue.on_submitted_work_done(move || resolve.call());
    });
    let failed = |_| JsError::new("the device did not finish a copy");
    JsFuture::from(promise).await.map_err(failed)?;
    Ok(())
}

/// A promise's function.
struct Resolve(Function);

// SAFETY: The module has one thread.
unsafe impl Send for Resolve {}

impl Resolve {
    fn call(&self) {
        // It never throws.
        let _ = self.0.call0(&JsValue::NULL);
    }
}
