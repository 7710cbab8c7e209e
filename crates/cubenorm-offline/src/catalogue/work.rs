//! A launch and its buffers.

use cubecl::client::Client;
use cubenorm_core::{
    BackwardDesc, DType, LerpDesc, NormDesc, Strategy, StrategyChoice, TensorDesc,
    backward_candidates, forward_candidates, input_problem_on, knobs, problem_on, sums_on,
};
use cubenorm_kernels::{
    BackwardTensors, ForwardTensors, LaunchError, PreparedPair, hardware, launch_backward,
    launch_forward, launch_lerp, plan_backward_for, plan_for,
};

use super::Breadth;

/// The launch of a case.
#[allow(
    clippy::large_enum_variant,
    reason = "some hundred values, each for seconds of compilation"
)]
#[derive(Debug, Clone)]
pub enum Work {
    /// A normalization.
    Forward(NormDesc),
    /// Two normalizations in one launch.
    Pair([NormDesc; 2]),
    /// Its backward pass.
    Backward(BackwardDesc),
    /// An elementwise moving average.
    Lerp(LerpDesc),
}

impl Work {
    /// The dtype of the input.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Forward(desc) | Self::Pair([desc, _]) => desc.input.dtype,
            Self::Backward(desc) => desc.norm.input.dtype,
            Self::Lerp(desc) => desc.input.dtype,
        }
    }

    /// The strategy of the plan for a choice; `None` if nothing is planned.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn strategy(
        &self,
        client: &Client,
        choice: StrategyChoice,
    ) -> Result<Option<Strategy>, LaunchError> {
        Ok(match self {
            Self::Forward(desc) => Some(plan_for(client, desc, choice)?.strategy),
            Self::Backward(desc) => Some(plan_backward_for(client, desc, choice)?.strategy),
            Self::Pair(_) | Self::Lerp(_) => None,
        })
    }

    /// Launches it with fitting buffers.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] if the device has no plan for it.
    pub fn launch(&self, client: &Client, choice: StrategyChoice) -> Result<(), LaunchError> {
        let buffer = |desc: &TensorDesc| {
            let elements = desc.layout.checked_span().unwrap_or(0).max(1);
            client.empty(elements * desc.dtype.size())
        };
        let optional = |desc: &Option<TensorDesc>| desc.as_ref().map(buffer);
        let forward_tensors = |desc: &NormDesc| {
            let [mean, variance] = desc.given();
            ForwardTensors {
                residual: optional(&desc.residual),
                scale: optional(&desc.scale),
                bias: optional(&desc.bias),
                mean: mean.map(buffer),
                variance: variance.map(buffer),
                rotation: desc.rotation.as_ref().map(|it| buffer(&it.table)),
                codes_scale: desc
                    .quantization
                    .as_ref()
                    .and_then(|it| it.scale.as_ref())
                    .map(buffer),
                output: optional(&desc.output),
                ..ForwardTensors::new(buffer(&desc.input))
            }
        };
        match self {
            Self::Forward(desc) => {
                launch_forward(client, desc, &forward_tensors(desc), choice)?;
            }
            Self::Pair(descs) => {
                let tensors = descs.each_ref().map(forward_tensors);
                let (descs, tensors) = (descs.each_ref(), tensors.each_ref());
                PreparedPair::new(client, descs, tensors, choice)?.launch(client, tensors)?;
            }
            Self::Backward(desc) => {
                let tensors = BackwardTensors {
                    saved: optional(&desc.saved),
                    scale: optional(&desc.norm.scale),
                    bias: optional(&desc.norm.bias),
                    sum_gradient: optional(&desc.sum_gradient),
                    gate: desc.gate().map(buffer),
                    ..BackwardTensors::new(buffer(&desc.norm.input), buffer(&desc.output_gradient))
                };
                launch_backward(client, desc, &tensors, choice)?;
            }
            Self::Lerp(desc) => {
                let previous = optional(&desc.previous);
                let (input, output) = (buffer(&desc.input), buffer(&desc.output));
                launch_lerp(client, desc, &input, previous.as_ref(), &output)?;
            }
        }
        Ok(())
    }

    /// The choices for the requested plans; some may not apply.
    pub(super) fn choices(&self, client: &Client, breadth: Breadth) -> Vec<StrategyChoice> {
        let mut choices = vec![StrategyChoice::Inferred];
        if matches!(self, Self::Lerp(_) | Self::Pair(_)) {
            return choices;
        }
        let hardware = hardware(client);
        // Plans for a CPU Vulkan driver use shared memory only if forced.
        let is_forced = breadth >= Breadth::Strategies && !hardware.is_cpu_vulkan();
        if is_forced {
            choices.extend(Strategy::ALL.map(StrategyChoice::from));
        }
        if breadth >= Breadth::Candidates || breadth >= Breadth::Strategies && !is_forced {
            // A launch reports a missing problem or plan.
            let places = match self {
                Self::Forward(desc) => problem_on(desc, &hardware, StrategyChoice::Inferred)
                    .ok()
                    .and_then(|problem| forward_candidates(&problem, &hardware).ok()),
                Self::Backward(desc) => input_problem_on(desc, sums_on(desc, &hardware), &hardware)
                    .ok()
                    .and_then(|problem| backward_candidates(&problem, &hardware).ok()),
                Self::Pair(_) | Self::Lerp(_) => None,
            };
            let all = knobs(&hardware);
            let places = places.unwrap_or_default().into_iter();
            choices.extend(places.map(|place| StrategyChoice::Forced(all[place])));
        }
        choices
    }
}
