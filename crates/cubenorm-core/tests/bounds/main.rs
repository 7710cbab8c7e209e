//! Every plan stays inside its buffers and within the limits of its device.
//!
//! Random descriptions, layouts, knobs and devices are planned. What the kernels then address is enumerated by
//! [`simulate`], which repeats their arithmetic step by step and shares no formula with the planner.

mod devices;
mod faults;
mod problems;
mod record;
mod simulate;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use cubenorm_core::{
    BackwardDesc, BackwardError, Footprint, Hardware, NormDesc, PlanError, StrategyChoice,
    plan_forward, problem_on, schedule_backward,
};

use devices::device;
use problems::{Numbers, backward, forward, knobs};

/// Random problems of a run: half of them are also planned backward.
const PROBLEMS: u64 = 200_000;

/// The first seed: that of the build server, or one that differs from run to run.
fn first_seed() -> u64 {
    let given = env::var("PROPTEST_RNG_SEED").ok();
    let given = given.and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |it| it.as_nanos() as u64)
    })
}

fn problems() -> u64 {
    let given = env::var("CUBENORM_BOUNDS_PROBLEMS").ok();
    given
        .and_then(|count| count.parse().ok())
        .unwrap_or(PROBLEMS)
}

#[test]
fn every_plan_stays_in_bounds() {
    let (first, count) = (first_seed(), problems());
    let threads = thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let checked: Vec<Checked> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let mine = (worker..count).step_by(threads as usize);
                scope.spawn(move || {
                    let checked = mine.map(|i| check(first.wrapping_add(i)));
                    checked.collect::<Vec<_>>()
                })
            })
            .collect();
        let combined = workers.into_iter().map(thread::ScopedJoinHandle::join);
        combined
            .flat_map(|it| it.expect("a check catches panics"))
            .collect()
    });
    let faults: Vec<&String> = checked.iter().filter_map(|it| it.as_ref().err()).collect();
    let some = faults.iter().take(5).map(|fault| fault.as_str());
    let some: Vec<&str> = some.collect();
    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        some.join("\n\n")
    );
    let planned = checked.iter().filter(|it| matches!(it, Ok(true))).count();
    // Most of what is random has a plan; the rest is refused with an error.
    assert!(
        planned as u64 * 2 > count,
        "{planned} of {count} had a plan"
    );
}

/// True if a problem has a plan; what is wrong with it if something is.
type Checked = Result<bool, String>;

/// Checks the problem of a seed forward and, for each other seed, backward.
fn check(seed: u64) -> Checked {
    let both = || {
        let forward = forward_of(seed)?;
        let backward = seed % 2 == 1 && backward_of(seed)?;
        Ok(forward || backward)
    };
    let checked = catch_unwind(AssertUnwindSafe(both));
    let checked = checked.unwrap_or_else(|_| Err("the planner panicked".into()));
    checked.map_err(|error: String| format!("seed {seed}: {error}"))
}

fn forward_of(seed: u64) -> Checked {
    let mut numbers = Numbers::new(seed);
    let hardware = device(&mut numbers);
    let choice = knobs(&mut numbers, &hardware);
    let desc = forward(&mut numbers);
    let at = || format!("{desc:?}\n{choice:?}\n{hardware:?}");
    let Ok(problem) = problem_on(&desc, &hardware, choice) else {
        return Ok(false);
    };
    let plan = match plan_forward(&problem, &hardware, choice) {
        Ok(plan) => plan,
        Err(error) => {
            return refused(&error, &hardware, choice, &desc).map_err(|e| format!("{e}\n{}", at()));
        }
    };
    let check = || -> Result<(), String> {
        within_limits(&plan.footprint(&problem), &hardware)?;
        simulate::forward(&desc, &problem, &plan)
    };
    check().map_err(|error| format!("{error}\n{plan}\n{plan:?}\n{}", at()))?;
    Ok(true)
}

fn backward_of(seed: u64) -> Checked {
    let mut numbers = Numbers::new(seed);
    let hardware = device(&mut numbers);
    let choice = knobs(&mut numbers, &hardware);
    let desc = backward(&mut numbers);
    let at = || format!("{desc:?}\n{choice:?}\n{hardware:?}");
    let schedule = match schedule_backward(&desc, &hardware, choice) {
        Ok(schedule) => schedule,
        Err(BackwardError::Description(_)) => return Ok(false),
        Err(BackwardError::Plan(error)) => {
            let checked = refused(&error, &hardware, choice, &desc.norm);
            return checked.map_err(|error| format!("{error}\n{}", at()));
        }
    };
    let check = || -> Result<(), String> {
        let wants = desc.input_gradient.is_some() || !wanted_params(&desc).is_empty();
        if wants && schedule.launches.is_empty() {
            return Err("nothing is launched".into());
        }
        within_limits(&schedule.footprint(), &hardware)?;
        simulate::backward(&desc, &schedule)
    };
    check().map_err(|error| format!("{error}\n{schedule:?}\n{}", at()))?;
    Ok(true)
}

/// Names of the parameters whose gradients are wanted.
fn wanted_params(desc: &BackwardDesc) -> Vec<&'static str> {
    let scale = desc.norm.scale.as_ref().filter(|_| desc.wants_scale);
    let bias = desc.norm.bias.as_ref().filter(|_| desc.wants_bias);
    let named = [scale.map(|_| "scale"), bias.map(|_| "bias")];
    named.into_iter().flatten().collect()
}

/// An inferred plan is refused only if there is nothing to plan, or too little room for bindings.
fn refused(
    error: &PlanError,
    hardware: &Hardware,
    choice: StrategyChoice,
    desc: &NormDesc,
) -> Checked {
    let is_open = choice.knobs().strategy.is_none();
    match error {
        PlanError::Units { .. } | PlanError::SharedMemory { .. } => {
            Err(format!("a plan is beyond its device: {error}"))
        }
        PlanError::Strategy { .. } if is_open && !hardware.is_cpu_vulkan() => {
            Err(format!("an inferred plan is refused: {error}"))
        }
        PlanError::Empty if !desc.input.shape().contains(&0) => {
            Err("a tensor with elements is called empty".into())
        }
        _ => Ok(false),
    }
}

/// Asserts that no launch takes more than the device has.
fn within_limits(launches: &[Footprint], hardware: &Hardware) -> Result<(), String> {
    for launch in launches {
        let Footprint {
            kernel,
            cube_dim,
            cube_count,
            shared_memory,
            bindings,
            ..
        } = launch;
        let units: u64 = cube_dim.iter().map(|&it| u64::from(it)).product();
        let limit = |what: &str, is: u64, most: u64| match is > most {
            true => Err(format!("{kernel:?}: {is} {what}, the device has {most}")),
            false => Ok(()),
        };
        limit("units", units, hardware.max_units_per_cube.into())?;
        for (dim, most) in cube_dim.iter().zip(hardware.max_cube_dim) {
            limit("units of a dimension", (*dim).into(), most.into())?;
        }
        if units == 0 || cube_count.contains(&0) {
            return Err(format!(
                "{kernel:?} has no units: {cube_dim:?}, {cube_count:?}"
            ));
        }
        limit("cubes", cube_count[0].into(), hardware.max_cubes.into())?;
        limit("bindings", (*bindings).into(), hardware.max_bindings.into())?;
        // What a CPU calls shared memory is the size of a cache, which limits nothing.
        if hardware.cpu_cores.is_none() {
            let most = hardware.max_shared_memory as u64;
            limit(
                "bytes of shared memory",
                shared_memory.needed(hardware) as u64,
                most,
            )?;
        }
    }
    Ok(())
}
