//! Choice between a few plans by CubeCL's autotuner.
//!
//! A candidate is one setting of [`Knobs`]. It applies to every problem: another problem of the
//! same [key](TuneKey) is planned anew with the same knobs. CubeCL measures and eliminates
//! candidates, persists the results, and logs them if configured.

mod kept;
mod key;
mod sets;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cubecl::prelude::*;
use cubecl::std::throughput::memory_bound;
use cubecl::throughput::MemoryAccess;
use cubecl::tune::{Bounds, LocalTuner, OrderedSettings, Tunable, TunableSet, TuneGroup, Work};
use cubecl_environment::time::Instant;
use cubenorm_core::{
    BackwardDesc, BackwardProblem, DType, Hardware, Knobs, NormDesc, NormProblem, Plan, PlanError,
    StrategyChoice, TensorDesc, backward_candidates, forward_candidates, knobs, plan_backward,
    plan_forward, schedule_backward,
};
use key::{Parts, TuneKey, backward_layout, layout};
pub use sets::working_sets;
use sets::{backward_sets, forward_sets};

use crate::launch::{
    BackwardTensors, ForwardTensors, LaunchError, PlannedBackward, PlannedForward,
};

/// Elements below which nothing is measured, and the analytic plan runs: the host takes longer for a launch than the
/// device, so a measurement would compare the host's times.
///
/// # Example
///
/// ```
/// use cubenorm_core::Hardware;
/// use cubenorm_kernels::least_tuned;
///
/// assert_eq!(least_tuned(&Hardware::cpu(8, 512)), 8192);
/// assert_eq!(least_tuned(&Hardware::cuda(132)), 132 * 65_536);
/// ```
pub fn least_tuned(hardware: &Hardware) -> usize {
    const LEAST: usize = 1 << 13;
    const OF_MULTIPROCESSOR: usize = 1 << 16;
    match hardware.multiprocessors {
        Some(count) => count as usize * OF_MULTIPROCESSOR,
        None => LEAST,
    }
}

/// Bytes above which nothing is measured, because the measurement allocates its own outputs.
const LARGEST: usize = 1 << 31;

/// Name of the autotune cache.
const NAME: &str = "cubenorm-normalization";

static TUNER: LocalTuner<TuneKey, String> = LocalTuner::new(NAME);

/// Launches per sample: enough to write `bytes` in total, within bounds. A single launch would
/// include host overhead on a GPU, and the wake-up of cores on a CPU.
struct Sampling {
    bytes: usize,
    launches: std::ops::RangeInclusive<usize>,
}

impl Sampling {
    const GPU: Self = Self {
        bytes: 1 << 29,
        launches: 4..=16,
    };

    /// A few milliseconds, if memory is not the bottleneck.
    const CPU: Self = Self {
        bytes: 1 << 25,
        launches: 1..=64,
    };

    fn launches(&self, bytes: usize) -> usize {
        (self.bytes / bytes.max(1)).clamp(*self.launches.start(), *self.launches.end())
    }
}

/// Share of copy bandwidth at which the measurement stops: no candidate can be faster by more than
/// the rest. The copy has the same size, so a working set in a cache is compared with that cache.
const GOOD_ENOUGH: f32 = 0.97;

/// A pass to measure. It writes to its own buffers, since a caller's output may overlap its input.
#[derive(Clone)]
struct Pass {
    key: TuneKey,
    client: Client,
    /// Allocates `sets` sets of buffers; called only to measure.
    make: Make,
    sets: usize,
    /// Launches to measure; None if the cached result is enough.
    run: Option<Run>,
    /// Launches so far. They rotate through the sets of buffers.
    turn: Arc<AtomicUsize>,
    /// Launches per sample.
    launches: usize,
    /// Minimum memory traffic in bytes. None: the measurement does not stop early.
    least_bytes: Option<usize>,
}

type Make = Arc<dyn Fn(usize) -> Run + Send + Sync>;

/// Plans with these knobs and launches, one set of buffers for each of these turns.
type Run = Arc<dyn Fn(Knobs, Range<usize>) -> Result<(), LaunchError> + Send + Sync>;

impl Pass {
    /// Copy of the pass with buffers.
    fn to_measure(&self) -> Self {
        Self {
            run: Some((self.make)(self.sets)),
            ..self.clone()
        }
    }

    fn run(&self, knobs: Knobs) -> Result<(), String> {
        let Some(run) = &self.run else {
            return Ok(());
        };
        let turn = self.turn.fetch_add(self.launches, Ordering::Relaxed);
        run(knobs, turn..turn + self.launches).map_err(|error| error.to_string())
    }
}

/// Bytes of a tensor of this size. None if it is too small to measure, or too large to allocate
/// again.
fn measured_bytes(hardware: &Hardware, [rows, cols]: [usize; 2], dtype: DType) -> Option<usize> {
    let bytes = rows * cols * dtype.size();
    (rows * cols >= least_tuned(hardware) && bytes <= LARGEST).then_some(bytes)
}

/// Fastest knobs of a normalization, measured if they are not known yet. None if they are not known
/// and a graph is being captured.
pub(crate) fn tune_forward(
    client: &Client,
    hardware: &Hardware,
    desc: &NormDesc,
    problem: &NormProblem,
    tensors: &ForwardTensors,
    budget: Duration,
) -> Result<Option<Knobs>, LaunchError> {
    let Some(bytes) = measured_bytes(hardware, [problem.rows, problem.cols], problem.dtype) else {
        return Ok(Some(Knobs::default()));
    };
    let analytic = plan_forward(problem, hardware, StrategyChoice::Inferred)?;
    let key = Parts {
        pass: "forward",
        statistics: problem.statistics,
        activation: problem.activation.kind(),
        dtypes: vec![problem.dtype, problem.param_dtype, problem.provided_dtype],
        mixed: vec![problem.residual_dtype, problem.output_dtype],
        size: [problem.rows, problem.cols],
        team: analytic.blueprint.team,
        layout: layout(&analytic.blueprint),
        candidates: forward_candidates(problem, hardware)?,
    };
    let output = TensorDesc::new(problem.output_layout.clone(), problem.output_dtype);
    let whole = [Some(&desc.input), desc.residual.as_ref(), Some(&output)];
    let moved = bytes * (whole.iter().flatten().count() + usize::from(desc.writes_sum));
    let make = {
        let (client, hardware) = (client.clone(), hardware.clone());
        let (desc, problem, tensors) = (desc.clone(), problem.clone(), tensors.clone());
        move |sets| -> Run {
            let first = PlannedForward::new(&desc, problem.clone(), Some(analytic.clone()));
            let sets = forward_sets(&client, &first, &desc, &output, &tensors, sets);
            let (client, hardware) = (client.clone(), hardware.clone());
            let (desc, problem) = (desc.clone(), problem.clone());
            Arc::new(move |knobs, mut turns| {
                let plan = plan_forward(&problem, &hardware, knobs.into())?;
                let planned = PlannedForward::new(&desc, problem.clone(), Some(plan));
                turns.try_for_each(|turn| {
                    planned.launch(&client, &sets[turn % sets.len()]).map(drop)
                })
            })
        }
    };
    let sizes = [bytes, moved];
    Ok(tune(client, hardware, key.into(), sizes, budget, make))
}

/// [`tune_forward`] of a backward pass. All its launches share the knobs.
pub(crate) fn tune_backward(
    client: &Client,
    hardware: &Hardware,
    desc: &BackwardDesc,
    problem: &BackwardProblem,
    tensors: &BackwardTensors,
    budget: Duration,
) -> Result<Option<Knobs>, LaunchError> {
    let Some(bytes) = measured_bytes(hardware, [problem.rows, problem.cols], problem.dtype) else {
        return Ok(Some(Knobs::default()));
    };
    let analytic = plan_backward(problem, hardware, StrategyChoice::Inferred)?;
    let key = Parts {
        pass: "backward",
        statistics: problem.statistics,
        activation: problem.activation.kind(),
        dtypes: vec![problem.dtype, problem.param_dtype],
        mixed: [problem.output_dtype]
            .into_iter()
            .chain(problem.gate.as_ref().map(|gate| gate.dtype))
            .collect(),
        size: [problem.rows, problem.cols],
        team: analytic.blueprint.team,
        layout: backward_layout(&analytic.blueprint),
        candidates: backward_candidates(problem, hardware)?,
    };
    let optional = [
        desc.sum_gradient.as_ref(),
        desc.input_gradient.as_ref(),
        desc.gate(),
        desc.gate_gradient.as_ref(),
    ];
    let moved = bytes * (2 + optional.into_iter().flatten().count());
    let make = {
        let schedule = schedule_backward(desc, hardware, StrategyChoice::Inferred)?;
        let (client, hardware) = (client.clone(), hardware.clone());
        let (desc, tensors) = (desc.clone(), tensors.clone());
        move |sets| -> Run {
            let first = PlannedBackward::new(&desc, schedule.clone());
            let sets = backward_sets(&client, &first, &desc, &tensors, sets);
            let (client, hardware, desc) = (client.clone(), hardware.clone(), desc.clone());
            Arc::new(move |knobs, mut turns| {
                let schedule = schedule_backward(&desc, &hardware, knobs.into())?;
                let planned = PlannedBackward::new(&desc, schedule);
                turns.try_for_each(|turn| {
                    planned.launch(&client, &sets[turn % sets.len()]).map(drop)
                })
            })
        }
    };
    let sizes = [bytes, moved];
    Ok(tune(client, hardware, key.into(), sizes, budget, make))
}

/// Time that measurements of this process have taken.
static SPENT: Mutex<Duration> = Mutex::new(Duration::ZERO);

fn spent() -> MutexGuard<'static, Duration> {
    SPENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fastest knobs. Measured if they are neither known nor cached and the budget is not used up. None
/// if a graph is being captured: it records launches only, so a measurement would fail it.
/// `bytes` is the size of the largest tensor, `moved` the minimum memory traffic of a launch.
fn tune(
    client: &Client,
    hardware: &Hardware,
    key: TuneKey,
    [bytes, moved]: [usize; 2],
    budget: Duration,
    make: impl Fn(usize) -> Run + Send + Sync + 'static,
) -> Option<Knobs> {
    // A single candidate.
    if key.candidates.len() < 2 {
        return Some(Knobs::default());
    }
    let id = device_id(client);
    let (sampling, least_bytes) = match hardware.is_gpu() {
        true => (Sampling::GPU, Some(moved)),
        // A CPU has few candidates. Whether the copy's measurement saves more than it costs has not
        // been tested.
        false => (Sampling::CPU, None),
    };
    let all = knobs(hardware);
    let set = TUNER.init(&id, move || tunables(&all));
    let settled = || TUNER.fastest_identity(&id, &set, &key);
    let fastest = settled();
    // Reading a cached result takes next to no time.
    let measures = fastest.is_none() && !kept::is_kept(&id, &key, &set.compute_checksum());
    if measures && client.is_capturing() {
        return None;
    }
    let fastest = fastest.or_else(|| {
        if measures && *spent() >= budget {
            return None;
        }
        let start = Instant::now();
        let pass = Pass {
            key: key.clone(),
            client: client.clone(),
            make: Arc::new(make),
            sets: working_sets(hardware, moved),
            run: None,
            turn: Arc::default(),
            launches: sampling.launches(bytes),
            least_bytes,
        };
        TUNER.execute(&id, client, set.clone(), pass);
        *spent() += start.elapsed();
        settled()
    });
    Some(fastest.unwrap_or_default())
}

/// Plan with these knobs. The analytic plan if they are invalid for this problem: another problem
/// of the same key was measured.
pub(crate) fn measured(
    knobs: Knobs,
    plan: impl Fn(StrategyChoice) -> Result<Plan, PlanError>,
) -> Result<Plan, PlanError> {
    match plan(StrategyChoice::Forced(knobs)) {
        Ok(plan) if knobs != Knobs::default() => Ok(Plan {
            reason: "measured to be the fastest",
            ..plan
        }),
        _ => plan(StrategyChoice::Inferred),
    }
}

/// Device name for the cache: identity, compilation target, and version of these kernels. Another
/// version may make other plans from the same knobs.
fn device_id(client: &Client) -> String {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let processors = hardware
        .num_cpu_cores
        .or(hardware.num_streaming_multiprocessors);
    format!(
        "{}-{}-{}-{}-{}",
        env!("CARGO_PKG_VERSION"),
        client.name(),
        properties.identity.name,
        properties.identity.fingerprint,
        processors.unwrap_or(0)
    )
}

/// One candidate for each of the device's knobs. A key ranks its candidates by estimate.
fn tunables(knobs: &[Knobs]) -> TunableSet<TuneKey, Pass, (), Knobs> {
    let group = TuneGroup::ordered("candidates", |_: &TuneKey| 0, OrderedSettings::default());
    let key = |pass: &Pass| pass.key.clone();
    let empty = TunableSet::new(key, |_: &TuneKey, pass: &Pass| pass.to_measure())
        .with_bounds(Arc::new(|_: &TuneKey, pass: &Pass| bounds(pass)));
    knobs
        .iter()
        .copied()
        .enumerate()
        .fold(empty, |set, (place, knobs)| {
            let tunable = Tunable::identified(knobs, move |pass: Pass| pass.run(knobs));
            set.with(tunable.group(&group, move |key: &TuneKey| {
                let rank = key.candidates.iter().position(|&named| named == place);
                rank.map_or(-1, |rank| (i8::MAX as usize).saturating_sub(rank) as i8)
            }))
        })
}

/// Time at which CubeCL stops measuring.
fn bounds(pass: &Pass) -> Bounds {
    let bound = pass.least_bytes.map(|bytes| {
        let work = Work {
            compute_ops: 0,
            bytes,
        };
        let mut bound = memory_bound(&pass.client, MemoryAccess::Copy, work, GOOD_ENOUGH);
        // The copy has the size of one launch, the bound is the time of all of them.
        bound.resource.amount *= pass.launches;
        bound
    });
    Bounds {
        bounds: bound.into_iter().collect(),
        launch_overhead: Duration::ZERO,
    }
}
