//! Continues a text by recorded decode steps.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cubenorm_example_common::graph;

use crate::model::Model;

/// Bytes that follow a text, and the times of the steps.
#[derive(Debug, Clone)]
pub struct Continued {
    /// The most probable bytes.
    pub bytes: Vec<u8>,
    /// Median time of an eager step.
    pub eager: Duration,
    /// Median time of a replayed step. None if the steps were not recorded.
    pub replayed: Option<Duration>,
}

/// Continues `window` by `count` bytes, the most probable one each time. With `capture` a step is
/// recorded, and replayed for each byte.
///
/// The input of each step is the end of the text, of `window`'s length. A graph reads the buffer that
/// it was recorded with, so each input is written into the same buffer.
///
/// # Errors
///
/// If the device fails, records no graphs, or a replay returns another byte than an eager step.
pub fn continued(
    model: &Model,
    window: &[u8],
    count: usize,
    capture: bool,
    device: &Device,
) -> Result<Continued> {
    let ids = |window: &[u8]| {
        let ids: Vec<i32> = window.iter().copied().map(i32::from).collect();
        Tensor::<2, Int>::from_data(TensorData::new(ids, [1, window.len()]), device)
    };
    let last = window.len() - 1;
    let step = |ids: Tensor<2, Int>| {
        let logits = model.forward(ids).narrow(0, last, 1);
        logits.argmax(1).flatten::<1>(0, 1)
    };

    let mut text = window.to_vec();
    let mut times = Vec::with_capacity(count);
    for place in 0..count {
        let input = ids(&text[place..]);
        let (byte, time) = timed(device, || read(step(input)))?;
        text.push(byte);
        times.push(time);
    }
    let mut continued = Continued {
        bytes: text.split_off(window.len()),
        eager: median(times),
        replayed: None,
    };
    if capture {
        let input = RefCell::new(ids(window));
        let mut graph = graph::record(device, || step(input.borrow().clone()))?;
        let mut times = Vec::with_capacity(count);
        for (place, &expected) in continued.bytes.iter().enumerate() {
            let (byte, time) = timed(device, || {
                let refreshed = ids(&text[place..]);
                let all = [0..1, 0..window.len()];
                input
                    .borrow_mut()
                    .inplace(|input| input.slice_assign(all, refreshed));
                // SAFETY: The model, the input and the graph are alive, and only this thread uses
                // them.
                read(unsafe { graph.replay() }.clone())
            })?;
            ensure!(
                byte == expected,
                "byte {place} of the replayed steps is {byte}: expected {expected}, as eagerly"
            );
            text.push(byte);
            times.push(time);
        }
        continued.replayed = Some(median(times));
    }
    Ok(continued)
}

/// The byte of a step.
fn read(byte: Tensor<1, Int>) -> Result<u8> {
    let data = byte.try_into_data();
    let data = data.map_err(|error| anyhow!("the device failed: {error}"))?;
    let bytes = data.try_to_vec_as::<i32>();
    let bytes = bytes.map_err(|error| anyhow!("the step returned no integers: {error:?}"))?;
    match bytes[..] {
        [byte] => u8::try_from(byte).context("the step returned no byte"),
        _ => bail!("the step returned {} bytes: expected 1", bytes.len()),
    }
}

fn timed(device: &Device, step: impl FnOnce() -> Result<u8>) -> Result<(u8, Duration)> {
    let synced = device.sync();
    synced.map_err(|error| anyhow!("the device failed: {error}"))?;
    let start = Instant::now();
    let byte = step()?;
    Ok((byte, start.elapsed()))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
