//! A problem on buffers of its own: tuned, and timed with each plan.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use burn::tensor::Device;
use cubecl::{future::block_on, server::Handle};
use cubenorm_core::{Knobs, Statistics, StrategyChoice};
use cubenorm_kernels::{
    BackwardTensors, ForwardTensors, hardware, launch_backward, launch_forward, tuned_backward,
    tuned_forward, working_sets,
};
use cubenorm_reference::encode;

use super::described::{Described, client};
use crate::{
    probe::copy_milliseconds,
    problems::Problem,
    protocol::{Candidate, Tuned},
};

/// Length of a sample, and number of samples.
const SAMPLE: Duration = Duration::from_millis(20);
const SAMPLES: usize = 7;

/// Largest number of launches of a sample. CubeCL keeps 64 messages of them (0.11.3,
/// `cubecl-common`, two queues of `CHANNEL_MAX_TASK`). A sender that finds the queue full spins, on
/// a CPU on a core that the kernel needs.
const MOST_LAUNCHES: usize = 48;

/// Lets the tuner choose, then times every candidate in turns, for each pass of a problem.
///
/// # Errors
///
/// If the device is none of CubeCL's, or a candidate cannot be launched.
pub fn tune(problem: &Problem, device: &Device) -> Result<Vec<Tuned>> {
    let tuned = |described: Described| {
        let call = Call::new(described)?;
        let start = Instant::now();
        let chosen = call.chosen(Duration::MAX)?;
        let took = 1e3 * start.elapsed().as_secs_f64();
        let Described { client, norm, .. } = &call.described;
        Ok(Tuned {
            pass: match (&call.described.gradient, norm.written_statistics) {
                (Some(_), _) => "backward",
                (None, Some(_)) => "forward with statistics",
                (None, None) => "forward",
            }
            .to_owned(),
            candidates: call.timed(&call.described.candidates()?)?,
            copy: copy_milliseconds(client, call.described.bytes()),
            chosen: chosen.to_string(),
            took,
        })
    };
    let passes = Described::passes(problem, &client(device)?)?;
    passes.into_iter().map(tuned).collect()
}

/// The plans of a layer's call, as they print: forward first, then backward.
///
/// # Errors
///
/// As [`tune`].
pub fn running(problem: &Problem, device: &Device) -> Result<String> {
    let client = client(device)?;
    let budget = cubenorm::tuning().choice(&hardware(&client)).budget();
    let plan = |described: Described| {
        let Some(budget) = budget else {
            return described.plan(Knobs::default());
        };
        // The layer's call has kept its choice, so this measures nothing again.
        let call = Call::new(described)?;
        call.described.plan(call.chosen(budget)?)
    };
    let passes = Described::passes(problem, &client)?.into_iter();
    let plans = passes.map(plan).collect::<Result<Vec<String>>>()?;
    Ok(plans.join("; back: "))
}

/// A described pass with its buffers.
struct Call {
    described: Described,
    /// Tensors that launches use in turn, as the tuner's do.
    sets: Vec<Set>,
    turn: AtomicUsize,
    saved: Handle,
    params: [Handle; 2],
}

/// The large tensors of a launch.
struct Set {
    input: Handle,
    /// The tensor that is added, or the gate.
    second: Option<Handle>,
    above: Handle,
    result: Handle,
}

impl Call {
    fn new(described: Described) -> Result<Self> {
        let Described {
            client, problem, ..
        } = &described;
        let data = problem.host_data();
        let buffer = |values: &[f32]| {
            let values: Vec<f64> = values.iter().map(|&x| x.into()).collect();
            client.create_from_slice(&encode(described.norm.input.dtype, &values))
        };
        // Mean 0 and deviation 1 for each row.
        let pairs = described.gradient.as_ref();
        let pairs = pairs.and_then(|desc| desc.saved.as_ref());
        let pairs = pairs.and_then(|desc| desc.layout.checked_elements());
        let pairs = [0.0f32, 1.0].repeat(pairs.unwrap_or(2) / 2);
        let pairs: Vec<u8> = pairs.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let sets = working_sets(&hardware(client), problem.bytes());
        let set = |_| {
            let input = buffer(&data.input);
            let has_second = described.norm.residual.is_some();
            Set {
                second: has_second.then(|| buffer(&data.second)),
                above: match described.gradient {
                    Some(_) => buffer(&data.input),
                    None => input.clone(),
                },
                input,
                // Written to, so that no measured launch is the first to touch it.
                result: buffer(&data.input),
            }
        };
        Ok(Self {
            sets: (0..sets).map(set).collect(),
            turn: AtomicUsize::new(0),
            saved: client.create_from_slice(&pairs),
            params: [buffer(&data.gamma), buffer(&data.beta)],
            described,
        })
    }

    /// The next set.
    fn set(&self) -> &Set {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.sets[turn % self.sets.len()]
    }

    fn forward_tensors(&self) -> ForwardTensors {
        let set = self.set();
        let norm = &self.described.norm;
        let given = |desc: bool, which: usize| desc.then(|| self.params[which].clone());
        let is_provided = matches!(norm.statistics, Statistics::Provided { .. });
        ForwardTensors {
            scale: given(norm.scale.is_some(), 0),
            bias: given(norm.bias.is_some(), 1),
            residual: set.second.clone(),
            mean: given(is_provided, 1),
            variance: match norm.statistics {
                Statistics::DynamicTanh { .. } => given(true, 0),
                _ => given(is_provided, 0),
            },
            // Codes are another tensor.
            output: norm.quantization.is_none().then(|| set.result.clone()),
            ..ForwardTensors::new(set.input.clone())
        }
    }

    fn gradient_tensors(&self) -> BackwardTensors {
        let norm = &self.described.norm;
        let set = self.set();
        BackwardTensors {
            saved: Some(self.saved.clone()),
            scale: norm.scale.as_ref().map(|_| self.params[0].clone()),
            bias: norm.bias.as_ref().map(|_| self.params[1].clone()),
            gate: set.second.clone(),
            input_gradient: Some(set.result.clone()),
            ..BackwardTensors::new(set.input.clone(), set.above.clone())
        }
    }

    /// The tuner's choice, measured if it is not known yet.
    fn chosen(&self, budget: Duration) -> Result<Knobs> {
        let Described {
            client,
            norm,
            gradient,
            ..
        } = &self.described;
        Ok(match gradient {
            None => tuned_forward(client, norm, &self.forward_tensors(), budget)?,
            Some(desc) => tuned_backward(client, desc, &self.gradient_tensors(), budget)?,
        })
    }

    fn launch(&self, knobs: Knobs) -> Result<()> {
        let choice = StrategyChoice::Forced(knobs);
        let Described {
            client,
            norm,
            gradient,
            ..
        } = &self.described;
        match gradient {
            None => {
                launch_forward(client, norm, &self.forward_tensors(), choice)?;
            }
            Some(desc) => {
                launch_backward(client, desc, &self.gradient_tensors(), choice)?;
            }
        }
        Ok(())
    }

    fn timed(&self, candidates: &[Knobs]) -> Result<Vec<Candidate>> {
        let times = self.times(candidates)?;
        let timed = candidates.iter().zip(times).map(|(&knobs, time)| {
            Ok(Candidate {
                name: knobs.to_string(),
                plan: self.described.plan(knobs)?,
                time,
            })
        });
        timed.collect()
    }

    /// The median times of candidates, which take turns.
    fn times(&self, candidates: &[Knobs]) -> Result<Vec<f64>> {
        let mut runs = Vec::new();
        for &knobs in candidates {
            self.time(knobs, 1)?;
            let one = self.time(knobs, 1)?;
            let fit = SAMPLE.as_secs_f64() / one.max(1e-7);
            runs.push((fit as usize).clamp(1, MOST_LAUNCHES));
        }
        let mut samples = vec![Vec::new(); candidates.len()];
        for _ in 0..SAMPLES {
            for (i, &knobs) in candidates.iter().enumerate() {
                samples[i].push(1e3 * self.time(knobs, runs[i])?);
            }
        }
        Ok(samples
            .into_iter()
            .map(|mut samples| {
                samples.sort_by(f64::total_cmp);
                samples[samples.len() / 2]
            })
            .collect())
    }

    /// Seconds of a run, by the device's clock if it has one.
    fn time(&self, knobs: Knobs, runs: usize) -> Result<f64> {
        let ((), profiled) = self
            .described
            .client
            .profile(
                || {
                    for _ in 0..runs {
                        self.launch(knobs).expect("its plan was made before");
                    }
                },
                "candidate",
            )
            .map_err(|error| anyhow!("{error:?}"))?;
        let ticks = block_on(profiled.resolve()).context("the device kept no time")?;
        let time = ticks.duration().as_secs_f64() / runs as f64;
        ensure!(time > 0.0, "the device's clock stood still");
        Ok(time)
    }
}
