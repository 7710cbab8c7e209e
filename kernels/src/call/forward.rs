//! Calls of a normalization.

use std::sync::Arc;
use std::time::Duration;

use cubecl::prelude::*;
use cubenorm_core::{Hardware, Knobs, NormDesc, Plan, StrategyChoice, TensorDesc, plan_forward};

use crate::launch::device::has_cpu_hints;
use crate::launch::plan_cache::{DescKey, DescQuery, PlanCache};
use crate::launch::{
    ForwardHandles, ForwardTensors, LaunchError, PlannedForward, PlannedPair, Tensor, check_buffer,
    check_forward_buffers, checked_forward, hardware,
};
use crate::tune::{measured, tune_forward};

/// Tensors that a normalization has written.
#[derive(Debug, Clone)]
pub struct ForwardOutputs {
    /// Normalized tensor, or [words of codes](NormDesc::codes_desc); `[0]` if the description does not write it.
    pub output: Tensor,
    /// `input + residual`; None if not requested.
    pub sum: Option<Tensor>,
    /// The statistics of each row that [`written_statistics`](NormDesc::written_statistics)
    /// names; None if not requested. The shape is the input's with 1 for each reduced axis, then
    /// their [count](cubenorm_core::WrittenStatistics::count). The dtype is the accumulation type.
    pub statistics: Option<Tensor>,
}

/// Two normalizations in one launch if their plans allow it, else in two: for query and key of an attention. A launch takes
/// longer than a kernel this small.
#[derive(Debug, Clone)]
pub struct PreparedPair(Arc<PlannedPair>);

impl PreparedPair {
    /// Validates and plans two descriptions. Nothing is measured.
    ///
    /// # Errors
    ///
    /// As [`launch_forward`].
    pub fn new(
        client: &Client,
        descs: [&NormDesc; 2],
        tensors: [&ForwardTensors; 2],
        choice: StrategyChoice,
    ) -> Result<Self, LaunchError> {
        let hardware = hardware(client);
        let elements = |desc: &NormDesc| desc.input.layout.checked_elements().unwrap_or(0);
        let rows =
            |desc: &NormDesc| elements(desc) / desc.input.shape().last().map_or(1, |&it| it.max(1));
        // Plans for as many rows as both have together are of one kind.
        let together = rows(descs[0]) + rows(descs[1]);
        let knobs = choice.knobs();
        let choice = StrategyChoice::Forced(Knobs {
            planned_groups: knobs.planned_groups.or(Some(together.max(1))),
            ..knobs
        });
        let plan = |desc: &NormDesc, tensors| -> Result<PlannedForward, LaunchError> {
            check_forward_buffers(desc, tensors)?;
            let problem = checked_forward(client, desc, choice, &hardware)?;
            let plan = match problem.is_empty() {
                true => None,
                false => Some(plan_forward(&problem, &hardware, choice)?),
            };
            Ok(PlannedForward::new(desc, problem, plan))
        };
        let planned = [plan(descs[0], tensors[0])?, plan(descs[1], tensors[1])?];
        Ok(Self(Arc::new(PlannedPair::new(planned, &hardware))))
    }

    /// Descriptions of both outputs.
    pub fn outputs(&self) -> [&TensorDesc; 2] {
        self.0.planned.each_ref().map(|planned| &planned.output)
    }

    /// True if one launch runs both.
    pub fn is_one_launch(&self) -> bool {
        self.0.is_one
    }

    /// Launches both. The buffers must have the described layouts.
    ///
    /// # Errors
    ///
    /// As [`PreparedForward::launch`].
    pub fn launch(
        &self,
        client: &Client,
        tensors: [&ForwardTensors; 2],
    ) -> Result<[ForwardHandles; 2], LaunchError> {
        self.0.launch(client, tensors)
    }
}

/// Plan of a description on a device, and the reason for it.
///
/// # Errors
///
/// As [`launch_forward`], and for an empty tensor, which launches nothing.
pub fn plan_for(
    client: &Client,
    desc: &NormDesc,
    choice: StrategyChoice,
) -> Result<Plan, LaunchError> {
    let hardware = hardware(client);
    with_view(desc, None, &hardware, |desc| {
        let problem = checked_forward(client, desc, choice, &hardware)?;
        Ok(plan_forward(&problem, &hardware, choice)?)
    })
}

/// Calls `run` with the device's view of a description. The view includes the padding of pitched
/// rows if that gives a GPU wider loads and the input buffer contains all of it. A buffer that is
/// not known yet is assumed to contain it. Errors refer to the description itself.
fn with_view<T>(
    desc: &NormDesc,
    tensors: Option<&ForwardTensors>,
    hardware: &Hardware,
    run: impl Fn(&NormDesc) -> Result<T, LaunchError>,
) -> Result<T, LaunchError> {
    let padded = match hardware.is_gpu() {
        true => desc.with_padding(),
        false => None,
    };
    let is_there = |padded: &NormDesc| {
        tensors.is_none_or(|tensors| {
            let input = check_buffer("input", &padded.input, &tensors.input);
            tensors.output.is_none() && input.is_ok()
        })
    };
    if let Some(padded) = padded.filter(is_there)
        && let Ok(done) = run(&padded)
    {
        return Ok(done);
    }
    run(desc)
}

/// Everything that calls of a description share.
#[derive(Debug)]
struct Prepared {
    planned: PlannedForward,
    /// False if a graph capture has kept the autotuner from measuring.
    is_settled: bool,
}

static PREPARED: PlanCache<DescKey<NormDesc>, Prepared> = PlanCache::new();

fn prepare(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<Prepared, LaunchError> {
    let problem = checked_forward(client, desc, choice, hardware)?;
    let knobs = match choice.budget() {
        Some(budget) if !problem.is_empty() => {
            tune_forward(client, hardware, desc, &problem, tensors, budget)?
        }
        _ => Some(choice.knobs()),
    };
    let plan = match (problem.is_empty(), choice.budget(), knobs) {
        (true, ..) => None,
        (false, Some(_), Some(knobs)) => {
            let plan = measured(knobs, |choice| plan_forward(&problem, hardware, choice))?;
            Some(plan)
        }
        (false, ..) => Some(plan_forward(&problem, hardware, choice)?),
    };
    Ok(Prepared {
        planned: PlannedForward::new(desc, problem, plan),
        is_settled: knobs.is_some(),
    })
}

/// The cached preparation of a description.
fn prepared(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<Arc<Prepared>, LaunchError> {
    let query = DescQuery::new(client, desc, choice);
    PREPARED.get(
        &query,
        |prepared| prepared.is_settled,
        || {
            // Tuning launches kernels, so errors are found first.
            check_forward_buffers(desc, tensors)?;
            prepare(client, desc, tensors, choice, hardware)
        },
    )
}

/// A normalization that is validated and planned for a device, and launches without a description.
///
/// [`launch_forward`] looks its preparation up by the description. A caller that knows the layouts
/// of its tensors by another key keeps the preparation instead.
///
/// # Example
///
/// ```no_run
/// use cubecl::client::Client;
/// use cubenorm_core::{NormDesc, StrategyChoice};
/// use cubenorm_kernels::{ForwardTensors, LaunchError, PreparedForward};
///
/// # fn example(client: &Client, desc: &NormDesc, tensors: ForwardTensors) -> Result<(), LaunchError> {
/// let prepared = PreparedForward::new(client, desc, &tensors, StrategyChoice::Inferred)?;
/// for _ in 0..10 {
///     let written = prepared.launch(client, &tensors)?;
/// #   drop(written);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PreparedForward {
    prepared: Arc<Prepared>,
    output: TensorDesc,
}

impl PreparedForward {
    /// Validates and plans a description. Measures as [`launch_forward`] does.
    ///
    /// # Errors
    ///
    /// As [`launch_forward`].
    pub fn new(
        client: &Client,
        desc: &NormDesc,
        tensors: &ForwardTensors,
        choice: StrategyChoice,
    ) -> Result<Self, LaunchError> {
        let hardware = hardware(client);
        let prepared = with_view(desc, Some(tensors), &hardware, |desc| {
            prepared(client, desc, tensors, choice, &hardware)
        })?;
        let mut output = prepared.planned.output.clone();
        if desc.writes_output && desc.quantization.is_none() {
            output.layout.shape = desc.input.shape().to_vec();
        }
        Ok(Self { prepared, output })
    }

    /// Description of the output.
    pub fn output(&self) -> &TensorDesc {
        &self.output
    }

    /// Description of the sum; None if not requested.
    pub fn sum(&self) -> Option<&TensorDesc> {
        self.prepared.planned.sum.as_ref()
    }

    /// Description of the statistics; None if not requested.
    pub fn statistics(&self) -> Option<&TensorDesc> {
        self.prepared.planned.statistics.as_ref()
    }

    /// False if the plan is analytic because a graph is being captured: a later preparation
    /// measures.
    pub fn is_settled(&self) -> bool {
        self.prepared.is_settled
    }

    /// As [`launch`](Self::launch), but the output takes the input's buffer if the plan allows it, which
    /// [`writes_in_place`](Self::writes_in_place) tells.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn launch_in_place(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        self.prepared.planned.launch_in_place(client, tensors)
    }

    /// True if the output can take the input's buffer: they have one layout and dtype, and a unit reads each element for
    /// the last time before it writes it.
    pub fn writes_in_place(&self) -> bool {
        self.prepared.planned.writes_in_place()
    }

    /// Launches the normalization. The buffers must have the described layouts.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] if a buffer is missing, too small, too large to address or overlaps the
    /// output.
    pub fn launch(
        &self,
        client: &Client,
        tensors: &ForwardTensors,
    ) -> Result<ForwardHandles, LaunchError> {
        self.prepared.planned.launch(client, tensors)
    }
}

/// Fastest knobs of a description on a device, from the autotune cache or measured now. Default
/// knobs if no candidate beats the analytic plan, or if the problem is too small or too large to
/// measure, or if a graph is being captured.
///
/// [`launch_forward`] with [`StrategyChoice::TunedWithin`] uses the same knobs for the same budget.
/// [`Tuned`](StrategyChoice::Tuned) has no budget.
///
/// # Errors
///
/// As [`launch_forward`].
pub fn tuned_forward(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    budget: Duration,
) -> Result<Knobs, LaunchError> {
    let hardware = hardware(client);
    with_view(desc, Some(tensors), &hardware, |desc| {
        let problem = checked_forward(client, desc, StrategyChoice::Tuned, &hardware)?;
        check_forward_buffers(desc, tensors)?;
        if problem.is_empty() {
            return Ok(Knobs::default());
        }
        let knobs = tune_forward(client, &hardware, desc, &problem, tensors, budget)?;
        Ok(knobs.unwrap_or_default())
    })
}

/// Validates, plans and launches a normalization.
///
/// ```text
/// s = input + residual
/// y = activation((s - mean) * rstd * scale + bias)
/// ```
///
/// or, with [`ResidualPlace::Output`](cubenorm_core::ResidualPlace::Output),
///
/// ```text
/// y = activation((input - mean) * rstd * scale + bias + residual)
/// ```
///
/// Shapes and dtypes are those of [`NormDesc`]. `choice` decides how the plan is found: analytically,
/// by measuring, or with forced knobs. If a GPU [computes the padding](NormDesc::with_padding), the
/// output's rows have the input's pitch. No norm is launched for an empty tensor. Statistics over no
/// elements are NaN.
///
/// The same plan gives the same results from run to run: results do not depend on the order in which
/// cubes finish. [`StrategyChoice::Tuned`] may choose another plan on another machine, or with an
/// empty autotune cache.
///
/// # Errors
///
/// [`LaunchError`] for an invalid description, a buffer that is missing, too small, misaligned or
/// shared with the output, and for what the device cannot do. The description and the buffers that
/// are read are checked before anything is measured, and all buffers before anything is launched. An
/// error of the device shows when an output is read.
pub fn launch_forward(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
) -> Result<ForwardOutputs, LaunchError> {
    let hardware = hardware(client);
    launch_with_view(client, desc, tensors, &hardware, |desc| {
        prepared(client, desc, tensors, choice, &hardware)
    })
}

/// [`launch_forward`] planned for other hardware than the device reports: for fewer features, such
/// as WebGPU's guaranteed limits, or for features that the device does not report.
///
/// # Errors
///
/// As [`launch_forward`]. Exceeding the device's own limits is an error when an output is read.
/// Non-temporal stores are ordinary stores if the device's compiler does not support them.
pub fn launch_forward_within(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    choice: StrategyChoice,
    hardware: &Hardware,
) -> Result<ForwardOutputs, LaunchError> {
    let nontemporal_threshold = hardware.nontemporal_threshold;
    let hardware = &Hardware {
        nontemporal_threshold: nontemporal_threshold.filter(|_| has_cpu_hints(client)),
        ..hardware.clone()
    };
    launch_with_view(client, desc, tensors, hardware, |desc| {
        Ok(Arc::new(prepare(client, desc, tensors, choice, hardware)?))
    })
}

fn launch_with_view(
    client: &Client,
    desc: &NormDesc,
    tensors: &ForwardTensors,
    hardware: &Hardware,
    prepare: impl Fn(&NormDesc) -> Result<Arc<Prepared>, LaunchError>,
) -> Result<ForwardOutputs, LaunchError> {
    let mut outputs = with_view(desc, Some(tensors), hardware, |desc| {
        let prepared = prepare(desc)?;
        let written = prepared.planned.launch(client, tensors)?;
        let tensor = |desc: &TensorDesc, handle| Tensor {
            desc: desc.clone(),
            handle,
        };
        let optional = |desc: &Option<TensorDesc>, handle: Option<_>| {
            let (desc, handle) = desc.as_ref().zip(handle)?;
            Some(tensor(desc, handle))
        };
        Ok(ForwardOutputs {
            output: tensor(&prepared.planned.output, written.output),
            sum: optional(&prepared.planned.sum, written.sum),
            statistics: optional(&prepared.planned.statistics, written.statistics),
        })
    })?;
    // The requested columns, without the padding of pitched rows. Quantised rows are not padded.
    if desc.writes_output && desc.quantization.is_none() {
        outputs.output.desc.layout.shape = desc.input.shape().to_vec();
    }
    Ok(outputs)
}
