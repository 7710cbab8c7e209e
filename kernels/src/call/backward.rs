//! Calls of a backward pass.

use std::sync::Arc;
use std::time::Duration;

use cubecl::prelude::*;
use cubenorm_core::{
    BackwardDesc, BackwardPlan, Knobs, StrategyChoice, TensorDesc, input_problem_on, plan_backward,
    schedule_backward, sums_on,
};

use crate::launch::plan_cache::{DescKey, DescQuery, PlanCache};
use crate::launch::{
    BackwardDescs, BackwardHandles, BackwardTensors, LaunchError, PlannedBackward, Tensor,
    checked_backward, hardware,
};
use crate::tune::tune_backward;

/// Gradients that a backward pass has written.
#[derive(Debug, Clone)]
pub struct BackwardOutputs {
    /// Input gradient; None if not requested.
    pub input: Option<Tensor>,
    /// Gate gradient; None if not requested.
    pub gate: Option<Tensor>,
    /// Scale gradient, contiguous; None if not requested.
    pub scale: Option<Tensor>,
    /// Bias gradient, contiguous; None if not requested.
    pub bias: Option<Tensor>,
}

/// Plan of the input gradient on a device, and the reason for it.
///
/// # Errors
///
/// As [`launch_backward`], and for an empty tensor, which launches nothing.
pub fn plan_backward_for(
    client: &Client,
    desc: &BackwardDesc,
    choice: StrategyChoice,
) -> Result<BackwardPlan, LaunchError> {
    let hardware = hardware(client);
    let problem = input_problem_on(desc, sums_on(desc, &hardware), &hardware)?;
    Ok(plan_backward(&problem, &hardware, choice)?)
}

/// Computes the backward pass of a normalization.
///
/// Formulas, shapes and dtypes are those of [`BackwardDesc`]. Gradients that are not requested
/// launch nothing.
///
/// The same plan gives the same results from run to run: long sums are reduced in stages, in a
/// fixed order. [`StrategyChoice::Tuned`] may choose another plan on another machine, or with an
/// empty autotune cache.
///
/// # Errors
///
/// [`LaunchError`], as for [`launch_forward`](crate::launch_forward).
pub fn launch_backward(
    client: &Client,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    choice: StrategyChoice,
) -> Result<BackwardOutputs, LaunchError> {
    let prepared = prepared(client, desc, tensors, choice)?;
    let written = prepared.planned.launch(client, tensors)?;
    let tensor = |(desc, handle): (&TensorDesc, _)| Tensor {
        desc: desc.clone(),
        handle,
    };
    let outputs = &prepared.planned.outputs;
    Ok(BackwardOutputs {
        input: outputs.input.as_ref().zip(written.input).map(tensor),
        gate: outputs.gate.as_ref().zip(written.gate).map(tensor),
        scale: outputs.scale.as_ref().zip(written.scale).map(tensor),
        bias: outputs.bias.as_ref().zip(written.bias).map(tensor),
    })
}

/// Everything that calls of a description share.
#[derive(Debug)]
struct Prepared {
    planned: PlannedBackward,
    /// False if a graph capture has kept the autotuner from measuring.
    is_settled: bool,
}

static PREPARED: PlanCache<DescKey<BackwardDesc>, Prepared> = PlanCache::new();

/// The cached preparation of a description.
fn prepared(
    client: &Client,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    choice: StrategyChoice,
) -> Result<Arc<Prepared>, LaunchError> {
    let query = DescQuery::new(client, desc, choice);
    PREPARED.get(
        &query,
        |prepared| prepared.is_settled,
        || prepare(client, desc, tensors, choice),
    )
}

fn prepare(
    client: &Client,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    choice: StrategyChoice,
) -> Result<Prepared, LaunchError> {
    let hardware = hardware(client);
    let problem = checked_backward(client, desc, tensors, &hardware)?;
    let knobs = match choice.budget() {
        Some(budget) if !problem.is_empty() => {
            tune_backward(client, &hardware, desc, &problem, tensors, budget)?
        }
        _ => Some(choice.knobs()),
    };
    let choice = match (choice.budget(), knobs) {
        (Some(_), Some(knobs)) => StrategyChoice::Forced(knobs),
        _ => choice,
    };
    let schedule = schedule_backward(desc, &hardware, choice)?;
    Ok(Prepared {
        planned: PlannedBackward::new(desc, schedule),
        is_settled: knobs.is_some(),
    })
}

/// A backward pass that is validated and planned for a device, and launches without a description:
/// see [`PreparedForward`](crate::PreparedForward).
#[derive(Debug, Clone)]
pub struct PreparedBackward(Arc<Prepared>);

impl PreparedBackward {
    /// Validates and plans a description. Measures as [`launch_backward`] does.
    ///
    /// # Errors
    ///
    /// As [`launch_backward`].
    pub fn new(
        client: &Client,
        desc: &BackwardDesc,
        tensors: &BackwardTensors,
        choice: StrategyChoice,
    ) -> Result<Self, LaunchError> {
        Ok(Self(prepared(client, desc, tensors, choice)?))
    }

    /// Descriptions of the gradients of input, scale, bias and gate; None if not requested.
    pub fn outputs(&self) -> [Option<&TensorDesc>; 4] {
        let BackwardDescs {
            input,
            scale,
            bias,
            gate,
        } = &self.0.planned.outputs;
        [input, scale, bias, gate].map(Option::as_ref)
    }

    /// False if the plan is analytic because a graph is being captured: a later preparation
    /// measures.
    pub fn is_settled(&self) -> bool {
        self.0.is_settled
    }

    /// Launches the backward pass. The buffers must have the described layouts.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] if a buffer is missing, too small, too large to address or overlaps the
    /// output.
    pub fn launch(
        &self,
        client: &Client,
        tensors: &BackwardTensors,
    ) -> Result<BackwardHandles, LaunchError> {
        self.0.planned.launch(client, tensors)
    }
}

/// Fastest knobs of a backward pass on a device, from the autotune cache or measured now. Default
/// knobs if no candidate beats the analytic plan, or if the problem is too small or too large to
/// measure, or if a graph is being captured.
///
/// [`launch_backward`] with [`StrategyChoice::TunedWithin`] uses the same knobs for the same
/// budget. [`Tuned`](StrategyChoice::Tuned) has no budget.
///
/// # Errors
///
/// As [`launch_backward`].
pub fn tuned_backward(
    client: &Client,
    desc: &BackwardDesc,
    tensors: &BackwardTensors,
    budget: Duration,
) -> Result<Knobs, LaunchError> {
    let hardware = hardware(client);
    let problem = checked_backward(client, desc, tensors, &hardware)?;
    if problem.is_empty() {
        return Ok(Knobs::default());
    }
    let knobs = tune_backward(client, &hardware, desc, &problem, tensors, budget)?;
    Ok(knobs.unwrap_or_default())
}
