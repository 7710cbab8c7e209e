//! One problem's candidates, each timed, beside what the tuner chose and what the analytic plan is.

use std::path::Path;
#[cfg(feature = "cube")]
use std::time::{Duration, Instant};

use anyhow::Result;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;

/// What is known of a problem's candidates on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// A copy of as many bytes as the pass must move, in milliseconds, where CubeCL's probe could
    /// measure it.
    pub copy: Option<f64>,
    /// Every candidate, the analytic plan first.
    pub candidates: Vec<Candidate>,
    /// The name of the one that the tuner chose.
    pub chosen: String,
    /// How long the tuner took, in milliseconds, compiling included; little where it knew already.
    pub took: f64,
}

/// A candidate, timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its knobs, as they print.
    pub name: String,
    /// Its plan, as it prints.
    pub plan: String,
    /// The median of its times, in milliseconds.
    pub time: f64,
}

/// What would run for a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The description, as JSON.
    pub desc: serde_json::Value,
    /// The analytic plan.
    pub plan: String,
    /// The bytes that any implementation must move.
    pub minimum: usize,
    /// The bytes that this plan asks for, what it reads again counted again.
    pub moved: usize,
    /// Whether what is read again can be expected in a cache.
    pub reads_again: bool,
    /// The candidates of the tuner, best estimate first.
    pub candidates: Vec<String>,
}

/// Lets the tuner choose, then times every candidate in turns.
///
/// # Errors
///
/// Where the device is none of CubeCL's, or a candidate cannot be launched.
#[cfg(feature = "cube")]
pub fn tune(problem: &Problem, device: &Device) -> Result<Tuned> {
    let client = client(device)?;
    cube::Call::new(problem, &client)?.tune(problem)
}

/// Plans a problem without running it.
///
/// # Errors
///
/// As [`tune`].
#[cfg(feature = "cube")]
pub fn explain(problem: &Problem, device: &Device) -> Result<Explained> {
    let client = client(device)?;
    cube::Call::new(problem, &client)?.explain(problem)
}

/// Runs `tune` in an environment of CubeCL's of its own, and exports what it holds then as a bundle: every
/// choice, and every kernel where the runtime keeps those.
///
/// # Errors
///
/// Where `tune` has one, or the bundle cannot be written.
#[cfg(feature = "cube")]
pub fn bundled(bundle: &Path, tune: impl FnOnce() -> Result<()>) -> Result<()> {
    use cubecl::{bundle::BundleFormat, environment};

    environment::activate(format!("cubenorm-bundle-{}", std::process::id()));
    let left = environment::path();
    let result = tune().and_then(|()| {
        let saved = environment::bundle().save(bundle, BundleFormat::Sqlite);
        saved.map_err(|error| anyhow::anyhow!("{}: {error}", bundle.display()))?;
        Ok(())
    });
    // What is in the bundle is not needed twice, and nobody else reads it.
    for suffix in ["", "-wal", "-shm"] {
        let mut file = left.clone().into_os_string();
        file.push(suffix);
        let _ = std::fs::remove_file(file);
    }
    result
}

/// Runs `tune`: there is nothing to bundle.
///
/// # Errors
///
/// Always: this build has no runtime that is tuned.
#[cfg(not(feature = "cube"))]
pub fn bundled(_bundle: &Path, _tune: impl FnOnce() -> Result<()>) -> Result<()> {
    anyhow::bail!("this build has no CubeCL runtime to tune")
}

/// Lets the tuner choose: nothing to choose from.
///
/// # Errors
///
/// Always: this build has no runtime that is tuned.
#[cfg(not(feature = "cube"))]
pub fn tune(_problem: &Problem, _device: &Device) -> Result<Tuned> {
    anyhow::bail!("this build has no CubeCL runtime to tune")
}

/// Plans a problem: there is nothing that would run it.
///
/// # Errors
///
/// Always: this build has no runtime to plan for.
#[cfg(not(feature = "cube"))]
pub fn explain(_problem: &Problem, _device: &Device) -> Result<Explained> {
    anyhow::bail!("this build has no CubeCL runtime to plan for")
}

#[cfg(feature = "cube")]
fn client(device: &Device) -> Result<cubecl::client::Client> {
    match device.as_dispatch() {
        burn::backend::DispatchDevice::Cube(device) => Ok(device.client()),
        _ => anyhow::bail!("{device:?} is not one of CubeCL's devices, and has one way to run"),
    }
}

#[cfg(feature = "cube")]
mod cube {
    use anyhow::{Context, ensure};
    use cubecl::client::Client;
    use cubecl::future::block_on;
    use cubecl::server::Handle;
    use cubecl::std::throughput::measure_peak_throughput;
    use cubecl::throughput::{MemoryAccess, MemorySpec, ThroughputKey, ThroughputMode};
    use cubenorm_core::{
        DType, Epsilon, GradientDesc, Hold, Knobs, NormDesc, Statistics, StrategyChoice,
        TensorDesc, forward_candidates, gradient_candidates, knobs,
    };
    use cubenorm_kernels::{
        ForwardTensors, GradientTensors, hardware, launch_forward, launch_gradient, plan_for,
        plan_gradient_for, tuned_forward, tuned_gradient,
    };

    use super::{Candidate, Duration, Explained, Instant, Problem, Result, Tuned};
    use crate::problems::{self, EPSILON, Op, Pass};

    /// What one sample should last, and how many there are.
    const SAMPLE: Duration = Duration::from_millis(20);
    const SAMPLES: usize = 7;

    /// A pass over buffers of its own.
    pub(super) struct Call<'a> {
        client: &'a Client,
        norm: NormDesc,
        gradient: Option<GradientDesc>,
        input: Handle,
        above: Handle,
        saved: Handle,
        params: [Handle; 2],
    }

    impl<'a> Call<'a> {
        pub(super) fn new(problem: &Problem, client: &'a Client) -> Result<Self> {
            problem.validate()?;
            let dtype = match problem.dtype {
                problems::DType::F32 => DType::F32,
                problems::DType::F16 => DType::F16,
            };
            let norm = desc(problem, dtype);
            let data = problem.host_data();
            let buffer = |values: &[f32]| match problem.dtype {
                problems::DType::F32 => {
                    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
                    client.create_from_slice(&bytes)
                }
                problems::DType::F16 => {
                    let halves = values.iter().map(|&x| half::f16::from_f32(x));
                    let bytes: Vec<u8> = halves.flat_map(half::f16::to_ne_bytes).collect();
                    client.create_from_slice(&bytes)
                }
            };
            let gradient = match problem.pass {
                Pass::Forward => None,
                Pass::Backward | Pass::Full => Some(GradientDesc::new(norm.clone())),
            };
            // Mean 0 and deviation 1 for each row.
            let pairs = gradient.as_ref().and_then(|desc| desc.saved.as_ref());
            let pairs = pairs.and_then(|desc| desc.layout.checked_elements());
            let pairs = [0.0f32, 1.0].repeat(pairs.unwrap_or(2) / 2);
            let pairs: Vec<u8> = pairs.iter().flat_map(|x| x.to_ne_bytes()).collect();
            let input = buffer(&data.input);
            Ok(Self {
                client,
                above: match gradient {
                    Some(_) => buffer(&data.input),
                    None => input.clone(),
                },
                input,
                saved: client.create_from_slice(&pairs),
                params: [buffer(&data.gamma), buffer(&data.beta)],
                norm,
                gradient,
            })
        }

        fn forward_tensors(&self) -> ForwardTensors {
            let given = |desc: bool, which: usize| desc.then(|| self.params[which].clone());
            let is_given = matches!(self.norm.statistics, Statistics::Given { .. });
            ForwardTensors {
                scale: given(self.norm.scale.is_some(), 0),
                bias: given(self.norm.bias.is_some(), 1),
                mean: given(is_given, 1),
                variance: given(is_given, 0),
                ..ForwardTensors::new(self.input.clone())
            }
        }

        fn gradient_tensors(&self) -> GradientTensors {
            GradientTensors {
                input: self.input.clone(),
                output_gradient: self.above.clone(),
                saved: Some(self.saved.clone()),
                scale: self.norm.scale.as_ref().map(|_| self.params[0].clone()),
                bias: self.norm.bias.as_ref().map(|_| self.params[1].clone()),
                input_gradient: None,
            }
        }

        fn launch(&self, knobs: Knobs) -> Result<()> {
            let choice = StrategyChoice::Forced(knobs);
            match &self.gradient {
                None => {
                    launch_forward(self.client, &self.norm, &self.forward_tensors(), choice)?;
                }
                Some(desc) => {
                    launch_gradient(self.client, desc, &self.gradient_tensors(), choice)?;
                }
            }
            Ok(())
        }

        fn plan(&self, knobs: Knobs) -> Result<String> {
            let choice = StrategyChoice::Forced(knobs);
            Ok(match &self.gradient {
                None => plan_for(self.client, &self.norm, choice)?.to_string(),
                Some(desc) => plan_gradient_for(self.client, desc, choice)?.to_string(),
            })
        }

        fn candidates(&self) -> Result<Vec<Knobs>> {
            let hardware = hardware(self.client);
            let places = match &self.gradient {
                None => forward_candidates(&self.norm.problem()?, &hardware)?,
                Some(desc) => {
                    let problem = desc.input_problem(desc.param_sums())?;
                    gradient_candidates(&problem, &hardware)?
                }
            };
            let all = knobs(&hardware);
            Ok(places.into_iter().map(|place| all[place]).collect())
        }

        pub(super) fn tune(&self, problem: &Problem) -> Result<Tuned> {
            let start = Instant::now();
            let chosen = match &self.gradient {
                None => tuned_forward(self.client, &self.norm, &self.forward_tensors())?,
                Some(desc) => tuned_gradient(self.client, desc, &self.gradient_tensors())?,
            };
            let took = 1e3 * start.elapsed().as_secs_f64();
            let candidates = self.candidates()?;
            let times = self.times(&candidates)?;
            let candidates = candidates.into_iter().zip(times).map(|(knobs, time)| {
                Ok(Candidate {
                    name: knobs.to_string(),
                    plan: self.plan(knobs)?,
                    time,
                })
            });
            Ok(Tuned {
                copy: copy(self.client, bytes(problem)),
                candidates: candidates.collect::<Result<_>>()?,
                chosen: chosen.to_string(),
                took,
            })
        }

        /// The median times of candidates, which take turns.
        fn times(&self, candidates: &[Knobs]) -> Result<Vec<f64>> {
            let mut runs = Vec::new();
            for &knobs in candidates {
                self.time(knobs, 1)?;
                let one = self.time(knobs, 1)?;
                let fit = SAMPLE.as_secs_f64() / one.max(1e-7);
                runs.push((fit as usize).clamp(1, 200));
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

        /// Seconds of a run, by the device's clock where it has one.
        fn time(&self, knobs: Knobs, runs: usize) -> Result<f64> {
            let ((), profiled) = self
                .client
                .profile(
                    || {
                        for _ in 0..runs {
                            self.launch(knobs).expect("its plan was made before");
                        }
                    },
                    "candidate",
                )
                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
            let ticks = block_on(profiled.resolve()).context("the device kept no time")?;
            let time = ticks.duration().as_secs_f64() / runs as f64;
            ensure!(time > 0.0, "the device's clock stood still");
            Ok(time)
        }

        pub(super) fn explain(&self, problem: &Problem) -> Result<Explained> {
            let analytic = Knobs::default();
            let (desc, again) = match &self.gradient {
                None => {
                    let plan = plan_for(self.client, &self.norm, analytic.into())?;
                    let reduces = plan.blueprint.statistics.reduces();
                    let again = reduces && plan.blueprint.hold == Hold::Reread;
                    (serde_json::to_value(&self.norm)?, usize::from(again))
                }
                Some(desc) => {
                    let plan = plan_gradient_for(self.client, desc, analytic.into())?;
                    let again = 2 * usize::from(plan.blueprint.reduces);
                    (serde_json::to_value(desc)?, again)
                }
            };
            let minimum = bytes(problem);
            let candidates = self.candidates()?;
            Ok(Explained {
                desc,
                plan: self.plan(analytic)?,
                minimum,
                moved: minimum + again * problem.elements() * problem.dtype.size(),
                reads_again: again > 0,
                candidates: candidates.iter().map(Knobs::to_string).collect(),
            })
        }
    }

    /// The least that the pass must move: of both passes, the backward one is meant.
    fn bytes(problem: &Problem) -> usize {
        let tensors = match problem.pass {
            Pass::Forward => 2,
            Pass::Backward | Pass::Full => 3,
        };
        tensors * problem.elements() * problem.dtype.size()
    }

    /// Milliseconds of a copy of so many bytes, which CubeCL measures once for each size.
    fn copy(client: &Client, bytes: usize) -> Option<f64> {
        let spec = MemorySpec::new(MemoryAccess::Copy, bytes as u64);
        let key = ThroughputKey {
            mode: ThroughputMode::Memory(spec),
        };
        let rate = measure_peak_throughput(client, key).ok()?.bytes_per_s(&key);
        (rate > 0.0).then(|| 1e3 * bytes as f64 / rate)
    }

    /// The description that the layers of `cubenorm::nn` come to.
    fn desc(problem: &Problem, dtype: DType) -> NormDesc {
        let shape = &problem.shape;
        let last = shape.len() - 1;
        let channels = |rank: usize, dim: usize, size: usize| {
            let mut sizes = vec![1; rank];
            sizes[dim] = size;
            sizes
        };
        let (shape, axes, params) = match problem.op {
            Op::LayerNorm | Op::RmsNorm => (shape.clone(), vec![last], vec![shape[last]]),
            Op::BatchNorm => {
                let axes = (0..shape.len()).filter(|&dim| dim != 1).collect();
                (shape.clone(), axes, channels(shape.len(), 1, shape[1]))
            }
            Op::InstanceNorm => {
                let axes = (2..shape.len()).collect();
                (shape.clone(), axes, channels(shape.len(), 1, shape[1]))
            }
            Op::GroupNorm => {
                let groups = problem.groups();
                let mut sizes = vec![shape[0], groups, shape[1] / groups];
                sizes.extend(&shape[2..]);
                let mut params = vec![1; sizes.len()];
                params[1..3].copy_from_slice(&sizes[1..3]);
                let axes = (2..sizes.len()).collect();
                (sizes, axes, params)
            }
        };
        let param = TensorDesc::contiguous(params, dtype);
        let statistics = match problem.op {
            Op::RmsNorm => Statistics::MeanSquare,
            _ if problem.is_inference() => Statistics::Given {
                mean: param.clone(),
                variance: param.clone(),
            },
            _ => Statistics::MeanVariance,
        };
        let has_bias = problem.op != Op::RmsNorm;
        NormDesc::new(TensorDesc::contiguous(shape, dtype), axes, statistics)
            .with_epsilon(Epsilon::InsideSqrt(EPSILON))
            .with_scale(param.clone())
            .with_bias(has_bias.then_some(param))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::problems::Suite;

        #[test]
        fn every_problem_has_the_rows_and_columns_of_its_description() {
            for problem in Suite::Full.problems() {
                let norm = desc(&problem, DType::F32).problem().unwrap();
                if !problem.is_inference() {
                    assert_eq!(norm.cols, problem.row(), "{problem:?}");
                }
                assert_eq!(norm.rows * norm.cols, problem.elements(), "{problem:?}");
            }
        }
    }
}
