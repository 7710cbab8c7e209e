//! A problem as the layers of `cubenorm::nn` describe it, its plans, and its kernels.

use std::path::Path;

use anyhow::{Context, Result, bail};
use burn::{backend::DispatchDevice, tensor::Device};
use cubecl::{
    client::Client,
    config::{CubeClRuntimeConfig, RuntimeConfig as _, compilation::CompilationLogLevel},
    future::block_on,
};
use cubenorm_core::{
    Activation, BackwardDesc, CodeFormat, DType, Epsilon, Knobs, Layout, NormDesc, Quantization,
    ResidualPlace, Staging, Statistics, StrategyChoice, TensorDesc, WrittenStatistics,
    backward_candidates, forward_candidates, input_problem_on, knobs, problem_on, sums_on,
};
use cubenorm_kernels::{hardware, plan_backward_for, plan_for};
use cubenorm_offline::{Recorder, Work, representation};

use crate::{
    problems::{self, EPSILON, Op, Pass, Problem},
    protocol::Explained,
};

/// Plans a problem, and launches it once, so that the runtime compiles it.
///
/// # Errors
///
/// If the device is none of CubeCL's, or cannot hold the problem.
pub fn explain(problem: &Problem, device: &Device) -> Result<Explained> {
    Described::new(problem, &client(device)?)?.explain()
}

/// Has runtimes append the sources that they compile to a file, if they can. Call it before any
/// device is used.
pub fn log_sources(log: &Path) {
    configured(|config| {
        config.compilation.logger.level = CompilationLogLevel::Full;
        config.compilation.logger.file = Some(log.to_owned());
    });
}

/// Has runtimes keep compiled kernels with the tuned choices, if they can: CUDA, ROCm, Metal, and
/// Vulkan with SPIR-V. Call it before any device is used.
pub(super) fn keep_kernels() {
    configured(|config| config.compilation.cache = true);
}

/// Changes the user's configuration of CubeCL.
fn configured(change: impl FnOnce(&mut CubeClRuntimeConfig)) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    change(&mut config);
    CubeClRuntimeConfig::set(config);
}

pub(crate) fn client(device: &Device) -> Result<Client> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => Ok(device.client()),
        _ => bail!("{device:?} is not one of CubeCL's devices, and has one way to run"),
    }
}

/// Name of the device's runtime, as CubeCL calls it.
pub fn runtime(device: &Device) -> String {
    match client(device) {
        Ok(client) => client.name().to_owned(),
        Err(_) => format!("{device:?}"),
    }
}

/// A pass over tensors that need not be there.
pub(super) struct Described {
    pub client: Client,
    /// The problem, of this pass alone.
    pub problem: Problem,
    /// The norm. Of query and key, the query's.
    pub norm: NormDesc,
    /// The key's norm, which the same launch computes.
    key: Option<NormDesc>,
    /// The backward pass, if that is the pass.
    pub gradient: Option<BackwardDesc>,
}

impl Described {
    /// The pass of a problem. Of forward and backward together, the backward pass.
    pub(super) fn new(problem: &Problem, client: &Client) -> Result<Self> {
        let mut passes = Self::passes(problem, client)?;
        passes.pop().context("a problem has a pass")
    }

    /// The passes of a problem, forward first. A forward pass before a backward pass writes
    /// statistics for it, and is tuned and planned as another kind of call.
    pub(super) fn passes(problem: &Problem, client: &Client) -> Result<Vec<Self>> {
        problem.validate()?;
        let dtype = match problem.dtype {
            problems::DType::F32 => DType::F32,
            problems::DType::F16 => DType::F16,
            problems::DType::Bf16 => DType::BF16,
        };
        let norm = desc(problem, dtype);
        let key = (problem.op == Op::QkNorm)
            .then(|| problem.second_shape())
            .flatten();
        let key = key.map(|shape| desc(&Problem::new(problem.op, shape), dtype));
        // The backward kernel reads the sum.
        let back = match norm.residual_place.is_gate() {
            true => norm.clone(),
            false => norm.clone().with_residual(None),
        };
        let back = NormDesc {
            writes_sum: false,
            ..back
        };
        let pass = |pass: Pass, norm: NormDesc| Self {
            client: client.clone(),
            problem: Problem {
                pass,
                ..problem.clone()
            },
            gradient: (pass == Pass::Backward).then(|| BackwardDesc::new(norm.clone())),
            norm,
            key: key.clone(),
        };
        let written = match problem.op {
            // Its layer keeps running ones.
            Op::BatchNorm => WrittenStatistics::MeanVariance,
            _ => WrittenStatistics::MeanRstd,
        };
        Ok(match problem.pass {
            Pass::Forward => vec![pass(Pass::Forward, norm)],
            Pass::Backward => vec![pass(Pass::Backward, back)],
            Pass::Full => {
                let there = norm.with_written_statistics(written);
                vec![pass(Pass::Forward, there), pass(Pass::Backward, back)]
            }
        })
    }

    /// The bytes that the pass must move at least.
    pub(super) fn bytes(&self) -> usize {
        self.problem.bytes()
    }

    /// The plan of these knobs, as it prints.
    pub(super) fn plan(&self, knobs: Knobs) -> Result<String> {
        let choice = StrategyChoice::Forced(knobs);
        Ok(match &self.gradient {
            None => plan_for(&self.client, &self.norm, choice)?.to_string(),
            Some(desc) => plan_backward_for(&self.client, desc, choice)?.to_string(),
        })
    }

    /// The candidates that the tuner measures.
    pub(super) fn candidates(&self) -> Result<Vec<Knobs>> {
        if self.key.is_some() {
            // One launch has one plan for both.
            return Ok(vec![Knobs::default()]);
        }
        let hardware = hardware(&self.client);
        let places = match &self.gradient {
            None => forward_candidates(
                &problem_on(&self.norm, &hardware, StrategyChoice::Tuned)?,
                &hardware,
            )?,
            Some(desc) => {
                let problem = input_problem_on(desc, sums_on(desc, &hardware), &hardware)?;
                backward_candidates(&problem, &hardware)?
            }
        };
        let all = knobs(&hardware);
        Ok(places.into_iter().map(|place| all[place]).collect())
    }

    /// The kernels of the analytic plan, in CubeCL's representation, in launch order.
    fn kernels(&self) -> Result<Vec<String>> {
        let work = match (&self.gradient, &self.key) {
            (None, None) => Work::Forward(self.norm.clone()),
            (None, Some(key)) => Work::Pair([self.norm.clone(), key.clone()]),
            (Some(desc), _) => Work::Backward(desc.clone()),
        };
        let recorder = Recorder::like(&self.client);
        work.launch(recorder.client(), StrategyChoice::Inferred)?;
        let kernels = recorder.take();
        let texts = kernels.iter().map(|kernel| Ok(representation(&**kernel)?));
        let texts = texts.collect::<Result<_>>()?;
        // The runtime writes their sources to its log.
        work.launch(&self.client, StrategyChoice::Inferred)?;
        block_on(self.client.sync())?;
        Ok(texts)
    }

    fn explain(&self) -> Result<Explained> {
        let analytic = Knobs::default();
        let (desc, again) = match &self.gradient {
            None => {
                let plan = plan_for(&self.client, &self.norm, analytic.into())?;
                let reduces = plan.blueprint.statistics.reduces();
                let again = reduces && plan.blueprint.staging == Staging::Reload;
                (serde_json::to_value(&self.norm)?, usize::from(again))
            }
            Some(desc) => {
                let plan = plan_backward_for(&self.client, desc, analytic.into())?;
                let reads_again = plan.blueprint.reduces() && plan.blueprint.row.reloads();
                // Input, gradient and gate.
                let read = 2 + usize::from(plan.blueprint.gate.is_some());
                let again = read * usize::from(reads_again);
                (serde_json::to_value(desc)?, again)
            }
        };
        let (problem, minimum) = (&self.problem, self.bytes());
        let candidates = self.candidates()?;
        let plan = self.plan(analytic)?;
        Ok(Explained {
            desc,
            plan,
            minimum,
            moved: minimum + again * problem.elements() * problem.dtype.size(),
            reads_again: again > 0,
            candidates: candidates.iter().map(Knobs::to_string).collect(),
            kernels: self.kernels()?,
        })
    }
}

/// The description of the layers of `cubenorm::nn`.
fn desc(problem: &Problem, dtype: DType) -> NormDesc {
    let shape = &problem.shape;
    let last = shape.len() - 1;
    let channels = |rank: usize, dim: usize, size: usize| {
        let mut sizes = vec![1; rank];
        sizes[dim] = size;
        sizes
    };
    let (shape, axes, params) = match problem.op.norm() {
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
        _ => {
            let mut params = channels(shape.len(), last, shape[last]);
            if problem.op == Op::ModulatedLayerNorm {
                params[0] = shape[0];
            }
            (shape.clone(), vec![last], params)
        }
    };
    let param = TensorDesc::contiguous(params, dtype);
    let statistics = match problem.op.norm() {
        Op::RmsNorm => Statistics::MeanSquare,
        Op::DynamicTanh => Statistics::DynamicTanh {
            alpha: TensorDesc::contiguous([1], dtype),
        },
        _ if problem.is_inference() => Statistics::Provided {
            mean: param.clone(),
            variance: param.clone(),
        },
        _ => Statistics::MeanVariance,
    };
    // Channels are split into groups in place, if the layout allows it.
    let grouped = layout(problem).reshaped(&shape);
    let input = grouped.unwrap_or_else(|| Layout::contiguous(shape));
    let input = TensorDesc::new(input, dtype);
    let norm = NormDesc::new(input.clone(), axes, statistics)
        .with_epsilon(Epsilon::InsideSqrt(EPSILON))
        .with_scale(param.clone())
        .with_offset(problem.op.offset())
        .with_bias(problem.op.has_bias().then_some(param));
    match problem.op {
        Op::AddRmsNorm => norm.with_residual(input).with_sum(),
        Op::GatedRmsNorm => norm
            .with_residual(input)
            .with_residual_place(ResidualPlace::OutputGate)
            .with_activation(Activation::Silu),
        Op::SiluGroupNorm => norm.with_activation(Activation::Silu),
        Op::QuantizedRmsNorm => norm.with_quantization(Quantization {
            format: CodeFormat::Int8,
            scale: None,
        }),
        _ => norm,
    }
}

/// Memory layout of a problem's tensors.
fn layout(problem: &Problem) -> Layout {
    let mut shape = problem.shape.clone();
    match problem.layout {
        problems::Layout::Contiguous => Layout::contiguous(shape),
        problems::Layout::ChannelsLast => {
            let channels = shape.remove(1);
            shape.push(channels);
            let mut strides = Layout::contiguous(shape).strides;
            strides.rotate_right(1);
            strides.swap(0, 1);
            Layout::strided(problem.shape.clone(), strides)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::Suite;

    #[test]
    fn problems_match_their_descriptions() {
        for problem in [Suite::Full, Suite::Modern].map(Suite::problems).concat() {
            let norm = desc(&problem, DType::F32).problem().unwrap();
            if !problem.is_inference() && problem.op != Op::DynamicTanh {
                assert_eq!(norm.cols, problem.row(), "{problem:?}");
            }
            assert_eq!(norm.rows * norm.cols, problem.elements(), "{problem:?}");
        }
    }

    #[test]
    fn channels_last_has_unit_channel_stride() {
        for problem in Suite::Vision.problems() {
            let input = desc(&problem, DType::F32).input.layout;
            let channel = match problem.op {
                Op::GroupNorm => 2,
                _ => 1,
            };
            let is_last = problem.layout == problems::Layout::ChannelsLast;
            assert_eq!(input.strides[channel] == 1, is_last, "{problem:?}");
            assert!(input.is_dense(), "{problem:?}");
        }
    }
}
