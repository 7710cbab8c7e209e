//! Measures forward passes, and the norms alone.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use burn::tensor::{Device, Distribution, Tensor};

use crate::model::{MiniLm, MiniLmConfig};
use crate::tokens::Batch;
use cubenorm_example_common::{Norms, graph};

/// Warm-up runs. The first one compiles and tunes kernels. With Burn's fusion the next ones still
/// change the fused operations.
const WARM_UP: usize = 3;

/// Median times of one implementation.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Complete forward pass.
    pub forward: Duration,
    /// All norms of a forward pass, without the rest.
    pub norms: Duration,
    /// Replay of a recorded forward pass, if it was recorded.
    pub replay: Option<Duration>,
}

/// Times the network with each implementation of norms on the same batch.
///
/// Runs alternate between implementations, so that a throttling machine slows all of them down. With
/// `capture` it also times replays of a recorded forward pass.
pub fn time(
    model: &MiniLm,
    config: &MiniLmConfig,
    batch: &Batch,
    kinds: &[Norms],
    iterations: usize,
    capture: bool,
    device: &Device,
) -> Result<Vec<Timing>> {
    let forward = medians(kinds, iterations, device, |kind| model.embed(batch, kind))?;

    let [sentences, tokens] = batch.shape();
    let shape = [sentences, tokens, config.hidden_size];
    let random = || Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), device);
    let (input, residual) = (random(), random());
    let norms = medians(kinds, iterations, device, |kind| {
        // Chained as in the network: each norm depends on the one before.
        (0..config.norm_count()).fold(input.clone(), |hidden, _| {
            model.first_norm().forward(hidden, residual.clone(), kind)
        })
    })?;

    let replay = match capture {
        true => replays(model, batch, kinds, iterations, device)?,
        false => vec![None; kinds.len()],
    };
    let timings = forward.into_iter().zip(norms).zip(replay);
    Ok(timings
        .map(|((forward, norms), replay)| Timing {
            forward,
            norms,
            replay,
        })
        .collect())
}

/// Median time of a replayed forward pass for each implementation.
fn replays(
    model: &MiniLm,
    batch: &Batch,
    kinds: &[Norms],
    iterations: usize,
    device: &Device,
) -> Result<Vec<Option<Duration>>> {
    let graphs = kinds.iter().map(|&kind| {
        let graph = graph::record(device, move || model.embed(batch, kind))?;
        anyhow::Ok((kind, graph))
    });
    let mut graphs = graphs.collect::<Result<Vec<_>>>()?;
    let replays = medians(kinds, iterations, device, |kind| {
        let graph = graphs.iter_mut().find(|(of, _)| *of == kind);
        let (_, graph) = graph.expect("each kind has a graph");
        // SAFETY: The model, the batch and the graph are alive, and only this thread uses them.
        unsafe { graph.replay() }.clone()
    })?;
    Ok(replays.into_iter().map(Some).collect())
}

/// Median time of `run` for each implementation.
fn medians<const D: usize>(
    kinds: &[Norms],
    iterations: usize,
    device: &Device,
    mut run: impl FnMut(Norms) -> Tensor<D>,
) -> Result<Vec<Duration>> {
    for _ in 0..WARM_UP {
        for &kind in kinds {
            timed(device, || run(kind))?;
        }
    }

    let mut samples = vec![Vec::with_capacity(iterations); kinds.len()];
    for _ in 0..iterations {
        for (samples, &kind) in samples.iter_mut().zip(kinds) {
            samples.push(timed(device, || run(kind))?);
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

/// Time from the call of `run` until the device has finished.
fn timed<const D: usize>(device: &Device, run: impl FnOnce() -> Tensor<D>) -> Result<Duration> {
    let sync = || {
        device
            .sync()
            .map_err(|error| anyhow!("the device failed: {error:?}"))
    };
    sync()?;
    let start = Instant::now();
    // Alive until the device is synchronised, since Burn's fusion skips dropped tensors.
    let _output = run();
    sync()?;
    Ok(start.elapsed())
}

/// Median; the mean of the middle two for an even number of samples.
fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    match samples.len() {
        0 => Duration::ZERO,
        n if n % 2 == 1 => samples[n / 2],
        n => (samples[n / 2 - 1] + samples[n / 2]) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        let ms = |values: &[u64]| values.iter().copied().map(Duration::from_millis).collect();
        assert_eq!(median(ms(&[9, 1, 5])), Duration::from_millis(5));
        assert_eq!(median(ms(&[9, 1, 5, 6])), Duration::from_micros(5500));
        assert_eq!(median(ms(&[])), Duration::ZERO);
    }
}
